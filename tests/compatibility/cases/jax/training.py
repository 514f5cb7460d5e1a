#: title = "a small network trained with jit, donated buffers and a scan over batches; losses"
#: wants = ["jax"]
#: timeout = 120
#: env = { XLA_PYTHON_CLIENT_PREALLOCATE = "false", XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0", JAX_PLATFORMS = "cuda" }
from functools import partial

import jax
import jax.numpy as jnp
from compat import check, exact, show

check("it runs on a GPU", jax.devices()[0].platform == "gpu")
key = jax.random.key(4)
sizes = [64, 256, 256, 10]
params = [
    (jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b))
    for k, a, b in zip(jax.random.split(key, 3), sizes, sizes[1:])
]
data = jax.random.normal(key, (512, 64))
labels = (data[:, :10] * 3).argmax(1)


def loss(params, x, y):
    for w, b in params[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = params[-1]
    scores = jax.nn.log_softmax(x @ w + b)
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()


@partial(jax.jit, donate_argnums=0)
def step(params, x, y):
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value


for number in range(25):
    at = number % 4 * 128
    params, value = step(params, data[at : at + 128], labels[at : at + 128])
    show(f"step {number}", float(value))


@jax.jit
def epoch(params, xs, ys):
    def body(params, batch):
        value, gradient = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, gradient), value

    return jax.lax.scan(body, params, (xs, ys))


params, values = epoch(params, data.reshape(8, 64, 64), labels.reshape(8, 64))
exact("epoch", values, *(w for w, _ in params))
