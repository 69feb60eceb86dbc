#!/usr/bin/env bash
# The checks that take too long for each change: fuzzing, Miri, loom, seeds of the simulator, the access policy, the
# attacks, the dependencies, the BPF objects.
#
#   scripts/nightly.sh [PART...]      all parts, or those named: fuzz miri loom seeds policy attacks dependencies
#                                     advisories bpf
#
# FUZZ_SECONDS (60) is for each fuzz target, TAILPLANE_SIM_SEEDS (10,000) for each scheduler, POLICY_CASES (1,000,000)
# for part policy, PART_LIMIT_S (14,400) for each part; MIRI_PACKAGES and LOOM_PACKAGES name packages in place of all. A
# part that fails does not end the run. The table at the end also goes to docs/results/nightly.md, where a part that was
# not run keeps its row, with the date and the commit of its own last run; logs go to target/nightly/. The exit status is not 0 where a part failed. A part whose tool cannot be had is "not checked", with
# the reason, and never counts as passed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

export FUZZ_SECONDS="${FUZZ_SECONDS:-60}"
export TAILPLANE_SIM_SEEDS="${TAILPLANE_SIM_SEEDS:-10000}"
PART_LIMIT_S="${PART_LIMIT_S:-14400}"
logs=target/nightly
report=docs/results/nightly.md
parts=("$@")
all_parts=(fuzz miri loom seeds policy attacks dependencies advisories bpf)
[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")
mkdir -p "$logs" "$(dirname "$report")"

# A part's status where it could not be checked; the last line of its log says why.
NOT_CHECKED=3
not_checked() { echo "not checked: $*"; exit "$NOT_CHECKED"; }

# Installs a cargo command that is missing.
tool() {
    cargo "${1#cargo-}" --version >/dev/null 2>&1 && return
    cargo install --locked "$1" || not_checked "$1 is not installed, and 'cargo install $1' failed"
}

fuzz_part() {
    cargo +nightly --version >/dev/null 2>&1 \
        || rustup toolchain install nightly --profile minimal \
        || not_checked "no nightly compiler"
    tool cargo-fuzz
    scripts/fuzz.sh "$FUZZ_SECONDS"
}

miri_part() {
    local out
    # Status 0 with this line: Miri cannot be installed here.
    out=$(mktemp) || exit 1
    scripts/miri.sh 2>&1 | tee "$out" || { rm -f "$out"; exit 1; }
    reason=$(sed -n 's/^miri: skipped: //p' "$out" | tail -n 1)
    rm -f "$out"
    [ -z "$reason" ] || not_checked "$reason"
}

loom_part() { scripts/loom.sh; }

# Order and events where every queue of turns is full, under each scheduler that shares work. With the assertions of a
# debug build: they find a turn that is due twice, which seldom comes to two turns at once.
seeds_part() {
    CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo test --release --package world --test seeds order_is_kept -- --nocapture
}

# An application's calls in any order against a model of the access policy, in all modes.
policy_part() {
    PROPTEST_CASES="${POLICY_CASES:-1000000}" cargo test --release --quiet --package process --test policy
}

# Every hostile application against an unconfined dataplane, and against services that root runs under each scheduler.
attacks_part() {
    [ "$(id -u)" -eq 0 ] || not_checked "needs root"
    cargo build --release --package attack
    "${CARGO_TARGET_DIR:-target}/release/tailplane-attack" suite --seconds 1
    "${CARGO_TARGET_DIR:-target}/release/tailplane-attack" services --scheduler each --seconds 1
    "${CARGO_TARGET_DIR:-target}/release/tailplane-attack" tcp
}

dependencies_part() {
    tool cargo-deny
    cargo deny check bans licenses sources
}

advisories_part() {
    tool cargo-deny
    cargo deny fetch db || not_checked "the database of advisories cannot be fetched"
    cargo deny check --disable-fetch advisories
}

bpf_part() {
    scripts/setup.sh bpf || not_checked "clang and libbpf cannot be installed"
    scripts/bpf.sh
}

# What a part was run with.
with() {
    case "$1" in
        fuzz) echo "$FUZZ_SECONDS s a target" ;;
        miri) echo "${MIRI_PACKAGES:-all packages with unsafe code}" ;;
        loom) echo "${LOOM_PACKAGES:-all packages with models}" ;;
        seeds) echo "$TAILPLANE_SIM_SEEDS for each of two schedulers" ;;
        policy) echo "${POLICY_CASES:-1000000} cases" ;;
        attacks) echo "1 s an attack" ;;
        *) echo "" ;;
    esac
}

commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain --untracked-files=no 2>/dev/null | grep -v " $report\$")" ] || commit="$commit with changes"
status=0
declare -A rows
while IFS= read -r row; do
    part=${row#| }
    rows[${part%% *}]=$row
done < <(grep -E '^\| [a-z]+ \|' "$report" 2>/dev/null)
for part in "${parts[@]}"; do
    case "$part" in
        fuzz | miri | loom | seeds | policy | attacks | dependencies | advisories | bpf) ;;
        *) echo "nightly: no part '$part': ${all_parts[*]}" >&2; exit 2 ;;
    esac
done
for part in "${parts[@]}"; do
    log=$logs/$part.log
    echo "nightly: $part (log: $log)"
    began=$SECONDS
    export NOT_CHECKED
    export -f not_checked tool "${part}_part"
    timeout "$PART_LIMIT_S" bash -c "set -euo pipefail; ${part}_part" >"$log" 2>&1 </dev/null
    ended=$?
    took=$((SECONDS - began))
    case "$ended" in
        0) result=passed ;;
        "$NOT_CHECKED") result=$(tail -n 1 "$log") ;;
        124) result="failed: took longer than $PART_LIMIT_S s" status=1 ;;
        *) result="failed with status $ended" status=1 ;;
    esac
    case "$result" in failed*) tail -n 30 "$log" ;; esac
    rows[$part]="| $part | $result | $took | $(with "$part") | $(date --utc +%Y-%m-%d) | $commit |"
done

{
    echo "# Nightly checks"
    echo
    echo "Written by \`make nightly\`: the last run of each part. A commit \"with changes\" had some that are in none."
    echo
    echo "| Part | Result | Seconds | With | Date | Commit |"
    echo "| --- | --- | ---: | --- | --- | --- |"
    for part in "${all_parts[@]}"; do
        echo "${rows[$part]:-| $part | not run | | | | |}"
    done
} >"$report"
echo
cat "$report"
exit "$status"
