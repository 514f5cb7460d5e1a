#: title = "arrays, textures and surfaces, interpolation by texture"
#: wants = ["cupy"]
import cupy as cp
import numpy as np
from compat import exact
from cupy.cuda import runtime, texture

SOURCE = """
extern "C" __global__ void sample(cudaTextureObject_t t, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<float>(t, x * 0.7f + 0.3f, y * 0.6f + 0.4f);
}
"""
width, height = 64, 48
host = np.random.default_rng(5).random((height, width), dtype=np.float32)
kind = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
array = texture.CUDAarray(kind, width, height)
array.copy_from(host)
for mode in (runtime.cudaFilterModePoint, runtime.cudaFilterModeLinear):
    resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array)
    how = texture.TextureDescriptor((runtime.cudaAddressModeClamp,) * 2, mode, runtime.cudaReadModeElementType)
    out = cp.zeros((height, width), dtype=cp.float32)
    cp.RawKernel(SOURCE, "sample")((2, height), (32,), (texture.TextureObject(resource, how), out, np.int32(width), np.int32(height)))
    exact(f"filter {mode}", out)
back = cp.zeros((height, width), dtype=cp.float32)
array.copy_to(back)
exact("copied back", back)
from cupyx.scipy import ndimage  # noqa: E402

exact("affine", ndimage.affine_transform(cp.asarray(host), cp.eye(2), order=1, texture_memory=False))
exact("affine by texture", ndimage.affine_transform(cp.asarray(host), cp.eye(3, dtype=cp.float32), order=1, texture_memory=True, output_shape=(height, width)))
