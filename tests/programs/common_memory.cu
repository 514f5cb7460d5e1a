// Page-locked and managed memory that kernels of all devices use, wherever each device is. Argument:
// a part, or none for all but `lost`. The output does not say where the devices are.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "place.h"

static const size_t COUNT = 30011;
static const size_t BYTES = COUNT * sizeof(unsigned);

static int devices;

static void use(int device) { CHECK(cudaSetDevice(device)); }

// Adds to every `step`th value from `first` on.
static __global__ void add_some(unsigned* data, size_t count, size_t first, size_t step, unsigned value) {
    size_t i = first + (blockIdx.x * size_t(blockDim.x) + threadIdx.x) * step;
    if (i < count) data[i] += value;
}

// A pointer inside a structure.
struct Inside {
    int before;
    unsigned* data;
    size_t count;
};

static __global__ void add_inside(Inside inside, unsigned value) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < inside.count) inside.data[i] += value;
}

// Waits for a value of a word, and answers in another one.
static __global__ void answer(volatile unsigned* question, unsigned wanted, volatile unsigned* answer, unsigned value) {
    while (*question != wanted) {
    }
    *answer = value;
    __threadfence_system();
}

// One side of a conversation: after each value of the other's word comes the next one in its own.
static __global__ void converse(volatile unsigned* other, volatile unsigned* own, unsigned first, unsigned last) {
    for (unsigned value = first; value <= last; value += 2) {
        while (*other != value - 1) {
        }
        *own = value;
        __threadfence_system();
    }
}

enum Kind { PORTABLE, DEFAULT, REGISTERED, MANAGED, KINDS };
static const char* const NAMES[] = {"portable", "default", "registered", "managed"};

// Memory of a kind, made while a device is current.
struct Memory {
    Kind kind;
    std::vector<unsigned> own;
    unsigned* data;

    Memory(Kind kind, int device) : kind(kind) {
        use(device);
        if (kind == PORTABLE) CHECK(cudaHostAlloc(&data, BYTES, cudaHostAllocPortable));
        if (kind == DEFAULT) CHECK(cudaHostAlloc(&data, BYTES, cudaHostAllocDefault));
        if (kind == MANAGED) CHECK(cudaMallocManaged(&data, BYTES));
        if (kind == REGISTERED) {
            // Neither its first nor its last byte is at the end of a page.
            own.assign(COUNT + 8, 0);
            data = own.data() + 3;
            CHECK(cudaHostRegister(data, BYTES, cudaHostRegisterPortable));
        }
    }
    ~Memory() {
        if (kind == MANAGED) CHECK(cudaFree(data));
        if (kind == REGISTERED) CHECK(cudaHostUnregister(data));
        if (kind == PORTABLE || kind == DEFAULT) CHECK(cudaFreeHost(data));
        for (size_t i = 0; i < own.size(); i++) EXPECT((i >= 3 && i < COUNT + 3) || own[i] == 0);
    }
};

struct Streams {
    std::vector<cudaStream_t> all;
    std::vector<cudaEvent_t> events;
    Streams() {
        for (int device = 0; device < devices; device++) {
            cudaStream_t stream;
            cudaEvent_t event;
            use(device);
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            all.push_back(stream);
            events.push_back(event);
        }
    }
    ~Streams() {
        for (int device = 0; device < devices; device++) {
            use(device);
            CHECK(cudaStreamDestroy(all[device]));
            CHECK(cudaEventDestroy(events[device]));
        }
    }
    void add(int device, unsigned* data, size_t first, size_t step, unsigned value, size_t count = COUNT) {
        use(device);
        add_some<<<blocks_for(count / step + 1, 256), 256, 0, all[device]>>>(data, count, first, step, value);
        CHECK(cudaGetLastError());
    }
    void finish(int device) {
        use(device);
        CHECK(cudaStreamSynchronize(all[device]));
    }
    void record(int device) {
        use(device);
        CHECK(cudaEventRecord(events[device], all[device]));
    }
    void wait(int device, int other) {
        use(device);
        CHECK(cudaStreamWaitEvent(all[device], events[other], 0));
    }
};

