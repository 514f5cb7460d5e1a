// printf in kernels: every conversion, output that appears at synchronization, in order for one
// thread.
#include "check.h"

__global__ void conversions(const char* text) {
    printf("integers: %d %i %u %x %X %o %c\n", -42, 7, 4000000000u, 0xbeef, 0xBEEF, 8, 'q');
    printf("long: %ld %lld %llu %llx\n", -123456789012L, -9000000000000000000LL, 18000000000000000000ULL, 0x123456789abcULL);
    printf("floats: %f %.3f %e %g %10.4f|%-10.2f|\n", 3.25, -1.0f / 3, 12345.678, 1e-10, 2.5, 2.5);
    printf("widths: [%5d] [%-5d] [%05d] [%+d] [%#x]\n", 42, 42, 42, 42, 42);
    printf("string: %s and %10s, percent %%\n", "literal", "right");
    printf("text in global memory: %s\n", text);
    printf("no arguments\n");
    int returned = printf("%d%d%d\n", 1, 2, 3);
    printf("the call above returned %d\n", returned);
}

__global__ void from_one_thread_each(int wanted) {
    if (static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) == wanted) {
        printf("block %d, thread (%d, %d)\n", blockIdx.x, threadIdx.x, threadIdx.y);
    }
}

__global__ void hello() { printf("hello from the device\n"); }

int main() {
    const char text[] = "written by the host";
    DeviceArray<char> dtext(std::vector<char>(text, text + sizeof(text)));
    conversions<<<1, 1>>>(dtext.get());
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 4; i++) {
        from_one_thread_each<<<2, 64>>>(i * 37);
    }
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    hello<<<1, 3, 0, stream>>>();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    size_t bytes = 0;
    CHECK(cudaDeviceGetLimit(&bytes, cudaLimitPrintfFifoSize));
    EXPECT(bytes >= 1024);
    fflush(stdout);
    return 0;
}
