//: title = "managed and mapped host memory, coherent at CUDA's synchronisation points"
#include "_check.h"

__global__ void add(int *data, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += value;
}

__managed__ int global_value = 5;
__global__ void change() { global_value = global_value * 3 + 1; }

int main() {
    const int n = 100000;
    int *managed, *mapped, *view;
    CHECK(cudaMallocManaged(&managed, n * sizeof(int)));
    for (int i = 0; i < n; i++) managed[i] = i;
    for (int round = 0; round < 3; round++) {
        add<<<(n + 255) / 256, 256>>>(managed, n, 10);
        CHECK(cudaDeviceSynchronize());
        managed[round] = -round;
    }
    exact("managed", managed, n * sizeof(int));

    CHECK(cudaHostAlloc(&mapped, n * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&view, mapped, 0));
    for (int i = 0; i < n; i++) mapped[i] = 2 * i;
    for (int round = 0; round < 3; round++) {
        add<<<(n + 255) / 256, 256>>>(view, n, 1);
        CHECK(cudaDeviceSynchronize());
        mapped[n - 1 - round] = round;
    }
    exact("mapped", mapped, n * sizeof(int));

    global_value += 1;
    change<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    printf("managed variable: %d\n", global_value);
}
