"""The loops whose waits are counted: `loops.py NAME TURNS` sets one up, takes so many turns, and says the seconds of each unit.

Loops that `outboard bench` measures too are taken from `benches/apps/`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

APPS = Path(__file__).resolve().parents[3] / "benches" / "apps"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def bench(module: str, name: str):
    """A loop of the bench: the function that takes a turn and returns seconds of a unit and units."""
    sys.path.insert(0, str(APPS))
    take = importlib.import_module(module).APPS[name]()

    def turn() -> tuple[float, int]:
        seconds, units = take()
        return next(iter(seconds.values())), units

    return turn


def timed(units: int, run):
    """A loop whose turn is one call of `run`, which takes so many units and waits for them."""

    def turn() -> tuple[float, int]:
        started = time.perf_counter()
        run()
        return (time.perf_counter() - started) / units, units

    for _ in range(3):
        turn()
    return turn


def dataloader():
    """Training on pinned batches from the host, with a loss that is read every eighth step."""
    import torch

    torch.manual_seed(6)
    net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    data = torch.utils.data.TensorDataset(torch.randn(2048, 1024), torch.randint(0, 10, (2048,)))
    loader = torch.utils.data.DataLoader(data, batch_size=256, pin_memory=True)

    def run():
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        loss.item()

    return timed(8, run)


def resnet_host():
    """A training step of ResNet-50 on 64 images that come from pinned memory of the host."""
    import torch

    sys.path.insert(0, str(APPS))
    from models import resnet50

    torch.manual_seed(2)
    net = resnet50().cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    batches = [torch.randn(64, 3, 224, 224).to(memory_format=torch.channels_last).pin_memory() for _ in range(2)]
    labels = torch.randint(0, 1000, (64,)).pin_memory()

    def run():
        for step in range(4):
            images = batches[step % 2].cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(net(images), labels.cuda(non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()

    return timed(4, run)


def serving():
    """Steps of decoding as servers of language models take them: a captured graph, inputs from pinned memory, tokens read back."""
    import torch

    net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(12))).cuda().half().eval()
    host, tokens = torch.zeros(16, 512, dtype=torch.half).pin_memory(), torch.empty(16, dtype=torch.long).pin_memory()
    x = torch.zeros(16, 512, device="cuda", dtype=torch.half)
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            net(x).argmax(-1)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        best = net(x).argmax(-1)
    done = torch.cuda.Event()

    def run():
        for _ in range(16):
            x.copy_(host, non_blocking=True)
            graph.replay()
            tokens.copy_(best, non_blocking=True)
            done.record()
            done.synchronize()

    return timed(16, run)


def jax_step():
    """A jitted function of 16 elements, waited for."""
    import jax
    import jax.numpy as jnp

    step, x = jax.jit(lambda x: x + 1), jnp.zeros(16)

    def run():
        for _ in range(50):
            step(x).block_until_ready()

    return timed(50, run)


def jax_chain():
    """Steps of JAX that depend on each other, waited for at the end."""
    import jax
    import jax.numpy as jnp

    step, start = jax.jit(lambda x: jnp.tanh(x @ x)), jnp.ones((512, 512)) / 512

    def run():
        x = start
        for _ in range(50):
            x = step(x)
        x.block_until_ready()

    return timed(50, run)


def cupy_sum():
    """A sum that is read by the program."""
    import cupy

    x = cupy.arange(1_000_000, dtype=cupy.float32)

    def run():
        for _ in range(50):
            float(x.sum())

    return timed(50, run)


def numba_kernel():
    """Launches of a kernel of Numba's, waited for together."""
    import numpy as np
    from numba import cuda

    @cuda.jit
    def add(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] += x[i]

    x, y = cuda.to_device(np.ones(100_000, np.float32)), cuda.to_device(np.zeros(100_000, np.float32))

    def run():
        for _ in range(50):
            add[400, 256](x, y)
        cuda.synchronize()

    return timed(50, run)


def triton_tuned():
    """Launches of a kernel of Triton's that was tuned for their size."""
    import torch
    import triton

    sys.path.insert(0, str(Path(__file__).parent))
    from tuned import scale

    x, y = torch.ones(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")

    def run():
        for _ in range(50):
            scale[lambda meta: (triton.cdiv(x.numel(), meta["SIZE"]),)](x, y, x.numel())
        torch.cuda.synchronize()

    return timed(50, run)


def triton_tuning():
    """Tuning itself: each turn has a size that was not seen before."""
    import torch
    import triton

    sys.path.insert(0, str(Path(__file__).parent))
    from tuned import scale

    x, y = torch.ones(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    sizes = iter(range(1 << 18, 1 << 20, 4096))

    def run():
        size = next(sizes)
        scale[lambda meta: (triton.cdiv(size, meta["SIZE"]),)](x, y, size)
        torch.cuda.synchronize()

    return timed(1, run)


LOOPS = {
    "resnet_training": lambda: bench("resnet_training", "resnet_training"),
    "resnet_host": resnet_host,
    "resnet_inference": lambda: bench("resnet_inference", "resnet_inference"),
    "linear_eager": lambda: bench("linear", "linear_eager"),
    "linear_graph": lambda: bench("linear", "linear_graph"),
    "llama": lambda: bench("llama", "llama"),
    "serving": serving,
    "dataloader": dataloader,
    "jax_step": jax_step,
    "jax_chain": jax_chain,
    "jax_callback": lambda: bench("jax_callback", "jax_callback"),
    "cupy": lambda: bench("cupy_elementwise", "cupy"),
    "cupy_sum": cupy_sum,
    "numba": numba_kernel,
    "triton": triton_tuned,
    "triton_tuning": triton_tuning,
}


def main() -> None:
    name, turns = sys.argv[1], int(sys.argv[2])
    take = LOOPS[name]()
    seconds, units = [], 0
    for _ in range(turns):
        each, count = take()
        seconds.append(each)
        units += count
    print(json.dumps({"seconds": sorted(seconds)[len(seconds) // 2], "units": units}))


if __name__ == "__main__":
    main()
