#!/bin/sh
# The files are gone. dpkg says `purge` if settings and state are to go, too; rpm knows no such thing.
set -e
case "$1" in
    remove | purge | 0) ;;
    *) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl reset-failed outboard.service outboard-broker.service 2> /dev/null || true
fi
[ "$1" = purge ] || exit 0
rm -rf /etc/outboard /run/outboard /var/cache/outboard /var/lib/outboard
if command -v userdel > /dev/null && getent passwd outboard > /dev/null; then
    userdel outboard
fi
