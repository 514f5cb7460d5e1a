// Captures that go wrong: what is refused, with which error, and what becomes of the capture.
#include "check.h"

#include <thread>

__global__ void add(int* data, int amount) { data[threadIdx.x] += amount; }

static cudaStream_t fresh(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

// The capture was spoilt: it says so, and must still be ended.
static void spoilt(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusInvalidated);
    cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(8);
    EXPECT_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT(graph == nullptr);
    CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusNone);
    (void)cudaGetLastError();
}

int main() {
    DeviceArray<int> data(32);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream = fresh(), other = fresh();
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaGraph_t graph;

    printf("waiting for a stream that captures\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_ERROR(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    spoilt(stream);

    printf("asking a stream that captures\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_ERROR(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    spoilt(stream);

    printf("an allocation\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    int* extra = nullptr;
    EXPECT_ERROR(cudaMalloc(&extra, 64), cudaErrorStreamCaptureUnsupported);
    spoilt(stream);

    printf("an allocation in another thread\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::thread([&] { EXPECT_ERROR(cudaMalloc(&extra, 64), cudaErrorStreamCaptureUnsupported); }).join();
    spoilt(stream);

    printf("an allocation in another thread, beside a capture that minds only its own\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    std::thread([&] {
        CHECK(cudaMalloc(&extra, 64));
        CHECK(cudaFree(extra));
    }).join();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));

    printf("an event of outside\n");
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_ERROR(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    spoilt(stream);

    printf("two captures\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    EXPECT_ERROR(cudaStreamWaitEvent(other, event, 0), cudaErrorStreamCaptureMerge);
    spoilt(stream);
    spoilt(other);

    printf("a stream that was not joined\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    add<<<1, 32, 0, other>>>(data.get(), 1);
    EXPECT_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    (void)cudaGetLastError();

    printf("ending in the other stream\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    EXPECT_ERROR(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
    EXPECT(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
    (void)cudaGetLastError();

    printf("ending in another thread\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    std::thread([&] { EXPECT_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread); }).join();
    EXPECT_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);

    printf("the legacy default stream\n");
    cudaStream_t blocking = fresh(cudaStreamDefault);
    CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    EXPECT_ERROR(cudaMemsetAsync(data.get(), 0, data.bytes(), cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
    spoilt(blocking);

    printf("an event that was captured\n");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    EXPECT_ERROR(cudaEventQuery(event), cudaErrorCapturedEvent);
    EXPECT(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
    (void)cudaGetLastError();
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));

    printf("graphs that make no sense\n");
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t a, b;
    CHECK(cudaGraphAddEmptyNode(&a, graph, nullptr, 0));
    CHECK(cudaGraphAddEmptyNode(&b, graph, &a, 1));
    EXPECT_ERROR(cudaGraphAddDependencies(graph, &a, &a, nullptr, 1), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaGraphRemoveDependencies(graph, &b, &a, nullptr, 1), cudaErrorInvalidValue);
    cudaMemsetParams fill = {};
    EXPECT_ERROR(cudaGraphMemsetNodeGetParams(a, &fill), cudaErrorInvalidValue);
    CHECK(cudaGraphDestroy(graph));
    (void)cudaGetLastError();

    // All is well after all that.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<1, 32, 0, stream>>>(data.get(), 5);
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.download()[31] == 5);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return outcome();
}
