// Constant and global variables of a module: initial values, copies to and from them, their
// addresses.
#include "check.h"

struct Settings {
    float scale;
    int shift;
    double table[4];
};

__constant__ Settings settings = {2.0f, 3, {0.5, 1.5, 2.5, 3.5}};
__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int counter = 100;
__device__ float zeroed[1000];
__device__ int* cursor = &counter;  // an initial value that is an address
__device__ const char message[] = "a string in global memory";

__global__ void use(float* out) {
    int i = threadIdx.x;
    out[i] = settings.scale * static_cast<float>(primes[i % 8]) + static_cast<float>(settings.shift) +
             static_cast<float>(settings.table[i % 4]) + zeroed[i];
    atomicAdd(cursor, 1);
    zeroed[i] += 1;
}

__global__ void length_of_message(int* out) {
    int length = 0;
    while (message[length] != 0) length++;
    *out = length;
}

int main() {
    const int n = 64;
    DeviceArray<float> out(n);
    auto check = [&](const Settings& s, float base) {
        static const int p[8] = {2, 3, 5, 7, 11, 13, 17, 19};
        std::vector<float> values = out.download();
        for (int i = 0; i < n; i++) {
            EXPECT(values[i] == s.scale * static_cast<float>(p[i % 8]) + static_cast<float>(s.shift) +
                                    static_cast<float>(s.table[i % 4]) + base);
        }
    };
    use<<<1, n>>>(out.get());
    CHECK(cudaGetLastError());
    check({2.0f, 3, {0.5, 1.5, 2.5, 3.5}}, 0);

    Settings changed = {4.0f, -1, {8, 16, 32, 64}};
    CHECK(cudaMemcpyToSymbol(settings, &changed, sizeof(changed)));
    use<<<1, n>>>(out.get());
    check(changed, 1);

    // A part of a symbol only.
    int shift = 5;
    CHECK(cudaMemcpyToSymbol(settings, &shift, sizeof(shift), offsetof(Settings, shift)));
    changed.shift = shift;
    use<<<1, n>>>(out.get());
    check(changed, 2);

    int counted = 0;
    CHECK(cudaMemcpyFromSymbol(&counted, counter, sizeof(counted)));
    EXPECT(counted == 100 + 3 * n);
    void* address = nullptr;
    size_t size = 0;
    CHECK(cudaGetSymbolAddress(&address, zeroed));
    CHECK(cudaGetSymbolSize(&size, zeroed));
    EXPECT(size == 1000 * sizeof(float));
    std::vector<float> values(1000);
    CHECK(cudaMemcpy(values.data(), address, size, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 1000; i++) EXPECT(values[i] == (i < n ? 3.0f : 0.0f));

    DeviceArray<int> length(1);
    length_of_message<<<1, 1>>>(length.get());
    EXPECT(length.download()[0] == static_cast<int>(sizeof(message)) - 1);
    printf("symbols: counter %d, settings, tables and strings right\n", counted);
    return 0;
}
