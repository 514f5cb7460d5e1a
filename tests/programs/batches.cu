// Batches in page-locked memory whose addresses kernels are given: a step writes a batch, copies it
// to the device, and launches kernels.
//
//   batches [KIND [STEPS [PAGES [THREADS [time]]]]] default: all kinds, 6 steps, 256 pages, 4
//   threads
//
// given no kernel reads the batch: its address is among parameters that the kernel does not look at
// read a kernel reads the batch where it is ahead as given, but the next batch is written while
// kernels are launched words as read, but only a word of every other page is written number a
// number that kernels add to comes to page-locked memory whose address they are given, and is read
// there loader as given, but by one thread, into the batch whose copy is done, while the device
// works; a number is read every eighth step changed as loader, but a kernel changes the batch in
// every third step, and the program reads and writes what it changed
#include <string.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "check.h"

const size_t PAGE = 4096, WORDS = PAGE / sizeof(unsigned);
const int LAUNCHES = 60;

// What optimizers that work on many tensors at once give their kernels, not all of which is set.
struct Lists {
    unsigned* used;
    const void* unused[500];
};

__global__ void add(Lists lists, unsigned value) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *lists.used += value;
}

__global__ void sum(const unsigned* batch, size_t words, unsigned long long* result) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) mine += batch[i];
    atomicAdd(result, mine);
}

// Changes a word of every eighth page of what it is given, far from where the program knows it to
// be.
__global__ void change(Lists lists, size_t words, unsigned step) {
    unsigned* batch = static_cast<unsigned*>(const_cast<void*>(lists.unused[7]));
    for (size_t i = threadIdx.x * 8 * 1024; i < words; i += blockDim.x * 8 * 1024) batch[i + 1] += step;
}

struct Batches {
    size_t pages;
    int threads;
    std::vector<unsigned> data;
    cudaEvent_t copied[2];
    unsigned *host[2], *device, *count;
    unsigned long long *result;

    Batches(size_t pages, int threads) : pages(pages), threads(threads), data(pages * WORDS) {
        for (cudaEvent_t& event : copied) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        for (unsigned*& batch : host) {
            CHECK(cudaHostAlloc(&batch, pages * PAGE, cudaHostAllocDefault));
            memset(batch, 0, pages * PAGE);
        }
        CHECK(cudaMalloc(&device, pages * PAGE));
        CHECK(cudaMalloc(&count, sizeof *count));
        CHECK(cudaMemset(count, 0, sizeof *count));
        CHECK(cudaMalloc(&result, sizeof *result));
    }

    ~Batches() {
        for (unsigned* batch : host) CHECK(cudaFreeHost(batch));
        CHECK(cudaFree(device));
        CHECK(cudaFree(count));
        CHECK(cudaFree(result));
        for (cudaEvent_t event : copied) CHECK(cudaEventDestroy(event));
    }

    size_t words() const { return pages * WORDS; }

    // Each of the threads writes a part.
    void write(unsigned* batch, unsigned step, size_t apart) const {
        std::vector<std::thread> writers;
        const size_t part = (words() / apart + threads - 1) / threads * apart;
        for (size_t from = 0; from < words(); from += part) {
            writers.emplace_back([=, end = std::min(from + part, words())] {
                for (size_t i = from; i < end; i += apart) batch[i] = static_cast<unsigned>(i / apart) * 7 + step;
            });
        }
        for (std::thread& writer : writers) writer.join();
    }

    unsigned long long sum_of(const unsigned* batch) const {
        unsigned long long all = 0;
        for (size_t i = 0; i < words(); i++) all += batch[i];
        return all;
    }

    void launch(const unsigned* batch, int launches) const {
        Lists lists = {count, {}};
        lists.unused[7] = batch;
        for (int i = 0; i < launches; i++) add<<<1, 32>>>(lists, 1);
    }

    // What a kernel finds in a batch, once it is there.
    void expect(const unsigned* batch, unsigned long long wanted) const {
        unsigned long long found = 0;
        CHECK(cudaMemset(result, 0, sizeof *result));
        sum<<<8, 256>>>(batch, words(), result);
        CHECK(cudaMemcpy(&found, result, sizeof found, cudaMemcpyDeviceToHost));
        EXPECT(found == wanted);
    }
};

void upload(const Batches& b, const unsigned* batch) {
    CHECK(cudaMemcpyAsync(b.device, batch, b.pages * PAGE, cudaMemcpyHostToDevice));
}

