#: title = "memory pools (default, stream-ordered, none), pinned memory, managed memory, limits"
#: wants = ["cupy"]
#: memory = 6
import cupy as cp
import cupyx
import numpy as np
from compat import check, exact, show

pool = cp.get_default_memory_pool()
x = cp.ones(10_000_000, dtype=cp.float32)
show("used", pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks())
del x
show("after freeing", pool.used_bytes(), pool.total_bytes())
pool.free_all_blocks()
show("after giving back", pool.total_bytes())
with_limit = cp.cuda.MemoryPool()
with_limit.set_limit(size=1 << 20)
with cp.cuda.using_allocator(with_limit.malloc):
    try:
        cp.zeros(1 << 21, dtype=cp.uint8)
        check("the limit is kept", False)
    except cp.cuda.memory.OutOfMemoryError:
        check("the limit is kept", True)
try:
    cp.zeros(1 << 44, dtype=cp.uint8)
    check("too much is refused", False)
except cp.cuda.memory.OutOfMemoryError:
    check("too much is refused", True)
check("and work goes on", float(cp.arange(10).sum()) == 45)


def work():
    held = {}
    for step in range(100):
        held[step % 7] = cp.full(1000 * (step % 13 + 1), step, dtype=cp.float64) * 2
    return cp.concatenate([held[key] for key in sorted(held)])


for name, allocator in (("pool", cp.cuda.MemoryPool().malloc), ("stream-ordered", cp.cuda.MemoryAsyncPool().malloc), ("none", None)):
    with cp.cuda.using_allocator(allocator):
        exact(f"allocator: {name}", work())
pinned = cupyx.empty_pinned((2_000_000,), dtype=np.float32)
pinned[...] = np.arange(2_000_000)
stream = cp.cuda.Stream(non_blocking=True)
with stream:
    there = cp.empty(2_000_000, dtype=cp.float32)
    there.set(pinned)
    there *= 2
    back = cupyx.empty_like_pinned(pinned)
    there.get(out=back, stream=stream)
stream.synchronize()
check("pinned copies", np.array_equal(back, pinned * 2))
free, total = cp.cuda.runtime.memGetInfo()
check("there is memory", 0 < free <= total)
