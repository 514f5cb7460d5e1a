// Arrays through the driver API: every shape, what they say of themselves, and copies between them
// and everything else.
#include "check.h"
#include "driver.h"

#include <cstring>

static CUstream stream;

static std::vector<unsigned char> pattern(size_t bytes, unsigned seed) {
    std::vector<unsigned char> out(bytes);
    Random random(seed);
    for (auto& byte : out) byte = static_cast<unsigned char>(random.next());
    return out;
}

// Fills an array from the host, copies a box of it to another place in a second array, and reads
// both back.
static void shape(const char* what, CUarray_format format, unsigned channels, size_t element, size_t width, size_t height,
                  size_t depth, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR d = {};
    d.Width = width, d.Height = height, d.Depth = depth, d.Format = format, d.NumChannels = channels, d.Flags = flags;
    CUarray a, b;
    CHECK_DRIVER(DRIVER(cuArray3DCreate)(&a, &d));
    CHECK_DRIVER(DRIVER(cuArray3DCreate)(&b, &d));
    CUDA_ARRAY3D_DESCRIPTOR said = {};
    CHECK_DRIVER(DRIVER(cuArray3DGetDescriptor)(&said, a));
    EXPECT(said.Width == width && said.Height == height && said.Depth == depth);
    EXPECT(said.Format == format && said.NumChannels == channels && said.Flags == flags);
    CUDA_ARRAY_DESCRIPTOR two = {};
    CHECK_DRIVER(DRIVER(cuArrayGetDescriptor)(&two, a));
    EXPECT(two.Width == width && two.Height == height && two.Format == format && two.NumChannels == channels);

    size_t rows = height ? height : 1, slices = depth ? depth : 1, row = width * element;
    std::vector<unsigned char> in = pattern(row * rows * slices, static_cast<unsigned>(width)), out(in.size());
    CUDA_MEMCPY3D c = {};
    c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = in.data(), c.srcPitch = row, c.srcHeight = rows;
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a;
    c.WidthInBytes = row, c.Height = rows, c.Depth = slices;
    CHECK_DRIVER(DRIVER(cuMemcpy3D)(&c));
    // Such a copy may return before the bytes are there, and the stream does not wait for the
    // default one.
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(nullptr));

    // All of it through device memory with a pitch, into the other array.
    size_t pitch = row + 32;
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, pitch * (rows + 1) * slices));
    c = {};
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = a;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = memory, c.dstPitch = pitch, c.dstHeight = rows + 1;
    c.WidthInBytes = row, c.Height = rows, c.Depth = slices;
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&c, stream));
    CUDA_MEMCPY3D back = {};
    back.srcMemoryType = CU_MEMORYTYPE_DEVICE, back.srcDevice = memory, back.srcPitch = pitch, back.srcHeight = rows + 1;
    back.dstMemoryType = CU_MEMORYTYPE_ARRAY, back.dstArray = b;
    back.WidthInBytes = row, back.Height = rows, back.Depth = slices;
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&back, stream));
    // A box from the start of one array to the end of the other.
    size_t w = (width + 1) / 2, h = (rows + 1) / 2, n = (slices + 1) / 2;
    c = {};
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = a;
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = b;
    c.dstXInBytes = (width - w) * element, c.dstY = rows - h, c.dstZ = slices - n;
    c.WidthInBytes = w * element, c.Height = h, c.Depth = n;
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&c, stream));
    c = {};
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = b;
    c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = out.data(), c.dstPitch = row, c.dstHeight = rows;
    c.WidthInBytes = row, c.Height = rows, c.Depth = slices;
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&c, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    std::vector<unsigned char> wanted = in;
    for (size_t z = 0; z < n; z++)
        for (size_t y = 0; y < h; y++)
            memcpy(&wanted[((z + slices - n) * rows + y + rows - h) * row + (width - w) * element], &in[(z * rows + y) * row],
                   w * element);
    EXPECT(out == wanted);
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(a));
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(b));
    printf("%s: right\n", what);
}

