// What a program does with several devices, part by part, wherever each of them is. Arguments: the
// part, and how many devices each machine has: what machines cannot do with each other must be
// refused by name, and nothing else may come of it. The output does not say where the devices are.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "door.h"
#include "driver.h"
#include "place.h"

static const size_t COUNT = 60001;
static const size_t BYTES = COUNT * sizeof(unsigned);

static int devices, each;

static bool are_together(int one, int other) { return one / each == other / each; }

// The call succeeds between devices of one machine, and is refused between two.
#define TOGETHER(one, other, call)                                                                       \
    do {                                                                                                 \
        cudaError_t together_result = (call);                                                            \
        cudaError_t together_wanted = are_together(one, other) ? cudaSuccess : cudaErrorNotSupported;    \
        if (together_result != together_wanted) {                                                        \
            printf("%s:%d: %s for devices %d and %d gave %s\n", __FILE__, __LINE__, #call, one, other,   \
                   cudaGetErrorName(together_result));                                                   \
            exit(1);                                                                                     \
        }                                                                                                \
        cudaGetLastError();                                                                              \
    } while (0)

static void use(int device) { CHECK(cudaSetDevice(device)); }

static std::vector<Place*> places(unsigned stream_flags = cudaStreamNonBlocking) {
    std::vector<Place*> all;
    for (int device = 0; device < devices; device++) all.push_back(new Place(device, COUNT, stream_flags));
    return all;
}

static bool reaches(int one, int other) {
    int reach = 0;
    CHECK(cudaDeviceCanAccessPeer(&reach, one, other));
    return reach == 1;
}

// Devices of one machine use each other's memory, as devices of two machines do by way of copies.
static void give_access() {
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other || !reaches(one, other)) continue;
            use(one);
            CHECK(cudaDeviceEnablePeerAccess(other, 0));
        }
    }
}

// The device may use the pool's memory, if it reaches the device that has it.
static cudaError_t give_access(cudaMemPool_t pool, int device) {
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    return cudaMemPoolSetAccess(pool, &access, 1);
}

static void release(std::vector<Place*>& all) {
    for (Place* place : all) {
        place->release();
        delete place;
    }
}

// All devices work.
static void expect_work(unsigned seed) {
    auto all = places();
    for (Place* place : all) place->fill(seed + unsigned(place->device));
    for (Place* place : all) place->expect(seed + unsigned(place->device));
    release(all);
}

// One machine to whoever asks.
static void machine() {
    std::map<std::string, int> addresses, uuids;
    for (int device = 0; device < devices; device++) {
        char address[64];
        cudaDeviceProp properties;
        CHECK(cudaDeviceGetPCIBusId(address, sizeof address, device));
        CHECK(cudaGetDeviceProperties(&properties, device));
        addresses[address]++;
        uuids[std::string(properties.uuid.bytes, 16)]++;
        int found = -1;
        CHECK(cudaDeviceGetByPCIBusId(&found, address));
        EXPECT(found == device && properties.name[0] != 0);
        Place own(device, COUNT);
        for (int other = 0; other < devices; other++) {
            // Memory is its own device's, whichever is current.
            use(other);
            cudaPointerAttributes about;
            CHECK(cudaPointerGetAttributes(&about, own.memory + 5));
            EXPECT(about.type == cudaMemoryTypeDevice && about.device == device);
            int reach = -1, supported = -1;
            CHECK(cudaDeviceCanAccessPeer(&reach, device, other));
            if (other == device) continue;
            CHECK(cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrAccessSupported, device, other));
            EXPECT(supported == reach);
            if (are_together(device, other)) continue;
            EXPECT(reach == 0);
            for (int attribute = 1; attribute <= 4; attribute++) {
                CHECK(cudaDeviceGetP2PAttribute(&supported, cudaDeviceP2PAttr(attribute), device, other));
                EXPECT(attribute == 1 || supported == 0);
            }
            use(device);
            EXPECT(cudaDeviceEnablePeerAccess(other, 0) == cudaErrorPeerAccessUnsupported);
            EXPECT(cudaDeviceDisablePeerAccess(other) == cudaErrorPeerAccessNotEnabled);
            cudaGetLastError();
        }
        own.release();
    }
    EXPECT(int(addresses.size()) == devices && int(uuids.size()) == devices);
}

