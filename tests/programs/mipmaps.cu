// Mipmapped arrays: their levels, what these say of themselves, and copies into and out of them.
#include "check.h"
#include "driver.h"

#include <cstring>

static void levels(const char* what, size_t width, size_t height, size_t depth, unsigned flags, unsigned count) {
    CUDA_ARRAY3D_DESCRIPTOR d = {};
    d.Width = width, d.Height = height, d.Depth = depth, d.Flags = flags;
    d.Format = CU_AD_FORMAT_UNSIGNED_INT32, d.NumChannels = 1;
    CUmipmappedArray mipmap;
    CHECK_DRIVER(DRIVER(cuMipmappedArrayCreate)(&mipmap, &d, count));
    for (unsigned level = 0; level < count; level++) {
        CUarray array;
        CHECK_DRIVER(DRIVER(cuMipmappedArrayGetLevel)(&array, mipmap, level));
        CUDA_ARRAY3D_DESCRIPTOR said = {};
        CHECK_DRIVER(DRIVER(cuArray3DGetDescriptor)(&said, array));
        printf("%s, level %u: %zu x %zu x %zu\n", what, level, said.Width, said.Height, said.Depth);
        size_t w = said.Width, h = said.Height ? said.Height : 1, n = said.Depth ? said.Depth : 1;
        std::vector<unsigned> in(w * h * n);
        for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<unsigned>(level * 1000003 + i * 17);
        CUDA_MEMCPY3D c = {};
        c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = in.data(), c.srcPitch = w * 4, c.srcHeight = h;
        c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = array;
        c.WidthInBytes = w * 4, c.Height = h, c.Depth = n;
        CHECK_DRIVER(DRIVER(cuMemcpy3D)(&c));
    }
    // Each level has kept what was its own.
    for (unsigned level = 0; level < count; level++) {
        CUarray array;
        CHECK_DRIVER(DRIVER(cuMipmappedArrayGetLevel)(&array, mipmap, level));
        CUDA_ARRAY3D_DESCRIPTOR said = {};
        CHECK_DRIVER(DRIVER(cuArray3DGetDescriptor)(&said, array));
        size_t w = said.Width, h = said.Height ? said.Height : 1, n = said.Depth ? said.Depth : 1;
        std::vector<unsigned> out(w * h * n);
        CUDA_MEMCPY3D c = {};
        c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = array;
        c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = out.data(), c.dstPitch = w * 4, c.dstHeight = h;
        c.WidthInBytes = w * 4, c.Height = h, c.Depth = n;
        CHECK_DRIVER(DRIVER(cuMemcpy3D)(&c));
        for (size_t i = 0; i < out.size(); i++) EXPECT(out[i] == static_cast<unsigned>(level * 1000003 + i * 17));
    }
    CUarray none;
    EXPECT_DRIVER(DRIVER(cuMipmappedArrayGetLevel)(&none, mipmap, count + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMipmappedArrayDestroy)(mipmap));
}

int main() {
    CHECK(cudaFree(nullptr));
    levels("one dimension", 100, 0, 0, 0, 7);
    levels("two dimensions", 64, 40, 0, 0, 7);
    levels("three dimensions", 16, 9, 5, 0, 4);
    levels("layers", 33, 20, 3, CUDA_ARRAY3D_LAYERED, 5);
    levels("a cubemap", 16, 16, 6, CUDA_ARRAY3D_CUBEMAP, 3);

    CUDA_ARRAY3D_DESCRIPTOR d = {};
    d.Width = 64, d.Height = 64, d.Format = CU_AD_FORMAT_FLOAT, d.NumChannels = 1;
    CUmipmappedArray mipmap;
    EXPECT_DRIVER(DRIVER(cuMipmappedArrayCreate)(nullptr, &d, 2), CUDA_ERROR_INVALID_VALUE);
    d.NumChannels = 3;
    EXPECT_DRIVER(DRIVER(cuMipmappedArrayCreate)(&mipmap, &d, 2), CUDA_ERROR_INVALID_VALUE);

    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t runtime;
    CHECK(cudaMallocMipmappedArray(&runtime, &format, make_cudaExtent(32, 32, 0), 3));
    cudaArray_t level;
    CHECK(cudaGetMipmappedArrayLevel(&level, runtime, 2));
    cudaExtent extent;
    CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, level));
    printf("the runtime's: %zu x %zu\n", extent.width, extent.height);
    CHECK(cudaFreeMipmappedArray(runtime));
    printf("mipmaps: done\n");
    return outcome();
}
