// Compiled to machine code for one kind of GPU (compute capability 9.0), without PTX: it runs
// there, and everywhere else the launch says that there is no image for the device.
#include "check.h"

__global__ void fill(int* out) { out[threadIdx.x] = static_cast<int>(threadIdx.x) * 3; }

int main() {
    DeviceArray<int> out(64);
    fill<<<1, 64>>>(out.get());
    cudaError_t launched = cudaGetLastError();
    if (launched == cudaSuccess) {
        std::vector<int> values = out.download();
        for (int i = 0; i < 64; i++) EXPECT(values[i] == i * 3);
        printf("no_ptx: machine code ran, right\n");
        return 0;
    }
    printf("no_ptx: %s\n", cudaGetErrorName(launched));
    EXPECT(launched == cudaErrorNoKernelImageForDevice);
    // Where code runs on processors, a wait says so as well: libraries do not always look at what a
    // launch returned.
    cudaError_t waited = cudaDeviceSynchronize();
    EXPECT(waited == cudaSuccess || waited == cudaErrorNoKernelImageForDevice);
    if (waited != cudaSuccess) printf("no_ptx: a wait says so, too\n");
    // That was an error of one kernel; the device is as usable as before.
    out.zero();
    EXPECT(out.download()[5] == 0);
    return 0;
}
