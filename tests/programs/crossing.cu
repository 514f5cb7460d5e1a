// Two devices work together, whatever machine each is on: order between their streams by events, and
// copies from one to the other. Arguments: the two devices; without them 0 and the last one. A
// third one is the name of the only part to run. With "lost", the first device waits for the last
// one until that one's server is gone.
#include <unistd.h>

#include <string>
#include <thread>

#include "door.h"
#include "place.h"

static void synchronous(int here, int there) {
    size_t count = 300000;
    OwnedPlace own(here, count), other(there, count);
    std::vector<unsigned> values(count);
    size_t bytes = count * sizeof(unsigned);
    other.fill(7);
    other.finish();
    own.use();
    CHECK(cudaMemcpy(values.data(), other.memory, bytes, cudaMemcpyDefault));
    for (size_t i = 0; i < count; i++) EXPECT(values[i] == unsigned(i) * 3 + 7);
    CHECK(cudaMemcpyPeer(own.memory, here, other.memory, there, bytes));
    CHECK(cudaDeviceSynchronize());
    own.expect(7);
    for (size_t i = 0; i < count; i++) values[i] = unsigned(i) * 3 + 9;
    own.use();
    CHECK(cudaMemcpy(other.memory, values.data(), bytes, cudaMemcpyDefault));
    CHECK(cudaMemcpy(own.memory, other.memory, bytes, cudaMemcpyDefault));
    CHECK(cudaMemcpy(values.data(), own.memory, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) EXPECT(values[i] == unsigned(i) * 3 + 9);
    // Both sides are the other one's.
    CHECK(cudaMemcpy(other.memory, other.memory + count / 2, bytes / 2, cudaMemcpyDefault));
    CHECK(cudaMemcpy(values.data(), other.memory, bytes / 2, cudaMemcpyDefault));
    for (size_t i = 0; i < count / 2; i++) EXPECT(values[i] == unsigned(i + count / 2) * 3 + 9);
}

// Copies wait for their stream, and the stream for them.
static void in_order(int here, int there) {
    for (size_t count : {size_t(1), size_t(1000), size_t(100000), size_t(1250003), size_t(5000000)}) {
        OwnedPlace own(here, count), other(there, count);
        for (unsigned round = 0; round < 3; round++) {
            // The sender's stream, then the receiver's.
            own.fill(round);
            other.copy_from(own, own.stream);
            own.raise(1000);
            own.record();
            other.wait_for(own);
            other.raise(1);
            own.copy_from(other, other.stream);
            other.raise(1);
            other.record();
            own.wait_for(other);
            own.raise(1);
            own.expect(round + 2);
            other.expect(round + 2);
        }
    }
}

// A number that is raised here and there, with nobody waiting until the end.
static void to_and_fro(int here, int there, unsigned rounds) {
    OwnedPlace own(here, 5000), other(there, 5000);
    own.fill(0);
    for (unsigned round = 0; round < rounds; round++) {
        own.raise(1);
        other.copy_from(own, own.stream);
        own.record();
        other.wait_for(own);
        other.raise(1);
        own.copy_from(other, other.stream);
        other.record();
        own.wait_for(other);
    }
    own.expect(2 * rounds);
}

// By way of page-locked memory, which one device writes and the other reads.
static void through_the_host(int here, int there) {
    size_t count = 200000, bytes = count * sizeof(unsigned);
    OwnedPlace own(here, count), other(there, count);
    unsigned* pinned;
    CHECK(cudaMallocHost(&pinned, bytes));
    for (unsigned round = 0; round < 20; round++) {
        own.fill(round);
        CHECK(cudaMemcpyAsync(pinned, own.memory, bytes, cudaMemcpyDeviceToHost, own.stream));
        own.record();
        other.wait_for(own);
        CHECK(cudaMemcpyAsync(other.memory, pinned, bytes, cudaMemcpyHostToDevice, other.stream));
        other.raise(1);
        other.record();
        own.wait_for(other);
    }
    own.finish();
    other.expect(20);
    CHECK(cudaFreeHost(pinned));
}

static void boxes(int here, int there) {
    const size_t width = 1000, height = 700, deep = 5;
    OwnedPlace own(here, width * height * deep), other(there, width * height * deep);
    size_t pitch;
    char* pitched;
    other.use();
    CHECK(cudaMallocPitch(&pitched, &pitch, width * sizeof(unsigned), height));
    own.fill(3);
    own.finish();
    own.use();
    CHECK(cudaMemcpy2DAsync(pitched, pitch, own.memory, width * sizeof(unsigned), width * sizeof(unsigned), height,
                            cudaMemcpyDefault, own.stream));
    CHECK(cudaMemcpy2DAsync(other.memory, width * sizeof(unsigned), pitched, pitch, width * sizeof(unsigned), height,
                            cudaMemcpyDefault, own.stream));
    own.finish();
    std::vector<unsigned> values(width * height);
    CHECK(cudaMemcpy(values.data(), other.memory, values.size() * sizeof(unsigned), cudaMemcpyDefault));
    for (size_t i = 0; i < values.size(); i++) EXPECT(values[i] == unsigned(i) * 3 + 3);

    cudaArray_t array, back;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaExtent extent = make_cudaExtent(width, height, deep);
    other.use();
    CHECK(cudaMalloc3DArray(&array, &format, extent));
    own.use();
    CHECK(cudaMalloc3DArray(&back, &format, extent));
    cudaMemcpy3DPeerParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(own.memory, width * sizeof(unsigned), width, height);
    copy.srcDevice = here;
    copy.dstArray = array;
    copy.dstDevice = there;
    copy.extent = extent;
    CHECK(cudaMemcpy3DPeerAsync(&copy, own.stream));
    copy = {};
    copy.srcArray = array;
    copy.srcDevice = there;
    copy.dstArray = back;
    copy.dstDevice = here;
    copy.extent = extent;
    CHECK(cudaMemcpy3DPeerAsync(&copy, own.stream));
    CHECK(cudaMemsetAsync(own.memory, 0, own.count * sizeof(unsigned), own.stream));
    cudaMemcpy3DParms home = {};
    home.srcArray = back;
    home.dstPtr = make_cudaPitchedPtr(own.memory, width * sizeof(unsigned), width, height);
    home.extent = extent;
    home.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3DAsync(&home, own.stream));
    own.expect(3);
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(back));
    CHECK(cudaFree(pitched));
}