static void expect(const unsigned* data, const std::vector<unsigned>& wanted, const char* what) {
    for (size_t i = 0; i < wanted.size(); i++) {
        if (data[i] == wanted[i]) continue;
        printf("%s: value %zu is %u, not %u\n", what, i, data[i], wanted[i]);
        exit(1);
    }
}

// One device after the other, and the program in between.
static void turns() {
    Streams streams;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int owner = 0; owner < devices; owner++) {
            Memory memory(Kind(kind), owner);
            unsigned* data = memory.data;
            std::vector<unsigned> wanted(COUNT);
            for (size_t i = 0; i < COUNT; i++) data[i] = wanted[i] = unsigned(i);
            for (int step = 0; step < 3 * devices; step++) {
                int device = (owner + 1 + step) % devices;
                streams.add(device, data, 0, 1, 5);
                for (unsigned& value : wanted) value += 5;
                if (step % 2 == 0) {
                    // The next device's work comes with no touch in between.
                    streams.finish(device);
                    device = (device + 1) % devices;
                    streams.add(device, data, 1, 3, 7);
                    for (size_t i = 1; i < COUNT; i += 3) wanted[i] += 7;
                }
                streams.finish(device);
                expect(data, wanted, NAMES[kind]);
                for (size_t i = step; i < COUNT; i += 1000) data[i] = wanted[i] = unsigned(i * 2 + step);
            }
            // All at once, each its own values.
            for (int device = 0; device < devices; device++) streams.add(device, data, device, devices, 100 + device);
            for (int device = 0; device < devices; device++) streams.finish(device);
            for (size_t i = 0; i < COUNT; i++) wanted[i] += 100 + unsigned(i) % devices;
            expect(data, wanted, "at once");
        }
        printf("turns with %s memory: ok\n", NAMES[kind]);
    }
}

// Order by events alone, and a wait for the last stream.
static void events() {
    Streams streams;
    for (int kind = 0; kind < KINDS; kind++) {
        Memory memory(Kind(kind), 0);
        unsigned* data = memory.data;
        std::vector<unsigned> wanted(COUNT);
        for (int round = 0; round < 4; round++) {
            for (size_t i = 0; i < COUNT; i += 10) data[i] = wanted[i] = unsigned(round);
            for (int step = 0; step < 4 * devices; step++) {
                int device = step % devices;
                if (step > 0) streams.wait(device, (step - 1) % devices);
                streams.add(device, data, 0, 1, 1);
                streams.record(device);
                for (unsigned& value : wanted) value += 1;
            }
            streams.finish(devices - 1);
            expect(data, wanted, NAMES[kind]);
        }
        printf("events with %s memory: ok\n", NAMES[kind]);
    }
}

// Kernels of all devices wait for a word that the program sets, and for each other's.
static void spin() {
    Streams streams;
    for (int kind = 0; kind < MANAGED; kind++) {
        for (int owner = 0; owner < devices; owner++) {
            Memory memory(Kind(kind), owner);
            // On pages of their own, or together: both of each kind, and of each device's memory.
            const size_t apart = (kind + owner) % 2 == 0 ? 2048 : 1;
            volatile unsigned* words = memory.data + 4096;
            for (unsigned round = 1; round <= 3; round++) {
                unsigned* question = const_cast<unsigned*>(words);
                words[0] = 0;
                for (int device = 0; device < devices; device++) {
                    words[apart * (device + 1)] = 0;
                    use(device);
                    answer<<<1, 1, 0, streams.all[device]>>>(question, round, question + apart * (device + 1), round * 10 + device);
                    CHECK(cudaGetLastError());
                }
                EXPECT(cudaStreamQuery(streams.all[devices - 1]) == cudaErrorNotReady);
                words[0] = round;
                // Without a wait: it comes by itself.
                for (int device = 0; device < devices; device++) {
                    while (words[apart * (device + 1)] != round * 10 + device) {
                    }
                }
                for (int device = 0; device < devices; device++) streams.finish(device);
            }
            // Kernels of two devices with each other, and nobody else.
            int one = owner, other = (owner + 1) % devices;
            unsigned *here = memory.data + 9000, *there = memory.data + 20000;
            *here = *there = 0;
            use(one);
            converse<<<1, 1, 0, streams.all[one]>>>(there, here, 1, 9);
            use(other);
            converse<<<1, 1, 0, streams.all[other]>>>(here, there, 2, 10);
            CHECK(cudaGetLastError());
            streams.finish(one);
            streams.finish(other);
            EXPECT(*here == 9 && *there == 10);
        }
        printf("spin with %s memory: ok\n", NAMES[kind]);
    }
}

