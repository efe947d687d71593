#!/bin/bash
# Install the system packages named, those of them that are missing: as root, or by sudo if it asks for no password.
# Otherwise say in one line which they are, before anything else is done.
set -euo pipefail

# Newer distributions have some under other names.
names() {
    case $1 in
    libaio1 | libnuma1) echo "$1" "$1t64" ;;
    chromium) echo chromium chromium-browser ;;
    *) echo "$1" ;;
    esac
}

installed() {
    local name
    for name in $(names "$1"); do
        if test "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed; then return 0; fi
    done
    return 1
}

available() {
    local name
    for name in $(names "$1"); do
        # No pipe: who stops reading early ends the other by a signal, and that would count as no.
        if [[ $(apt-cache policy "$name" 2>/dev/null) =~ Candidate:\ [^\(] ]]; then
            echo "$name"
            return 0
        fi
    done
    echo "$1"  # apt says best why it has none
}

if ! command -v dpkg-query >/dev/null; then
    echo "this is no Debian or Ubuntu: see to it yourself that there is: $*" >&2
    exit 0
fi
missing=()
for package in "$@"; do
    installed "$package" || missing+=("$package")
done
test ${#missing[@]} -gt 0 || exit 0

chosen=()
for package in "${missing[@]}"; do
    chosen+=("$(available "$package")")
done
as_root=()
if test "$(id -u)" != 0; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "packages are missing, and installing them takes root; run: sudo apt-get install -y ${chosen[*]}" >&2
        exit 1
    fi
    as_root=(sudo -n)
fi
echo "installing what is missing: ${chosen[*]}" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
chosen=()
for package in "${missing[@]}"; do
    chosen+=("$(available "$package")")  # again: a bare machine knew no package before
done
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${chosen[@]}" >/dev/null
echo "system packages: installed in $SECONDS s" >&2
