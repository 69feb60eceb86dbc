#!/usr/bin/env bash
# Rebuilds every bpf/*.c and compares the object with the committed bpf/*.o.
#
#   scripts/bpf.sh            compare; status 1 where they differ
#   scripts/bpf.sh --write    replace the committed objects
#
# The object is committed so that a build needs no clang. It is the same on every machine with the
# same clang: paths are mapped away, and debug sections (except BTF) stripped. Another clang may
# well produce another object; its version is printed for that reason.
set -euo pipefail
cd "$(dirname "$0")/.."

write=no
case "${1:-}" in
    --write) write=yes ;;
    "") ;;
    *) echo "bpf: no option '$1'" >&2; exit 2 ;;
esac

out=$(mktemp --directory)
trap 'rm -rf "$out"' EXIT
clang --version | sed -n '1s/^/bpf: /p'
# clang for the bpf target does not look where Debian keeps the machine's headers (asm/types.h).
multiarch=/usr/include/$(uname -m)-linux-gnu

status=0
found=no
shopt -s nullglob
for source in bpf/*.c; do
    found=yes
    committed=${source%.c}.o
    built=$out/$(basename "$committed")
    clang -g -O2 -Wall -Werror -target bpf -ffile-prefix-map="$PWD=." -idirafter "$multiarch" \
        -c "$source" -o "$built"
    llvm-strip -g "$built"
    if [ "$write" = yes ]; then
        cp "$built" "$committed"
    fi
    new=$(sha256sum "$built" | cut -d' ' -f1)
    old=$(if [ -f "$committed" ]; then sha256sum "$committed" | cut -d' ' -f1; else echo absent; fi)
    if [ "$new" = "$old" ]; then
        echo "bpf: $committed is what $source builds to ($new)"
    else
        echo "bpf: $committed is not what $source builds to: committed $old, built $new" >&2
        status=1
    fi
done
if [ "$found" = no ]; then
    echo "bpf: no bpf/*.c found" >&2
    status=1
fi
exit "$status"
