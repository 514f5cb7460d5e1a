// The other half of separate_compilation.
__device__ int calls = 0;

__device__ double horner(const double* coefficients, int n, double x) {
    atomicAdd(&calls, 1);
    double value = 0;
    for (int i = n - 1; i >= 0; i--) value = value * x + coefficients[i];
    return value;
}
