// The device code of registered.cpp.
extern "C" __constant__ float scale = 0;

extern "C" __global__ void affine(float* values, float offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i] = values[i] * scale + offset;
    }
}
