#!/usr/bin/env bash
# Runs a command as root: directly where we are root, else through sudo.
set -euo pipefail

if [ "$(id -u)" -eq 0 ]; then
    exec "$@"
fi
if ! command -v sudo >/dev/null; then
    echo "as-root: '$1' needs root, and there is no sudo: run this as root" >&2
    exit 1
fi
exec sudo -- "$@"
