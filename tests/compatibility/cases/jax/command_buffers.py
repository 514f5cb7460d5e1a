#: title = "command buffers: XLA's own graphs, with while and conditional nodes where it uses them"
#: wants = ["jax"]
#: timeout = 120
#: env = { XLA_PYTHON_CLIENT_PREALLOCATE = "false", JAX_PLATFORMS = "cuda" }
#: [variants.default]
#: XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
#: [variants.all]
#: XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0 --xla_gpu_graph_min_graph_size=1 --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL,WHILE"
#: [variants.none]
#: XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer="
import jax
import jax.numpy as jnp
from compat import check, exact
from jax import lax

check("it runs on a GPU", jax.devices()[0].platform == "gpu")
key = jax.random.key(3)


@jax.jit
def layers(x, weights):
    for w in weights:
        x = jnp.tanh(x @ w) + 0.1 * jnp.roll(x, 1, axis=0)
    return x, x.sum(0), jnp.sort(x, axis=0)[:3]


weights = [jax.random.normal(k, (128, 128)) / 12 for k in jax.random.split(key, 12)]
x = jax.random.normal(key, (64, 128))
for round in range(6):
    out = layers(x * (round + 1), weights)
    exact(f"layers {round}", *out)


@jax.jit
def loop(x):
    def body(i, value):
        value = lax.cond(value.sum() > 0, lambda v: v * 0.5, lambda v: v * -0.5 + 1, value)
        return jnp.sin(value) @ weights[0]

    return lax.fori_loop(0, 30, body, x)


for round in range(4):
    exact(f"loop {round}", loop(x + round))
