/* The cuFFT of CUDA 13 wants no work area where that of CUDA 11 wanted one. BART allocates as much as it is told, which
 * for 0 bytes is nothing, and frees what it got. */
int cufftMakePlanMany(int plan, int rank, int *n, int *inembed, int istride, int idist, int *onembed, int ostride, int odist,
                      int type, int batch, size_t *size)
{
    int (*later)(int, int, int *, int *, int, int, int *, int, int, int, int, size_t *) = find("cufftMakePlanMany");
    int status = later(plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, size);
    if (status == 0 && *size == 0)
        *size = 512;
    return status;
}
