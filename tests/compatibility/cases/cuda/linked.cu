//: title = "separate compilation: device code linked by nvcc"
//: nvcc = ["-rdc=true"]
//: software = true
#include "_check.h"

extern __device__ unsigned table[16];
__device__ __noinline__ unsigned mix(unsigned x) { return (x ^ (x >> 15)) * 0x2c1b3c6du; }
__device__ unsigned table[16];

__global__ void fill() { table[threadIdx.x] = mix(threadIdx.x + 1); }
__global__ void use(unsigned *out, unsigned (*const *step)(unsigned)) {
    unsigned value = table[threadIdx.x % 16];
    for (int i = 0; i < 10; i++) value = mix(value + i);
    out[threadIdx.x] = value + (step == nullptr);
}

int main() {
    unsigned *out, host[64];
    CHECK(cudaMalloc(&out, sizeof host));
    fill<<<1, 16>>>();
    use<<<1, 64>>>(out, nullptr);
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    exact("mixed", host, sizeof host);
}
