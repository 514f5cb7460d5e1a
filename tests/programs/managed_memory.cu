// Managed memory: variables and allocations that host and device use in turn, lists of pointers,
// copies and fills, hints.
#include "driver.h"

#include <cstring>

__managed__ int total = 5;
__managed__ float table[2000] = {1.0f, 2.0f, 3.0f};
__managed__ long long *chosen;
__device__ int plain = 7;

struct Node {
    int value;
    Node *next;
};

__global__ void use_variables() {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 2000) table[i] += i;
    if (i == 0) {
        total += plain;
        if (chosen) *chosen *= 3;
    }
}

__global__ void add(int *data, size_t count, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] += value;
}

__global__ void walk(Node *node, int *sum) {
    for (; node; node = node->next) {
        *sum += node->value;
        node->value = -node->value;
    }
}

__global__ void strided(char *data, size_t step, int count) {
    int i = threadIdx.x;
    if (i < count) {
        data[i * step + 1] = data[i * step] + 1;
    }
}

static void variables() {
    EXPECT(total == 5 && table[1] == 2.0f && table[1999] == 0.0f && chosen == nullptr);
    total = 10;
    table[1999] = 0.5f;
    use_variables<<<8, 256>>>();
    CHECK(cudaDeviceSynchronize());
    EXPECT(total == 17 && table[0] == 1.0f && table[1] == 3.0f && table[1999] == 1999.5f);
    CHECK(cudaMallocManaged(&chosen, sizeof *chosen));
    *chosen = 7;
    use_variables<<<8, 256>>>();
    CHECK(cudaDeviceSynchronize());
    EXPECT(*chosen == 21 && total == 24 && table[2] == 7.0f);
    int copy = 0;
    CHECK(cudaMemcpyFromSymbol(&copy, total, sizeof copy));
    EXPECT(copy == 24);
    copy = 100;
    CHECK(cudaMemcpyToSymbol(total, &copy, sizeof copy));
    CHECK(cudaDeviceSynchronize());
    EXPECT(total == 100);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, table + 10));
    EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.hostPointer == table + 10);
    CHECK(cudaFree(chosen));
    printf("variables: ok\n");
}

static void turns() {
    const size_t count = 1 << 20;
    int *data;
    CHECK(cudaMallocManaged(&data, count * sizeof(int)));
    for (size_t i = 0; i < count; i++) data[i] = static_cast<int>(i);
    for (int round = 0; round < 5; round++) {
        add<<<64, 256>>>(data, count, 1);
        CHECK(cudaDeviceSynchronize());
        EXPECT(data[0] == 2 * round + 1 && data[count - 1] == static_cast<int>(count) + round);
        for (int i = 0; i < 5; i++) data[i]++;
    }
    for (size_t i = 0; i < count; i++) EXPECT(data[i] == static_cast<int>(i) + (i < 5 ? 10 : 5));
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    add<<<64, 256, 0, stream>>>(data, count, 1);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
    EXPECT(data[count - 1] == static_cast<int>(count) + 5);
    data[count - 1] = 0;
    add<<<64, 256, 0, stream>>>(data, count, 2);
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    }
    EXPECT(data[count - 1] == 2 && data[count - 2] == static_cast<int>(count) + 6);
    add<<<64, 256, 0, stream>>>(data, 1, 2);
    CHECK(cudaEventRecord(event, stream));
    while (cudaEventQuery(event) == cudaErrorNotReady) {
    }
    EXPECT(data[0] == 15);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(data));
    printf("turns: ok\n");
}

static void lists() {
    Node *first = nullptr;
    int *sum;
    CHECK(cudaMallocManaged(&sum, sizeof(int)));
    *sum = 0;
    for (int i = 0; i < 700; i++) {
        Node *node;
        CHECK(cudaMallocManaged(&node, sizeof(Node)));
        node->value = i;
        node->next = first;
        first = node;
    }
    walk<<<1, 1>>>(first, sum);
    CHECK(cudaDeviceSynchronize());
    EXPECT(*sum == 699 * 700 / 2);
    int expected = -699;
    while (first) {
        Node *next = first->next;
        EXPECT(first->value == expected++);
        CHECK(cudaFree(first));
        first = next;
    }
    CHECK(cudaFree(sum));
    printf("lists: ok\n");
}

static void sparse() {
    const size_t step = 1 << 20;
    const int count = 128;
    char *data;
    CHECK(cudaMallocManaged(&data, step * count));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++) data[i * step] = static_cast<char>(i / 2 + round);
        strided<<<1, 128>>>(data, step, count);
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < count; i++) EXPECT(data[i * step + 1] == static_cast<char>(i / 2 + round + 1));
    }
    CHECK(cudaFree(data));
    printf("sparse: ok\n");
}

