#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing, and nothing else.
#
#   scripts/setup.sh build            what `cargo build` needs
#   scripts/setup.sh bpf              what rebuilding the BPF objects needs
#   scripts/setup.sh test             what the tests use (includes build)
#   scripts/setup.sh demo             what `make demo` uses (includes build)
#   scripts/setup.sh devices          what `make test-devices` puts into its machines (includes build); never QEMU itself
#
# Several tiers at once are fine. Where everything is there, this does not touch apt at all.
set -euo pipefail

build=(gcc libc6-dev make)
bpf=(clang llvm libbpf-dev)
tests=("${build[@]}" iproute2 ethtool tcpdump memcached netcat-openbsd iputils-ping python3
    openssl tshark libisal-dev)
demo=("${build[@]}" iproute2 memcached)
devices=("${build[@]}" apt binutils dash dpkg ethtool iproute2 iputils-ping libc-bin mount netcat-openbsd procps
    util-linux xz-utils)
# Used where they are; a distribution release without them is no reason to stop.
bpf_optional=(bpftool)
tests_optional=(libmemcached-tools python3-pymemcache valgrind sockperf default-jre-headless maven)

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

required=()
optional=()
[ $# -gt 0 ] || die "say what for: build, bpf, test, demo or devices"
for tier in "$@"; do
    case "$tier" in
        build) required+=("${build[@]}") ;;
        bpf) required+=("${bpf[@]}") optional+=("${bpf_optional[@]}") ;;
        test) required+=("${tests[@]}") optional+=("${tests_optional[@]}") ;;
        demo) required+=("${demo[@]}") ;;
        devices) required+=("${devices[@]}") ;;
        *) die "no tier '$tier': build, bpf, test, demo or devices" ;;
    esac
done

# rustup's default place is not in the PATH of a non-login shell.
PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
if ! command -v cargo >/dev/null; then
    die "no cargo found. Install Rust with rustup (https://rustup.rs):
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal
  then open a new shell."
fi

command -v dpkg-query >/dev/null || {
    say "no dpkg here: install by your own means what is missing of: ${required[*]}"
    exit 0
}

installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing_of() {
    local package
    for package in "$@"; do
        installed "$package" || echo "$package"
    done | sort -u
}

mapfile -t missing < <(missing_of "${required[@]}")
mapfile -t wished < <(missing_of ${optional[@]+"${optional[@]}"})
[ ${#missing[@]} -gt 0 ] || [ ${#wished[@]} -gt 0 ] || exit 0

# Nothing may ask a question: there may be nobody to answer.
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        [ ${#missing[@]} -gt 0 ] || exit 0
        die "not root and no sudo. As root: apt-get install ${missing[*]}"
    fi
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n)
fi
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get --yes --quiet --option DPkg::Lock::Timeout=120 "$@" </dev/null
}

# Package lists may be old or absent. Mirrors fail now and then: once more, then give up.
updated=no
update() {
    [ "$updated" = no ] || return 0
    updated=yes
    apt update || { say "apt-get update failed; once more"; sleep 5; apt update; }
}

if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    apt install --no-install-recommends "${missing[@]}" || {
        update || die "apt-get update failed twice: is there a network?"
        apt install --no-install-recommends "${missing[@]}" \
            || die "apt-get install failed. Try by hand: apt-get install ${missing[*]}"
    }
fi
# An absent optional package costs a few checks, not the run.
for package in ${wished[@]+"${wished[@]}"}; do
    if [ -z "$(apt-cache policy "$package" 2>/dev/null | sed -n 's/^ *Candidate: *\([^(].*\)/\1/p')" ]; then
        update || true
    fi
    say "installing $package (optional)"
    apt install --no-install-recommends "$package" \
        || say "$package is not to be had here; going on without it"
done