// Copies, fills and words of streams; pointers inside structures; graphs.
static void other_work() {
    Streams streams;
    for (int kind = 0; kind < KINDS; kind++) {
        Memory memory(Kind(kind), 0);
        unsigned* data = memory.data;
        std::vector<unsigned> wanted(COUNT);
        for (size_t i = 0; i < COUNT; i++) data[i] = wanted[i] = unsigned(i) * 7;
        std::vector<unsigned*> plain(devices);
        for (int device = 0; device < devices; device++) {
            use(device);
            CHECK(cudaMalloc(&plain[device], BYTES));
        }
        for (int step = 0; step < 2 * devices; step++) {
            int device = step % devices, next = (step + 1) % devices;
            cudaStream_t stream = streams.all[device];
            // What the kernel writes, the next device's copy reads.
            streams.add(device, data, 0, 1, 3);
            streams.record(device);
            streams.wait(next, device);
            use(next);
            CHECK(cudaMemcpyAsync(plain[next], data, BYTES, cudaMemcpyDefault, streams.all[next]));
            streams.add(next, plain[next], 0, 1, 1);
            CHECK(cudaMemcpyAsync(data, plain[next], BYTES, cudaMemcpyDefault, streams.all[next]));
            streams.record(next);
            streams.wait(device, next);
            use(device);
            Inside inside = {1, data, COUNT};
            add_inside<<<blocks_for(COUNT, 256), 256, 0, stream>>>(inside, 6);
            CHECK(cudaGetLastError());
            // A box of 50 rows.
            CHECK(cudaMemcpy2DAsync(plain[device], 400, data + 1000, 800, 400, 50, cudaMemcpyDefault, stream));
            streams.add(device, plain[device], 0, 1, 2, 5000);
            CHECK(cudaMemcpy2DAsync(data + 1000, 800, plain[device], 400, 400, 50, cudaMemcpyDefault, stream));
            streams.finish(device);
            for (unsigned& value : wanted) value += 10;
            for (size_t row = 0; row < 50; row++) {
                for (size_t i = 0; i < 100; i++) wanted[1000 + row * 200 + i] += 2;
            }
            expect(data, wanted, NAMES[kind]);
            CHECK(cudaMemsetAsync(data + 20000, 1, 4000, stream));
            streams.add(device, data, 0, 1, 1);
            streams.finish(device);
            for (size_t i = 20000; i < 21000; i++) wanted[i] = 0x01010101;
            for (unsigned& value : wanted) value += 1;
            expect(data, wanted, "filled");
        }
        // A graph on each device.
        for (int device = 0; device < devices; device++) {
            cudaGraph_t graph;
            cudaGraphExec_t exec;
            use(device);
            CHECK(cudaStreamBeginCapture(streams.all[device], cudaStreamCaptureModeThreadLocal));
            streams.add(device, data, 0, 1, 4);
            CHECK(cudaStreamEndCapture(streams.all[device], &graph));
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
            for (int round = 0; round < 3; round++) {
                data[5] = wanted[5] = unsigned(round);
                CHECK(cudaGraphLaunch(exec, streams.all[device]));
                streams.finish(device);
                for (unsigned& value : wanted) value += 4;
                expect(data, wanted, "graph");
            }
            CHECK(cudaGraphExecDestroy(exec));
            CHECK(cudaGraphDestroy(graph));
        }
        for (int device = 0; device < devices; device++) {
            use(device);
            CHECK(cudaFree(plain[device]));
        }
        printf("other work with %s memory: ok\n", NAMES[kind]);
    }
}

