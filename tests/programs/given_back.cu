// Memory and functions that a program takes back, as it may, when it has waited for the work that
// uses them. A test plays a server that then goes on using them. The arguments: what to do, and a
// file that is there when the server has tried.
#include "check.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

static const size_t BYTES = 1 << 20;
static const unsigned char SECRET = 0x5e;
static const unsigned char KEPT = 0x55;
static int calls = 0;

static void count(void*) { calls++; }

// Says that everything has been waited for, and lets the server try.
static void given_back(const char* file) {
    printf("waited\n");
    fflush(stdout);
    for (int i = 0; i < 12000 && access(file, F_OK) != 0; i++) usleep(5000);
}

static unsigned char* pages(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(3);
    return static_cast<unsigned char*>(memory);
}

static bool is_all(const unsigned char* memory, size_t bytes, unsigned char value) {
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i] != value) return false;
    }
    return true;
}

static void says(cudaError_t error) { printf("%s\n", error == cudaSuccess ? "the wait succeeded" : "the wait failed"); }

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const char *what = argv[1], *file = argv[2];
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned char* data = nullptr;
    size_t bytes = strcmp(what, "upload") == 0 ? 64 * BYTES : BYTES;
    CHECK(cudaMalloc(&data, bytes));
    if (strcmp(what, "idle") == 0) {
        given_back(file);
        return 0;
    }
    if (strcmp(what, "graph") == 0) {
        unsigned char *source = pages(BYTES), *sink = pages(BYTES);
        memset(source, 1, BYTES);
        cudaGraph_t graph;
        CHECK(cudaGraphCreate(&graph, 0));
        cudaGraphNode_t in, out, call;
        CHECK(cudaGraphAddMemcpyNode1D(&in, graph, nullptr, 0, data, source, BYTES, cudaMemcpyHostToDevice));
        CHECK(cudaGraphAddMemcpyNode1D(&out, graph, &in, 1, sink, data, BYTES, cudaMemcpyDeviceToHost));
        cudaHostNodeParams params = {};
        params.fn = count;
        CHECK(cudaGraphAddHostNode(&call, graph, &out, 1, &params));
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        cudaEvent_t event;
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaEventRecord(event, stream));
        while (cudaEventQuery(event) == cudaErrorNotReady) usleep(1000);
        EXPECT(is_all(sink, BYTES, 1) && calls == 1);
        memset(source, SECRET, BYTES);
        memset(sink, KEPT, BYTES);
        EXPECT(mprotect(source, BYTES, PROT_READ) == 0);
        given_back(file);
        printf("%s, %d calls\n", is_all(sink, BYTES, KEPT) ? "kept" : "overwritten", calls);
        return 0;
    }
    unsigned char* host = nullptr;
    CHECK(cudaMallocHost(&host, bytes));
    memset(host, 1, bytes);
    if (strcmp(what, "function") == 0) {
        CHECK(cudaLaunchHostFunc(stream, count, nullptr));
    } else if (strcmp(what, "late") == 0) {
        CHECK(cudaLaunchHostFunc(stream, count, nullptr));
        CHECK(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream));
    } else if (strcmp(what, "upload") == 0) {
        CHECK(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream));
    } else {
        CHECK(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream));
    }
    says(cudaStreamSynchronize(stream));
    memset(host, strcmp(what, "download") == 0 ? KEPT : SECRET, bytes);
    given_back(file);
    printf("%s, %d calls\n", is_all(host, bytes, KEPT) ? "kept" : "overwritten", calls);
    fflush(stdout);
    _exit(0);
}