struct Order {
    std::atomic<int> first{0};
    int seen = -1;
    static void CUDART_CB set(void* order) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        static_cast<Order*>(order)->first = 1;
    }
    static void CUDART_CB look(void* order) { static_cast<Order*>(order)->seen = static_cast<Order*>(order)->first; }
};

// Streams of all devices wait for each other.
static void events() {
    auto all = places();
    all[0]->fill(0);
    all[0]->record();
    const unsigned rounds = 12;
    // The values go round, with nobody waiting; the sender's stream copies, then the receiver's.
    for (unsigned step = 0; step < rounds * unsigned(devices); step++) {
        Place &from = *all[step % devices], &to = *all[(step + 1) % devices];
        if (step % 2 == 0) {
            to.wait_for(from);
            to.copy_from(from, to.stream);
        } else {
            from.wait_for(to);
            to.copy_from(from, from.stream);
            from.record();
            to.wait_for(from);
        }
        to.raise(1);
        to.record();
    }
    all[0]->expect(rounds * unsigned(devices));
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other) continue;
            Place &first = *all[one], &second = *all[other];
            // Host functions, too, are in that order.
            Order order;
            use(one);
            CHECK(cudaLaunchHostFunc(first.stream, Order::set, &order));
            first.record();
            second.wait_for(first);
            CHECK(cudaLaunchHostFunc(second.stream, Order::look, &order));
            second.finish();
            EXPECT(order.seen == 1);
            // An event of another device cannot be recorded, but asked and waited for.
            EXPECT(cudaEventRecord(first.event, second.stream) == cudaErrorInvalidResourceHandle);
            cudaGetLastError();
            CHECK(cudaEventQuery(first.event));
            CHECK(cudaEventSynchronize(first.event));
            // Each machine has a clock of its own.
            cudaEvent_t begun, done;
            use(one);
            CHECK(cudaEventCreate(&begun));
            CHECK(cudaEventRecord(begun, first.stream));
            CHECK(cudaEventSynchronize(begun));
            use(other);
            CHECK(cudaEventCreate(&done));
            CHECK(cudaEventRecord(done, second.stream));
            CHECK(cudaEventSynchronize(done));
            float milliseconds;
            cudaError_t apart = cudaEventElapsedTime(&milliseconds, begun, done);
            EXPECT(apart == cudaErrorInvalidResourceHandle || (are_together(one, other) && apart == cudaSuccess));
            cudaGetLastError();
            CHECK(cudaEventDestroy(begun));
            CHECK(cudaEventDestroy(done));
            // The legacy streams, by an event that is destroyed while it is waited for.
            cudaEvent_t brief;
            use(one);
            CHECK(cudaEventCreateWithFlags(&brief, cudaEventDisableTiming));
            put<<<blocks_for(COUNT, 256), 256>>>(first.memory, COUNT, 40);
            CHECK(cudaEventRecord(brief, nullptr));
            use(other);
            CHECK(cudaStreamWaitEvent(nullptr, brief, 0));
            CHECK(cudaMemcpyAsync(second.memory, first.memory, BYTES, cudaMemcpyDefault, nullptr));
            add<<<blocks_for(COUNT, 256), 256>>>(second.memory, COUNT, 2);
            CHECK(cudaEventDestroy(brief));
            CHECK(cudaStreamSynchronize(nullptr));
            second.expect(42);
        }
    }
    release(all);
}

// A copy that is not asynchronous comes after earlier work of both devices and before their later
// work in streams that are in step with their default streams, whichever device is current.
static void synchronous() {
    auto all = places(cudaStreamDefault);
    Order slow;
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other) continue;
            Place &from = *all[one], &to = *all[other];
            for (int current = 0; current < devices; current++) {
                for (bool peer : {false, true}) {
                    unsigned seed = unsigned(10 * current + peer);
                    use(one);
                    CHECK(cudaLaunchHostFunc(from.stream, Order::set, &slow));
                    from.fill(seed);
                    to.fill(900);
                    use(current);
                    if (peer) {
                        CHECK(cudaMemcpyPeer(to.memory, other, from.memory, one, BYTES));
                    } else {
                        CHECK(cudaMemcpy(to.memory, from.memory, BYTES, cudaMemcpyDefault));
                    }
                    from.fill(700);
                    to.raise(1);
                    to.expect(seed + 1);
                    from.expect(700);
                }
            }
        }
    }
    release(all);
}

