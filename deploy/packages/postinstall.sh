#!/bin/sh
# The files are in place. dpkg says `configure` and which release was there before, rpm how many releases there are.
set -e
case "$1" in
    configure) before=$2 ;;
    1) before= ;;
    2) before=another ;;
    *) exit 0 ;;
esac
# The services' user. What has no systemd has no services.
if command -v systemd-sysusers > /dev/null; then
    systemd-sysusers /usr/lib/sysusers.d/outboard.conf
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
[ -n "$before" ] || exit 0
# Services that run become the new release; sessions and leases go on. If a server cannot, it stays what it is.
if systemctl --quiet is-active outboard.service && ! systemctl reload outboard.service; then
    echo "outboard: the server stays the old release: see journalctl -u outboard" >&2
fi
systemctl try-restart outboard-broker.service || true
