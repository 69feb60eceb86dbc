#!/usr/bin/env bash
# Lint, the specification's model checker where it is to be had, and all tests of the workspace. The
# last line is "N passed, N failed": the sum over all test binaries; before it stand the tests that
# were skipped, with their reasons. Of the tests only what failed is printed.
#
#   scripts/test.sh                    all
#   scripts/test.sh --room core        the crates of one folder, without lint and specification
#   scripts/test.sh --package wire     any arguments of `cargo test`, as above
#
# The exit status is 0 only where lint, specification and tests are clean. A lint failure, a
# specification that does not hold, a build failure and a test binary that died without reporting
# each count as one failure. Where the tests do not build, neither lint nor specification is looked at.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

log=$(mktemp) || exit 1
export log
trap 'rm -f "$log" "$log.beside" "$log.serving"' EXIT

extra_failures=0
if [ "${1:-}" = --room ]; then
    manifests=("${2:?which room?}"/*/Cargo.toml)
    [ -e "${manifests[0]}" ] || manifests=("$2/Cargo.toml")
    [ -e "${manifests[0]}" ] || { echo "test: no room '$2': found no crate in it" >&2; exit 2; }
    packages=()
    for manifest in "${manifests[@]}"; do
        packages+=(--package "$(sed -n 's/^name = "\(.*\)"$/\1/p' "$manifest" | head -n 1)")
    done
    set -- "${packages[@]}"
elif [ $# -eq 0 ]; then
    set -- --workspace
fi

# What is built, which binary runs and how it ended; the rest is in the log.
export progress='^ +(Compiling|Running|Doc-tests) |^test .* FAILED$|^test result: |^(error|warning)'
run() {
    local show=(-- --show-output)
    case " $* " in *" -- "*) show=(--show-output) ;; *" --no-run "*) show=() ;; esac
    cargo test --no-fail-fast "$@" "${show[@]}" 2>&1 </dev/null | tee -a "$log" | grep --line-buffered -E "$progress"
    return "${PIPESTATUS[0]}"
}
export began=$(date +%s)
lap() { echo "test: after $(($(date +%s) - began)) s: $1"; }

# These measure how little an attack disturbs others, and have the machine to themselves. Tests are named rather than
# packages: without one of the packages, others are built with other features, and once more.
measuring=(suite hostile_kv measured)
# Those of the first kind serve clients in labs, those of the second wait for processes, in other places: both at once.
serving=(e2e)
waiting=(control daemon endpoint linux load sdp_bench tunnel)
# Most tests wait: for threads, sockets, processes. Those of these crates (but `two_cores`, on real threads) and the examples
# in the documentation compute alone, and do so in the time that the others leave: class idle delays no other. They are a
# session of their own, since the kernel shares a processor between sessions first (autogroup): a service that a test starts
# is one too, beside which class idle alone is worth as much.
computing=(core/stack core/wire lab/bench lab/queueing lab/world)
beside() {
    echo 19 2>/dev/null >"/proc/$$/autogroup"
    chrt --idle --pid 0 $$ >/dev/null || renice -n 19 $$ >/dev/null
    local status=0
    run --workspace "$@" || status=1
    lap "the tests that compute"
    run --workspace --doc || status=1
    lap "the examples in the documentation"
    return "$status"
}
export -f lap run beside

if [ "$*" = --workspace ]; then
    run --workspace --no-run
    cargo_status=$?
    lap "the build"
    declare -A kinds=() tests=()
    for test in */*/tests/*.rs */*/tests/*/main.rs cli/tests/*.rs cli/tests/*/main.rs; do
        name=${test##*/tests/} name=${name%/main.rs} name=${name%.rs}
        kind=others
        [[ " ${computing[*]} " != *" ${test%%/tests/*} "* ]] || kind=computing
        [ "$name" != two_cores ] || kind=others
        for each in measuring serving waiting; do
            declare -n names=$each
            [[ " ${names[*]} " != *" $name "* ]] || kind=$each
        done
        if [ "${kinds[$name]:-$kind}" != "$kind" ]; then
            echo "test: two tests are named $name, of different kinds: rename $test" >&2
            exit 2
        fi
        [ -n "${kinds[$name]:-}" ] || tests[$kind]+=" --test $name"
        kinds[$name]=$kind
    done
    if [ "$cargo_status" -eq 0 ]; then
        sessions=()
        # An interrupt ends them with this script.
        trap 'for session in "${sessions[@]}"; do kill -TERM -- "-$session"; done; exit 130' INT TERM
        run --workspace ${tests[measuring]} || cargo_status=1
        lap "the tests that measure"
        log=$log.beside setsid bash -c 'beside "$@"' beside ${tests[computing]} &
        sessions+=($!)
        log=$log.serving setsid bash -c 'run "$@"' run --workspace ${tests[serving]} &
        sessions+=($!)
        run --workspace ${tests[waiting]} || cargo_status=1
        wait "${sessions[1]}" || cargo_status=1
        lap "the tests that serve or wait"
        run --workspace --lib --bins ${tests[others]} || cargo_status=1
        lap "the others"
        # What computes is not done yet, and leaves a processor idle now and then: one test links a release.
        for check in scripts/lint.sh "spec/qwait/check.sh small"; do
            $check || extra_failures=$((extra_failures + 1))
            lap "$check"
        done
        wait "${sessions[0]}" || cargo_status=1
        cat "$log.beside" "$log.serving" >>"$log"
    fi
else
    run "$@"
    cargo_status=$?
fi

# "test result: ok. 12 passed; 0 failed; ..." once per test binary. A test that prints without a
# final newline may stand before it on the line.
read -r passed failed < <(
    sed -nE 's/.*test result: [A-Za-z]+\. ([0-9]+) passed; ([0-9]+) failed;.*/\1 \2/p' "$log" |
        awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }'
)

# A test binary that died has no result.
begun=$(grep -cE '^ +(Running|Doc-tests) ' "$log")
ended=$(grep -cE 'test result: [A-Za-z]+\. ' "$log")
if [ "$begun" -gt "$ended" ]; then
    echo "test: $((begun - ended)) of $begun test binaries ended without a result" >&2
    extra_failures=$((extra_failures + begun - ended))
fi
if [ "$cargo_status" -ne 0 ] && [ "$failed" -eq 0 ] && [ "$begun" -le "$ended" ]; then
    echo "test: cargo test ended with status $cargo_status, though no test reported a failure:" \
        "it did not build, or a test binary died; the end of what it said:" >&2
    tail -n 60 "$log" >&2
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

# Tests that could not run here say "skipped: REASON" and count as passed; ignored ones have their reason in the code.
skipped=$(grep -cE '^skipped: ' "$log")
if [ "$skipped" -gt 0 ]; then
    echo
    echo "$skipped skipped, and counted as passed:"
    sed -nE 's/^skipped: //p' "$log" | cut -c1-200 | sort | uniq -c
fi

failed=$((failed + extra_failures))
echo
echo "$passed passed, $failed failed"
[ "$cargo_status" -eq 0 ] && [ "$failed" -eq 0 ]