// An asynchronous copy without a stream is in step with the streams of both devices that are in step
// with their default streams, whichever device is current, and nobody waits for it.
static void legacy() {
    auto all = places(cudaStreamDefault);
    unsigned seed = 0;
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other) continue;
            Place &from = *all[one], &to = *all[other];
            for (int current = 0; current < devices; current++) {
                // What comes before it, on either device, ...
                for (Place* slow : {&from, &to}) {
                    Door door;
                    seed += 10;
                    from.fill(900);
                    to.fill(900);
                    from.finish();
                    to.finish();
                    use(slow->device);
                    CHECK(cudaLaunchHostFunc(slow->stream, Door::wait, &door));
                    from.fill(seed);
                    to.fill(700);
                    use(current);
                    CHECK(cudaMemcpyPeerAsync(to.memory, other, from.memory, one, BYTES, nullptr));
                    // ... and what comes behind it.
                    from.fill(500);
                    to.raise(1);
                    use(slow->device);
                    EXPECT(cudaStreamQuery(slow->stream) == cudaErrorNotReady);
                    door.open = true;
                    to.expect(seed + 1);
                    from.expect(500);
                }
            }
        }
    }
    release(all);
}

// Memory that the program and a device share.
static void managed() {
    auto all = places();
    std::vector<unsigned*> shared;
    for (Place* place : all) {
        unsigned* memory;
        use(place->device);
        CHECK(cudaMallocManaged(&memory, BYTES));
        for (size_t i = 0; i < COUNT; i++) memory[i] = unsigned(i) * 3 + 100 * unsigned(place->device);
        shared.push_back(memory);
    }
    for (Place* place : all) place->raise(shared[place->device], 1);
    for (Place* place : all) place->finish();
    for (int device = 0; device < devices; device++) {
        for (size_t i = 0; i < COUNT; i++) EXPECT(shared[device][i] == unsigned(i) * 3 + 100 * unsigned(device) + 1);
    }
    // From one device's to the next one's, and on to plain memory.
    for (int device = 0; device < devices; device++) {
        int next = (device + 1) % devices;
        use(device);
        CHECK(cudaMemcpy(shared[next], shared[device], BYTES, cudaMemcpyDefault));
        for (size_t i = 0; i < COUNT; i++) EXPECT(shared[next][i] == unsigned(i) * 3 + 1);
        CHECK(cudaMemcpy(all[device]->memory, shared[next], BYTES, cudaMemcpyDefault));
        all[device]->expect(1);
    }
    // Used on two devices.
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other) continue;
            all[one]->finish();
            all[one]->fill(shared[one], 7);
            all[one]->finish();
            use(other);
            add<<<blocks_for(COUNT, 256), 256, 0, all[other]->stream>>>(shared[one], COUNT, 9);
            CHECK(cudaGetLastError());
            all[other]->finish();
            for (size_t i = 0; i < COUNT; i += 7) EXPECT(shared[one][i] == unsigned(i) * 3 + 16);
            // In turns, in the order of events; the program waits for the last one.
            for (int step = 0; step < 4; step++) {
                Place &from = *all[step % 2 ? other : one], &to = *all[step % 2 ? one : other];
                from.raise(shared[one], 1);
                from.record();
                to.wait_for(from);
            }
            all[one]->finish();
            for (size_t i = 0; i < COUNT; i++) EXPECT(shared[one][i] == unsigned(i) * 3 + 20);
            // Wishes of all devices.
            cudaMemLocation wished = {cudaMemLocationTypeDevice, other};
            CHECK(cudaMemAdvise(shared[one], BYTES, cudaMemAdviseSetAccessedBy, wished));
            CHECK(cudaMemPrefetchAsync(shared[one], BYTES, wished, 0, all[other]->stream));
            all[other]->finish();
        }
    }
    for (Place* place : all) {
        use(place->device);
        CHECK(cudaFree(shared[place->device]));
    }
    release(all);
}