void given(Batches& b, unsigned step) {
    unsigned* batch = b.host[step % 2];
    b.write(batch, step, 1);
    upload(b, batch);
    b.launch(batch, LAUNCHES);
    b.expect(b.device, b.sum_of(batch));
}

void read(Batches& b, unsigned step) {
    unsigned* batch = b.host[step % 2];
    b.write(batch, step, 1);
    b.expect(batch, b.sum_of(batch));
}

void ahead(Batches& b, unsigned step) {
    unsigned *batch = b.host[step % 2], *next = b.host[(step + 1) % 2];
    if (step == 0) b.write(batch, step, 1);
    const unsigned long long wanted = b.sum_of(batch);
    upload(b, batch);
    std::thread writer([&] { b.write(next, step + 1, 1); });
    b.launch(batch, LAUNCHES);
    writer.join();
    b.launch(next, 1);
    b.expect(b.device, wanted);
}

void words(Batches& b, unsigned step) {
    unsigned* batch = b.host[step % 2];
    b.write(batch, step, 2 * WORDS);
    b.expect(batch, b.sum_of(batch));
}

void number(Batches& b, unsigned step) {
    unsigned* host = b.host[0];
    b.launch(host, 5);
    CHECK(cudaMemcpyAsync(host, b.count, sizeof *host, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(0));
    EXPECT(*host == 5 * (step + 1));
}

// Writes the next batch where the device has copied the one before last from, as caches of
// page-locked memory do, and uploads it.
unsigned* load(Batches& b, unsigned step) {
    unsigned* batch = b.host[step % 2];
    for (size_t i = 0; i < b.words(); i += 16) b.data[i] = static_cast<unsigned>(i * 7 + step);
    cudaError_t ready;
    while ((ready = cudaEventQuery(b.copied[step % 2])) == cudaErrorNotReady) std::this_thread::yield();
    CHECK(ready);
    memcpy(batch, b.data.data(), b.pages * PAGE);
    upload(b, batch);
    CHECK(cudaEventRecord(b.copied[step % 2]));
    return batch;
}

void loader(Batches& b, unsigned step) {
    unsigned* batch = load(b, step);
    b.launch(batch, LAUNCHES);
    if (step % 8 == 7) b.expect(b.device, b.sum_of(b.data.data()));
}

void changed(Batches& b, unsigned step) {
    unsigned* batch = load(b, step);
    b.launch(batch, 5);
    if (step % 3 == 2) {
        Lists lists = {b.count, {}};
        lists.unused[7] = batch;
        change<<<1, 32>>>(lists, b.words(), step);
        for (size_t i = 0; i < b.words(); i += 8 * 1024) b.data[i + 1] += step;
    }
    if (step % 2 == 0) CHECK(cudaDeviceSynchronize());
    else b.expect(batch, b.sum_of(b.data.data()));
    // What the device changed is there, and what is written next to it does not undo it.
    for (size_t i = 0; i < b.words(); i += 8 * 1024) {
        EXPECT(batch[i + 1] == b.data[i + 1]);
        batch[i + 2] = b.data[i + 2] = step;
    }
    b.expect(batch, b.sum_of(b.data.data()));
}

int main(int argc, char** argv) {
    struct {
        const char* name;
        void (*step)(Batches&, unsigned);
    } kinds[] = {{"given", given}, {"read", read}, {"ahead", ahead}, {"words", words}, {"number", number}, {"loader", loader}, {"changed", changed}};
    const char* wanted = argc > 1 ? argv[1] : "all";
    const int steps = argc > 2 ? atoi(argv[2]) : 6;
    const size_t pages = argc > 3 ? atoi(argv[3]) : 256;
    const int threads = argc > 4 ? atoi(argv[4]) : 4;
    const bool timed = argc > 5;
    for (auto& kind : kinds) {
        if (strcmp(wanted, "all") != 0 && strcmp(wanted, kind.name) != 0) continue;
        Batches batches(pages, threads);
        std::vector<double> taken;
        for (int i = 0; i < steps; i++) {
            const auto start = std::chrono::steady_clock::now();
            kind.step(batches, i);
            taken.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
        }
        // From here on nothing is left to do, so that memory can be freed without a wait.
        CHECK(cudaDeviceSynchronize());
        if (timed) {
            // The median: others may use the machine, too.
            std::sort(taken.begin(), taken.end());
            printf("%s %.4f\n", kind.name, taken.empty() ? 0.0 : taken[taken.size() / 2]);
        } else {
            printf("%s: %d steps\n", kind.name, steps);
        }
    }
    return outcome();
}
