#!/usr/bin/env bash
# Installs the Debian packages behind the commands the tests run, each only where its command is missing.
set -euo pipefail

missing=()
want() { # COMMAND PACKAGE
    PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null || missing+=("$2")
}
want conntrack conntrack
want curl curl
want dnsmasq dnsmasq-base
want h2load nghttp2-client
want ip iproute2
want nft nftables
want nginx nginx-light
want ping iputils-ping
want python3 python3
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "the tests need ${missing[*]} (Debian's names); install them and try again" >&2
    exit 1
fi
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)
echo "installing ${missing[*]}"
"${root[@]}" apt-get update --quiet --quiet
# Run level 1 keeps a freshly installed nginx from starting on port 80; the tests start their own.
"${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install --quiet --quiet --yes --no-install-recommends "${missing[@]}"
