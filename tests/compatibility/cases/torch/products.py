#: title = "matrix products in bf16, f16, f32, tf32, f64, complex, int8 and fp8 (cuBLAS, cuBLASLt)"
#: wants = ["torch"]
#: timeout = 120
#: env = { CUBLAS_WORKSPACE_CONFIG = ":4096:8" }
import torch
from compat import check, exact

torch.manual_seed(2)
torch.use_deterministic_algorithms(True)
SHAPES = [(32, 10, 256), (1, 1, 1), (17, 31, 47), (64, 64, 64), (512, 384, 1000), (1, 4096, 4096), (4096, 1, 33), (2048, 2048, 2048)]
KINDS = [
    (torch.bfloat16, 4e-2), (torch.float16, 1e-2), (torch.float32, 1e-4), (torch.float64, 1e-10),
    (torch.complex64, 1e-4), (torch.complex128, 1e-10),
]


def compare(what, out, reference, tolerance):
    scale = reference.abs().max().clamp_min(1e-30)
    error = ((out.cpu().to(reference.dtype) - reference).abs().max() / scale).item()
    if not error < tolerance:
        raise SystemExit(f"FAILED: {what}: error {error}")


for kind, tolerance in KINDS:
    for rows, inner, columns in SHAPES:
        a, b = torch.randn(rows, inner, dtype=torch.float64), torch.randn(inner, columns, dtype=torch.float64)
        if kind.is_complex:
            a, b = torch.complex(a, a.flip(0)), torch.complex(b, -b)
        a, b = a.to(kind), b.to(kind)
        out = a.cuda() @ b.cuda()
        if rows * inner * columns < 1e9:
            wide = torch.complex128 if kind.is_complex else torch.float64
            compare(f"{kind} {rows}x{inner}x{columns}", out, a.to(wide) @ b.to(wide), tolerance)
        exact(f"{str(kind)[6:]} {rows}x{inner}x{columns}", out)
    a = torch.randn(8, 33, 65).to(kind).cuda()
    b = torch.randn(8, 65, 40).to(kind).cuda()
    exact(f"{str(kind)[6:]} batched", a @ b, a.transpose(1, 2) @ a, torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2))
    bias = torch.randn(40).to(kind).cuda()
    exact(f"{str(kind)[6:]} with bias", torch.addmm(bias, a[0], b[0]), torch.nn.functional.linear(a, b[0].T.contiguous(), bias))
    exact(f"{str(kind)[6:]} vectors", a[0] @ b[0, :, 0], torch.dot(a[0, 0], b[0, :, 1]), torch.outer(a[0, 0], b[0, 0]))

torch.backends.cuda.matmul.allow_tf32 = True
a, b = torch.randn(700, 900).cuda(), torch.randn(900, 500).cuda()
exact("tf32", a @ b)
torch.backends.cuda.matmul.allow_tf32 = False
exact("fused activation", torch._addmm_activation(torch.randn(512).cuda(), torch.randn(64, 256).cuda(), torch.randn(256, 512).cuda(), use_gelu=True))
small = torch.randint(-128, 127, (64, 128), dtype=torch.int8)
other = torch.randint(-128, 127, (128, 96), dtype=torch.int8)
product = torch._int_mm(small.cuda(), other.cuda())
check("int8 is exact", torch.equal(product.cpu(), small.int() @ other.int()))
if torch.cuda.get_device_capability() >= (8, 9):
    a = torch.randn(64, 128).cuda().to(torch.float8_e4m3fn)
    b = torch.randn(96, 128).cuda().to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    exact("fp8", torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))
