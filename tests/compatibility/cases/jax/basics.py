#: title = "jit, grad, vmap, scan, while, random numbers, sorting, products, convolutions"
#: wants = ["jax"]
#: timeout = 120
#: env = { XLA_PYTHON_CLIENT_PREALLOCATE = "false", XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0", JAX_PLATFORMS = "cuda" }
import jax
import jax.numpy as jnp
from compat import check, exact, show
from jax import lax

show("devices", *(f"{d.platform} {d.device_kind}" for d in jax.devices()))
key = jax.random.key(1)
x = jax.random.normal(key, (128, 96))
exact("random", x, jax.random.randint(key, (100,), 0, 50), jax.random.permutation(key, 100))
exact("elementwise", jnp.tanh(x) * 2 + 1, jnp.where(x > 0, x, -x), jax.nn.softmax(x), jax.scipy.special.erf(x))
exact("reductions", x.sum(), x.mean(0), jnp.argmax(x, 1), jnp.linalg.norm(x), jnp.cumsum(x, 1), jnp.median(x))
exact("sorted", jnp.sort(x, 1), jnp.argsort(x[0]), jnp.unique(jnp.round(x), size=8))
for kind in (jnp.float32, jnp.bfloat16, jnp.float16):
    a = x.astype(kind)
    exact(f"product {kind.__name__}", a @ a.T)
exact("odd product", jnp.ones((32, 10)) @ jax.random.normal(key, (10, 256)))


@jax.jit
def f(w, x):
    return jnp.sum(jnp.tanh(x @ w) ** 2)


w = jax.random.normal(key, (96, 32)) / 10
exact("value and gradient", *jax.value_and_grad(f)(w, x))
exact("second derivative", jax.jit(jax.hessian(lambda v: f(v.reshape(96, 32)[:, :2], x)))(w.ravel())[:5, :5])
exact("vmap", jax.vmap(lambda row: jnp.outer(row, row))(x[:10, :7]))
exact("scan", *lax.scan(lambda c, v: (c * 0.9 + v, c.sum()), jnp.zeros(96), x))
exact("while", lax.while_loop(lambda s: s[0] < 100, lambda s: (s[0] + 1, jnp.sin(s[1]) + 1), (0, x))[1])
exact("cond", jax.jit(lambda p, v: lax.cond(p > 0, lambda u: u * 2, lambda u: u - 1, v))(1, x))
exact("fori", lax.fori_loop(0, 20, lambda i, v: v @ v / 10, jnp.eye(64) + 0.01))
image = jax.random.normal(key, (2, 3, 32, 32))
exact("convolution", lax.conv(image, jax.random.normal(key, (8, 3, 3, 3)), (1, 1), "SAME"))
exact("scatter", jnp.zeros(50).at[jnp.array([1, 5, 7])].add(2.0), x.at[3].set(0))
check("transfers", (jnp.asarray(jax.device_get(x)) == x).all())
x.block_until_ready()
