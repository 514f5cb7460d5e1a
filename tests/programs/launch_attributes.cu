// Launches with attributes: each that is legal works, events among them are recorded, and what
// cannot run is refused at once.
#include "driver.h"

__global__ void add(int* data, int value) { atomicAdd(data, value); }

static void launch(cudaStream_t stream, std::vector<cudaLaunchAttribute> attributes, dim3 grid, int* data, int value,
                   cudaError_t wanted = cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(32);
    config.stream = stream;
    config.attrs = attributes.data();
    config.numAttrs = attributes.size();
    cudaError_t result = cudaLaunchKernelEx(&config, add, data, value);
    if (result != wanted) {
        printf("a launch gave %s\n", cudaGetErrorName(result));
        exit(1);
    }
    (void)cudaGetLastError();
}

static cudaLaunchAttribute attribute(cudaLaunchAttributeID id) {
    cudaLaunchAttribute attribute = {};
    attribute.id = id;
    return attribute;
}

int main() {
    DeviceArray<int> data(1);
    data.zero();
    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    int least = 0, greatest = 0, expected = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));

    launch(stream, {}, 1, data.get(), 1);
    launch(stream, {attribute(cudaLaunchAttributeIgnore)}, 2, data.get(), 1);
    cudaLaunchAttribute priority = attribute(cudaLaunchAttributePriority);
    priority.val.priority = greatest;
    cudaLaunchAttribute serialization = attribute(cudaLaunchAttributeProgrammaticStreamSerialization);
    serialization.val.programmaticStreamSerializationAllowed = 1;
    launch(stream, {priority, serialization}, 3, data.get(), 1);
    launch(stream, {serialization}, 4, data.get(), 1);
    cudaLaunchAttribute domain = attribute(cudaLaunchAttributeMemSyncDomain);
    domain.val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    cudaLaunchAttribute window = attribute(cudaLaunchAttributeAccessPolicyWindow);
    launch(stream, {domain, window}, 5, data.get(), 1);
    cudaLaunchAttribute carveout = attribute(cudaLaunchAttributePreferredSharedMemoryCarveout);
    carveout.val.sharedMemCarveout = 50;
    launch(stream, {carveout}, 6, data.get(), 1);
    expected += 32 * (1 + 2 + 3 + 4 + 5 + 6);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.download()[0] == expected);
    printf("plain attributes: right\n");

    // Events that a launch records.
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (auto id : {cudaLaunchAttributeProgrammaticEvent, cudaLaunchAttributeLaunchCompletionEvent}) {
        cudaLaunchAttribute records = attribute(id);
        if (id == cudaLaunchAttributeProgrammaticEvent) {
            records.val.programmaticEvent.event = event;
        } else {
            records.val.launchCompletionEvent.event = event;
        }
        launch(stream, {records}, 7, data.get(), 1);
        CHECK(cudaStreamWaitEvent(other, event, 0));
        launch(other, {}, 1, data.get(), 1);
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamSynchronize(other));
        expected += 32 * 8;
        EXPECT(data.download()[0] == expected);
    }
    printf("events of launches: right\n");

    // Cooperative launches: as many blocks as fit, and no more.
    cudaLaunchAttribute cooperative = attribute(cudaLaunchAttributeCooperative);
    cooperative.val.cooperative = 1;
    int each = 0, processors = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, add, 32, 0));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    launch(stream, {cooperative}, each * processors, data.get(), 1);
    launch(stream, {cooperative}, each * processors + 1, data.get(), 1, cudaErrorCooperativeLaunchTooLarge);
    expected += 32 * each * processors;
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.download()[0] == expected);
    printf("cooperative launches: right\n");

    // Clusters, where the device has them.
    int clusters = 0;
    CHECK(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, 0));
    if (clusters) {
        cudaLaunchAttribute cluster = attribute(cudaLaunchAttributeClusterDimension);
        cluster.val.clusterDim.x = 2;
        cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
        cudaLaunchAttribute policy = attribute(cudaLaunchAttributeClusterSchedulingPolicyPreference);
        policy.val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
        launch(stream, {cluster, policy}, 8, data.get(), 1);
        expected += 32 * 8;
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(data.download()[0] == expected);
    }

    // Only nodes of graphs can be updated by the device.
    cudaLaunchAttribute updatable = attribute(cudaLaunchAttributeDeviceUpdatableKernelNode);
    updatable.val.deviceUpdatableKernelNode.deviceUpdatable = 1;
    launch(stream, {updatable}, 1, data.get(), 1, cudaErrorNotSupported);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.download()[0] == expected);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    return outcome();
}
