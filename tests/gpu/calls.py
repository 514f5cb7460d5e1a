#!/usr/bin/env python3
"""Which system calls workers make with this machine's driver that the sandbox's list lacks.

    tests/gpu/calls.py LOGS [--driver nvidia|PATH] [--nccl auto|PATH|none]

It needs an installation (OUTBOARD_DIST, else target/dist) and Python. Of PyTorch, CuPy and JAX it
uses what Python has. First all programs run through a server with `--sandbox-calls record`, and the
calls that its log names are printed; then through one with `allow`, which has to be enough. Its log
names what it has refused, which a program may well do without. LOGS gets the logs.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
DIST = pathlib.Path(os.environ.get("OUTBOARD_DIST", HERE / "../../target/dist")).resolve()
OUTBOARD = DIST / "bin/outboard"
LIMIT = 400

DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
memory, host = ctypes.c_uint64(), ctypes.create_string_buffer(64 << 20)
def call(name, *args):
    status = getattr(cuda, name)(*args)
    assert status == 0, (name, status)
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
for ordinal in range(count.value):
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    for size in (4096, 64 << 20):
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        call("cuMemcpyHtoD_v2", memory, host, ctypes.c_size_t(size))
        call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(size))
        call("cuMemFree_v2", memory)
    call("cuMemAllocManaged", ctypes.byref(memory), ctypes.c_size_t(1 << 20), 1)
    call("cuMemFree_v2", memory)
    call("cuMemHostAlloc", ctypes.byref(context), ctypes.c_size_t(1 << 20), 2)
    call("cuMemFreeHost", context)
"""

TORCH = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10)
).cuda()
data = torch.randn(16, 3, 32, 32).pin_memory().cuda(non_blocking=True)
net(data)
optimizer = torch.optim.Adam(net.parameters())
for _ in range(5):
    optimizer.zero_grad()
    net(data).square().mean().backward()
    optimizer.step()
graph, static = torch.cuda.CUDAGraph(), torch.randn(256, 256, device="cuda")
static @ static
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    product = static @ static
graph.replay()
assert torch.fft.fft(static).isfinite().all() and torch.linalg.svd(static).S.isfinite().all()
torch.cuda.synchronize()
"""

# Ranks are processes, so each has a worker.
RANKS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def rank(index, count):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    torch.cuda.set_device(index)
    dist.init_process_group("nccl", rank=index, world_size=count)
    data = torch.full((1 << 22,), float(index), device="cuda")
    for _ in range(5):
        dist.all_reduce(data)
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    count = torch.cuda.device_count()
    if count < 2:
        print("one device only: no collectives among processes")
    else:
        mp.spawn(rank, args=(count,), nprocs=count)
"""

CUPY = """
import cupy
data = cupy.random.rand(1024, 1024)
assert bool(cupy.isfinite(data @ data).all())
kernel = cupy.RawKernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] += 1; }', "f")
kernel((1,), (32,), (cupy.zeros(32, dtype=cupy.float32),))
cupy.cuda.Device().synchronize()
"""

JAX = """
import jax, jax.numpy as jnp
x = jnp.ones((1024, 1024))
print(jax.jit(lambda x: (x @ x).sum())(x))
"""

# By cuFile: over TCP by the files' names, through shared memory by the program's descriptors.
FILES = """
import os, sys, torch
from torch.cuda import gds
path = sys.argv[1] + "/tensor"
one = torch.arange(1 << 22, dtype=torch.int32, device="cuda")
other = torch.zeros_like(one)
for data, method in ((one, "save_storage"), (other, "load_storage")):
    file = gds.GdsFile(path, os.O_CREAT | os.O_RDWR)
    getattr(file, method)(data.untyped_storage(), offset=0)
    file.deregister_handle()
assert torch.equal(one, other)
"""

# Name, the module that it needs, its text, and more variables for it.
PROGRAMS = [
    ("driver", None, DRIVER, {}),
    ("torch", "torch", TORCH, {}),
    ("ranks", "torch", RANKS, {}),
    ("cupy", "cupy", CUPY, {}),
    ("jax", "jax", JAX, {}),
    ("files-tcp", "torch", FILES, {"OUTBOARD_TRANSPORT": "tcp"}),
    ("files-shm", "torch", FILES, {"OUTBOARD_TRANSPORT": "shm"}),
]


def share(folder):
    """What `--files` takes for a folder: what its mount shows, and where it lies there."""
    mounts = [line.split() for line in open("/proc/self/mountinfo")]
    above = [line for line in mounts if os.path.commonpath([line[4], folder]) == line[4]]
    mount = max(above, key=lambda line: len(line[4]))
    source = mount[mount.index("-") + 2]
    path = os.path.join(mount[3], os.path.relpath(folder, mount[4]))
    return f"{source}{path}={folder}:rw:as={os.getuid()}:{os.getgid()}"


def lines(log):
    for line in log.read_text(errors="replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        yield {**said, **said.get("fields", {})}


def run(mode, args, logs):
    """Runs all programs through a server; what failed, and which calls the log names."""
    log = logs / f"server-{mode}.log"
    command = [OUTBOARD, "serve", "--listen", "127.0.0.1:0", "--log-format", "json"]
    command += ["--driver", args.driver, "--nccl", args.nccl, "--sandbox-calls", mode]
    folder = (logs / f"files-{mode}").resolve()
    folder.mkdir(exist_ok=True)
    command += ["--files", share(folder)]
    failed = []
    with log.open("w") as file:
        own = {**os.environ, "OUTBOARD_CONFIG": "none"}
        server = subprocess.Popen(command, stderr=file, env=own)
    try:
        address = None
        for _ in range(600):
            address = next((line["address"] for line in lines(log) if "address" in line), None)
            if address or server.poll() is not None:
                break
            time.sleep(0.1)
        if not address:
            sys.exit(f"the server did not come up: {log.read_text()}")
        for name, module, text, more in PROGRAMS:
            if module and not importlib.util.find_spec(module):
                print(f"{mode}: {name}: Python has no {module}", flush=True)
                continue
            # A module of the name would be found in the place of the one that the program wants.
            program = logs / f"{name}-program.py"
            program.write_text(text)
            client = [OUTBOARD, "run", "--server", address, "--", sys.executable, program, folder]
            profile = logs / f"{name}-{mode}.json"
            variables = {**os.environ, **more, "OUTBOARD_PROFILE": str(profile)}
            with (logs / f"{name}-{mode}.log").open("w") as file:
                try:
                    outcome = subprocess.run(
                        client,
                        env=variables,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        timeout=LIMIT,
                    ).returncode
                except subprocess.TimeoutExpired:
                    outcome = "timeout"
            if outcome == 0 and text is FILES:
                moved = json.loads(profile.read_text())["files"]
                if not (moved["read_by_servers"] and moved["written_by_servers"]):
                    outcome = f"the program moved the bytes itself: {moved}"
            print(f"{mode}: {name}: {'ok' if outcome == 0 else outcome}", flush=True)
            if outcome != 0:
                failed.append(name)
    finally:
        server.terminate()
        server.wait()
    return failed, sorted({line["call"] for line in lines(log) if "call" in line})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=pathlib.Path)
    parser.add_argument("--driver", default="nvidia")
    parser.add_argument("--nccl", default="none")
    args = parser.parse_args()
    args.logs.mkdir(parents=True, exist_ok=True)
    _, recorded = run("record", args, args.logs)
    print("calls that the list lacks:", ", ".join(recorded) or "none")
    failed, refused = run("allow", args, args.logs)
    print("calls that were refused:", ", ".join(refused) or "none")
    print("programs that failed with the list:", ", ".join(failed) or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
