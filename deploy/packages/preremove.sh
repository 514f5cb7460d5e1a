#!/bin/sh
# The files are about to go: so do the services. dpkg says `upgrade` and rpm 1 if another release takes their place.
set -e
case "$1" in
    remove | 0) ;;
    *) exit 0 ;;
esac
command -v systemctl > /dev/null || exit 0
now=
[ ! -d /run/systemd/system ] || now=--now
# Sessions may go on for as long as the server's `drain` says.
systemctl --quiet disable $now outboard.service outboard-broker.service
