#: title = "Triton: matrix product with tl.dot and pipelining, autotuned"
#: wants = ["torch", "triton"]
#: timeout = 150
import torch
import triton
import triton.language as tl
from compat import check, exact

CONFIGS = [
    triton.Config({"M": 64, "N": 64, "K": 32}, num_stages=3, num_warps=4),
    triton.Config({"M": 128, "N": 64, "K": 32}, num_stages=4, num_warps=4),
    triton.Config({"M": 128, "N": 128, "K": 32}, num_stages=3, num_warps=8),
]


def body(a, b, c, rows, columns, inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, inner, K):
        at = k + tl.arange(0, K)
        left = tl.load(a + row[:, None] * inner + at[None, :], mask=(row[:, None] < rows) & (at[None, :] < inner), other=0.0)
        right = tl.load(b + at[:, None] * columns + column[None, :], mask=(at[:, None] < inner) & (column[None, :] < columns), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * columns + column[None, :], total.to(c.dtype.element_ty), mask=(row[:, None] < rows) & (column[None, :] < columns))


plain = triton.jit(body)
tuned = triton.autotune(configs=CONFIGS, key=["rows", "columns", "inner"])(triton.jit(body))
torch.manual_seed(2)
for kind in (torch.float16, torch.bfloat16):
    for rows, inner, columns in ((512, 512, 512), (300, 130, 77)):
        a, b = torch.randn(rows, inner, device="cuda", dtype=kind), torch.randn(inner, columns, device="cuda", dtype=kind)
        c = torch.empty(rows, columns, device="cuda", dtype=kind)
        plain[(triton.cdiv(rows, 64), triton.cdiv(columns, 64))](a, b, c, rows, columns, inner, M=64, N=64, K=32)
        exact(f"{kind} {rows}x{inner}x{columns}", c)
        reference = (a.float() @ b.float())
        check("near enough", (c.float() - reference).abs().max().item() < 0.5)
        # Which variant is fastest may differ from run to run, and with it the last bits.
        tuned[lambda meta: (triton.cdiv(rows, meta["M"]), triton.cdiv(columns, meta["N"]))](a, b, c, rows, columns, inner)
        check("autotuned", (c.float() - reference).abs().max().item() < 0.5)
