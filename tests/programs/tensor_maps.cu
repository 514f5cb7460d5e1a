// Tensor maps: encoded in all three ways, moved to another address, and wrong ones refused. What a
// map holds is the driver's own matter, but it is the same for the same description, and differs
// where descriptions differ.
#include "check.h"
#include "driver.h"

#include <cstring>

static CUdeviceptr memory;
static bool there;

struct alignas(64) Map {
    CUtensorMap map;
    Map() { memset(&map, 0, sizeof map); }
    bool operator==(const Map& other) const { return memcmp(&map, &other.map, sizeof map) == 0; }
};

static const cuuint64_t dims[5] = {64, 32, 16, 8, 4}, strides[4] = {256, 8192, 131072, 1048576};
static const cuuint32_t steps[5] = {1, 1, 1, 1, 1};

static CUresult tiled(Map& map, CUdeviceptr address, cuuint32_t rank, cuuint32_t width) {
    const cuuint32_t box[5] = {width, 8, 4, 2, 1};
    return DRIVER(cuTensorMapEncodeTiled)(&map.map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, reinterpret_cast<void*>(address), dims,
                                          strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                          CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUresult im2col(Map& map, CUdeviceptr address, cuuint32_t rank, int edge) {
    const int lower[3] = {-edge, -edge, -edge}, upper[3] = {-edge, -edge, -edge};
    return DRIVER(cuTensorMapEncodeIm2col)(&map.map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, reinterpret_cast<void*>(address), dims,
                                           strides, lower, upper, 16, 64, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                           CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void describe(const char* what, CUresult result) {
    // Devices without tensor maps say so.
    if (!there) {
        EXPECT(result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE);
        return;
    }
    if (result != CUDA_SUCCESS) {
        printf("%s gave %d\n", what, static_cast<int>(result));
        exit(1);
    }
}

int main() {
    CHECK(cudaFree(nullptr));
    int supported = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 0));
    there = supported != 0;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 8 << 20));
    Map a, b, c;
    describe("cuTensorMapEncodeTiled", tiled(a, memory, 5, 16));
    describe("cuTensorMapEncodeTiled", tiled(b, memory, 5, 16));
    describe("cuTensorMapEncodeTiled", tiled(c, memory + 4096, 5, 16));
    EXPECT(a == b && (!there || !(a == c)));
    CHECK_DRIVER(DRIVER(cuTensorMapReplaceAddress)(&b.map, reinterpret_cast<void*>(memory + 4096)));
    EXPECT(!there || b == c);
    EXPECT_DRIVER(DRIVER(cuTensorMapReplaceAddress)(&b.map, reinterpret_cast<void*>(memory + 8)), CUDA_ERROR_INVALID_VALUE);
    describe("cuTensorMapEncodeIm2col", im2col(a, memory, 5, 1));
    describe("cuTensorMapEncodeIm2col", im2col(b, memory, 5, 2));
    describe("cuTensorMapEncodeIm2col", im2col(c, memory, 4, 1));
    EXPECT(!there || (!(a == b) && !(a == c)));
    if (there) {
        CUresult wide = DRIVER(cuTensorMapEncodeIm2colWide)(
            &b.map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 5, reinterpret_cast<void*>(memory), dims, strides, -1, 1, 16, 64, steps,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        // Only later devices have it.
        const char* name;
        CHECK_DRIVER(DRIVER(cuGetErrorName)(wide, &name));
        printf("cuTensorMapEncodeIm2colWide: %s\n", name);
        EXPECT_DRIVER(tiled(a, memory, 5, 0), CUDA_ERROR_INVALID_VALUE);
        EXPECT_DRIVER(tiled(a, memory + 4, 5, 16), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_DRIVER(im2col(a, memory, 2, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(tiled(a, memory, 6, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuTensorMapReplaceAddress)(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    printf("tensor maps: done\n");
    return outcome();
}
