#!/usr/bin/env bash
# The unit tests of every crate with unsafe code, under Miri.
#
# Miri comes with nightly only. Where that cannot be installed this says so and skips (status 0):
# the ordinary build needs no nightly. MIRI_PACKAGES names other packages.
#
# Tests that Miri cannot run (system calls of devices) carry `#[cfg_attr(miri, ignore = "...")]`.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { echo "miri: skipped: $*" >&2; exit 0; }

command -v rustup >/dev/null || skip "no rustup, which installs nightly and Miri"
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal --component miri --component rust-src \
        || skip "nightly with the components miri and rust-src cannot be installed"
fi

# Files are created in temporary directories and clocks read: allowed, since no test depends on them.
# Miri fails four of five weak exchanges by default. The depot links its chunks again for each attempt, so that most of
# the time would pass there; one failure in ten takes the same path.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation -Zmiri-compare-exchange-weak-failure-rate=0.1}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"

if [ -n "${MIRI_PACKAGES:-}" ]; then
    read -ra packages <<<"$MIRI_PACKAGES"
else
    # The unsafe code of the commands is system calls, which Miri does not have; nor can their tests start programs
    # there.
    mapfile -t packages < <(
        scripts/packages-with.sh '#!\[allow\(unsafe_code\)\]' \
            | grep --invert-match --line-regexp --extended-regexp 'cli|attack|daemon|service'
    )
fi
[ ${#packages[@]} -gt 0 ] || skip "no crate has unsafe code"
failed=()
for package in "${packages[@]}"; do
    echo "miri: $package"
    began=$SECONDS
    cargo +nightly miri test --package "$package" --lib || failed+=("$package")
    echo "miri: $package took $((SECONDS - began)) s"
done
[ ${#failed[@]} -eq 0 ] || { echo "miri: failed: ${failed[*]}" >&2; exit 1; }