// Stream-ordered memory.
static void pools() {
    auto all = places();
    for (int one = 0; one < devices; one++) {
        int other = (one + 1) % devices;
        Place &first = *all[one], &second = *all[other];
        unsigned *here, *there;
        cudaMemPool_t pool;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, one));
        if (reaches(one, other)) CHECK(give_access(pool, other));
        use(one);
        CHECK(cudaMallocAsync(reinterpret_cast<void**>(&here), BYTES, first.stream));
        first.fill(here, 5);
        first.record();
        second.wait_for(first);
        CHECK(cudaMallocAsync(reinterpret_cast<void**>(&there), BYTES, second.stream));
        CHECK(cudaMemcpyAsync(there, here, BYTES, cudaMemcpyDefault, second.stream));
        second.raise(there, 1);
        second.record();
        first.wait_for(second);
        CHECK(cudaFreeAsync(here, first.stream));
        CHECK(cudaMallocAsync(reinterpret_cast<void**>(&here), BYTES, first.stream));
        first.fill(here, 200);
        second.expect(there, 6);
        first.expect(here, 200);
        // Memory goes in a stream of its own machine.
        use(other);
        cudaError_t freed = cudaFreeAsync(here, second.stream);
        EXPECT(freed == (are_together(one, other) ? cudaSuccess : cudaErrorNotSupported));
        cudaGetLastError();
        CHECK(cudaFreeAsync(there, second.stream));
        second.finish();
        if (!are_together(one, other)) {
            first.expect(here, 200);
            CHECK(cudaFreeAsync(here, first.stream));
        }
        first.finish();
        cudaMemPoolProps properties = {};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id = one;
        CHECK(cudaMemPoolCreate(&pool, &properties));
        EXPECT((give_access(pool, other) == cudaSuccess) == reaches(one, other));
        cudaGetLastError();
        CHECK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&here), BYTES, pool, first.stream));
        first.fill(here, 8);
        first.record();
        second.wait_for(first);
        CHECK(cudaMemcpyAsync(second.memory, here, BYTES, cudaMemcpyDefault, second.stream));
        second.expect(8);
        use(one);
        CHECK(cudaFreeAsync(here, first.stream));
        first.finish();
        CHECK(cudaMemPoolDestroy(pool));
    }
    release(all);
}

static cudaGraphExec_t instantiated(cudaGraph_t graph) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static void graphs() {
    auto all = places();
    // One for each device, with an event that streams of the next device wait for.
    std::vector<cudaGraphExec_t> own;
    for (Place* place : all) {
        cudaGraph_t graph;
        use(place->device);
        CHECK(cudaStreamBeginCapture(place->stream, cudaStreamCaptureModeThreadLocal));
        place->raise(1);
        CHECK(cudaEventRecordWithFlags(place->event, place->stream, cudaEventRecordExternal));
        CHECK(cudaStreamEndCapture(place->stream, &graph));
        own.push_back(instantiated(graph));
    }
    all[0]->fill(0);
    const unsigned rounds = 4;
    for (unsigned step = 0; step < rounds * unsigned(devices); step++) {
        Place &from = *all[step % devices], &to = *all[(step + 1) % devices];
        use(from.device);
        CHECK(cudaGraphLaunch(own[from.device], from.stream));
        to.wait_for(from);
        to.copy_from(from, to.stream);
        to.record();
        from.wait_for(to);
    }
    all[0]->expect(rounds * unsigned(devices));
    for (cudaGraphExec_t exec : own) CHECK(cudaGraphExecDestroy(exec));

    // Nodes of two devices.
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other) continue;
            Place &first = *all[one], &second = *all[other];
            first.fill(1);
            first.finish();
            second.fill(2);
            second.finish();
            cudaGraph_t graph;
            cudaGraphNode_t node;
            CHECK(cudaGraphCreate(&graph, 0));
            size_t count = COUNT;
            unsigned by = 10;
            std::vector<cudaGraphNode_t> before;
            for (Place* place : {&first, &second}) {
                void* arguments[] = {&place->memory, &count, &by};
                cudaKernelNodeParams kernel = {};
                kernel.func = reinterpret_cast<void*>(add);
                kernel.gridDim = dim3(blocks_for(COUNT, 256)), kernel.blockDim = dim3(256), kernel.kernelParams = arguments;
                use(place->device);
                CHECK(cudaGraphAddKernelNode(&node, graph, before.data(), before.size(), &kernel));
                before.push_back(node);
            }
            use(one);
            cudaGraphExec_t exec = instantiated(graph);
            CHECK(cudaGraphLaunch(exec, first.stream));
            first.finish();
            CHECK(cudaGraphExecDestroy(exec));
            first.expect(11);
            second.expect(12);
            // A capture that another device's stream joins.
            use(one);
            CHECK(cudaStreamBeginCapture(first.stream, cudaStreamCaptureModeThreadLocal));
            first.raise(1);
            first.record();
            second.wait_for(first);
            second.raise(1);
            second.record();
            first.wait_for(second);
            // Whichever device is current.
            use(other);
            CHECK(cudaStreamEndCapture(first.stream, &graph));
            CHECK(cudaGraphLaunch(exec = instantiated(graph), first.stream));
            first.finish();
            CHECK(cudaGraphExecDestroy(exec));
            first.expect(12);
            second.expect(13);
            // A captured copy.
            CHECK(cudaStreamBeginCapture(first.stream, cudaStreamCaptureModeThreadLocal));
            second.copy_from(first, first.stream);
            first.raise(1);
            CHECK(cudaStreamEndCapture(first.stream, &graph));
            second.finish();
            CHECK(cudaGraphLaunch(exec = instantiated(graph), first.stream));
            first.finish();
            CHECK(cudaGraphExecDestroy(exec));
            first.expect(13);
            second.expect(12);
        }
    }
    // One graph of all devices, as a ring, launched in a stream of each in turn.
    cudaGraph_t graph;
    use(0);
    CHECK(cudaStreamBeginCapture(all[0]->stream, cudaStreamCaptureModeThreadLocal));
    for (int device = 0; device < devices; device++) {
        Place &from = *all[device], &to = *all[(device + 1) % devices];
        from.raise(1);
        from.record();
        to.wait_for(from);
        to.copy_from(from, to.stream);
    }
    use(0);
    CHECK(cudaStreamEndCapture(all[0]->stream, &graph));
    cudaGraphExec_t exec = instantiated(graph);
    all[0]->fill(0);
    all[0]->finish();
    for (unsigned round = 0; round < 3; round++) {
        for (Place* place : all) CHECK(cudaGraphLaunch(exec, place->stream));
    }
    for (Place* place : all) place->finish();
    all[0]->expect(3 * unsigned(devices) * unsigned(devices));
    CHECK(cudaGraphExecDestroy(exec));
    release(all);
}

