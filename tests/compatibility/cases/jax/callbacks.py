#: title = "host callbacks: pure_callback, io_callback, debug.print, debug.callback, in jit and scan"
#: wants = ["jax"]
#: timeout = 120
#: env = { XLA_PYTHON_CLIENT_PREALLOCATE = "false", XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0", JAX_PLATFORMS = "cuda,cpu" }
import jax
import jax.numpy as jnp
import numpy as np
from compat import check, exact, show
from jax.experimental import io_callback

check("it runs on a GPU", jax.devices()[0].platform == "gpu")
def on_host(x):
    return np.asarray(np.cumsum(np.asarray(x)[::-1]), dtype=np.float32)


@jax.jit
def pure(x):
    return jax.pure_callback(on_host, jax.ShapeDtypeStruct(x.shape, x.dtype), x * 2) + 1


exact("pure", pure(jnp.arange(100.0)), pure(jnp.ones(100)))
seen = []


def record(i, x):
    seen.append((int(i), float(x)))
    return np.float32(float(x) / 2)


@jax.jit
def ordered(x):
    def step(carry, i):
        carry = io_callback(record, jax.ShapeDtypeStruct((), jnp.float32), i, carry, ordered=True)
        return carry + 1, carry

    return jax.lax.scan(step, x, jnp.arange(8))


exact("ordered", *ordered(jnp.float32(10)))
show("seen", seen)


@jax.jit
def talking(x):
    jax.debug.print("x starts with {a} and sums to {b}", a=x[0], b=x.sum(), ordered=True)
    jax.debug.callback(lambda v: show("callback", float(v)), x.max(), ordered=True)
    return x * 2


talking(jnp.arange(10.0)).block_until_ready()
jax.effects_barrier()


@jax.custom_vjp
def through(x):
    return jax.pure_callback(lambda v: np.square(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


through.defvjp(lambda x: (through(x), x), lambda x, g: (2 * x * g,))
exact("gradient", jax.jit(jax.grad(lambda x: through(x).sum()))(jnp.arange(5.0)))