// Much work that waits for another device's, which waits for the program.
static void behind() {
    Streams streams;
    Memory memory(PORTABLE, 0);
    unsigned* data = memory.data;
    const unsigned kernels = 1500;
    data[0] = data[2048] = 0;
    std::vector<unsigned> wanted(COUNT);
    use(0);
    answer<<<1, 1, 0, streams.all[0]>>>(data, 1, data + 2048, 1);
    CHECK(cudaGetLastError());
    streams.record(0);
    std::thread program([data] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        *const_cast<volatile unsigned*>(data) = 1;
    });
    for (int device = 1; device < devices; device++) {
        streams.wait(device, 0);
        for (unsigned kernel = 0; kernel < kernels; kernel++) streams.add(device, data, 4096 + device, 10000, 1);
    }
    program.join();
    for (int device = 1; device < devices; device++) streams.finish(device);
    for (int device = 1; device < devices; device++) {
        for (size_t i = 4096 + device; i < COUNT; i += 10000) EXPECT(data[i] == kernels);
    }
    EXPECT(data[2048] == 1);
    printf("behind: ok\n");
}

// What is freed while all devices know it is not found again in what comes after it.
static void freed() {
    Streams streams;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int round = 0; round < 6; round++) {
            Memory memory(Kind(kind), round % devices);
            for (size_t i = 0; i < COUNT; i++) memory.data[i] = 1;
            for (int step = 0; step < devices; step++) {
                int device = (round / 2 + step) % devices;
                streams.add(device, memory.data, 0, 1, unsigned(round));
                if (round % 2 == 0) streams.finish(device);
                streams.record(device);
                if (step + 1 < devices) streams.wait((device + 1) % devices, device);
            }
            for (int device = 0; device < devices; device++) streams.finish(device);
            // In the last rounds the program has not touched it since.
            if (round > 3) continue;
            for (size_t i = 0; i < COUNT; i++) EXPECT(memory.data[i] == 1 + unsigned(round * devices));
        }
        printf("freed with %s memory: ok\n", NAMES[kind]);
    }
}

// A thread for each device, and one for the program.
static void threads() {
    for (int kind = 0; kind < MANAGED; kind++) {
        Memory memory(Kind(kind), 0);
        unsigned* data = memory.data;
        const unsigned rounds = 10;
        std::atomic<int> left{devices};
        std::vector<std::thread> all;
        size_t parts = size_t(devices) + 1;
        for (int device = 0; device < devices; device++) {
            all.emplace_back([=, &left] {
                cudaStream_t stream;
                use(device);
                CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
                for (unsigned round = 1; round <= rounds; round++) {
                    add_some<<<blocks_for(COUNT / parts + 1, 256), 256, 0, stream>>>(data, COUNT, device, parts, 1);
                    CHECK(cudaGetLastError());
                    CHECK(cudaStreamSynchronize(stream));
                    for (size_t i = device; i < COUNT; i += parts * 50) EXPECT(data[i] == 2 * round - 1);
                    for (size_t i = device; i < COUNT; i += parts) data[i]++;
                }
                CHECK(cudaStreamDestroy(stream));
                left--;
            });
        }
        unsigned own = 0;
        while (left > 0) {
            own++;
            for (size_t i = devices; i < COUNT; i += parts * 7) data[i] = own;
        }
        for (std::thread& thread : all) thread.join();
        for (size_t i = 0; i < COUNT; i++) {
            bool is_own = i % parts == size_t(devices);
            EXPECT(data[i] == (is_own ? (i / parts % 7 == 0 ? own : 0) : 2 * rounds));
        }
        printf("threads with %s memory: ok\n", NAMES[kind]);
    }
}

