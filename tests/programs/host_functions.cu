// Host functions run in the stream's order, on a thread of the driver's: what the device did before
// is there, and what comes after waits.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "driver.h"
#include "work.h"

using Function = std::function<void()>;

// Queues a call of `function`, which must live until then.
static void host(cudaStream_t stream, Function& function) {
    CHECK(cudaLaunchHostFunc(stream, [](void* data) { (*static_cast<Function*>(data))(); }, &function));
}

__global__ void add_one(int* data, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i]++;
}

__global__ void say(int number) { printf("device says %d\n", number); }

// Functions are called in order, on another thread, and each sees what came before.
static void in_order() {
    const int count = 200;
    std::vector<int> seen;
    std::vector<Function> functions;
    std::thread::id other;
    for (int i = 0; i < count; i++) {
        functions.push_back([&, i] {
            seen.push_back(i);
            other = std::this_thread::get_id();
        });
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (Function& function : functions) host(stream, function);
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(seen.size() == count);
    for (int i = 0; i < count; i++) EXPECT(seen[i] == i);
    EXPECT(other != std::this_thread::get_id());
    CHECK(cudaStreamDestroy(stream));
    printf("%d functions: in order, on another thread\n", count);
}

// Bytes that the device wrote before are in page-locked memory, whatever their number, and what a
// function writes there is what a later copy takes.
static void with_copies(size_t elements) {
    const int rounds = 12;
    int *there = nullptr, *back = nullptr;
    CHECK(cudaMallocHost(&there, elements * sizeof(int)));
    CHECK(cudaMallocHost(&back, elements * sizeof(int)));
    DeviceArray<int> data(elements);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int wrong = 0, calls = 0;
    Function check = [&] {
        // Each round adds one on the device and one here.
        for (size_t i = 0; i < elements; i++) wrong += back[i] != 2 * calls + 1;
        calls++;
        for (size_t i = 0; i < elements; i++) there[i] = back[i] + 1;
    };
    for (int round = 0; round < rounds; round++) {
        add_one<<<32, 256, 0, stream>>>(data.get(), elements);
        CHECK(cudaMemcpyAsync(back, data.get(), data.bytes(), cudaMemcpyDeviceToHost, stream));
        host(stream, check);
        CHECK(cudaMemcpyAsync(data.get(), there, data.bytes(), cudaMemcpyHostToDevice, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(calls == rounds && wrong == 0);
    for (int value : data.download()) EXPECT(value == 2 * rounds);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(there));
    CHECK(cudaFreeHost(back));
    printf("%zu elements to and fro, %d times: right\n", elements, rounds);
}

// The same memory, first written by the device, then read and written here, then copied back: all
// queued at once.
static void in_place() {
    const size_t elements = 300'000;
    const int rounds = 10;
    int* memory = nullptr;
    CHECK(cudaMallocHost(&memory, elements * sizeof(int)));
    DeviceArray<int> data(elements);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    Function twice = [&] {
        for (size_t i = 0; i < elements; i++) memory[i] *= 2;
    };
    int expected = 0;
    for (int round = 0; round < rounds; round++) {
        add_one<<<32, 256, 0, stream>>>(data.get(), elements);
        CHECK(cudaMemcpyAsync(memory, data.get(), data.bytes(), cudaMemcpyDeviceToHost, stream));
        if (round % 3 != 2) host(stream, twice);
        CHECK(cudaMemcpyAsync(data.get(), memory, data.bytes(), cudaMemcpyHostToDevice, stream));
        expected = (expected + 1) * (round % 3 != 2 ? 2 : 1);
    }
    CHECK(cudaStreamSynchronize(stream));
    // A copy that waits comes after what was queued before it, too.
    int* one = nullptr;
    CHECK(cudaMallocHost(&one, sizeof(int)));
    *one = 0;
    Function set = [&] { *one = 77; };
    host(nullptr, set);
    CHECK(cudaMemcpy(data.get(), one, sizeof(int), cudaMemcpyHostToDevice));
    std::vector<int> result = data.download();
    EXPECT(result[0] == 77);
    for (size_t i = 1; i < elements; i++) EXPECT(result[i] == expected);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(memory));
    CHECK(cudaFreeHost(one));
    printf("in place, %d times: %d\n", rounds, expected);
}

// Later work waits for the function, in its stream and in one that waits for an event; other
// streams go on.
static void what_comes_after_waits() {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    Function gate = [&] {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return open; });
    };
    cudaStream_t held, behind, free;
    cudaEvent_t event;
    for (cudaStream_t* stream : {&held, &behind, &free}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    DeviceArray<int> data(1);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    host(held, gate);
    add_one<<<1, 1, 0, held>>>(data.get(), 1);
    CHECK(cudaEventRecord(event, held));
    CHECK(cudaStreamWaitEvent(behind, event, 0));
    add_one<<<1, 1, 0, behind>>>(data.get(), 1);
    EXPECT(cudaStreamQuery(held) == cudaErrorNotReady);
    EXPECT(cudaStreamQuery(behind) == cudaErrorNotReady);
    EXPECT(cudaEventQuery(event) == cudaErrorNotReady);
    // Neither this thread's calls nor another stream wait for it.
    int value = -1;
    CHECK(cudaMemcpyAsync(&value, data.get(), sizeof(int), cudaMemcpyDeviceToHost, free));
    CHECK(cudaStreamSynchronize(free));
    EXPECT(value == 0);
    {
        std::lock_guard<std::mutex> lock(mutex);
        open = true;
    }
    changed.notify_all();
    CHECK(cudaStreamSynchronize(behind));
    CHECK(cudaMemcpy(&value, data.get(), sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(value == 2);
    for (cudaStream_t stream : {held, behind, free}) CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
    printf("what comes after waits, the rest does not\n");
}

// A stream takes more work than a driver's queue holds, behind a function that waits for all of it
// to be queued.
static void a_full_queue() {
    std::atomic<bool> go{false};
    Function gate = [&] {
        // Not for ever: a driver may hold the launches back until the function has returned.
        auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
        while (!go && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    };
    DeviceArray<int> data(1);
    data.zero();
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    host(stream, gate);
    const int launches = 5000;
    for (int i = 0; i < launches; i++) add_one<<<1, 1, 0, stream>>>(data.get(), 1);
    go = true;
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(data.download()[0] == launches);
    CHECK(cudaStreamDestroy(stream));
    printf("%d launches behind a function\n", launches);
}

// Functions of several streams and threads never run at the same time.
static void one_at_a_time() {
    std::atomic<int> inside{0}, total{0}, together{0};
    Function function = [&] {
        if (inside++ != 0) together++;
        auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
        while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
        inside--;
        total++;
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&] {
            cudaStream_t stream;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int i = 0; i < 50; i++) host(stream, function);
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaStreamDestroy(stream));
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT(total == 200 && together == 0);
    printf("%d functions of 4 threads\n", total.load());
}

// The legacy default stream and the per-thread one take functions too.
static void default_streams() {
    int calls = 0;
    Function function = [&] { calls++; };
    host(cudaStreamLegacy, function);
    host(nullptr, function);
    CHECK(cudaDeviceSynchronize());
    EXPECT(calls == 2);
    host(cudaStreamPerThread, function);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    EXPECT(calls == 3);
    printf("default streams: right\n");
}

// Contexts of the program's own, one after the other.
static void other_contexts() {
    auto create = driver_symbol<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
    int calls = 0;
    Function function = [&] { calls++; };
    for (int i = 0; i < 4; i++) {
        CUcontext context = nullptr;
        CUstream stream = nullptr;
        CHECK_DRIVER(create(&context, 0, 0));
        CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        auto call = [](void* data) { (*static_cast<Function*>(data))(); };
        CHECK_DRIVER(DRIVER(cuLaunchHostFunc)(stream, call, &function));
        CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
        EXPECT(calls == i + 1);
        CHECK_DRIVER(DRIVER(cuCtxDestroy)(context));
    }
    printf("contexts one after the other: right\n");
}

// What kernels print before a function appears before what the function prints, once the program
// has synchronised in between.
static void printed_in_order() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 3; i++) {
        say<<<1, 1, 0, stream>>>(i);
        CHECK(cudaStreamSynchronize(stream));
        Function function = [&] { printf("host says %d\n", i); };
        host(stream, function);
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaStreamDestroy(stream));
}

static void errors() {
    CUstream none = nullptr;
    EXPECT_DRIVER(DRIVER(cuLaunchHostFunc)(none, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    // A function must not use CUDA.
    cudaError_t inside = cudaSuccess;
    Function uses_cuda = [&] {
        void* memory = nullptr;
        inside = cudaMalloc(&memory, 16);
    };
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    host(stream, uses_cuda);
    CHECK(cudaStreamSynchronize(stream));
    printf("cudaMalloc in a function: %s\n", cudaGetErrorName(inside));
    EXPECT(inside == cudaErrorNotPermitted);
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    in_order();
    for (size_t elements : {size_t(100), size_t(50'000), size_t(3'000'000)}) with_copies(elements);
    in_place();
    what_comes_after_waits();
    a_full_queue();
    one_at_a_time();
    default_streams();
    other_contexts();
    printed_in_order();
    errors();
    fflush(stdout);
    return outcome();
}
