// Memory through the driver API: every kind of fill and copy, stream-ordered allocation, registered
// memory, values that streams wait for.
#include "check.h"
#include "driver.h"

#include <cstring>

static CUstream stream;

static std::vector<unsigned char> fetch(CUdeviceptr from, size_t bytes) {
    std::vector<unsigned char> out(bytes);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(out.data(), from, bytes));
    return out;
}

// The bytes that a fill of rows should leave, in a background of 0xee.
static void expect_rows(CUdeviceptr memory, size_t bytes, size_t pitch, size_t element, unsigned value, size_t width,
                        size_t height, const char* what) {
    std::vector<unsigned char> wanted(bytes, 0xee);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) memcpy(&wanted[y * pitch + x * element], &value, element);
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(fetch(memory, bytes) == wanted);
    printf("%s: right\n", what);
    CHECK_DRIVER(DRIVER(cuMemsetD8)(memory, 0xee, bytes));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
}

static void fills() {
    const size_t bytes = 4096, pitch = 256;
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, bytes));
    CHECK_DRIVER(DRIVER(cuMemsetD8)(memory, 0xee, bytes));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    CHECK_DRIVER(DRIVER(cuMemsetD16)(memory, 0x1234, 100));
    expect_rows(memory, bytes, 0, 2, 0x1234, 100, 1, "cuMemsetD16");
    CHECK_DRIVER(DRIVER(cuMemsetD32)(memory, 0x12345678, 100));
    expect_rows(memory, bytes, 0, 4, 0x12345678, 100, 1, "cuMemsetD32");
    CHECK_DRIVER(DRIVER(cuMemsetD8Async)(memory, 0x12, 100, stream));
    expect_rows(memory, bytes, 0, 1, 0x12, 100, 1, "cuMemsetD8Async");
    CHECK_DRIVER(DRIVER(cuMemsetD16Async)(memory, 0x1234, 100, stream));
    expect_rows(memory, bytes, 0, 2, 0x1234, 100, 1, "cuMemsetD16Async");
    CHECK_DRIVER(DRIVER(cuMemsetD32Async)(memory, 0x12345678, 100, stream));
    expect_rows(memory, bytes, 0, 4, 0x12345678, 100, 1, "cuMemsetD32Async");
    CHECK_DRIVER(DRIVER(cuMemsetD2D8)(memory, pitch, 0x21, 33, 7));
    expect_rows(memory, bytes, pitch, 1, 0x21, 33, 7, "cuMemsetD2D8");
    CHECK_DRIVER(DRIVER(cuMemsetD2D16)(memory, pitch, 0x4321, 33, 7));
    expect_rows(memory, bytes, pitch, 2, 0x4321, 33, 7, "cuMemsetD2D16");
    CHECK_DRIVER(DRIVER(cuMemsetD2D32)(memory, pitch, 0x87654321, 33, 7));
    expect_rows(memory, bytes, pitch, 4, 0x87654321, 33, 7, "cuMemsetD2D32");
    CHECK_DRIVER(DRIVER(cuMemsetD2D8Async)(memory, pitch, 0x21, 33, 7, stream));
    expect_rows(memory, bytes, pitch, 1, 0x21, 33, 7, "cuMemsetD2D8Async");
    CHECK_DRIVER(DRIVER(cuMemsetD2D16Async)(memory, pitch, 0x4321, 33, 7, stream));
    expect_rows(memory, bytes, pitch, 2, 0x4321, 33, 7, "cuMemsetD2D16Async");
    CHECK_DRIVER(DRIVER(cuMemsetD2D32Async)(memory, pitch, 0x87654321, 33, 7, stream));
    expect_rows(memory, bytes, pitch, 4, 0x87654321, 33, 7, "cuMemsetD2D32Async");
    EXPECT_DRIVER(DRIVER(cuMemsetD32)(memory + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemsetD8)(memory, 0, 0), CUDA_SUCCESS);
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
}

