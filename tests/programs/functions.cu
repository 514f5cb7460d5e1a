// Calls in kernels: recursion, function pointers in tables, virtual functions, arrays on the stack,
// structures by value.
#include "check.h"

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

using Operation = int (*)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int minus(int a, int b) { return a - b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ Operation operations[3] = {plus, minus, times};

struct Shape {
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Box : Shape {
    float width, height;
    __device__ Box(float w, float h) : width(w), height(h) {}
    __device__ float area() const override { return width * height; }
};

struct Large {
    int values[20];
    double factor;
};
__device__ __noinline__ Large shifted(Large input, int by) {
    Large output;
    for (int i = 0; i < 20; i++) output.values[(i + by) % 20] = input.values[i];
    output.factor = input.factor * 2;
    return output;
}

__global__ void recursion(int* out) {
    out[threadIdx.x] = threadIdx.x % 2 == 0 ? fibonacci(static_cast<int>(threadIdx.x) % 12)
                                            : static_cast<int>(ackermann(2, threadIdx.x % 6));
}

__global__ void pointers(const int* kinds, int* out) {
    int i = static_cast<int>(threadIdx.x);
    out[i] = operations[kinds[i]](i, 7);
}

__global__ void virtual_calls(float* out) {
    Square square(static_cast<float>(threadIdx.x));
    Box box(static_cast<float>(threadIdx.x), 3);
    const Shape* shape = threadIdx.x % 2 ? static_cast<const Shape*>(&square) : static_cast<const Shape*>(&box);
    out[threadIdx.x] = shape->area();
}

__global__ void structures(double* out) {
    Large large;
    for (int i = 0; i < 20; i++) large.values[i] = i * static_cast<int>(threadIdx.x);
    large.factor = 0.5;
    large = shifted(large, static_cast<int>(threadIdx.x) % 20);
    double sum = 0;
    for (int i = 0; i < 20; i++) sum += large.values[i] * (i + 1);
    out[threadIdx.x] = sum * large.factor;
}

// A stack array whose index is known only at run time.
__global__ void sort_on_the_stack(const int* in, int* out) {
    int values[16];
    for (int i = 0; i < 16; i++) values[i] = in[threadIdx.x * 16 + i];
    for (int i = 1; i < 16; i++) {
        int value = values[i], k = i;
        while (k > 0 && values[k - 1] > value) {
            values[k] = values[k - 1];
            k--;
        }
        values[k] = value;
    }
    for (int i = 0; i < 16; i++) out[threadIdx.x * 16 + i] = values[i];
}

static int fibonacci_on_host(int n) { return n < 2 ? n : fibonacci_on_host(n - 1) + fibonacci_on_host(n - 2); }

int main() {
    const int n = 64;
    DeviceArray<int> out(n);
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    size_t stack = 0;
    CHECK(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    EXPECT(stack >= 8192);
    recursion<<<1, n>>>(out.get());
    CHECK(cudaGetLastError());
    std::vector<int> values = out.download();
    for (int i = 0; i < n; i++) EXPECT(values[i] == (i % 2 == 0 ? fibonacci_on_host(i % 12) : 2 * (i % 6) + 3));
    printf("recursion: right\n");

    std::vector<int> kinds(n);
    for (int i = 0; i < n; i++) kinds[i] = i * 5 % 3;
    DeviceArray<int> dkinds(kinds);
    pointers<<<1, n>>>(dkinds.get(), out.get());
    CHECK(cudaGetLastError());
    values = out.download();
    for (int i = 0; i < n; i++) EXPECT(values[i] == (kinds[i] == 0 ? i + 7 : kinds[i] == 1 ? i - 7 : i * 7));
    printf("function pointers: right\n");

    DeviceArray<float> areas(n);
    virtual_calls<<<1, n>>>(areas.get());
    CHECK(cudaGetLastError());
    std::vector<float> area = areas.download();
    for (int i = 0; i < n; i++) EXPECT(area[i] == static_cast<float>(i % 2 ? i * i : i * 3));
    printf("virtual functions: right\n");

    DeviceArray<double> sums(n);
    structures<<<1, n>>>(sums.get());
    CHECK(cudaGetLastError());
    std::vector<double> sum = sums.download();
    for (int i = 0; i < n; i++) {
        double wanted = 0;
        for (int k = 0; k < 20; k++) wanted += k * i * ((k + i % 20) % 20 + 1);
        EXPECT(sum[i] == wanted);
    }
    printf("structures by value: right\n");

    std::vector<int> unsorted(n * 16);
    Random random(15);
    for (int& value : unsorted) value = static_cast<int>(random.below(1000));
    DeviceArray<int> dunsorted(unsorted), dsorted(unsorted.size());
    sort_on_the_stack<<<1, n>>>(dunsorted.get(), dsorted.get());
    CHECK(cudaGetLastError());
    std::vector<int> sorted = dsorted.download();
    for (int i = 0; i < n; i++) {
        for (int k = 1; k < 16; k++) EXPECT(sorted[i * 16 + k - 1] <= sorted[i * 16 + k]);
    }
    printf("arrays on the stack: checksum %016llx\n", (unsigned long long)checksum(sorted));
    return 0;
}
