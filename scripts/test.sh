#!/usr/bin/env bash
# Lint, the specification's model checker where it is to be had, and all tests of the workspace. The
# last line is "N passed, N failed": the sum over all test binaries. Arguments go to `cargo test`
# (scripts/test.sh --package wire), which then runs without lint and specification.
#
# The exit status is 0 only where lint, specification and tests are clean. A lint failure, a
# specification that does not hold, a build failure and a test binary that died without reporting
# each count as one failure.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

extra_failures=0
if [ $# -eq 0 ]; then
    scripts/lint.sh || extra_failures=1
    spec/qwait/check.sh small || extra_failures=$((extra_failures + 1))
    set -- --workspace
fi

cargo test --no-fail-fast "$@" 2>&1 </dev/null | tee "$log"
cargo_status=${PIPESTATUS[0]}

# "test result: ok. 12 passed; 0 failed; ..." once per test binary. A test that prints without a
# final newline may stand before it on the line.
read -r passed failed < <(
    sed -nE 's/.*test result: [A-Za-z]+\. ([0-9]+) passed; ([0-9]+) failed;.*/\1 \2/p' "$log" |
        awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }'
)

if [ "$cargo_status" -ne 0 ] && [ "$failed" -eq 0 ]; then
    echo "test: cargo test ended with status $cargo_status, though no test reported a failure:" \
        "it did not build, or a test binary died" >&2
    extra_failures=$((extra_failures + 1))
fi
if [ "$cargo_status" -eq 0 ] && [ "$passed" -eq 0 ]; then
    echo "test: no test ran at all" >&2
    extra_failures=$((extra_failures + 1))
fi

# What failed, once more where a reader of the end alone sees it: each failed test's own output, as
# cargo printed it under "failures:", without the lists of names that follow it.
if [ "$failed" -gt 0 ]; then
    echo
    echo "What failed, with the output of each:"
    sed -nE '/^failures:$/,/^test result:/p' "$log" | cut -c1-400 |
        awk '/^---- .* stdout ----$/ { lines = 0; show = 1 }
             /^failures:$/ || /^test result:/ { show = 0 }
             show && lines++ < 40'
fi

failed=$((failed + extra_failures))
echo
echo "$passed passed, $failed failed"
[ "$cargo_status" -eq 0 ] && [ "$failed" -eq 0 ]
