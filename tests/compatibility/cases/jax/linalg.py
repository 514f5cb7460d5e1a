#: title = "linear algebra (cuSOLVER) and Fourier transforms (cuFFT) in f32 and f64"
#: wants = ["jax"]
#: timeout = 120
#: env = { XLA_PYTHON_CLIENT_PREALLOCATE = "false", XLA_FLAGS = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0", JAX_PLATFORMS = "cuda" }
import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
import jax.numpy as jnp  # noqa: E402
from compat import check, exact, near  # noqa: E402

check("it runs on a GPU", jax.devices()[0].platform == "gpu")
key = jax.random.key(2)
for kind in (jnp.float32, jnp.float64):
    a = jax.random.normal(key, (40, 40), dtype=kind)
    spd = a @ a.T + 40 * jnp.eye(40, dtype=kind)
    tolerance = 1e-2 if kind == jnp.float32 else 1e-9
    u, s, vt = jnp.linalg.svd(a)
    check(f"{kind.__name__} svd", jnp.allclose(u * s @ vt, a, atol=tolerance))
    near(f"{kind.__name__} singular values", s.tolist(), 1e-3)
    q, r = jnp.linalg.qr(a)
    check(f"{kind.__name__} qr", jnp.allclose(q @ r, a, atol=tolerance))
    low = jnp.linalg.cholesky(spd)
    check(f"{kind.__name__} cholesky", jnp.allclose(low @ low.T, spd, atol=tolerance))
    values, vectors = jnp.linalg.eigh(spd)
    check(f"{kind.__name__} eigh", jnp.allclose(vectors * values @ vectors.T, spd, atol=tolerance * 10))
    check(f"{kind.__name__} solve", jnp.allclose(spd @ jnp.linalg.solve(spd, a), a, atol=tolerance))
    check(f"{kind.__name__} inverse", jnp.allclose(jnp.linalg.inv(spd) @ spd, jnp.eye(40), atol=tolerance))
    near(f"{kind.__name__} determinant", [float(v) for v in jnp.linalg.slogdet(spd)], 1e-4)
    near(f"{kind.__name__} batch", jnp.linalg.eigvalsh(jnp.stack([spd, spd * 2])).ravel().tolist(), 1e-4)
    z = a + 1j * a.T
    exact(f"{kind.__name__} fft", jnp.fft.fft(z), jnp.fft.rfft2(a), jnp.fft.fftn(z))
    check(f"{kind.__name__} and back", jnp.allclose(jnp.fft.ifft(jnp.fft.fft(z)), z, atol=1e-3))