static void one_dimension() {
    const size_t width = 3000;
    CUDA_ARRAY_DESCRIPTOR d = {};
    d.Width = width, d.Format = CU_AD_FORMAT_UNSIGNED_INT16, d.NumChannels = 1;
    CUarray a, b;
    CHECK_DRIVER(DRIVER(cuArrayCreate)(&a, &d));
    CHECK_DRIVER(DRIVER(cuArrayCreate)(&b, &d));
    std::vector<unsigned char> in = pattern(width * 2, 5), out(in.size());
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, width * 2));
    void* pinned;
    CHECK_DRIVER(DRIVER(cuMemAllocHost)(&pinned, width * 2));
    CHECK_DRIVER(DRIVER(cuMemcpyHtoA)(a, 0, in.data(), in.size()));
    CHECK_DRIVER(DRIVER(cuMemcpyAtoD)(memory, a, 0, in.size()));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(out.data(), memory, out.size()));
    EXPECT(out == in);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoA)(b, 100, memory + 100, 200));
    CHECK_DRIVER(DRIVER(cuMemcpyAtoA)(b, 300, a, 300, 1000));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    std::fill(out.begin(), out.end(), 0);
    CHECK_DRIVER(DRIVER(cuMemcpyAtoH)(out.data() + 100, b, 100, 1200));
    EXPECT(memcmp(out.data() + 100, in.data() + 100, 1200) == 0);
    printf("cuMemcpyHtoA, AtoD, DtoA, AtoA, AtoH: right\n");
    memcpy(pinned, in.data(), in.size());
    CHECK_DRIVER(DRIVER(cuMemcpyHtoAAsync)(b, 0, pinned, in.size(), stream));
    CHECK_DRIVER(DRIVER(cuMemcpyAtoHAsync)(static_cast<char*>(pinned) + 2000, b, 0, 1000, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(memcmp(static_cast<char*>(pinned) + 2000, in.data(), 1000) == 0);
    printf("cuMemcpyHtoAAsync, AtoHAsync: right\n");
    EXPECT_DRIVER(DRIVER(cuMemcpyHtoA)(a, 5000, in.data(), 2000), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemFreeHost)(pinned));
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(a));
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(b));
}

// Tens of megabytes, by lanes, from and to pageable and page-locked memory.
static void large() {
    const size_t width = 2048, height = 1500, element = 16;
    CUDA_ARRAY_DESCRIPTOR d = {};
    d.Width = width, d.Height = height, d.Format = CU_AD_FORMAT_FLOAT, d.NumChannels = 4;
    CUarray a;
    CHECK_DRIVER(DRIVER(cuArrayCreate)(&a, &d));
    std::vector<unsigned char> in = pattern(width * height * element, 9), out(in.size());
    CUDA_MEMCPY2D c = {};
    c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = in.data(), c.srcPitch = width * element;
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a;
    c.WidthInBytes = width * element, c.Height = height;
    CHECK_DRIVER(DRIVER(cuMemcpy2D)(&c));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(nullptr));
    void* pinned;
    CHECK_DRIVER(DRIVER(cuMemAllocHost)(&pinned, in.size()));
    c = {};
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = a;
    c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = pinned, c.dstPitch = width * element;
    c.WidthInBytes = width * element, c.Height = height;
    CHECK_DRIVER(DRIVER(cuMemcpy2DAsync)(&c, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    EXPECT(memcmp(pinned, in.data(), in.size()) == 0);
    // The middle of it, twice as far apart on the host.
    c.srcXInBytes = 160, c.srcY = 11, c.dstHost = out.data(), c.dstPitch = 2 * 1000 * element;
    c.WidthInBytes = 1000 * element, c.Height = 700;
    CHECK_DRIVER(DRIVER(cuMemcpy2D)(&c));
    for (size_t y = 0; y < 700; y++)
        EXPECT(memcmp(&out[y * 2 * 1000 * element], &in[(y + 11) * width * element + 160], 1000 * element) == 0);
    CHECK_DRIVER(DRIVER(cuMemFreeHost)(pinned));
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(a));
    printf("48 MB: right\n");
}