// Page-locked memory is all devices' for copies, however it was made.
static void host() {
    auto all = places();
    for (int made = 0; made < 3; made++) {
        unsigned* memory;
        use(0);
        if (made == 0) CHECK(cudaHostAlloc(&memory, BYTES, cudaHostAllocPortable));
        if (made == 1) CHECK(cudaHostAlloc(&memory, BYTES, cudaHostAllocMapped));
        if (made == 2) {
            void* pages = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            EXPECT(pages != MAP_FAILED);
            memory = static_cast<unsigned*>(pages);
            CHECK(cudaHostRegister(memory, BYTES, cudaHostRegisterPortable));
        }
        // From device to device by way of it.
        all[0]->fill(0);
        for (int step = 0; step < 3 * devices; step++) {
            Place &from = *all[step % devices], &to = *all[(step + 1) % devices];
            use(from.device);
            CHECK(cudaMemcpyAsync(memory, from.memory, BYTES, cudaMemcpyDeviceToHost, from.stream));
            from.record();
            to.wait_for(from);
            CHECK(cudaMemcpyAsync(to.memory, memory, BYTES, cudaMemcpyHostToDevice, to.stream));
            to.raise(1);
            to.record();
            from.wait_for(to);
        }
        all[0]->expect(3 * unsigned(devices));
        // All at once from the same.
        for (size_t i = 0; i < COUNT; i++) memory[i] = unsigned(i) * 3 + 8;
        for (Place* place : all) {
            use(place->device);
            CHECK(cudaMemcpyAsync(place->memory, memory, BYTES, cudaMemcpyDefault, place->stream));
        }
        for (Place* place : all) place->expect(8);
        // Kernels of all devices use it.
        unsigned* address;
        use(0);
        CHECK(cudaHostGetDevicePointer(&address, memory, 0));
        all[0]->raise(address, 1);
        all[0]->finish();
        EXPECT(memory[0] == 9 && memory[COUNT - 1] == unsigned(COUNT - 1) * 3 + 9);
        unsigned total = 9;
        for (int other = 1; other < devices; other++) {
            use(other);
            cudaPointerAttributes about;
            CHECK(cudaPointerGetAttributes(&about, memory));
            EXPECT(about.type == cudaMemoryTypeHost);
            CHECK(cudaHostGetDevicePointer(&address, memory, 0));
            EXPECT(address == memory);
            add<<<blocks_for(COUNT, 256), 256, 0, all[other]->stream>>>(address, COUNT, 1);
            CHECK(cudaGetLastError());
            all[other]->finish();
            total++;
            EXPECT(memory[0] == total && memory[COUNT - 1] == unsigned(COUNT - 1) * 3 + total);
        }
        use(0);
        if (made == 2) {
            CHECK(cudaHostUnregister(memory));
            munmap(memory, BYTES);
        } else {
            CHECK(cudaFreeHost(memory));
        }
    }
    release(all);
}