static unsigned next_random(unsigned* seed) {
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

// Whatever is done in whatever order: the newest value is seen.
static void random_order() {
    Streams streams;
    for (int kind = 0; kind < KINDS; kind++) {
        unsigned seed = 12345 + kind;
        Memory memory(Kind(kind), devices - 1);
        unsigned* data = memory.data;
        std::vector<unsigned> wanted(COUNT);
        for (size_t i = 0; i < COUNT; i++) data[i] = 0;
        int last = -1;
        for (int step = 0; step < 200; step++) {
            int device = int(next_random(&seed) % devices);
            size_t first = next_random(&seed) % COUNT, stride = 1 + next_random(&seed) % 5000;
            switch (next_random(&seed) % 5) {
            case 0:
            case 1:
                // Behind what is under way, on whichever device that is.
                if (last >= 0) {
                    streams.record(last);
                    if (last != device) streams.wait(device, last);
                }
                streams.add(device, data, first, stride, unsigned(step));
                for (size_t i = first; i < COUNT; i += stride) wanted[i] += unsigned(step);
                last = device;
                break;
            case 2:
                if (last >= 0) streams.finish(last);
                last = -1;
                for (size_t i = first; i < COUNT; i += stride) data[i] = wanted[i] = unsigned(step * 1000);
                break;
            case 3:
                if (last >= 0) streams.finish(last);
                last = -1;
                for (size_t i = first; i < COUNT; i += stride) EXPECT(data[i] == wanted[i]);
                break;
            default:
                if (last >= 0) streams.finish(last);
                last = -1;
            }
        }
        if (last >= 0) streams.finish(last);
        expect(data, wanted, "random");
        printf("random order with %s memory: ok\n", NAMES[kind]);
    }
}

// Where managed memory is wanted is said and asked, for all devices.
static void wishes() {
    Streams streams;
    Memory memory(MANAGED, 0);
    std::vector<unsigned> wanted(COUNT, 1);
    for (size_t i = 0; i < COUNT; i++) memory.data[i] = 1;
    for (int device = 0; device < devices; device++) {
        cudaMemLocation place = {};
        place.type = cudaMemLocationTypeDevice;
        place.id = device;
        use(device);
        CHECK(cudaMemAdvise(memory.data, BYTES, cudaMemAdviseSetPreferredLocation, place));
        CHECK(cudaMemAdvise(memory.data, BYTES, cudaMemAdviseSetAccessedBy, place));
        CHECK(cudaMemPrefetchAsync(memory.data, BYTES, place, 0, streams.all[device]));
        streams.add(device, memory.data, 0, 1, 2);
        for (unsigned& value : wanted) value += 2;
        place.type = cudaMemLocationTypeHost;
        CHECK(cudaMemPrefetchAsync(memory.data, BYTES, place, 0, streams.all[device]));
        streams.finish(device);
        expect(memory.data, wanted, "wishes");
    }
    printf("wishes: ok\n");
}

// The last device is lost: the others keep what the memory holds, and go on with it.
static void lost() {
    Streams streams;
    Memory memory(PORTABLE, 0), of_lost(PORTABLE, devices - 1);
    std::vector<unsigned> wanted(COUNT);
    for (unsigned* data : {memory.data, of_lost.data}) {
        for (int device = 0; device < devices; device++) {
            streams.add(device, data, 0, 1, 3);
            streams.finish(device);
        }
        for (size_t i = 0; i < COUNT; i += 1000) EXPECT(data[i] == 3u * devices);
    }
    for (unsigned& value : wanted) value = 3 * unsigned(devices);
    printf("waiting\n");
    fflush(stdout);
    use(devices - 1);
    while (cudaStreamQuery(streams.all[devices - 1]) == cudaSuccess) std::this_thread::yield();
    cudaGetLastError();
    for (unsigned* data : {memory.data, of_lost.data}) {
        std::vector<unsigned> now = wanted;
        for (int round = 0; round < 3; round++) {
            for (int device = 0; device + 1 < devices; device++) {
                streams.add(device, data, 0, 1, 2);
                streams.finish(device);
                for (unsigned& value : now) value += 2;
                expect(data, now, "lost");
            }
            data[7] = now[7] = 5;
        }
    }
    printf("lost: done\n");
    fflush(stdout);
    _Exit(0);
}

int main(int argc, char** argv) {
    struct Part {
        const char* name;
        void (*run)();
    };
    const Part parts[] = {{"turns", turns}, {"events", events},       {"spin", spin},     {"other", other_work}, {"behind", behind}, {"freed", freed},
                          {"threads", threads}, {"random", random_order}, {"wishes", wishes}, {"lost", lost}};
    CHECK(cudaGetDeviceCount(&devices));
    EXPECT(devices > 1);
    printf("begun\n");
    fflush(stdout);
    for (const Part& part : parts) {
        bool is_wanted = argc > 1 ? part.name == std::string(argv[1]) : part.run != lost;
        if (is_wanted) part.run();
    }
    printf("common memory: done\n");
    return 0;
}
