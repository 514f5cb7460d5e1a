#!/bin/bash
# Runs the suite on a machine with a GPU: each program directly on NVIDIA's driver and through a
# server on this machine, and compares their output. Needs only the installation, the compiled
# programs and bash.
#
#   tests/gpu/run.sh LOGS [PROGRAM...]
#
#   OUTBOARD_DIST             the installation (target/dist)
#   OUTBOARD_PROGRAMS         the compiled programs (target/programs)
#   OUTBOARD_NVIDIA_DRIVER    NVIDIA's libcuda.so.1, when the loader does not find it by itself
#
# A short table goes to standard output: direct and server say how the program ended, same whether
# the output was the same. Everything the programs said is in LOGS, and the server's log.
set -uo pipefail
logs=${1:?usage: run.sh LOGS [PROGRAM...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
dist=${OUTBOARD_DIST:-$here/../../target/dist}
programs=${OUTBOARD_PROGRAMS:-$here/../../target/programs}
driver=${OUTBOARD_NVIDIA_DRIVER:-nvidia}
limit=120
mkdir -p "$logs"

# A folder that holds NVIDIA's driver under the name that programs load.
native=
if [ "$driver" != nvidia ]; then
    native=$logs/driver
    mkdir -p "$native"
    ln -sf "$driver" "$native/libcuda.so.1"
fi

"$dist/bin/outboard" serve --driver "$driver" --listen 127.0.0.1:0 --log-format json 2>"$logs/server.log" &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null' EXIT
address=
for _ in $(seq 200); do
    address=$(sed -n 's/.*"address":"\([^"]*\)".*/\1/p' "$logs/server.log" | head -1)
    [ -n "$address" ] && break
    sleep 0.1
done
if [ -z "$address" ]; then
    echo "the server did not come up:" >&2
    cat "$logs/server.log" >&2
    exit 1
fi
"$dist/bin/outboard" devices --server "$address" || exit 1

seconds() { date +%s.%N; }
ended() { case $1 in 0) echo ok ;; 124) echo timeout ;; *) echo "exit $1" ;; esac; }

passed=0 failed=0
printf '%-28s %-10s %-10s %-5s %9s %9s\n' program direct server same 'direct s' 'server s'
while IFS=$'\t' read -r name program libraries args; do
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
        continue
    fi
    extra=
    if [ "$libraries" != - ]; then
        extra=$programs/$libraries
        if [ "$name" = nvrtc ] && ! compgen -G "$extra/libnvrtc.so*" >/dev/null; then
            printf '%-28s not packed\n' "$name"
            continue
        fi
    fi
    t0=$(seconds)
    # shellcheck disable=SC2086 # arguments are words
    LD_LIBRARY_PATH=$native:$extra timeout -k 5 $limit "$programs/$program" $args \
        >"$logs/$name.direct.out" 2>"$logs/$name.direct.err" </dev/null
    direct=$?
    t1=$(seconds)
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$extra OUTBOARD_PROFILE=$logs/$name.statistics.json timeout -k 5 $limit \
        "$dist/bin/outboard" run --server "$address" -- "$programs/$program" $args \
        >"$logs/$name.server.out" 2>"$logs/$name.server.err" </dev/null
    remote=$?
    t2=$(seconds)
    same=no
    cmp -s "$logs/$name.direct.out" "$logs/$name.server.out" && same=yes
    if [ $direct = 0 ] && [ $remote = 0 ] && [ $same = yes ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    printf '%-28s %-10s %-10s %-5s %9.2f %9.2f\n' "$name" "$(ended $direct)" "$(ended $remote)" $same \
        "$(awk "BEGIN { print $t1 - $t0 }")" \
        "$(awk "BEGIN { print $t2 - $t1 }")"
done <"$programs/suite.tsv"

# NVML: the program and NVIDIA's own, where they are there, natively and with the server's devices.
nvml() {
    local name=$1 direct remote
    shift
    LD_LIBRARY_PATH=$native timeout -k 5 $limit "$@" >"$logs/$name.direct.out" 2>"$logs/$name.direct.err" </dev/null
    direct=$?
    local more=()
    [ "$name" = nvml ] && more=(remote)
    timeout -k 5 $limit "$dist/bin/outboard" run --server "$address" -- "$@" "${more[@]}" \
        >"$logs/$name.server.out" 2>"$logs/$name.server.err" </dev/null
    remote=$?
    local same=no
    cmp -s "$logs/$name.direct.out" "$logs/$name.server.out" && same=yes
    if [ $direct = 0 ] && [ $remote = 0 ] && [ $same = yes ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    printf '%-28s %-10s %-10s %-5s\n' "$name" "$(ended $direct)" "$(ended $remote)" $same
}
if [ $# = 0 ] || [[ " $* " == *" nvml "* ]]; then
    [ -x "$programs/nvml" ] && nvml nvml "$programs/nvml"
    if command -v nvidia-smi >/dev/null; then
        nvml nvidia-smi-L nvidia-smi -L
        nvml nvidia-smi-query nvidia-smi --format=csv \
            --query-gpu=name,uuid,serial,pci.bus_id,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,compute_cap,ecc.mode.current,mig.mode.current
    fi
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