// Elements of a row that a fill sets, and of the gap behind it.
static const size_t WIDTH = 100, GAP = 28, ROWS = 50;

// Fills of each width, in rows and in one piece, with or without a stream. A stream is told from the
// default one by whether it is null.
template <typename T>
static void fill_with(const Place& of, cudaStream_t stream) {
    CUdeviceptr memory = CUdeviceptr(of.memory);
    size_t pitch = (WIDTH + GAP) * sizeof(T), behind = ROWS * pitch;
    if (sizeof(T) == 1 && stream) {
        CHECK_DRIVER(DRIVER(cuMemsetD2D8Async)(memory, pitch, 0x5a, WIDTH, ROWS, stream));
        CHECK_DRIVER(DRIVER(cuMemsetD8Async)(memory + behind, 0x3c, WIDTH, stream));
    } else if (sizeof(T) == 1) {
        CHECK_DRIVER(DRIVER(cuMemsetD2D8)(memory, pitch, 0x5a, WIDTH, ROWS));
        CHECK_DRIVER(DRIVER(cuMemsetD8)(memory + behind, 0x3c, WIDTH));
    } else if (sizeof(T) == 2 && stream) {
        CHECK_DRIVER(DRIVER(cuMemsetD2D16Async)(memory, pitch, 0x5a, WIDTH, ROWS, stream));
        CHECK_DRIVER(DRIVER(cuMemsetD16Async)(memory + behind, 0x3c, WIDTH, stream));
    } else if (sizeof(T) == 2) {
        CHECK_DRIVER(DRIVER(cuMemsetD2D16)(memory, pitch, 0x5a, WIDTH, ROWS));
        CHECK_DRIVER(DRIVER(cuMemsetD16)(memory + behind, 0x3c, WIDTH));
    } else if (stream) {
        CHECK_DRIVER(DRIVER(cuMemsetD2D32Async)(memory, pitch, 0x5a, WIDTH, ROWS, stream));
        CHECK_DRIVER(DRIVER(cuMemsetD32Async)(memory + behind, 0x3c, WIDTH, stream));
    } else {
        CHECK_DRIVER(DRIVER(cuMemsetD2D32)(memory, pitch, 0x5a, WIDTH, ROWS));
        CHECK_DRIVER(DRIVER(cuMemsetD32)(memory + behind, 0x3c, WIDTH));
    }
}

