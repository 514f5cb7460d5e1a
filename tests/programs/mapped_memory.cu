// Page-locked host memory that kernels use: allocated, registered, passed with and without asking
// for its device pointer; flags that host and kernel wait for.
#include "check.h"

#include <cstring>

__global__ void add(int *data, size_t count, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] += value;
}

__global__ void sum(const int *data, size_t count, unsigned long long *result) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) mine += data[i];
    atomicAdd(result, mine);
}

// Answers each number that the host writes with its double, until it is 0.
__global__ void serve(volatile int *question, volatile int *answer) {
    int last = 0;
    for (;;) {
        int now = *question;
        if (now == last) continue;
        if (now < 0) break;
        last = now;
        *answer = now * 2;
        __threadfence_system();
    }
}

static void allocated(unsigned flags, bool ask) {
    const size_t count = 100000;
    int *host, *device;
    CHECK(cudaHostAlloc(&host, count * sizeof(int), flags));
    for (size_t i = 0; i < count; i++) host[i] = static_cast<int>(i);
    device = host;
    if (ask) CHECK(cudaHostGetDevicePointer(&device, host, 0));
    for (int round = 1; round <= 3; round++) {
        add<<<32, 256>>>(device, count, 1);
        CHECK(cudaDeviceSynchronize());
        for (size_t i = 0; i < count; i += round * 7) EXPECT(host[i] == static_cast<int>(i) + round * 2 - 1);
        for (size_t i = 0; i < count; i++) host[i]++;
    }
    unsigned long long *result;
    CHECK(cudaHostAlloc(&result, sizeof *result, cudaHostAllocDefault));
    *result = 1;
    sum<<<32, 256>>>(device, count, result);
    CHECK(cudaDeviceSynchronize());
    EXPECT(*result == count * (count - 1) / 2 + 6 * count + 1);
    CHECK(cudaFreeHost(result));
    CHECK(cudaFreeHost(host));
    printf("allocated %u %d: ok\n", flags, ask);
}

static void registered() {
    std::vector<int> before(1000, 1), data(50000, 2), after(1000, 3);
    int *device;
    CHECK(cudaHostRegister(data.data() + 3, (data.size() - 5) * sizeof(int), cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&device, data.data() + 3, 0));
    for (int round = 0; round < 3; round++) {
        add<<<32, 256>>>(device, data.size() - 5, 10);
        CHECK(cudaDeviceSynchronize());
        for (size_t i = 0; i < data.size(); i++) {
            bool inside = i >= 3 && i < data.size() - 2;
            EXPECT(data[i] == 2 + (inside ? 11 * round + 10 : 0));
            if (inside) data[i]++;
        }
        data[0] = data[2] = 2;
    }
    add<<<32, 256>>>(device, data.size() - 5, 10);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaHostUnregister(data.data() + 3));
    EXPECT(data[2] == 2 && data[3] == 45 && data[20000] == 45 && data[data.size() - 3] == 45 && data[data.size() - 1] == 2);
    data[20000] = 6;
    EXPECT(data[20000] == 6 && before[999] == 1 && after[0] == 3);
    // Two that share a page.
    alignas(64) static int small[64];
    CHECK(cudaHostRegister(small, 128, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&device, small, 0));
    small[5] = 100;
    add<<<1, 32>>>(device, 32, 1);
    CHECK(cudaDeviceSynchronize());
    EXPECT(small[5] == 101 && small[31] == 1 && small[32] == 0);
    CHECK(cudaHostUnregister(small));
    printf("registered: ok\n");
}

static void flags() {
    volatile int *question, *answer;
    CHECK(cudaHostAlloc((void **)&question, 4096, cudaHostAllocMapped));
    answer = question + 8;
    *question = *answer = 0;
    serve<<<1, 1>>>(question, answer);
    CHECK(cudaGetLastError());
    cudaStreamQuery(0);
    for (int i = 1; i <= 20; i++) {
        *question = i;
        while (*answer != i * 2) {
        }
    }
    *question = -1;
    CHECK(cudaDeviceSynchronize());
    EXPECT(*answer == 40 && *question == -1);
    CHECK(cudaFreeHost((void *)question));
    printf("flags: ok\n");
}

static void copies() {
    const size_t count = 200000, bytes = count * sizeof(int);
    int *mapped, *plain, *device;
    CHECK(cudaHostAlloc(&mapped, bytes, cudaHostAllocMapped));
    CHECK(cudaHostAlloc(&plain, bytes, cudaHostAllocDefault));
    CHECK(cudaMalloc(&device, bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    memset(mapped, 0, bytes);
    for (int round = 1; round <= 3; round++) {
        mapped[0] += 1000;
        add<<<32, 256, 0, stream>>>(mapped, count, 1);
        CHECK(cudaMemcpyAsync(device, mapped, bytes, cudaMemcpyHostToDevice, stream));
        add<<<32, 256, 0, stream>>>(device, count, 5);
        CHECK(cudaMemcpyAsync(plain, device, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaMemcpyAsync(mapped, device, bytes / 2, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(plain[0] == 1006 * round && plain[count - 1] == round + 5);
        EXPECT(mapped[0] == 1006 * round && mapped[1] == 6 * round && mapped[count - 1] == round);
    }
    std::vector<int> back(count);
    CHECK(cudaMemcpy(back.data(), mapped, bytes, cudaMemcpyDefault));
    EXPECT(back[1] == 18 && back[count - 1] == 3);
    back[1] = 5;
    CHECK(cudaMemcpy(mapped, back.data(), bytes, cudaMemcpyDefault));
    EXPECT(mapped[1] == 5);
    CHECK(cudaMemcpy(device, mapped, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device, 0, 4));
    CHECK(cudaMemcpy(mapped, device, bytes, cudaMemcpyDeviceToHost));
    EXPECT(mapped[0] == 0 && mapped[1] == 5 && mapped[count - 1] == 3);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, mapped + 1));
    EXPECT(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == mapped + 1);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(plain));
    CHECK(cudaFreeHost(mapped));
    printf("copies: ok\n");
}

// Fills name page-locked memory as they do the device's, before any kernel has used it too.
static void filled() {
    const size_t count = 5000;
    int* host;
    CHECK(cudaMallocHost(&host, count * sizeof(int)));
    CHECK(cudaMemsetAsync(host + 10, 0x11, (count - 10) * sizeof(int), nullptr));
    CHECK(cudaDeviceSynchronize());
    EXPECT(host[10] == 0x11111111 && host[count - 1] == 0x11111111);
    host[11] = 5;
    CHECK(cudaMemset(host + 12, 0x22, sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    EXPECT(host[11] == 5 && host[12] == 0x22222222 && host[13] == 0x11111111);
    CHECK(cudaFreeHost(host));
    printf("filled\n");
}

int main() {
    int can_map = 0;
    CHECK(cudaDeviceGetAttribute(&can_map, cudaDevAttrCanMapHostMemory, 0));
    EXPECT(can_map == 1);
    allocated(cudaHostAllocMapped, true);
    allocated(cudaHostAllocDefault, false);
    allocated(cudaHostAllocPortable | cudaHostAllocMapped, false);
    registered();
    flags();
    copies();
    filled();
    return outcome();
}