// Work waits for what is on the other device, and nothing else does.
static void waits(int here, int there) {
    OwnedPlace own(here, 1000), other(there, 1000), aside(there, 1000);
    // Never recorded: nothing to wait for.
    other.wait_for(own);
    other.fill(0);
    other.finish();
    // The record at the time of the call counts.
    Door door, later;
    own.use();
    own.fill(5);
    CHECK(cudaLaunchHostFunc(own.stream, Door::wait, &door));
    own.record();
    other.wait_for(own);
    other.copy_from(own, other.stream);
    EXPECT(cudaStreamQuery(other.stream) == cudaErrorNotReady);
    EXPECT(cudaEventQuery(own.event) == cudaErrorNotReady);
    own.use();
    CHECK(cudaLaunchHostFunc(own.stream, Door::wait, &later));
    own.raise(100);
    own.record();
    // Other streams go on.
    aside.fill(1);
    aside.expect(1);
    door.open = true;
    other.expect(5);
    later.open = true;
    own.expect(105);
    // Events are asked about from either device.
    other.use();
    CHECK(cudaEventSynchronize(own.event));
    CHECK(cudaEventQuery(own.event));
}

// More work waits than a stream of the driver's takes.
static void many(int here, int there) {
    OwnedPlace own(here, 100), other(there, 100);
    Door door;
    own.fill(0);
    other.fill(0);
    own.use();
    CHECK(cudaLaunchHostFunc(own.stream, Door::wait, &door));
    own.record();
    std::thread opens([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        door.open = true;
    });
    for (unsigned round = 0; round < 200; round++) {
        other.wait_for(own);
        for (unsigned one = 0; one < 8; one++) other.raise(1);
        other.record();
        own.wait_for(other);
        own.raise(1);
        own.record();
    }
    opens.join();
    own.expect(200);
    other.expect(1600);
}

// Memory goes while a copy of it waits.
static void freed(int here, int there) {
    size_t count = 1 << 20;
    OwnedPlace own(here, count);
    for (unsigned round = 0; round < 10; round++) {
        OwnedPlace other(there, count);
        other.fill(round);
        other.record();
        own.wait_for(other);
        own.copy_from(other, own.stream);
        other.use();
        CHECK(cudaFree(other.memory));
        CHECK(cudaMalloc(&other.memory, count * sizeof(unsigned)));
        CHECK(cudaMemset(other.memory, 255, count * sizeof(unsigned)));
        own.expect(round);
    }
}

