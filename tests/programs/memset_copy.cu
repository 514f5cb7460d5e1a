// Filling and copying in every shape: widths, pitches, 2-D and 3-D, odd offsets, on the device, to
// itself, async.
#include "check.h"

#include <cstring>
#include "driver.h"

__global__ void fill_with_index(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = i;
}

static void fills() {
    DeviceArray<unsigned char> bytes(1000);
    CHECK(cudaMemset(bytes.get(), 0x11, 1000));
    CHECK(cudaMemset(bytes.get() + 3, 0x22, 5));
    CHECK(cudaMemsetAsync(bytes.get() + 100, 0x33, 101, nullptr));
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(bytes.get());
    CHECK_DRIVER(DRIVER(cuMemsetD16)(address + 300, 0xabcd, 7));
    CHECK_DRIVER(DRIVER(cuMemsetD32)(address + 400, 0x12345678, 3));
    CHECK_DRIVER(DRIVER(cuMemsetD2D8)(address + 500, 50, 0x44, 10, 3));
    std::vector<unsigned char> result = bytes.download(), wanted(1000, 0x11);
    memset(&wanted[3], 0x22, 5);
    memset(&wanted[100], 0x33, 101);
    for (int i = 0; i < 7; i++) {
        wanted[300 + 2 * i] = 0xcd;
        wanted[301 + 2 * i] = 0xab;
    }
    for (int i = 0; i < 3; i++) memcpy(&wanted[400 + 4 * i], "\x78\x56\x34\x12", 4);
    for (int row = 0; row < 3; row++) memset(&wanted[500 + 50 * row], 0x44, 10);
    EXPECT(result == wanted);
    printf("fills: right\n");
}

static void two_dimensions() {
    const size_t width = 37, height = 19;
    std::vector<int> host(width * height), back(width * height, -1);
    for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<int>(i * i);
    int* device = nullptr;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&device, &pitch, width * sizeof(int), height));
    EXPECT(pitch >= width * sizeof(int) && pitch % 32 == 0);
    CHECK(cudaMemset2D(device, pitch, 0xff, width * sizeof(int), height));
    CHECK(cudaMemcpy2D(device, pitch, host.data(), width * sizeof(int), width * sizeof(int), height, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D(back.data(), width * sizeof(int), device, pitch, width * sizeof(int), height, cudaMemcpyDeviceToHost));
    EXPECT(back == host);
    // A window of it, device to device and out.
    DeviceArray<int> window(10 * 5);
    CHECK(cudaMemcpy2D(window.get(), 10 * sizeof(int), reinterpret_cast<char*>(device) + 3 * pitch + 4 * sizeof(int), pitch,
                       10 * sizeof(int), 5, cudaMemcpyDeviceToDevice));
    std::vector<int> seen = window.download();
    for (size_t y = 0; y < 5; y++) {
        for (size_t x = 0; x < 10; x++) EXPECT(seen[y * 10 + x] == host[(y + 3) * width + x + 4]);
    }
    EXPECT_ERROR(cudaMemcpy2D(device, 8, host.data(), 64, 32, 2, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
    cudaGetLastError();
    CHECK(cudaFree(device));
    printf("two dimensions: right\n");
}

static void three_dimensions() {
    const cudaExtent extent = make_cudaExtent(12 * sizeof(int), 7, 5);
    std::vector<int> host(12 * 7 * 5), back(host.size(), -1);
    for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<int>(i) * 3;
    cudaPitchedPtr device;
    CHECK(cudaMalloc3D(&device, extent));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(host.data(), 12 * sizeof(int), 12, 7);
    copy.dstPtr = device;
    copy.extent = extent;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy = {};
    copy.srcPtr = device;
    copy.dstPtr = make_cudaPitchedPtr(back.data(), 12 * sizeof(int), 12, 7);
    copy.srcPos = make_cudaPos(2 * sizeof(int), 1, 2);
    copy.extent = make_cudaExtent(6 * sizeof(int), 4, 3);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    for (size_t z = 0; z < 3; z++) {
        for (size_t y = 0; y < 4; y++) {
            for (size_t x = 0; x < 6; x++) {
                EXPECT(back[(z * 7 + y) * 12 + x] == host[((z + 2) * 7 + y + 1) * 12 + x + 2]);
            }
        }
    }
    EXPECT(back[6] == -1);
    CHECK(cudaFree(device.ptr));
    printf("three dimensions: right\n");
}

static void on_the_device() {
    const int n = 10000;
    DeviceArray<int> a(n), b(n);
    b.zero();
    fill_with_index<<<blocks_for(n, 256), 256>>>(a.get(), n);
    CHECK(cudaMemcpy(b.get() + 11, a.get() + 5, (n - 16) * sizeof(int), cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpyAsync(b.get(), a.get() + 100, 10 * sizeof(int), cudaMemcpyDefault, nullptr));
    std::vector<int> result = b.download();
    for (int i = 0; i < n; i++) {
        EXPECT(result[i] == (i < 10 ? i + 100 : i >= 11 && i < n - 5 ? i - 6 : 0));
    }
    printf("on the device: right\n");
}

static void kinds_of_pointer() {
    cudaPointerAttributes attributes;
    DeviceArray<int> device(100);
    CHECK(cudaPointerGetAttributes(&attributes, device.get() + 50));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == device.get() + 50);
    int on_stack = 0;
    CHECK(cudaPointerGetAttributes(&attributes, &on_stack));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    int* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, 4000));
    CHECK(cudaPointerGetAttributes(&attributes, pinned));
    EXPECT(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned);
    for (int i = 0; i < 1000; i++) pinned[i] = 1000 - i;
    DeviceArray<int> copy(1000);
    CHECK(cudaMemcpyAsync(copy.get(), pinned, 4000, cudaMemcpyDefault, nullptr));
    CHECK(cudaStreamSynchronize(nullptr));
    EXPECT(copy.download()[999] == 1);
    CHECK(cudaFreeHost(pinned));
    printf("kinds of pointer: right\n");
}

// Copies of one stream to the same memory, none of which is waited for before the next is queued:
// the last one's bytes stay.
static void again_and_again() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t bytes : {size_t(4), size_t(70000), size_t(3) << 20}) {
        unsigned char* pinned = nullptr;
        CHECK(cudaMallocHost(&pinned, bytes));
        DeviceArray<unsigned char> device(bytes);
        for (int round = 0; round < 10; round++) {
            for (int i = 0; i < 20; i++) {
                CHECK(cudaMemsetAsync(device.get(), round * 20 + i, bytes, stream));
                CHECK(cudaMemcpyAsync(pinned, device.get(), bytes, cudaMemcpyDeviceToHost, stream));
            }
            CHECK(cudaStreamSynchronize(stream));
            for (size_t i = 0; i < bytes; i += 1009) EXPECT(pinned[i] == (round * 20 + 19) % 256);
            EXPECT(pinned[bytes - 1] == (round * 20 + 19) % 256);
        }
        CHECK(cudaFreeHost(pinned));
    }
    CHECK(cudaStreamDestroy(stream));
    printf("again and again: right\n");
}

int main() {
    CHECK(cudaFree(nullptr));
    again_and_again();
    fills();
    two_dimensions();
    three_dimensions();
    on_the_device();
    kinds_of_pointer();
    return outcome();
}
