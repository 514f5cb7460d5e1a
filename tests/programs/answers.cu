// What kernels write to page-locked memory, which the program reads once it has waited for them.
//
//   answers [KIND [STEPS]]    default: all kinds, 8 steps
//
// number a number, behind an event lines three pages, behind a stream turns a number on one of
// three pages, in turns reply a number; the program writes one next to it, which the next kernel
// reads two a number of each of two streams, which are waited for one after the other asked a
// number, behind an event that the program asks for until it has happened edges numbers at the
// beginning and the end of registered memory that shares pages with other memory fresh a number on
// a page that none was on before
#include <string.h>

#include "check.h"

const size_t WORDS = 4096 / sizeof(unsigned), PAGES = 1024;

// What a kernel writes depends on what it finds, so that a write of either side that is lost shows.
__global__ void answer(unsigned* words, int count, unsigned step) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] += step + i;
}

__global__ void reply(unsigned* words, unsigned step) { words[0] = words[1] + step; }

struct Memory {
    unsigned *words, *other, *registered;
    std::vector<unsigned> plain;
    unsigned sum = 0;
    cudaStream_t streams[2];
    cudaEvent_t event;

    Memory() : plain(4 * WORDS) {
        // From the middle of a page on.
        registered = plain.data() + WORDS - (reinterpret_cast<size_t>(plain.data()) / sizeof(unsigned) + WORDS / 2) % WORDS;
        CHECK(cudaHostRegister(registered, 2 * WORDS * sizeof(unsigned), cudaHostRegisterMapped));
        CHECK(cudaHostAlloc(&words, PAGES * 4096, cudaHostAllocMapped));
        CHECK(cudaHostAlloc(&other, 4096, cudaHostAllocMapped));
        memset(words, 0, PAGES * 4096);
        memset(other, 0, 4096);
        for (cudaStream_t& stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }

    ~Memory() {
        CHECK(cudaEventDestroy(event));
        for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
        CHECK(cudaHostUnregister(registered));
        CHECK(cudaFreeHost(other));
        CHECK(cudaFreeHost(words));
    }

    void launch(unsigned* at, unsigned step, int stream = 0) {
        answer<<<1, 32, 0, streams[stream]>>>(at, 1, step);
        CHECK(cudaEventRecord(event, streams[stream]));
    }
};

// The sum of the first steps.
unsigned up_to(unsigned step) { return step * (step + 1) / 2; }

void number(Memory& m, unsigned step) {
    m.launch(m.words, step);
    CHECK(cudaEventSynchronize(m.event));
    EXPECT(*m.words == up_to(step));
}

void lines(Memory& m, unsigned step) {
    answer<<<4, 256, 0, m.streams[0]>>>(m.words, 3 * WORDS, step);
    CHECK(cudaStreamSynchronize(m.streams[0]));
    for (unsigned i = 0; i < 3 * WORDS; i++) EXPECT(m.words[i] == up_to(step) + (step + 1) * i);
}

void turns(Memory& m, unsigned step) {
    unsigned* at = m.words + (step % 3) * 100 * WORDS;
    m.launch(at, step);
    CHECK(cudaEventSynchronize(m.event));
    unsigned sum = 0;
    for (unsigned i = step % 3; i <= step; i += 3) sum += i;
    EXPECT(*at == sum);
}

void answered(Memory& m, unsigned step) {
    reply<<<1, 1, 0, m.streams[0]>>>(m.words, step);
    CHECK(cudaStreamSynchronize(m.streams[0]));
    EXPECT(m.words[0] == m.sum + step);
    m.sum = m.words[1] = m.words[0] * 3 + 1;
}

void two(Memory& m, unsigned step) {
    answer<<<1, 32, 0, m.streams[1]>>>(m.other, 1, 2 * step);
    m.launch(m.words, step);
    CHECK(cudaEventSynchronize(m.event));
    EXPECT(*m.words == up_to(step));
    CHECK(cudaStreamSynchronize(m.streams[1]));
    EXPECT(*m.other == 2 * up_to(step));
}

void asked(Memory& m, unsigned step) {
    m.launch(m.words, step);
    cudaError_t ready;
    while ((ready = cudaEventQuery(m.event)) == cudaErrorNotReady) {
    }
    CHECK(ready);
    EXPECT(*m.words == up_to(step));
}

void edges(Memory& m, unsigned step) {
    const int count = 2 * WORDS;
    answer<<<4, 256, 0, m.streams[0]>>>(m.registered, count, step);
    CHECK(cudaStreamSynchronize(m.streams[0]));
    for (int i : {0, 1, count - 1}) EXPECT(m.registered[i] == up_to(step) + (step + 1) * i + m.sum);
    m.registered[0]++;
    m.registered[1]++;
    m.registered[count - 1]++;
    m.sum++;
}

void fresh(Memory& m, unsigned step) {
    unsigned* at = m.words + (step * 5 % PAGES) * WORDS;
    m.launch(at, step);
    CHECK(cudaEventSynchronize(m.event));
    EXPECT(*at == step);
}

int main(int argc, char** argv) {
    struct {
        const char* name;
        void (*step)(Memory&, unsigned);
    } kinds[] = {{"number", number}, {"lines", lines}, {"turns", turns}, {"reply", answered},
                 {"two", two},       {"asked", asked}, {"edges", edges}, {"fresh", fresh}};
    const char* wanted = argc > 1 ? argv[1] : "all";
    const int steps = argc > 2 ? atoi(argv[2]) : 8;
    for (auto& kind : kinds) {
        if (strcmp(wanted, "all") != 0 && strcmp(wanted, kind.name) != 0) continue;
        Memory memory;
        for (int step = 0; step < steps; step++) kind.step(memory, step);
        printf("%s: %d steps\n", kind.name, steps);
    }
    return outcome();
}
