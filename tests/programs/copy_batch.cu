// Batches of copies, in both of their forms.
#include "check.h"
#include "driver.h"

#include <cstring>

static CUstream stream;

static void rows() {
    const size_t count = 40, bytes = 5000;
    std::vector<unsigned char> source(count * bytes), back(count * bytes);
    for (size_t i = 0; i < source.size(); i++) source[i] = static_cast<unsigned char>(i * 31 + i / 253);
    void* pinned;
    CHECK_DRIVER(DRIVER(cuMemAllocHost)(&pinned, count * bytes));
    CUdeviceptr a, b;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&a, count * bytes));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&b, count * bytes));
    std::vector<CUdeviceptr> to, from;
    std::vector<size_t> sizes;
    for (size_t i = 0; i < count; i++) {
        to.push_back(a + i * bytes);
        from.push_back(reinterpret_cast<CUdeviceptr>(source.data()) + (count - 1 - i) * bytes);
        sizes.push_back(bytes - i);
    }
    CHECK_DRIVER(DRIVER(cuMemsetD8Async)(a, 0, count * bytes, stream));
    CUmemcpyAttributes attributes[2] = {};
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes[1].flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    size_t first[2] = {0, 10};
    CHECK_DRIVER(DRIVER(cuMemcpyBatchAsync)(to.data(), from.data(), sizes.data(), count, attributes, first, 2, stream));
    // Within the device, then out, each batch behind the other.
    for (size_t i = 0; i < count; i++) from[i] = to[i], to[i] = b + i * bytes;
    size_t zero = 0;
    CHECK_DRIVER(DRIVER(cuMemcpyBatchAsync)(to.data(), from.data(), sizes.data(), count, attributes + 1, &zero, 1, stream));
    for (size_t i = 0; i < count; i++)
        from[i] = to[i], to[i] = reinterpret_cast<CUdeviceptr>(pinned) + i * bytes;
    CHECK_DRIVER(DRIVER(cuMemcpyBatchAsync)(to.data(), from.data(), sizes.data(), count, attributes + 1, &zero, 1, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    for (size_t i = 0; i < count; i++)
        EXPECT(memcmp(static_cast<char*>(pinned) + i * bytes, &source[(count - 1 - i) * bytes], sizes[i]) == 0);
    printf("cuMemcpyBatchAsync: right\n");

    first[1] = 0;
    EXPECT_DRIVER(DRIVER(cuMemcpyBatchAsync)(to.data(), from.data(), sizes.data(), count, attributes, first, 2, stream),
                  CUDA_ERROR_INVALID_VALUE);
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    EXPECT_DRIVER(DRIVER(cuMemcpyBatchAsync)(to.data(), from.data(), sizes.data(), count, attributes, &zero, 1, stream),
                  CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemcpyBatchAsync)(to.data(), from.data(), sizes.data(), count, attributes + 1, &zero, 1, nullptr),
                  CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemFree)(a));
    CHECK_DRIVER(DRIVER(cuMemFree)(b));
    CHECK_DRIVER(DRIVER(cuMemFreeHost)(pinned));
}

// Boxes, among them into and out of an array, whose elements have eight bytes.
static void boxes() {
    const size_t width = 20, height = 11, depth = 5;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    descriptor.Width = width, descriptor.Height = height, descriptor.Depth = depth;
    descriptor.Format = CU_AD_FORMAT_FLOAT, descriptor.NumChannels = 2;
    CUarray array;
    CHECK_DRIVER(DRIVER(cuArray3DCreate)(&array, &descriptor));
    std::vector<uint64_t> in(width * height * depth), out(in.size(), 0);
    for (size_t i = 0; i < in.size(); i++) in[i] = i * 0x9e3779b97f4a7c15ull;
    CUdeviceptr a, b;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&a, 4000));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&b, 4000));
    std::vector<unsigned char> bytes(4000), found(4000);
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<unsigned char>(i * 3 + i / 256);
    CHECK_DRIVER(DRIVER(cuMemcpyHtoD)(a, bytes.data(), bytes.size()));
    CHECK_DRIVER(DRIVER(cuMemsetD8)(b, 0, 4000));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());

    CUDA_MEMCPY3D_BATCH_OP ops[2] = {};
    ops[0].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[0].src.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(in.data());
    ops[0].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    ops[0].dst.op.array.array = array;
    ops[0].extent = {width, height, depth};
    ops[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    ops[1].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[1].src.op.ptr.ptr = a, ops[1].src.op.ptr.rowLength = 40, ops[1].src.op.ptr.layerHeight = 20;
    ops[1].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[1].dst.op.ptr.ptr = b, ops[1].dst.op.ptr.rowLength = 33, ops[1].dst.op.ptr.layerHeight = 16;
    ops[1].extent = {31, 15, 3};
    ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CHECK_DRIVER(DRIVER(cuMemcpy3DBatchAsync)(2, ops, 0, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(found.data(), b, found.size()));
    for (size_t z = 0; z < 3; z++)
        for (size_t y = 0; y < 15; y++)
            for (size_t x = 0; x < 33; x++)
                EXPECT(found[(z * 16 + y) * 33 + x] == (x < 31 ? bytes[(z * 20 + y) * 40 + x] : 0));

    // A part of the array, back into the middle of host memory.
    CUDA_MEMCPY3D_BATCH_OP part = {};
    part.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    part.src.op.array.array = array, part.src.op.array.offset = {3, 2, 1};
    part.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    part.dst.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(out.data());
    part.dst.op.ptr.rowLength = width, part.dst.op.ptr.layerHeight = height;
    part.extent = {10, 7, 3};
    part.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    CHECK_DRIVER(DRIVER(cuMemcpy3DBatchAsync)(1, &part, 0, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++) {
                bool inside = x < 10 && y < 7 && z < 3;
                uint64_t wanted = inside ? in[((z + 1) * height + y + 2) * width + x + 3] : 0;
                EXPECT(out[(z * height + y) * width + x] == wanted);
            }
    printf("cuMemcpy3DBatchAsync: right\n");
    part.dst.op.ptr.rowLength = 9;
    EXPECT_DRIVER(DRIVER(cuMemcpy3DBatchAsync)(1, &part, 0, stream), CUDA_ERROR_INVALID_VALUE);
    part.dst.op.ptr.rowLength = width, part.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    EXPECT_DRIVER(DRIVER(cuMemcpy3DBatchAsync)(1, &part, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(array));
    CHECK_DRIVER(DRIVER(cuMemFree)(a));
    CHECK_DRIVER(DRIVER(cuMemFree)(b));
}

int main() {
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    rows();
    boxes();
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("copy_batch: done\n");
    return outcome();
}
