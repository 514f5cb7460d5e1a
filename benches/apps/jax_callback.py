"""A jitted step with a function of the host in its middle. Each step is waited for."""

from __future__ import annotations

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np


def callback():
    if jax.devices()[0].platform != "gpu":
        raise RuntimeError("JAX found no GPU")

    @jax.jit
    def step(x):
        y = jnp.tanh(x @ x)
        z = jax.pure_callback(lambda v: np.asarray(v) * np.float32(0.5), jax.ShapeDtypeStruct((512,), jnp.float32), y[0])
        return y + z

    x = jnp.ones((512, 512), jnp.float32) / 512

    def take():
        started = time.perf_counter()
        step(x).block_until_ready()
        return {"jax_callback": time.perf_counter() - started}, 1

    for _ in range(5):
        take()
    return take


APPS = {"jax_callback": callback}