static void runtime() {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, 30, 20));
    cudaChannelFormatDesc said;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&said, &extent, &flags, array));
    printf("float2: %d %d %d %d, %zu x %zu x %zu, %u\n", said.x, said.y, said.z, said.w, extent.width, extent.height,
           extent.depth, flags);
    std::vector<float2> in(600), out(600);
    for (int i = 0; i < 600; i++) in[i] = make_float2(i, -i);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, in.data(), 240, 240, 20, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DFromArray(out.data(), 240, array, 0, 0, 240, 20, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(in.data(), out.data(), 4800) == 0);
    CHECK(cudaFreeArray(array));
    cudaArray_t volume;
    CHECK(cudaMalloc3DArray(&volume, &format, make_cudaExtent(8, 9, 10), cudaArrayDefault));
    CHECK(cudaFreeArray(volume));
    printf("the runtime's arrays: right\n");
}

static void mistakes() {
    CUarray a = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR d = {};
    d.Width = 10, d.Height = 10, d.Format = CU_AD_FORMAT_FLOAT, d.NumChannels = 3;
    EXPECT_DRIVER(DRIVER(cuArray3DCreate)(&a, &d), CUDA_ERROR_INVALID_VALUE);
    d.NumChannels = 1, d.Width = 0;
    EXPECT_DRIVER(DRIVER(cuArray3DCreate)(&a, &d), CUDA_ERROR_INVALID_VALUE);
    d.Width = 1 << 30;
    EXPECT_DRIVER(DRIVER(cuArray3DCreate)(&a, &d), CUDA_ERROR_INVALID_VALUE);
    d.Width = 10, d.Flags = CUDA_ARRAY3D_CUBEMAP, d.Depth = 5;
    EXPECT_DRIVER(DRIVER(cuArray3DCreate)(&a, &d), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuArray3DCreate)(nullptr, &d), CUDA_ERROR_INVALID_VALUE);
    d.Flags = 0, d.Depth = 0;
    CHECK_DRIVER(DRIVER(cuArray3DCreate)(&a, &d));
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    EXPECT_DRIVER(DRIVER(cuArrayGetMemoryRequirements)(&needs, a, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuArrayGetSparseProperties)(&sparse, a), CUDA_ERROR_INVALID_VALUE);
    CUarray plane;
    EXPECT_DRIVER(DRIVER(cuArrayGetPlane)(&plane, a, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(a));
    EXPECT_DRIVER(DRIVER(cuArrayDestroy)(nullptr), CUDA_ERROR_INVALID_HANDLE);
}

int main() {
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    shape("one dimension", CU_AD_FORMAT_FLOAT, 4, 16, 777, 0, 0, 0);
    shape("two dimensions", CU_AD_FORMAT_UNSIGNED_INT8, 4, 4, 101, 67, 0, 0);
    shape("two dimensions for surfaces", CU_AD_FORMAT_SIGNED_INT32, 2, 8, 40, 50, 0, CUDA_ARRAY3D_SURFACE_LDST);
    shape("three dimensions", CU_AD_FORMAT_HALF, 1, 2, 33, 21, 9, 0);
    shape("layers of one dimension", CU_AD_FORMAT_SIGNED_INT16, 2, 4, 90, 0, 7, CUDA_ARRAY3D_LAYERED);
    shape("layers of two dimensions", CU_AD_FORMAT_UNSIGNED_INT32, 1, 4, 50, 20, 5, CUDA_ARRAY3D_LAYERED);
    shape("a cubemap", CU_AD_FORMAT_FLOAT, 1, 4, 16, 16, 6, CUDA_ARRAY3D_CUBEMAP);
    shape("layers of cubemaps", CU_AD_FORMAT_FLOAT, 2, 8, 8, 8, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED);
    one_dimension();
    large();
    runtime();
    mistakes();
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("arrays: done\n");
    return outcome();
}
