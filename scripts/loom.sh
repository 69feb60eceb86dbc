#!/usr/bin/env bash
# Model checking with loom: every crate that has `cfg(loom)` in its sources.
#
# Only tests with "loom" in their path are run: under this configuration the other ones would use
# loom's types outside a model. LOOM_MAX_PREEMPTIONS bounds the search (3 finds what is to be found
# in practice, and ends). LOOM_PACKAGES names packages in place of all.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}"
# Other flags, other artefacts: keep them from evicting those of the ordinary build.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
# Optimised, but not linked as for a release: that takes minutes and saves seconds here.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

if [ -n "${LOOM_PACKAGES:-}" ]; then
    read -ra packages <<<"$LOOM_PACKAGES"
else
    mapfile -t packages < <(scripts/packages-with.sh 'cfg\((all\(|any\()?.*loom')
fi
if [ ${#packages[@]} -eq 0 ]; then
    echo "loom: no crate has cfg(loom) in its sources" >&2
    exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for package in "${packages[@]}"; do
    echo "loom: $package"
    cargo test --release --package "$package" --lib --tests loom 2>&1 | tee "$log"
    # A model whose test was renamed would otherwise pass unseen.
    grep -qE 'test result: ok\. [1-9][0-9]* passed' "$log" || {
        echo "loom: $package has cfg(loom), but no test with loom in its path was run" >&2
        exit 1
    }
done