// Between two fills of all with 0xee, in the order of a stream of another device.
template <typename T>
static void fill_each_way(const Place& by, const Place& of, cudaStream_t stream) {
    const size_t row = WIDTH + GAP, count = row * ROWS + WIDTH + GAP;
    std::vector<T> values(count);
    use(by.device);
    CHECK(cudaMemsetAsync(of.memory, 0xee, count * sizeof(T), stream));
    fill_with<T>(of, stream);
    CHECK(cudaMemcpyAsync(values.data(), of.memory, count * sizeof(T), cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++) {
        T untouched = T(0xeeeeeeee), wanted = i < row * ROWS ? 0x5a : 0x3c;
        EXPECT(values[i] == (i % row < WIDTH ? wanted : untouched));
    }
}

// A fill waits for its stream, and what is behind it in the stream waits for the fill.
static void fill_in_order(Place& by, Place& of, unsigned* shared) {
    static Order slow;
    by.fill(9);
    of.fill(6);
    of.finish();
    use(by.device);
    CHECK(cudaLaunchHostFunc(by.stream, Order::set, &slow));
    by.copy_from(of, by.stream);
    CHECK(cudaMemsetAsync(of.memory, 0, BYTES, by.stream));
    by.raise(1);
    by.record();
    of.wait_for(by);
    use(of.device);
    CHECK(cudaMemcpyAsync(shared, of.memory, BYTES, cudaMemcpyDefault, of.stream));
    of.finish();
    // The copy before the fill took what was there; the memory's own device sees the fill.
    by.expect(7);
    for (size_t i = 0; i < COUNT; i++) EXPECT(shared[i] == 0);
}

// Memory that the program sees, too, is filled when a call without a stream returns.
static void fill_shared(const Place& by, unsigned* shared) {
    for (size_t i = 0; i < COUNT; i++) shared[i] = 5;
    use(by.device);
    CHECK(cudaMemset(shared, 1, BYTES));
    for (size_t i = 0; i < COUNT; i++) EXPECT(shared[i] == 0x01010101);
    CHECK(cudaMemsetAsync(shared, 2, BYTES / 2 / 4 * 4, by.stream));
    CHECK(cudaStreamSynchronize(by.stream));
    for (size_t i = 0; i < COUNT; i++) EXPECT(shared[i] == (i < COUNT / 2 ? 0x02020202 : 0x01010101));
}

// Fills of another device's memory.
static void fills() {
    auto all = places();
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other) continue;
            Place &by = *all[one], &of = *all[other];
            unsigned *pinned, *managed;
            use(other);
            CHECK(cudaMallocHost(&pinned, BYTES));
            CHECK(cudaMallocManaged(&managed, BYTES));
            for (cudaStream_t stream : {by.stream, cudaStream_t(nullptr)}) {
                fill_each_way<unsigned char>(by, of, stream);
                fill_each_way<unsigned short>(by, of, stream);
                fill_each_way<unsigned>(by, of, stream);
            }
            fill_in_order(by, of, pinned);
            fill_shared(by, pinned);
            fill_shared(by, managed);
            // Nothing is filled beyond the end.
            use(one);
            EXPECT(cudaMemsetAsync(of.memory, 0, BYTES + (64 << 20), by.stream) == cudaErrorInvalidValue);
            cudaGetLastError();
            use(other);
            CHECK(cudaFreeHost(pinned));
            CHECK(cudaFree(managed));
        }
    }
    // Memory that is freed meanwhile stays until it has been filled. Within a server, the driver
    // waits only for work of the memory's own device.
    static Order slow;
    Place &first = *all[0], &last = *all.back();
    for (unsigned round = 0; round < 10 && !are_together(first.device, last.device); round++) {
        unsigned* memory;
        use(last.device);
        CHECK(cudaMalloc(&memory, BYTES));
        first.fill(round);
        use(first.device);
        CHECK(cudaLaunchHostFunc(first.stream, Order::set, &slow));
        CHECK(cudaMemsetAsync(memory, 0, BYTES, first.stream));
        last.copy_from(first, first.stream);
        use(last.device);
        CHECK(cudaFree(memory));
        CHECK(cudaMalloc(&memory, BYTES));
        last.fill(memory, 4);
        last.expect(memory, 4);
        first.finish();
        last.expect(round);
        use(last.device);
        CHECK(cudaFree(memory));
    }
    release(all);
}

// A thread for each two devices, each with memory of its own.
static void threads() {
    std::vector<std::thread> all;
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++) {
            if (one == other) continue;
            all.emplace_back([=] {
                Place first(one, COUNT), second(other, COUNT);
                first.fill(0);
                for (unsigned round = 0; round < 10; round++) {
                    first.raise(1);
                    first.record();
                    second.wait_for(first);
                    second.copy_from(first, second.stream);
                    second.raise(1);
                    if (round % 3 == 0) second.expect(2 * round + 2);
                    second.record();
                    first.wait_for(second);
                    first.copy_from(second, first.stream);
                }
                first.expect(20);
                first.release();
                second.release();
            });
        }
    }
    for (std::thread& thread : all) thread.join();
}

__global__ void fail(unsigned* nowhere) { *nowhere = 1; }