static void copies() {
    const size_t bytes = 6000;
    std::vector<unsigned char> source(bytes), back(bytes);
    for (size_t i = 0; i < bytes; i++) source[i] = static_cast<unsigned char>(i * 37 + (i >> 8));
    CUdeviceptr a, b;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&a, bytes));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&b, bytes));
    CUcontext context;
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&context));

    CHECK_DRIVER(DRIVER(cuMemcpy)(a, reinterpret_cast<CUdeviceptr>(source.data()), bytes));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoDAsync)(b, a, bytes, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(fetch(b, bytes) == source);
    printf("cuMemcpy, cuMemcpyDtoDAsync: right\n");
    CHECK_DRIVER(DRIVER(cuMemsetD8)(b, 0, bytes));
    CHECK_DRIVER(DRIVER(cuMemcpyPeer)(b, context, a, context, 3000));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    CHECK_DRIVER(DRIVER(cuMemcpyPeerAsync)(b + 3000, context, a + 3000, context, bytes - 3000, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(fetch(b, bytes) == source);
    printf("cuMemcpyPeer, cuMemcpyPeerAsync: right\n");

    // 20 rows of 30 bytes out of rows of 100, to the device, within it and back.
    CUDA_MEMCPY2D two = {};
    two.srcMemoryType = CU_MEMORYTYPE_HOST, two.srcHost = source.data(), two.srcPitch = 100;
    two.srcXInBytes = 5, two.srcY = 2;
    two.dstMemoryType = CU_MEMORYTYPE_DEVICE, two.dstDevice = a, two.dstPitch = 64;
    two.WidthInBytes = 30, two.Height = 20;
    CHECK_DRIVER(DRIVER(cuMemcpy2D)(&two));
    // Such a copy may return before the bytes are there, and the stream does not wait for the
    // default one.
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(nullptr));
    CUDA_MEMCPY2D within = {};
    within.srcMemoryType = CU_MEMORYTYPE_DEVICE, within.srcDevice = a, within.srcPitch = 64;
    within.dstMemoryType = CU_MEMORYTYPE_UNIFIED, within.dstDevice = b, within.dstPitch = 40;
    within.WidthInBytes = 30, within.Height = 20;
    CHECK_DRIVER(DRIVER(cuMemcpy2DAsync)(&within, stream));
    CUDA_MEMCPY2D out = {};
    out.srcMemoryType = CU_MEMORYTYPE_DEVICE, out.srcDevice = b, out.srcPitch = 40;
    out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = back.data(), out.dstPitch = 30;
    out.WidthInBytes = 30, out.Height = 20;
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    CHECK_DRIVER(DRIVER(cuMemcpy2DUnaligned)(&out));
    for (size_t y = 0; y < 20; y++)
        for (size_t x = 0; x < 30; x++) EXPECT(back[y * 30 + x] == source[(y + 2) * 100 + x + 5]);
    printf("cuMemcpy2D, cuMemcpy2DAsync: right\n");

    // A box of 7 x 5 x 3 out of slices of 10 rows of 20 bytes.
    CUDA_MEMCPY3D box = {};
    box.srcMemoryType = CU_MEMORYTYPE_HOST, box.srcHost = source.data(), box.srcPitch = 20, box.srcHeight = 10;
    box.srcXInBytes = 1, box.srcY = 2, box.srcZ = 3;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE, box.dstDevice = a, box.dstPitch = 7, box.dstHeight = 5;
    box.WidthInBytes = 7, box.Height = 5, box.Depth = 3;
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&box, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    std::vector<unsigned char> packed = fetch(a, 7 * 5 * 3);
    for (size_t z = 0; z < 3; z++)
        for (size_t y = 0; y < 5; y++)
            for (size_t x = 0; x < 7; x++)
                EXPECT(packed[(z * 5 + y) * 7 + x] == source[((z + 3) * 10 + y + 2) * 20 + x + 1]);
    printf("cuMemcpy3DAsync: right\n");
    CHECK_DRIVER(DRIVER(cuMemFree)(a));
    CHECK_DRIVER(DRIVER(cuMemFree)(b));
}

static void page_locked() {
    const size_t bytes = 1 << 20;
    void* pinned;
    CHECK_DRIVER(DRIVER(cuMemAllocHost)(&pinned, bytes));
    unsigned flags = 99;
    CHECK_DRIVER(DRIVER(cuMemHostGetFlags)(&flags, pinned));
    std::vector<unsigned char> own(bytes + 4096);
    CHECK_DRIVER(DRIVER(cuMemHostRegister)(own.data(), bytes, CU_MEMHOSTREGISTER_PORTABLE));
    EXPECT_DRIVER(DRIVER(cuMemHostRegister)(own.data(), bytes, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    for (size_t i = 0; i < bytes; i++) own[i] = static_cast<unsigned char>(i * 11);
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAllocAsync)(&memory, bytes, stream));
    CHECK_DRIVER(DRIVER(cuMemcpyHtoDAsync)(memory, own.data(), bytes, stream));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoHAsync)(pinned, memory, bytes, stream));
    // Read again behind the copy that writes it, in the same stream.
    CHECK_DRIVER(DRIVER(cuMemcpyHtoDAsync)(memory, pinned, bytes / 2, stream));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoHAsync)(static_cast<char*>(pinned) + bytes / 2, memory, bytes / 2, stream));
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(memory, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(memcmp(pinned, own.data(), bytes / 2) == 0);
    EXPECT(memcmp(static_cast<char*>(pinned) + bytes / 2, own.data(), bytes / 2) == 0);
    CHECK_DRIVER(DRIVER(cuMemHostUnregister)(own.data()));
    EXPECT_DRIVER(DRIVER(cuMemHostUnregister)(own.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK_DRIVER(DRIVER(cuMemFreeHost)(pinned));
    printf("page-locked memory: right\n");
}

// One stream waits for what another writes.
static void values() {
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 64));
    CHECK_DRIVER(DRIVER(cuMemsetD8)(memory, 0, 64));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    CUstream other;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(DRIVER(cuStreamWaitValue32)(stream, memory, 3, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK_DRIVER(DRIVER(cuStreamWaitValue64)(stream, memory + 8, 0x100000000ull, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_DRIVER(DRIVER(cuMemsetD32Async)(memory + 16, 77, 1, stream));
    EXPECT_DRIVER(DRIVER(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
    CHECK_DRIVER(DRIVER(cuStreamWriteValue32)(other, memory, 5, 0));
    CHECK_DRIVER(DRIVER(cuStreamWriteValue64)(other, memory + 8, 0x100000000ull, 0));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(fetch(memory + 16, 1)[0] == 77);
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(other));
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    printf("values that streams wait for: right\n");
}

int main() {
    CHECK(cudaFree(nullptr));  // the primary context is there and current
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    fills();
    copies();
    page_locked();
    values();
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("driver_memory: done\n");
    return outcome();
}
