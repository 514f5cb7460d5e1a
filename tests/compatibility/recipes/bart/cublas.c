/* What BART's nufft and pics call of cuBLAS, computed on the host: NVIDIA's cuBLAS has nothing that the software device can
 * run. Vectors, and results in the pointer mode that BART sets, are in device memory. */
#include <complex.h>

enum { SUCCESS = 0, ALLOC_FAILED = 3, EXECUTION_FAILED = 14 };
enum { COPY_DEFAULT = 4 };
enum { LEFT = 0 };

/* Of the CUDA runtime that BART has loaded. */
extern int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);

/* A copy of device memory; null if it cannot be had. */
static void *taken(const void *device, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (copy && cudaMemcpy(copy, device, bytes, COPY_DEFAULT)) {
        free(copy);
        copy = 0;
    }
    return copy;
}

static int put(void *device, void *copy, size_t bytes)
{
    int failed = cudaMemcpy(device, copy, bytes, COPY_DEFAULT);
    return failed ? EXECUTION_FAILED : SUCCESS;
}

static size_t extent(int n, int step)
{
    return n > 0 ? ((size_t)(n - 1) * step + 1) : 0;
}

int cublasCreate_v2(void **handle)
{
    static int one;
    *handle = &one;
    return SUCCESS;
}

int cublasDestroy_v2(void *handle)
{
    (void)handle;
    return SUCCESS;
}

int cublasSetPointerMode_v2(void *handle, int mode)
{
    (void)handle, (void)mode;
    return SUCCESS;
}

/* Copies wait for what is queued before them in every stream that BART makes. */
int cublasSetStream_v2(void *handle, void *stream)
{
    (void)handle, (void)stream;
    return SUCCESS;
}

int cublasSdot_v2(void *handle, int n, const float *x, int incx, const float *y, int incy, float *result)
{
    (void)handle;
    float *a = taken(x, extent(n, incx) * sizeof *a), *b = taken(y, extent(n, incy) * sizeof *b);
    int status = ALLOC_FAILED;
    if (a && b) {
        double sum = 0;
        for (size_t i = 0; i < (size_t)n; i++)
            sum += (double)a[i * incx] * b[i * incy];
        float rounded = (float)sum;
        status = put(result, &rounded, sizeof rounded);
    }
    free(a), free(b);
    return status;
}

int cublasSaxpy_v2(void *handle, int n, const float *factor, const float *x, int incx, float *y, int incy)
{
    (void)handle;
    size_t bytes = extent(n, incy) * sizeof(float);
    float *f = taken(factor, sizeof *f), *a = taken(x, extent(n, incx) * sizeof *a), *b = taken(y, bytes);
    int status = ALLOC_FAILED;
    if (f && a && b) {
        for (size_t i = 0; i < (size_t)n; i++)
            b[i * incy] += *f * a[i * incx];
        status = put(y, b, bytes);
    }
    free(f), free(a), free(b);
    return status;
}

int cublasSswap_v2(void *handle, int n, float *x, int incx, float *y, int incy)
{
    (void)handle;
    if (incx != 1 || incy != 1)
        return EXECUTION_FAILED;
    size_t bytes = extent(n, 1) * sizeof(float);
    float *a = taken(x, bytes), *b = taken(y, bytes);
    int status = ALLOC_FAILED;
    if (a && b) {
        status = put(x, b, bytes);
        if (status == SUCCESS)
            status = put(y, a, bytes);
    }
    free(a), free(b);
    return status;
}

int cublasCdgmm(void *handle, int side, int m, int n, const float complex *a, int lda, const float complex *x, int incx,
                float complex *c, int ldc)
{
    (void)handle;
    size_t bytes = ((size_t)(n - 1) * ldc + m) * sizeof *c;
    float complex *from = taken(a, ((size_t)(n - 1) * lda + m) * sizeof *a), *to = taken(c, bytes);
    float complex *diagonal = taken(x, extent(side == LEFT ? m : n, incx) * sizeof *x);
    int status = ALLOC_FAILED;
    if (from && to && diagonal) {
        for (size_t j = 0; j < (size_t)n; j++)
            for (size_t i = 0; i < (size_t)m; i++)
                to[j * ldc + i] = from[j * lda + i] * diagonal[(side == LEFT ? i : j) * incx];
        status = put(c, to, bytes);
    }
    free(from), free(to), free(diagonal);
    return status;
}
