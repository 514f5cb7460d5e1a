#: title = "JAX's allocators: preallocated, on demand, from the platform, stream-ordered; memory statistics"
#: wants = ["jax"]
#: timeout = 90
#: memory = 20
#: env = { JAX_PLATFORMS = "cuda", XLA_FLAGS = "--xla_gpu_autotune_level=0" }
#: [variants.preallocated]
#: XLA_PYTHON_CLIENT_MEM_FRACTION = "0.1"
#: [variants.on-demand]
#: XLA_PYTHON_CLIENT_PREALLOCATE = "false"
#: [variants.platform]
#: XLA_PYTHON_CLIENT_ALLOCATOR = "platform"
#: [variants.async]
#: XLA_PYTHON_CLIENT_ALLOCATOR = "cuda_async"
#: XLA_PYTHON_CLIENT_MEM_FRACTION = "0.1"
import jax
import jax.numpy as jnp
from compat import check, exact

check("it runs on a GPU", jax.devices()[0].platform == "gpu")
held = [jnp.full((1000, 100 * (i + 1)), i, dtype=jnp.float32) for i in range(20)]
total = jax.jit(lambda parts: sum(p.sum() for p in parts))(held)
exact("sum", total)
del held[::2]
exact("another", jnp.concatenate([p[:, :50] for p in held]).mean(0))
stats = jax.devices()[0].memory_stats()
if stats:
    check("statistics", stats["bytes_in_use"] > 0)
try:
    jnp.zeros((1 << 42,), dtype=jnp.uint8).block_until_ready()
    check("too much is refused", False)
except Exception as error:
    check("too much is refused", "RESOURCE_EXHAUSTED" in str(error) or "emory" in str(error))
exact("and work goes on", jnp.arange(10.0).sum())
