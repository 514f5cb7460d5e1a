// Streams wait for and write values in memory, one by one and in batches.
#include "driver.h"

__global__ void multiply(unsigned* value, unsigned by) { *value *= by; }

static CUstreamBatchMemOpParams wait32(CUdeviceptr address, cuuint32_t value, unsigned flags) {
    CUstreamBatchMemOpParams operation = {};
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = address;
    operation.waitValue.value = value;
    operation.waitValue.flags = flags;
    return operation;
}

static CUstreamBatchMemOpParams write64(CUdeviceptr address, cuuint64_t value) {
    CUstreamBatchMemOpParams operation = {};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operation.writeValue.address = address;
    operation.writeValue.value64 = value;
    return operation;
}

static CUstreamBatchMemOpParams write32(CUdeviceptr address, cuuint32_t value) {
    CUstreamBatchMemOpParams operation = {};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = address;
    operation.writeValue.value = value;
    return operation;
}

int main() {
    CHECK(cudaFree(nullptr));
    DeviceArray<unsigned> words(8);
    words.zero();
    CHECK(cudaDeviceSynchronize());
    CUdeviceptr base = reinterpret_cast<CUdeviceptr>(words.get());
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    // Loads the kernel: a driver may wait for the whole device to do so, also for a stream that
    // waits for us.
    multiply<<<1, 1>>>(words.get() + 1, 1);
    CHECK(cudaDeviceSynchronize());

    // The second stream goes on once the first has written, by each condition.
    for (unsigned round = 1; round <= 4; round++) {
        CHECK_DRIVER(DRIVER(cuStreamWaitValue32)(second, base, round, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK_DRIVER(DRIVER(cuStreamWriteValue32)(second, base + 4, round * 3, 0));
        multiply<<<1, 1, 0, second>>>(words.get() + 1, 2);
        EXPECT(cudaStreamQuery(second) == cudaErrorNotReady);
        CHECK_DRIVER(DRIVER(cuStreamWriteValue32)(first, base, round, 0));
        CHECK(cudaStreamSynchronize(second));
        EXPECT(words.download()[1] == round * 6);
    }
    CHECK_DRIVER(DRIVER(cuStreamWaitValue64)(second, base + 8, 0x100000000ull, CU_STREAM_WAIT_VALUE_AND));
    EXPECT(cudaStreamQuery(second) == cudaErrorNotReady);
    CHECK_DRIVER(DRIVER(cuStreamWriteValue64)(first, base + 8, 0x700000001ull, 0));
    CHECK(cudaStreamSynchronize(second));
    printf("one by one: right\n");

    // A batch of waits and writes, in order.
    std::vector<CUstreamBatchMemOpParams> batch = {
        wait32(base + 16, 5, CU_STREAM_WAIT_VALUE_EQ),
        write32(base + 20, 21),
        wait32(base + 20, 21, CU_STREAM_WAIT_VALUE_EQ),
        write64(base + 24, 0x1234567890abcdefull),
    };
    CHECK_DRIVER(DRIVER(cuStreamBatchMemOp)(second, batch.size(), batch.data(), 0));
    EXPECT(cudaStreamQuery(second) == cudaErrorNotReady);
    CUstreamBatchMemOpParams release = write32(base + 16, 5);
    CHECK_DRIVER(DRIVER(cuStreamBatchMemOp)(first, 1, &release, 0));
    CHECK(cudaStreamSynchronize(second));
    std::vector<unsigned> result = words.download();
    EXPECT(result[4] == 5 && result[5] == 21 && result[6] == 0x90abcdef && result[7] == 0x12345678);
    printf("a batch: right\n");

    // The first version of the functions is there where the device says so.
    int has_first = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetAttribute)(&has_first, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0));
    auto write_first = driver_symbol<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32");
    CUresult wanted = has_first ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    EXPECT(write_first(first, base, 9, 0) == wanted);

    CUdeviceptr nowhere = 0;
    EXPECT_DRIVER(DRIVER(cuStreamWriteValue32)(first, base + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuStreamWriteValue32)(first, nowhere, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuStreamBatchMemOp)(first, 1, &release, 1), CUDA_ERROR_INVALID_VALUE);
    release.operation = static_cast<CUstreamBatchMemOpType>(99);
    EXPECT_DRIVER(DRIVER(cuStreamBatchMemOp)(first, 1, &release, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    return outcome();
}
