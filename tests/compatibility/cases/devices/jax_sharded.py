#: title = "jax on all devices: pmap with psum, sharded arrays, a sharded step of training"
#: wants = ["jax"]
#: devices = 2
#: timeout = 180
#: memory = 8
#: env = { XLA_PYTHON_CLIENT_PREALLOCATE = "false", XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0", JAX_PLATFORMS = "cuda", NCCL_NVLS_ENABLE = "0" }
from functools import partial

import jax
import jax.numpy as jnp
from compat import check, exact, show
from jax.sharding import Mesh, NamedSharding, PartitionSpec

devices = jax.devices()
count = len(devices)
x = jax.device_put(jnp.arange(1 << 20, dtype=jnp.float32), devices[0])
y = jax.device_put(x * 2, devices[-1])
check("there and back", (jax.device_put(y, devices[0]) == x * 2).all())

summed = jax.pmap(lambda v: jax.lax.psum(v, "i"), axis_name="i")(jnp.arange(count * 1000.0).reshape(count, 1000))
exact("psum", summed)
turned = jax.pmap(
    lambda v: jax.lax.ppermute(v, "i", [(i, (i + 1) % count) for i in range(count)]), axis_name="i"
)(jnp.arange(count * 10.0).reshape(count, 10))
exact("ppermute", turned)
exact("all_gather", jax.pmap(lambda v: jax.lax.all_gather(v, "i"), axis_name="i")(jnp.arange(count * 4.0).reshape(count, 4)))

mesh = Mesh(devices, ("x",))
rows = NamedSharding(mesh, PartitionSpec("x", None))
same = NamedSharding(mesh, PartitionSpec())
key = jax.random.key(2)
a = jax.device_put(jax.random.normal(key, (512, 256)), rows)
b = jax.device_put(jax.random.normal(key, (256, 128)), same)
product = jax.jit(lambda a, b: a @ b)(a, b)
check("a product is sharded", len(product.sharding.device_set) == count)
exact("product", product)
exact("sum over shards", jax.jit(lambda a: a.sum(0), out_shardings=same)(a))


def loss_of(weights, batch):
    return jnp.mean(jnp.square(jnp.tanh(batch @ weights[0]) @ weights[1]))


@partial(jax.jit, out_shardings=(same, same))
def step(weights, batch):
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return [w - 0.1 * g for w, g in zip(weights, gradients)], loss


weights = jax.device_put([jax.random.normal(key, (256, 128)) / 16, jax.random.normal(key, (128, 8)) / 11], same)
for number in range(6):
    batch = jax.device_put(jax.random.normal(jax.random.key(number), (128, 256)), rows)
    weights, loss = step(weights, batch)
    show(f"step {number}", float(loss))
