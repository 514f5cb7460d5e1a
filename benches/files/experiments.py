"""Programs that read and write large files, as HFGPU's experiments had them: FOLDER [NAME ...].

    PYTHONPATH=python python3 benches/files/experiments.py /data/experiments
    outboard run --server gpu1 --stats -- python3 benches/files/experiments.py /data/experiments

Each prints its seconds. `io` reads and writes files and does nothing else; `cg` solves a system of
equations and writes each solution (as Nekbone with files); `hydro` computes and writes 9 GB (as
PENNANT's output); `dgemm` multiplies matrices of 16384 squared, which are made here (`init`), read
here and copied (`fread`), or read by whoever can (`file`). The files lie on a disk whose cache was
emptied before each program, if this user may do that. Natively, and where nothing is shared, the
process reads and writes files itself.
"""

import os
import sys
import time

import torch

import outboard.io

GIB = 1 << 30


def forget(folder):
    """Nothing of the files is in the page cache afterwards."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as control:
            control.write("3")
    except OSError:
        print("the page cache stays: only root empties it", file=sys.stderr)


def make(path, bytes):
    if os.path.exists(path) and os.path.getsize(path) == bytes:
        return
    block = os.urandom(64 << 20)
    with open(path, "wb") as file:
        for _ in range(bytes // len(block)):
            file.write(block)


def read(path, tensor):
    with outboard.io.open(path) as file:
        moved = file.read(tensor)
    assert moved == tensor.numel() * tensor.element_size(), moved


def write(path, *tensors):
    with outboard.io.open(path, "w") as file:
        for tensor in tensors:
            file.write(tensor)
        file.sync()


def timed(name, run):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    torch.cuda.synchronize()
    print(f"{name} {time.perf_counter() - begun:.2f} s", flush=True)


def io(folder):
    tensor = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    timed("io read", lambda: read(f"{folder}/input", tensor))
    timed("io write", lambda: write(f"{folder}/output", tensor))


def cg(folder):
    """Conjugate gradients with a stencil of seven points, and 0.5 GiB for each of four solutions."""
    side = 406
    right = torch.empty(side, side, side, dtype=torch.float64, device="cuda")

    def apply(x):
        y = 6.1 * x
        for axis in range(3):
            y -= torch.roll(x, 1, axis) + torch.roll(x, -1, axis)
        return y

    def run():
        read(f"{folder}/input", right)
        # Any bytes are a number, some of them none.
        torch.nan_to_num_(right, 0, 0, 0).clamp_(-1, 1)
        x, residual = torch.zeros_like(right), right.clone()
        direction, square = residual.clone(), residual.pow(2).sum()
        for solution in range(4):
            for _ in range(50):
                image = apply(direction)
                step = square / (direction * image).sum()
                x += step * direction
                residual -= step * image
                square, before = residual.pow(2).sum(), square
                direction = residual + square / before * direction
            write(f"{folder}/output-{solution}", x)

    timed("cg", run)


def hydro(folder):
    """Steps of a wave in a box, and 9 GB of what it looks like."""
    side = 12288
    now = torch.zeros(side, side, dtype=torch.float32, device="cuda")
    now[side // 2, side // 2] = 1

    def run():
        nonlocal now
        before = now.clone()
        with outboard.io.open(f"{folder}/output", "w") as file:
            for _ in range(15):
                for _ in range(40):
                    near = torch.roll(now, 1, 0) + torch.roll(now, -1, 0) + torch.roll(now, 1, 1) + torch.roll(now, -1, 1)
                    now, before = 2 * now - before + 0.25 * (near - 4 * now), now
                file.write(now)
            file.sync()

    timed("hydro", run)


def dgemm(folder):
    side = 16384
    a, b = (torch.empty(side, side, dtype=torch.float64, device="cuda") for _ in range(2))
    host = torch.empty(side, side, dtype=torch.float64)
    bytes = side * side * 8

    def product():
        c = a @ b
        return float(c[0, 0])

    def init():
        for matrix in (a, b):
            host.fill_(1.5)
            matrix.copy_(host)
        product()

    def fread():
        for matrix, name in ((a, "a"), (b, "b")):
            with open(f"{folder}/{name}", "rb", buffering=0) as file:
                memory, done = memoryview(host.numpy()).cast("B"), 0
                while done < bytes:
                    done += file.readinto(memory[done:])
            matrix.copy_(host)
        product()

    def by_file():
        for matrix, name in ((a, "a"), (b, "b")):
            read(f"{folder}/{name}", matrix)
        product()

    product()
    for name, run in (("init", init), ("fread", fread), ("file", by_file)):
        forget(folder)
        timed(f"dgemm {name}", run)


EXPERIMENTS = {"io": io, "cg": cg, "hydro": hydro, "dgemm": dgemm}


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(EXPERIMENTS)
    os.makedirs(folder, exist_ok=True)
    make(f"{folder}/input", 2 * GIB)
    for name in ("a", "b"):
        make(f"{folder}/{name}", 16384 * 16384 * 8)
    for name in names:
        forget(folder)
        EXPERIMENTS[name](folder)


main()
