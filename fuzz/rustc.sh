#!/bin/sh
# Compiles this workspace's crates for fuzz targets: optimised a little, and with counters of what an
# input reaches, which build scripts and macros cannot link. Cargo compiles third-party crates
# without this script, as for other tests.
set -eu
case " $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "*) exec "$@" ;;
esac
exec "$@" --cfg fuzzing -Copt-level=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
