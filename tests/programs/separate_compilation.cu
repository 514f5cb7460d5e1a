// Built of two files with relocatable device code: the kernel here calls a function and uses a
// variable of the other.
#include "check.h"

extern __device__ int calls;
extern __device__ double horner(const double* coefficients, int n, double x);

__global__ void evaluate(const double* coefficients, int n, double* values) {
    values[threadIdx.x] = horner(coefficients, n, static_cast<double>(threadIdx.x));
}

int main() {
    std::vector<double> coefficients = {3, -2, 0, 1};
    DeviceArray<double> dcoefficients(coefficients), values(32);
    evaluate<<<1, 32>>>(dcoefficients.get(), 4, values.get());
    CHECK(cudaGetLastError());
    std::vector<double> result = values.download();
    for (int x = 0; x < 32; x++) EXPECT(result[x] == 3 - 2 * x + x * x * x);
    int called = 0;
    CHECK(cudaMemcpyFromSymbol(&called, calls, sizeof(called)));
    EXPECT(called == 32);
    printf("separate_compilation: right, %d calls\n", called);
    return 0;
}
