//: title = "runtime API, linked statically: kernels, symbols, streams, events, copies of every kind"
//: software = true
#include "_check.h"
#include <vector>

__constant__ float scale[2];
__device__ unsigned total;

__global__ void transform(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * scale[0] + scale[1];
}

__global__ void count(const float *in, int n, float limit) {
    __shared__ unsigned block;
    if (threadIdx.x == 0) block = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > limit) atomicAdd(&block, 1u);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&total, block);
}

int main() {
    const int n = 300007;
    std::vector<float> in(n), out(n);
    for (int i = 0; i < n; i++) in[i] = float((i * 2654435761u) >> 8) / (1 << 24);
    const float values[2] = {3.0f, -0.5f};
    CHECK(cudaMemcpyToSymbol(scale, values, sizeof values));

    float *a, *b;
    cudaStream_t stream, other;
    cudaEvent_t done;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&b, n * sizeof(float)));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, -1));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));

    CHECK(cudaMemcpyAsync(a, in.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));
    transform<<<(n + 255) / 256, 256, 0, stream>>>(a, b, n);
    CHECK(cudaEventRecord(done, stream));
    CHECK(cudaStreamWaitEvent(other, done));
    count<<<(n + 511) / 512, 512, 0, other>>>(b, n, 1.0f);
    CHECK(cudaMemcpyAsync(out.data(), b, n * sizeof(float), cudaMemcpyDeviceToHost, other));
    CHECK(cudaStreamSynchronize(other));
    unsigned above = 0, expected = 0;
    CHECK(cudaMemcpyFromSymbol(&above, total, sizeof above));
    for (int i = 0; i < n; i++) {
        require(out[i] == __builtin_fmaf(in[i], 3.0f, -0.5f), "every element is transformed");
        expected += out[i] > 1.0f;
    }
    require(above == expected, "the count is right");
    exact("transformed", out.data(), n * sizeof(float));
    printf("above: %u\n", above);

    // A matrix in pitched memory, and back with other strides.
    const int width = 61, height = 40;
    char *pitched;
    size_t pitch;
    CHECK(cudaMallocPitch(&pitched, &pitch, width, height));
    std::vector<char> rows(width * height), back(80 * height, 7);
    for (int i = 0; i < width * height; i++) rows[i] = char(i * 31);
    CHECK(cudaMemcpy2D(pitched, pitch, rows.data(), width, width, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemset2D(pitched + 5 * pitch + 3, pitch, 0x55, 10, 4));
    CHECK(cudaMemcpy2D(back.data(), 80, pitched, pitch, width, height, cudaMemcpyDeviceToHost));
    exact("pitched", back.data(), back.size());

    require(cudaEventQuery(done) == cudaSuccess, "the event is over");
    require(cudaMemcpy(nullptr, a, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue, "a null copy is refused");
    cudaGetLastError();
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(pitched));
    CHECK(cudaDeviceReset());
}