static void copies() {
    const size_t count = 300000, bytes = count * sizeof(int);
    int *a, *b, *device;
    CHECK(cudaMallocManaged(&a, bytes));
    CHECK(cudaMallocManaged(&b, bytes, cudaMemAttachGlobal));
    CHECK(cudaMalloc(&device, bytes));
    std::vector<int> host(count), back(count);
    for (size_t i = 0; i < count; i++) host[i] = static_cast<int>(i * 3);
    CHECK(cudaMemcpy(a, host.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    EXPECT(a[0] == 0 && a[count - 1] == host[count - 1]);
    a[1] = -1;
    CHECK(cudaMemcpy(b, a, bytes, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    EXPECT(b[1] == -1 && b[2] == 6);
    b[2] = -2;
    CHECK(cudaMemcpy(device, b, bytes, cudaMemcpyDefault));
    add<<<64, 256>>>(device, count, 1);
    CHECK(cudaMemcpy(a, device, bytes, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    EXPECT(a[1] == 0 && a[2] == -1 && a[3] == 10);
    a[3] = 11;
    CHECK(cudaMemcpy(back.data(), a, bytes, cudaMemcpyDeviceToHost));
    EXPECT(back[2] == -1 && back[3] == 11 && back[count - 1] == host[count - 1] + 1);
    a[4] = 77;
    CHECK(cudaMemset(a + 5, 0xff, bytes / 2));
    CHECK(cudaDeviceSynchronize());
    EXPECT(a[4] == 77 && a[5] == -1 && a[4 + count / 2] == -1 && a[5 + count / 2] != -1);
    CHECK(cudaMemcpy2D(b, 400, a, 200, 100, 50, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    EXPECT(b[1] == 0 && b[100] == -1 && b[124] == -1);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyAsync(a, host.data(), bytes, cudaMemcpyHostToDevice, stream));
    add<<<64, 256, 0, stream>>>(a, count, 1);
    CHECK(cudaMemsetAsync(b, 0, bytes, stream));
    CHECK(cudaMemcpyAsync(b, a, bytes / 2, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(a[100] == 301 && b[100] == 301 && b[count - 1] == 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(device));
    printf("copies: ok\n");
}

static void pointers() {
    char *data;
    CHECK(cudaMallocManaged(&data, 10000));
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, data + 100));
    EXPECT(attributes.type == cudaMemoryTypeManaged);
    EXPECT(attributes.devicePointer == data + 100 && attributes.hostPointer == data + 100);
    unsigned managed = 0;
    CHECK_DRIVER(DRIVER(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, reinterpret_cast<CUdeviceptr>(data)));
    EXPECT((managed & 0xff) == 1);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CHECK_DRIVER(DRIVER(cuMemGetAddressRange)(&base, &bytes, reinterpret_cast<CUdeviceptr>(data + 10)));
    EXPECT(base == reinterpret_cast<CUdeviceptr>(data) && bytes == 10000);
    CHECK(cudaFree(data));
    printf("pointers: ok\n");
}

static void hints() {
    const size_t count = 1 << 20, bytes = count * sizeof(int);
    int *data;
    CHECK(cudaMallocManaged(&data, bytes));
    for (size_t i = 0; i < count; i++) data[i] = 1;
    cudaMemLocation device = {}, host = {};
    device.type = cudaMemLocationTypeDevice;
    host.type = cudaMemLocationTypeHost;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemAdvise(data, bytes, cudaMemAdviseSetPreferredLocation, device));
    CHECK(cudaMemAdvise(data, bytes, cudaMemAdviseSetAccessedBy, device));
    CHECK(cudaMemAdvise(data, bytes / 2, cudaMemAdviseSetReadMostly, device));
    CHECK(cudaMemPrefetchAsync(data, bytes, device, 0, stream));
    add<<<64, 256, 0, stream>>>(data, count, 1);
    CHECK(cudaMemPrefetchAsync(data, bytes, host, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++) EXPECT(data[i] == 2);
    int value = -1;
    CHECK(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, data, bytes / 2));
    EXPECT(value == 1);
    CHECK(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, data, bytes));
    EXPECT(value == 0);
    CHECK(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributePreferredLocation, data, bytes));
    EXPECT(value == 0);
    CHECK(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeLastPrefetchLocation, data, bytes));
    EXPECT(value == cudaCpuDeviceId);
    int by[2] = {5, 5};
    void *results[2] = {&value, by};
    size_t sizes[2] = {4, 8};
    cudaMemRangeAttribute attributes[2] = {cudaMemRangeAttributePreferredLocation, cudaMemRangeAttributeAccessedBy};
    CHECK(cudaMemRangeGetAttributes(results, sizes, attributes, 2, data, bytes));
    EXPECT(value == 0 && by[0] == 0 && by[1] == cudaInvalidDeviceId);
    CHECK(cudaMemAdvise(data, bytes, cudaMemAdviseUnsetPreferredLocation, device));
    CHECK(cudaMemAdvise(data, bytes, cudaMemAdviseUnsetAccessedBy, device));
    CHECK(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributePreferredLocation, data, bytes));
    EXPECT(value == cudaInvalidDeviceId);
    CHECK(cudaStreamAttachMemAsync(stream, data, 0, cudaMemAttachSingle));
    CHECK(cudaStreamSynchronize(stream));
    add<<<64, 256, 0, stream>>>(data, count, 1);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data[count / 2] == 3);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    printf("hints: ok\n");
}

static void mistakes() {
    CUdeviceptr address = 0;
    EXPECT_DRIVER(DRIVER(cuMemAllocManaged)(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemAllocManaged)(&address, 100, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemAllocManaged)(nullptr, 100, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    int *device;
    CHECK(cudaMalloc(&device, 4096));
    EXPECT_ERROR(cudaStreamAttachMemAsync(0, device, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
    CHECK(cudaFree(device));
}

int main() {
    variables();
    turns();
    lists();
    sparse();
    copies();
    pointers();
    hints();
    mistakes();
    return outcome();
}
