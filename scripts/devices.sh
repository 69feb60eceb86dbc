#!/usr/bin/env bash
# Runs tailplane on the drivers of real NICs, in machines that QEMU emulates: lab/devices/README.md.
#
#   scripts/devices.sh                          all boots, all checks
#   scripts/devices.sh --boot igb --short       the boots whose names begin with igb, with less traffic
#   scripts/devices.sh --into FILE              the table as Markdown, too
#
# Options are those of `tailplane-devices run`. The programs that are tried are built as `cargo build` does it.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh devices
# One after the other: together they would build what they share with other features, and anew.
cargo build --package cli
cargo build --package figures
cargo build --package daemon
cargo build --package devices
# Tap devices need root, in a network namespace of their own.
exec scripts/as-root.sh "${CARGO_TARGET_DIR:-target}/debug/tailplane-devices" run "$@"
