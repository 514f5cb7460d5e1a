//: title = "two devices of one server: peer access, copies, events and pools across devices (says so where there is one)"
#include "_check.h"
#include <vector>

__global__ void scale(float *out, const float *in, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * factor;
}

int main() {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        printf("one device\n");
        return 0;
    }
    const int n = 1 << 20;
    const size_t bytes = n * sizeof(float);
    float *zero, *one, *pooled;
    std::vector<float> host(n);
    for (int i = 0; i < n; i++) host[i] = static_cast<float>(i % 1001) * 0.5f;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&zero, bytes));
    CHECK(cudaMemcpy(zero, host.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&one, bytes));
    int reach[2];
    CHECK(cudaDeviceCanAccessPeer(&reach[0], 0, 1));
    CHECK(cudaDeviceCanAccessPeer(&reach[1], 1, 0));
    printf("peer access: %d %d\n", reach[0], reach[1]);
    CHECK(cudaMemcpyPeer(one, 1, zero, 0, bytes));
    CHECK(cudaMemcpy(host.data(), one, bytes, cudaMemcpyDeviceToHost));
    exact("copied", host.data(), bytes);
    if (!reach[1]) return 0;

    // Device 1 reads device 0's memory, behind an event of device 0.
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    require(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled, "access is enabled once");
    cudaGetLastError();
    cudaStream_t first, second;
    cudaEvent_t ready;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    for (int i = 0; i < 20; i++) scale<<<n / 256, 256, 0, first>>>(zero, zero, n, i % 2 ? 0.5f : 2.0f);
    scale<<<n / 256, 256, 0, first>>>(zero, zero, n, 3.0f);
    CHECK(cudaEventRecord(ready, first));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaStreamWaitEvent(second, ready));
    scale<<<n / 256, 256, 0, second>>>(one, zero, n, 2.0f);
    CHECK(cudaMemcpyAsync(host.data(), one, bytes, cudaMemcpyDeviceToHost, second));
    CHECK(cudaStreamSynchronize(second));
    require(host[3] == 9.0f, "device 1 saw what device 0 wrote");
    exact("read across", host.data(), bytes);

    // A pool of device 0 that device 1 may use.
    cudaMemPool_t pool;
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    CHECK(cudaMemPoolCreate(&pool, &props));
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = 1;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    CHECK(cudaSetDevice(0));
    CHECK(cudaMallocFromPoolAsync(&pooled, bytes, pool, first));
    CHECK(cudaEventRecord(ready, first));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamWaitEvent(second, ready));
    scale<<<n / 256, 256, 0, second>>>(pooled, one, n, 0.25f);
    CHECK(cudaMemcpyAsync(host.data(), pooled, bytes, cudaMemcpyDeviceToHost, second));
    CHECK(cudaStreamSynchronize(second));
    exact("pooled", host.data(), bytes);
    CHECK(cudaFreeAsync(pooled, second));
    CHECK(cudaStreamSynchronize(second));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaDeviceDisablePeerAccess(0));
    return 0;
}
