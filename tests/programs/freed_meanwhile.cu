// Memory is freed while copies of it, and to it, are queued behind work that takes a while: the
// copies are done all the same. Arguments: where the other end of the copies is ("host", or the last
// device; the memory is the first one's), how many copies are queued at once, and MiB of each.
#include <cstring>

#include "check.h"
#include "pause.h"

static const int owner = 0;
static int other = -1;
static size_t queued, bytes;

// How memory begins and ends in the order of a stream, or of the program (`cudaMalloc`).
struct Way {
    const char* name;
    void (*take)(std::vector<void*>&, cudaStream_t);
    void (*free)(std::vector<void*>&, cudaStream_t);
};

static void take_plain(std::vector<void*>& all, cudaStream_t) {
    for (void*& memory : all) CHECK(cudaMalloc(&memory, bytes));
}
static void free_plain(std::vector<void*>& all, cudaStream_t) {
    for (void* memory : all) CHECK(cudaFree(memory));
}

static void take_in_order(std::vector<void*>& all, cudaStream_t stream) {
    for (void*& memory : all) CHECK(cudaMallocAsync(&memory, bytes, stream));
}
static void free_in_order(std::vector<void*>& all, cudaStream_t stream) {
    for (void* memory : all) CHECK(cudaFreeAsync(memory, stream));
}

static cudaMemPool_t pool;

static void take_from_pool(std::vector<void*>& all, cudaStream_t stream) {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = owner;
    CHECK(cudaMemPoolCreate(&pool, &props));
    for (void*& memory : all) CHECK(cudaMallocFromPoolAsync(&memory, bytes, pool, stream));
}
static void free_with_pool(std::vector<void*>& all, cudaStream_t stream) {
    free_in_order(all, stream);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolDestroy(pool));
}

static cudaGraphExec_t launchable(cudaGraph_t graph) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static void take_by_graph(std::vector<void*>& all, cudaStream_t stream) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    for (void*& memory : all) {
        cudaMemAllocNodeParams params = {};
        params.poolProps.allocType = cudaMemAllocationTypePinned;
        params.poolProps.location.type = cudaMemLocationTypeDevice;
        params.poolProps.location.id = owner;
        params.bytesize = bytes;
        cudaGraphNode_t node;
        CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
        memory = params.dptr;
    }
    cudaGraphExec_t exec = launchable(graph);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphExecDestroy(exec));
}
static void free_by_graph(std::vector<void*>& all, cudaStream_t stream) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    for (void* memory : all) {
        cudaGraphNode_t node;
        CHECK(cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, memory));
    }
    cudaGraphExec_t exec = launchable(graph);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphExecDestroy(exec));
}

static const Way WAYS[] = {
    {"cudaFree", take_plain, free_plain},
    {"cudaFreeAsync", take_in_order, free_in_order},
    {"a pool that ends", take_from_pool, free_with_pool},
    {"a graph's free nodes", take_by_graph, free_by_graph},
};

// The other ends of the copies: all of them one after the other.
struct Ends {
    unsigned char* memory;
    Ends() {
        if (other < 0) {
            CHECK(cudaMallocHost(&memory, queued * bytes));
            return;
        }
        CHECK(cudaSetDevice(other));
        CHECK(cudaMalloc(&memory, queued * bytes));
        CHECK(cudaMemset(memory, 0, queued * bytes));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaSetDevice(owner));
    }
    ~Ends() { CHECK(other < 0 ? cudaFreeHost(memory) : cudaFree(memory)); }
    void* at(size_t number) const { return memory + number * bytes; }
    void expect() const {
        std::vector<unsigned char> seen(bytes);
        for (size_t i = 0; i < queued; i++) {
            CHECK(cudaMemcpy(seen.data(), at(i), bytes, cudaMemcpyDefault));
            for (size_t j = 0; j < bytes; j++) {
                if (seen[j] == (i + 1) % 251) continue;
                printf("byte %zu of copy %zu is %u\n", j, i, seen[j]);
                exit(1);
            }
        }
    }
};

static void copies_out(const Way& way, cudaStream_t stream) {
    Ends ends;
    std::vector<void*> all(queued);
    way.take(all, stream);
    for (size_t i = 0; i < queued; i++) CHECK(cudaMemsetAsync(all[i], int((i + 1) % 251), bytes, stream));
    CHECK(cudaLaunchHostFunc(stream, pause, nullptr));
    for (size_t i = 0; i < queued; i++) {
        CHECK(cudaMemcpyAsync(ends.at(i), all[i], bytes, cudaMemcpyDefault, stream));
    }
    way.free(all, stream);
    CHECK(cudaStreamSynchronize(stream));
    ends.expect();
}

static void copies_in(const Way& way, cudaStream_t stream) {
    Ends ends, back;
    if (other < 0) {
        for (size_t i = 0; i < queued; i++) memset(ends.at(i), int((i + 1) % 251), bytes);
    } else {
        CHECK(cudaSetDevice(other));
        for (size_t i = 0; i < queued; i++) CHECK(cudaMemset(ends.at(i), int((i + 1) % 251), bytes));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaSetDevice(owner));
    }
    std::vector<void*> all(queued);
    way.take(all, stream);
    CHECK(cudaLaunchHostFunc(stream, pause, nullptr));
    for (size_t i = 0; i < queued; i++) {
        CHECK(cudaMemcpyAsync(all[i], ends.at(i), bytes, cudaMemcpyDefault, stream));
        CHECK(cudaMemcpyAsync(back.at(i), all[i], bytes, cudaMemcpyDefault, stream));
    }
    way.free(all, stream);
    CHECK(cudaStreamSynchronize(stream));
    back.expect();
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    if (strcmp(argv[1], "host") != 0) {
        CHECK(cudaGetDeviceCount(&other));
        other--;
    }
    queued = size_t(atoi(argv[2]));
    bytes = size_t(atoi(argv[3])) << 20;
    CHECK(cudaSetDevice(owner));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (const Way& way : WAYS) {
        copies_out(way, stream);
        copies_in(way, stream);
        printf("%s: done\n", way.name);
        fflush(stdout);
    }
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
