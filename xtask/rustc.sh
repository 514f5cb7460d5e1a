#!/bin/sh
# Compiles this workspace's crates for `cargo xtask test`: warnings are errors, and clippy looks at
# each crate beside its compilation. It reads what the crate's dependencies were compiled to, where
# `cargo clippy` would have all third-party crates checked for itself.
#
# Crates that are compiled as programs of tests, too, are linted as those, which have all of their
# code. rustc alone compiles them otherwise, and finds what only tests use.
set -eu
"$@" --deny warnings

case " $* " in
*" --crate-name ___ "* | *" -vV "*) exit ;;
*" --test "* | *" --cfg test "* | *" --crate-name build_script_"* | */examples\ *) ;;
*" --crate-type lib "* | *" --crate-type bin "*) exit ;;
esac

apart=$(mktemp -d)
trap 'rm -rf "$apart"' EXIT
# Cargo would take for the crate's what clippy says that it has written.
folder=
for argument; do
    shift
    [ -z "$folder" ] || argument=$apart folder=
    case $argument in
    --out-dir) folder=next ;;
    --emit=*) argument=--emit=metadata ;;
    --json=*) argument=--json=diagnostic-rendered-ansi,future-incompat ;;
    incremental=*) argument=incremental=$apart ;;
    esac
    set -- "$@" "$argument"
done
clippy-driver "$@" --deny warnings