static void at_once(int here, int there) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 6; thread++) {
        threads.emplace_back([=] {
            if (thread % 2 == 0) to_and_fro(here, there, 15);
            if (thread % 2 == 1) to_and_fro(there, here, 15);
            if (thread == 5) through_the_host(there, here);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

// Memory that the program and the device share.
static void managed(int here, int there) {
    size_t count = 50000, bytes = count * sizeof(unsigned);
    OwnedPlace own(here, count);
    unsigned* shared;
    CHECK(cudaSetDevice(there));
    CHECK(cudaMallocManaged(&shared, bytes));
    for (size_t i = 0; i < count; i++) shared[i] = unsigned(i) * 3 + 4;
    add<<<blocks_for(count, 256), 256>>>(shared, count, 2);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyPeer(own.memory, here, shared, there, bytes));
    own.expect(6);
    own.raise(1);
    own.finish();
    CHECK(cudaMemcpyPeer(shared, there, own.memory, here, bytes));
    CHECK(cudaSetDevice(there));
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < count; i++) EXPECT(shared[i] == unsigned(i) * 3 + 7);
    CHECK(cudaFree(shared));
}

// The second device's server goes while the first device waits for it.
static void lost(int here, int there) {
    OwnedPlace own(here, 1000), other(there, 1000);
    Door never;
    own.fill(3);
    other.use();
    CHECK(cudaLaunchHostFunc(other.stream, Door::wait, &never));
    other.record();
    own.wait_for(other);
    own.raise(1);
    own.copy_from(other, own.stream);
    own.raise(1);
    EXPECT(cudaStreamQuery(own.stream) == cudaErrorNotReady);
    printf("waiting\n");
    fflush(stdout);
    own.use();
    // The first wait tells that what was to come from there did not.
    EXPECT(cudaStreamSynchronize(own.stream) == cudaErrorDevicesUnavailable);
    cudaGetLastError();
    while (cudaStreamSynchronize(own.stream) != cudaSuccess) cudaGetLastError();
    own.expect(5);
    EXPECT(cudaMemcpyPeer(own.memory, here, other.memory, there, 4) == cudaErrorDevicesUnavailable);
    cudaGetLastError();
    own.raise(1);
    own.expect(6);
    printf("the other server goes on\n");
    fflush(stdout);
    // What belongs to the lost device cannot be freed.
    _exit(0);
}

int main(int argc, char** argv) {
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    if (argc > 1 && std::string(argv[1]) == "lost") lost(0, devices - 1);
    int first_device = argc > 2 ? atoi(argv[1]) : 0;
    int second_device = argc > 2 ? atoi(argv[2]) : devices - 1;
    EXPECT(first_device != second_device);
    struct Part {
        const char* name;
        void (*run)(int, int);
    };
    const Part parts[] = {
        {"synchronous copies", synchronous}, {"order", in_order},
        {"to and fro", [](int here, int there) { to_and_fro(here, there, 50); }},
        {"through the host", through_the_host}, {"boxes and arrays", boxes}, {"waits", waits},
        {"many waits", many}, {"freed", freed}, {"threads", at_once}, {"managed", managed},
    };
    for (const Part& part : parts) {
        if (argc > 3 && std::string(argv[3]) != part.name) continue;
        part.run(first_device, second_device);
        part.run(second_device, first_device);
        printf("%s\n", part.name);
        fflush(stdout);
    }
    // Devices have clocks of their own, but one server may know both.
    cudaEvent_t one, other;
    float milliseconds;
    CHECK(cudaSetDevice(first_device));
    CHECK(cudaEventCreate(&one));
    CHECK(cudaEventRecord(one));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(second_device));
    CHECK(cudaEventCreate(&other));
    CHECK(cudaEventRecord(other));
    CHECK(cudaDeviceSynchronize());
    cudaError_t apart = cudaEventElapsedTime(&milliseconds, one, other);
    EXPECT(apart == cudaErrorInvalidResourceHandle || apart == cudaSuccess);
    printf("crossing: done\n");
    return outcome();
}
