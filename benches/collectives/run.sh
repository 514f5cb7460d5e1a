#!/bin/bash
# Collectives of two GPUs of one machine, a process for each: natively, on one server with both, and
# on two servers with one each, in turns. After `cargo xtask stage --release`:
#   run.sh DRIVER NCCL [DIST (target/dist)] [TURNS (2)]
# STEPS (40) is how many steps of training are made, and WHAT (all-reduce resnet gpt) what is run.
# DRIVER is NVIDIA's libcuda.so.1, NCCL the libnccl.so.2 that the servers load. What programs get
# natively is what `python3` finds. Prints what all_reduce.py and train.py say of each turn.
set -u
driver=$(realpath "$1"); nccl=$(realpath "$2"); dist=$(realpath "${3:-target/dist}"); turns=${4:-2}
here=$(dirname "$(realpath "$0")"); work=$(mktemp -d)
export OUTBOARD_CONFIG=none XDG_CACHE_HOME=$work/cache MASTER_ADDR=127.0.0.1 WORLD_SIZE=2
# Multicast over NVLink needs a machine of one's own.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 OMP_NUM_THREADS=4
export CUBLAS_WORKSPACE_CONFIG=:4096:8
servers=()
trap 'kill "${servers[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT
serve() { # PORT GPUS
  CUDA_VISIBLE_DEVICES=$2 "$dist/bin/outboard" serve --driver "$driver" --nccl "$nccl" \
    --listen 127.0.0.1:$1 --warm 2 --records none > "$work/$1.log" 2>&1 &
  servers+=($!)
}
serve 9871 0,1; serve 9872 0; serve 9873 1
sleep 8
native() { DEVICE=$RANK LD_LIBRARY_PATH=$(dirname "$driver") python3 "$@"; }
one_server() { DEVICE=$RANK "$dist/bin/outboard" run --server 127.0.0.1:9871 -- python3 "$@"; }
two_servers() { DEVICE=0 "$dist/bin/outboard" run --server 127.0.0.1:$((9872 + RANK)) -- python3 "$@"; }
port=29600
ranks() { # HOW LABEL SCRIPT
  port=$((port + 1))
  for rank in 0 1; do
    RANK=$rank MASTER_PORT=$port "$1" "$here/$3" > "$work/said.$rank" 2> "$work/failed.$rank" &
    ours[rank]=$!
  done
  wait "${ours[@]}"
  echo "$1, $2: $(cat "$work/said.0")"
  grep -hE "Error|error" "$work"/failed.? | head -3
}
for turn in $(seq "$turns"); do
  echo "turn $turn"
  for what in ${WHAT:-all-reduce resnet gpt}; do
    script=train.py
    [ "$what" = all-reduce ] && script=all_reduce.py
    for how in native one_server two_servers; do MODEL=$what ranks $how "$what" $script; done
  done
done
