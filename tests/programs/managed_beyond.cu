// More managed memory than the device has: what is touched is right, and the rest of the program
// goes on. Prints what each allocation gave.
#include <vector>

#include "check.h"

__global__ void mark(char* base, size_t step, int count, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) base[i * step] += what;
}

static size_t whole(double bytes) { return (size_t)bytes >> 21 << 21; }

static void one(double factor, size_t all) {
    constexpr int COUNT = 64;
    size_t bytes = whole(all * factor);
    char* base = nullptr;
    cudaError_t given = cudaMallocManaged(&base, bytes);
    printf("%g of the device: %s\n", factor, cudaGetErrorName(given));
    if (given != cudaSuccess) {
        EXPECT(cudaGetLastError() == given);
        return;
    }
    size_t step = (bytes - 1) / (COUNT - 1);
    // As the program has it, as the device changes it, as the program changes that.
    for (int i = 0; i < COUNT; i += 2) base[i * step] = 5;
    mark<<<1, COUNT>>>(base, step, COUNT, 3);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++) {
        EXPECT(base[i * step] == (i % 2 ? 3 : 8));
        base[i * step] = 10;
    }
    mark<<<1, COUNT>>>(base, step, COUNT, 1);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++) EXPECT(base[i * step] == 11);
    EXPECT(base[step / 2] == 0);
    char copy[2] = {};
    CHECK(cudaMemcpy(copy, base + step, 1, cudaMemcpyDefault));
    CHECK(cudaMemset(base + step, 7, 1));
    EXPECT(copy[0] == 11 && base[step] == 7);
    CHECK(cudaFree(base));
}

// Many that are there at once, with other memory beside them.
static void many(size_t all) {
    size_t each = whole(all / 16.0);
    std::vector<char*> made;
    char* base;
    while (made.size() < 24 && cudaMallocManaged(&base, each) == cudaSuccess) made.push_back(base);
    cudaGetLastError();
    printf("of 24 sixteenths: %s\n", made.size() == 24 ? "all" : "some");
    for (size_t i = 0; i < made.size(); i++) mark<<<1, 4>>>(made[i], each / 4, 4, i + 1);
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < made.size(); i++) {
        EXPECT(made[i][0] == (char)(i + 1) && made[i][3 * (each / 4)] == (char)(i + 1));
        CHECK(cudaFree(made[i]));
    }
}

int main() {
    size_t before, after, all;
    CHECK(cudaMemGetInfo(&before, &all));
    for (double factor : {0.5, 1.25, 4.0}) one(factor, all);
    many(all);
    CHECK(cudaMemGetInfo(&after, &all));
    EXPECT(after + all / 16 > before);
    printf("freed\n");
}
