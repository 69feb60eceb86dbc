#!/usr/bin/env bash
# Runs TLC on the specification, where it is: TLA2TOOLS names tla2tools.jar. TLC is in no package
# registry that the build uses, so the same actions are checked over all states by
# `cargo test -p tailplane-qwait --test spec` as well, which needs nothing; this is for those who
# have TLC.
set -euo pipefail
cd "$(dirname "$0")"

if [ -z "${TLA2TOOLS:-}" ] || ! command -v java >/dev/null; then
    echo "spec/qwait: skipped: set TLA2TOOLS to the path of tla2tools.jar, and have java" >&2
    exit 0
fi
for form in Exclusive Direct Shared; do
    echo "spec/qwait: $form"
    java -XX:+UseParallelGC -cp "$TLA2TOOLS" tlc2.TLC -workers auto -config "$form.cfg" ReadySet.tla
done
