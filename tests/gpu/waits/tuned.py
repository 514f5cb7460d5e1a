"""A kernel of Triton's with four variants to choose from."""

import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"SIZE": size}, num_warps=warps) for size in (512, 1024) for warps in (4, 8)], key=["count"])
@triton.jit
def scale(x, y, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + at, tl.load(x + at, mask=at < count) * 2, mask=at < count)
