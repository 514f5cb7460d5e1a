"""The loops that `run.py` has processes take: `loops.py NAME` says the median of a unit, in seconds."""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def units(run, count: int, warm: int = 50) -> float:
    """The median of so many units, after some that do not count."""
    for _ in range(warm):
        run()
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def jit() -> float:
    """A jitted function of 16 elements, and waiting for it."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones(16)
    step = jax.jit(lambda x: x * 1.5 + 1)
    return units(lambda: step(x).block_until_ready(), 2000)


def callback() -> float:
    """A step with a function of the program's in its middle."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    shape = jax.ShapeDtypeStruct((512,), jnp.float32)

    @jax.jit
    def step(x):
        y = jnp.tanh(x @ x)
        z = jax.pure_callback(lambda v: np.asarray(v) * np.float32(0.5), shape, y[0])
        return y + z

    x = jnp.ones((512, 512), jnp.float32) * 0.01
    return units(lambda: step(x).block_until_ready(), 500)


class Driver:
    """What the host functions below need of libcuda, without any framework."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.memory = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(4096))

    def call(self, name: str, *arguments) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise SystemExit(f"{name}: error {status}")

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def fill(self, stream: ctypes.c_void_p) -> None:
        self.call("cuMemsetD32Async", self.memory, 7, ctypes.c_size_t(16), stream)

    def host(self, stream: ctypes.c_void_p, function) -> None:
        self.call("cuLaunchHostFunc", stream, function, None)


FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def told(streams: int = 1, sleep: float = 0.0) -> float:
    """Work, a function of the program's, work: the program sleeps until the function has told it, as JAX does."""
    import threading

    driver = Driver()
    done = threading.Semaphore(0)

    def function(_: int) -> None:
        if sleep:
            time.sleep(sleep)
        done.release()

    kept, all_streams = FUNCTION(function), [driver.stream() for _ in range(streams)]

    def run() -> None:
        for stream in all_streams:
            driver.fill(stream)
            driver.host(stream, kept)
            driver.fill(stream)
        for _ in all_streams:
            done.acquire()

    return units(run, 2000 if not sleep else 300)


def waited() -> float:
    """The same, and the program waits in the driver."""
    driver = Driver()
    kept, stream = FUNCTION(lambda _: None), driver.stream()

    def run() -> None:
        driver.fill(stream)
        driver.host(stream, kept)
        driver.fill(stream)
        driver.call("cuStreamSynchronize", stream)

    return units(run, 2000)


def decode() -> float:
    """A token of a small Llama: many kernels, and the program waits for each token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16, vocab_size=8192
    )
    torch.manual_seed(1)
    model = LlamaForCausalLM(config).half().cuda().eval()
    tokens = torch.randint(0, 8192, (1, 16), device="cuda")

    def run() -> None:
        with torch.no_grad():
            model.generate(tokens, max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0)

    return units(run, 12, warm=2) / 32


LOOPS = {
    "jit": jit,
    "callback": callback,
    "told": told,
    "told.two": lambda: told(2),
    "told.block": lambda: told(2, 0.001),
    "waited": waited,
    "decode": decode,
}

if __name__ == "__main__":
    print(json.dumps(LOOPS[sys.argv[1]]()))
