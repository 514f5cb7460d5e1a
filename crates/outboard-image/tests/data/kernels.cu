// Source of the recorded images in this directory, compiled with CUDA 13.0:
//   nvcc -fatbin --compress-mode=size -gencode arch=compute_75,code=sm_75 -gencode
//   arch=compute_75,code=compute_75
//        -gencode arch=compute_90,code=compute_90 -gencode arch=compute_90a,code=sm_90a -o
//        zstd.fatbin kernels.cu
//   nvcc -fatbin --compress-mode=speed -gencode arch=compute_75,code=compute_75 -o lz4.fatbin
//   kernels.cu nvcc -cubin -arch=sm_90 -DLARGE -o large.cubin kernels.cu
#ifdef LARGE
struct Block { char bytes[5000]; int last; };
extern "C" __global__ void large(Block block, int *out) { *out = block.bytes[blockIdx.x] + block.last; }
#else
struct Pair { char a; double b; };
extern "C" __global__ void axpy(float *y, const float *x, float a, int n, Pair p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i] + p.a;
}
extern "C" __global__ void fill(char c, char *out) { out[threadIdx.x] = c; }
extern "C" __global__ void nop() {}
#endif
