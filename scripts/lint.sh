#!/usr/bin/env bash
# Formatting and clippy, both to the end, so that one run shows everything that is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
cargo fmt --all --check || { echo "lint: not formatted: run 'cargo fmt --all'" >&2; status=1; }
cargo clippy --workspace --all-targets --quiet -- -D warnings \
    || { echo "lint: clippy has complaints" >&2; status=1; }
exit "$status"
