#!/usr/bin/env bash
# Formatting, clippy, and a check for ARM64, each to the end, so that one run shows everything that is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
cargo fmt --all --check || { echo "lint: not formatted: run 'cargo fmt --all'" >&2; status=1; }
cargo clippy --workspace --all-targets --quiet -- -D warnings \
    || { echo "lint: clippy has complaints" >&2; status=1; }

# ARM64 reorders more than x86-64: the code that orders memory for itself must at least build there. A check links
# nothing, so no cross compiler is needed; where the target cannot be had, this says so and goes on.
arm=aarch64-unknown-linux-gnu
if rustup target add "$arm" >/dev/null 2>&1; then
    cargo check --workspace --target "$arm" --quiet \
        || { echo "lint: does not build for $arm" >&2; status=1; }
else
    echo "lint: skipped the check for $arm: rustup cannot add that target here" >&2
fi
exit "$status"