// A fault of the last device's is no other machine's.
static void errors() {
    auto all = places();
    Place &last = *all.back(), &first = *all[0];
    last.fill(3);
    last.record();
    // Wrong arguments first: they are nobody's fault.
    use(0);
    EXPECT(cudaMemcpyPeerAsync(first.memory, 0, last.memory, devices - 1, BYTES + (64 << 20), first.stream) != cudaSuccess);
    EXPECT(cudaMemcpyPeer(first.memory, 0, last.memory, devices, 4) == cudaErrorInvalidDevice);
    cudaGetLastError();
    first.wait_for(last);
    first.copy_from(last, first.stream);
    first.expect(3);
    use(devices - 1);
    fail<<<1, 1, 0, last.stream>>>(nullptr);
    CHECK(cudaGetLastError());
    cudaError_t fault = cudaStreamSynchronize(last.stream);
    EXPECT(fault == cudaErrorIllegalAddress);
    EXPECT(cudaMemset(last.memory, 0, 4) == fault);
    use(0);
    if (!are_together(0, devices - 1)) {
        // A copy of it fails, and leaves the other device as it was.
        EXPECT(cudaMemcpyPeer(first.memory, 0, last.memory, devices - 1, 4) == fault);
        // Of what is queued behind it, the next wait says that something did not come.
        first.wait_for(last);
        first.copy_from(last, first.stream);
        while (cudaStreamSynchronize(first.stream) == cudaErrorDevicesUnavailable) cudaGetLastError();
    }
    cudaGetLastError();
    for (int device = 0; device < devices; device++) {
        // NVIDIA's driver lets no device of a process go on after a fault of one of them.
        if (are_together(device, devices - 1)) continue;
        all[device]->fill(4);
        all[device]->expect(4);
        all[0]->copy_from(*all[device], all[device]->stream);
        all[device]->finish();
        all[0]->expect(4);
    }
    printf("errors: done\n");
    fflush(stdout);
    // What belongs to the faulted device cannot be freed.
    _exit(0);
}

// The machine of the last device goes, while there is work between it and the others.
static void lost() {
    auto all = places();
    Place& last = *all.back();
    Door never;
    use(last.device);
    CHECK(cudaLaunchHostFunc(last.stream, Door::wait, &never));
    last.record();
    std::vector<Place*> others;
    for (Place* place : all) {
        if (!are_together(place->device, last.device)) others.push_back(place);
    }
    for (Place* place : others) {
        place->fill(1);
        place->wait_for(last);
        place->copy_from(last, place->stream);
        place->raise(1);
    }
    printf("waiting\n");
    fflush(stdout);
    // Each server that was to get something from there says that it did not, to whichever wait for it
    // comes next: also to one for another of its devices.
    for (Place* place : others) {
        use(place->device);
        while (cudaStreamSynchronize(place->stream) != cudaSuccess) cudaGetLastError();
    }
    for (Place* place : others) place->expect(2);
    for (int device = 0; device < devices; device++) {
        if (!are_together(device, last.device)) continue;
        use(device);
        // The other servers may know of it before this program does.
        EXPECT(cudaDeviceSynchronize() == cudaErrorDevicesUnavailable);
        EXPECT(cudaMemset(all[device]->memory, 0, 4) == cudaErrorDevicesUnavailable);
        cudaGetLastError();
    }
    // The others go on, also with each other.
    for (size_t place = 0; place < others.size(); place++) {
        Place &from = *others[place], &to = *others[(place + 1) % others.size()];
        from.fill(70);
        if (&from != &to) to.copy_from(from, from.stream);
        from.finish();
        to.expect(70);
        use(to.device);
        EXPECT(cudaMemcpyPeer(to.memory, to.device, last.memory, last.device, 4) == cudaErrorDevicesUnavailable);
        cudaGetLastError();
    }
    printf("lost: done\n");
    fflush(stdout);
    _exit(0);
}

int main(int argc, char** argv) {
    // What it has said is there even if it does not end.
    setvbuf(stdout, nullptr, _IOLBF, 0);
    EXPECT(argc > 2);
    CHECK(cudaGetDeviceCount(&devices));
    each = atoi(argv[2]);
    EXPECT(devices > 1 && each > 0 && devices % each == 0);
    give_access();
    struct Part {
        const char* name;
        void (*run)();
    };
    const Part parts[] = {{"machine", machine}, {"events", events},   {"synchronous", synchronous}, {"legacy", legacy},     {"managed", managed}, {"pools", pools},
                          {"graphs", graphs},   {"host", host},       {"fills", fills},     {"threads", threads},
                          {"errors", errors},   {"lost", lost}};
    for (const Part& part : parts) {
        if (std::string(argv[1]) != part.name) continue;
        part.run();
        expect_work(500);
        printf("%s: done\n", part.name);
        return 0;
    }
    printf("there is no part %s\n", argv[1]);
    return 1;
}
