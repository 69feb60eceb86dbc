#!/usr/bin/env bash
# Prints the names of the workspace's packages that have a source (below src/) matching a pattern.
#
#   scripts/packages-with.sh 'cfg\(loom\)'
#
# New crates are thereby found by the scripts that check loom models and unsafe code.
set -euo pipefail
cd "$(dirname "$0")/.."

for manifest in {core,api,host,tenants,lab,apps}/*/Cargo.toml cli/Cargo.toml; do
    directory=$(dirname "$manifest")
    if grep --recursive --quiet --extended-regexp --include='*.rs' -- "$1" "$directory/src"; then
        sed -nE '0,/^name *= *"(.*)"/s//\1/p' "$manifest"
    fi
done
