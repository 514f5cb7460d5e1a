// NCCL as programs of these tests use it: its functions, from whichever libnccl.so.2 the process
// gets.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

typedef struct Communicator* Comm;
struct UniqueId {
    char bytes[128];
};

enum Result { kSuccess, kCudaError, kSystemError, kInternalError, kInvalidArgument, kInvalidUsage, kRemoteError, kInProgress };
enum Type { kInt32 = 2, kFloat = 7, kDouble = 8 };
enum Op { kSum, kProd, kMax, kMin, kAvg };

#define NCCL(result, name, ...)                                                             \
    template <typename... Args>                                                             \
    static result name(Args... args) {                                                      \
        static const auto function = reinterpret_cast<result (*)(__VA_ARGS__)>(find(#name)); \
        return function(args...);                                                           \
    }

static void* find(const char* name) {
    static void* const library = dlopen("libnccl.so.2", RTLD_NOW);
    void* found = library ? dlsym(library, name) : nullptr;
    if (!found) {
        printf("there is no %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

NCCL(int, ncclGetVersion, int*)
NCCL(int, ncclGetUniqueId, UniqueId*)
NCCL(int, ncclCommInitRank, Comm*, int, UniqueId, int)
NCCL(int, ncclCommInitRankConfig, Comm*, int, UniqueId, int, void*)
NCCL(int, ncclCommInitAll, Comm*, int, const int*)
NCCL(int, ncclCommSplit, Comm, int, int, Comm*, void*)
NCCL(int, ncclCommFinalize, Comm)
NCCL(int, ncclCommDestroy, Comm)
NCCL(int, ncclCommAbort, Comm)
NCCL(int, ncclCommGetAsyncError, Comm, int*)
NCCL(int, ncclCommCount, Comm, int*)
NCCL(int, ncclCommUserRank, Comm, int*)
NCCL(int, ncclCommCuDevice, Comm, int*)
NCCL(int, ncclCommRegister, Comm, void*, size_t, void**)
NCCL(int, ncclCommDeregister, Comm, void*)
NCCL(int, ncclMemAlloc, void**, size_t)
NCCL(int, ncclMemFree, void*)
NCCL(int, ncclRedOpCreatePreMulSum, int*, void*, int, int, Comm)
NCCL(int, ncclRedOpDestroy, int, Comm)
NCCL(const char*, ncclGetErrorString, int)
NCCL(const char*, ncclGetLastError, Comm)
NCCL(int, ncclAllReduce, const void*, void*, size_t, int, int, Comm, cudaStream_t)
NCCL(int, ncclBroadcast, const void*, void*, size_t, int, int, Comm, cudaStream_t)
NCCL(int, ncclBcast, void*, size_t, int, int, Comm, cudaStream_t)
NCCL(int, ncclReduce, const void*, void*, size_t, int, int, int, Comm, cudaStream_t)
NCCL(int, ncclAllGather, const void*, void*, size_t, int, Comm, cudaStream_t)
NCCL(int, ncclReduceScatter, const void*, void*, size_t, int, int, Comm, cudaStream_t)
NCCL(int, ncclAlltoAll, const void*, void*, size_t, int, Comm, cudaStream_t)
NCCL(int, ncclSend, const void*, size_t, int, int, Comm, cudaStream_t)
NCCL(int, ncclRecv, void*, size_t, int, int, Comm, cudaStream_t)
NCCL(int, ncclGroupStart)
NCCL(int, ncclGroupEnd)
NCCL(int, ncclCommRevoke, Comm, int)

// The call must succeed.
#define WELL(call)                                                                                          \
    do {                                                                                                    \
        int well_result = (call);                                                                           \
        if (well_result != kSuccess) {                                                                      \
            printf("%s:%d: %s gave %d: %s\n", __FILE__, __LINE__, #call, well_result, ncclGetLastError(Comm())); \
            fflush(stdout);                                                                                 \
            _exit(1);                                                                                       \
        }                                                                                                   \
    } while (0)

// The call must give this result; what it says is printed.
#define REFUSED(call, wanted)                                                           \
    do {                                                                                \
        int refused_result = (call);                                                    \
        if (refused_result != (wanted)) {                                               \
            printf("%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, refused_result);   \
            fflush(stdout);                                                             \
            _exit(1);                                                                   \
        }                                                                               \
        printf("%s\n", ncclGetLastError(Comm()));                                       \
    } while (0)

// A rank of a communicator, with buffers on its device.
struct Rank {
    Comm comm = nullptr;
    int device = 0, rank = 0, ranks = 0;
    cudaStream_t stream = nullptr;
    float *in = nullptr, *out = nullptr;

    // Room for so many elements of each rank.
    void allocate(size_t count) {
        WELL(ncclCommCount(comm, &ranks));
        WELL(ncclCommUserRank(comm, &rank));
        WELL(ncclCommCuDevice(comm, &device));
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&in, count * ranks * sizeof(float)));
        CHECK(cudaMalloc(&out, count * ranks * sizeof(float)));
    }

    // Element i is `seed` + i.
    void fill(size_t count, float seed) {
        CHECK(cudaSetDevice(device));
        std::vector<float> values(count);
        for (size_t i = 0; i < count; i++) values[i] = seed + i;
        CHECK(cudaMemcpyAsync(in, values.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
    }

    std::vector<float> result(size_t count) {
        CHECK(cudaSetDevice(device));
        std::vector<float> values(count);
        CHECK(cudaMemcpyAsync(values.data(), out, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return values;
    }

    void release() {
        CHECK(cudaSetDevice(device));
        CHECK(cudaFree(in));
        CHECK(cudaFree(out));
        CHECK(cudaStreamDestroy(stream));
    }
};

// Brings an id from the rank 0 of programs to the others, through a file.
inline UniqueId meet(const std::string& path, int rank) {
    UniqueId id;
    if (rank == 0) {
        WELL(ncclGetUniqueId(&id));
        std::ofstream(path + ".new", std::ios::binary).write(id.bytes, sizeof id.bytes);
        EXPECT(rename((path + ".new").c_str(), path.c_str()) == 0);
        return id;
    }
    for (int i = 0; i < 600; i++) {
        std::ifstream file(path, std::ios::binary);
        if (file.read(id.bytes, sizeof id.bytes)) return id;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT(!"no id came");
    return id;
}
