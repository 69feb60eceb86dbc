#!/usr/bin/env bash
# Counts the server's instructions per request with callgrind (see lab/bench). Arguments go to
# `instructions`: --gate for the one case that has a limit, --profile for where they are spent.
#
# Prints a table, writes target/bench/instructions.json and the profiles beside it. The exit status is
# not 0 where the 64-byte echo at B = 64 is over its limit.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || {
    echo "bench-instructions: no valgrind here: apt-get install valgrind" >&2
    exit 2
}
# What is shipped, with the lines that attribute it to crates; only `cost` is observed. INSTRUCTIONS names an
# `instructions` that is built already, which saves linking another one.
bins=(--bin cost)
[ -n "${INSTRUCTIONS:-}" ] || bins+=(--bin instructions)
cargo build --profile profiling --quiet --package bench "${bins[@]}"
built=${CARGO_TARGET_DIR:-target}/profiling
"${INSTRUCTIONS:-$built/instructions}" --cost "$built/cost" "$@"
