#!/usr/bin/env bash
# Runs every fuzz target for some seconds (60 unless told): scripts/fuzz.sh [SECONDS] [TARGET...]
#
# Needs nightly and cargo-fuzz. What a target finds is kept in fuzz/artifacts/TARGET; the command
# that replays it is printed by libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
[ $# -eq 0 ] || shift

[ -f fuzz/Cargo.toml ] || { echo "fuzz: no fuzz/Cargo.toml: there are no fuzz targets" >&2; exit 1; }
cargo +nightly fuzz --version >/dev/null 2>&1 || {
    echo "fuzz: needs nightly and cargo-fuzz:" >&2
    echo "    rustup toolchain install nightly --profile minimal" >&2
    echo "    cargo install --locked cargo-fuzz" >&2
    exit 1
}

if [ $# -gt 0 ]; then
    targets=("$@")
else
    mapfile -t targets < <(basename --suffix=.rs fuzz/fuzz_targets/*.rs)
fi
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no targets" >&2; exit 1; }

# All of them, though one fails: one run shows everything that was found.
status=0
for target in "${targets[@]}"; do
    echo "fuzz: $target for $seconds s"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" || status=1
done
exit "$status"
