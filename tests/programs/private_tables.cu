// The private tables by which libraries of CUDA ask the driver: what depends on a context changes
// when the context begins anew, and is another one in another context. cuFFT keeps its tables of
// factors by the number of a context, and cuBLAS its workspaces by that of a stream.
#include "check.h"
#include "driver.h"
#include "processes.h"

#include <set>
#include <string>

using u64 = unsigned long long;

static void* const* table(const char* id) {
    CUuuid uuid;
    for (int i = 0; i < 16; i++) {
        const char digits[] = {id[2 * i], id[2 * i + 1], 0};
        uuid.bytes[i] = static_cast<char>(std::stoi(digits, nullptr, 16));
    }
    const void* found = nullptr;
    CHECK_DRIVER(DRIVER(cuGetExportTable)(&found, &uuid));
    return static_cast<void* const*>(found);
}

// The number that a library gets for a context.
static u64 number(CUcontext context) {
    static auto ask = reinterpret_cast<CUresult (*)(CUcontext, u64*)>(table("21318c60971432488ca641ff7324c8f2")[4]);
    u64 out = 77;
    CHECK_DRIVER(ask(context, &out));
    return out;
}

// That of a stream, by what stands for it.
static u64 stream_number(CUcontext context, CUstream stream) {
    static void* const* slots = table("21318c60971432488ca641ff7324c8f2");
    static auto object = reinterpret_cast<CUresult (*)(CUcontext, CUstream, u64*)>(slots[51]);
    static auto ask = reinterpret_cast<CUresult (*)(CUcontext, u64, u64*)>(slots[39]);
    u64 stands_for = 0, out = 77, by_call = 78;
    CHECK_DRIVER(object(context, stream, &stands_for));
    CHECK_DRIVER(ask(context, stands_for, &out));
    CHECK_DRIVER(DRIVER(cuStreamGetId)(stream, &by_call));
    EXPECT(out == by_call);
    return out;
}

static CUcontext current() {
    static auto ask = reinterpret_cast<CUresult (*)(CUcontext*, void*)>(table("42d85a8123f6cb478298f6e78a3aecdc")[2]);
    CUcontext out = reinterpret_cast<CUcontext>(77);
    CHECK_DRIVER(ask(&out, nullptr));
    return out;
}

static u64 id(CUcontext context) {
    u64 out = 77;
    CHECK_DRIVER(DRIVER(cuCtxGetId)(context, &out));
    return out;
}

static CUresult check(CUcontext context) {
    static auto ask = reinterpret_cast<CUresult (*)(CUcontext, unsigned*, const void**)>(table("263e88607cd2614392f6bbd5006dfa7e")[2]);
    unsigned flags = 77;
    const void* more = nullptr;
    CUresult result = ask(context, &flags, &more);
    EXPECT(result != CUDA_SUCCESS || flags == 0);
    return result;
}

struct Storage {
    CUresult (*put)(CUcontext, const void*, void*, void (*)(CUcontext, void*, void*));
    CUresult (*remove)(CUcontext, const void*);
    CUresult (*get)(void**, CUcontext, const void*);
};

static int ended = 0;
static void end(CUcontext, void*, void* value) { ended += value == &ended; }

int main() {
    CHECK_DRIVER(DRIVER(cuInit)(0));
    const auto* primary_of = reinterpret_cast<CUresult (*const*)(CUcontext*, CUdevice)>(table("6bd5fb6c5bf4e74a8987d93912fd9df9") + 2);
    const auto* storage = reinterpret_cast<const Storage*>(table("c693336e1121df11a8c368f355d89593"));
    CUcontext primary = nullptr, retained = nullptr, own = nullptr;
    CHECK_DRIVER((*primary_of)(&primary, 0));
    unsigned flags = 99;
    int active = 99;
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    EXPECT(active == 0 && primary != nullptr);
    EXPECT(number(nullptr) == 0 && number(primary) == 0 && current() == nullptr);
    EXPECT(check(nullptr) == CUDA_ERROR_INVALID_CONTEXT && check(primary) == CUDA_SUCCESS);
    void* value = nullptr;
    EXPECT(storage->get(&value, primary, &ended) == CUDA_ERROR_INVALID_HANDLE);
    EXPECT(storage->get(&value, nullptr, &ended) == CUDA_ERROR_INVALID_CONTEXT);

    std::set<u64> numbers, streams;
    for (int round = 0; round < 3; round++) {
        CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&retained, 0));
        CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(retained));
        EXPECT(retained == primary && current() == primary && check(nullptr) == CUDA_SUCCESS);
        EXPECT(number(primary) == id(primary) && number(nullptr) == 0);
        EXPECT(numbers.insert(number(primary)).second);
        EXPECT(streams.insert(stream_number(primary, nullptr)).second);
        EXPECT(streams.insert(stream_number(primary, CU_STREAM_PER_THREAD)).second);
        EXPECT(stream_number(primary, CU_STREAM_LEGACY) == stream_number(primary, nullptr));
        CHECK_DRIVER(storage->put(nullptr, &ended, &ended, end));
        EXPECT(storage->get(&value, primary, &ended) == CUDA_SUCCESS && value == &ended);

        // A second context, of the same device.
        CHECK_DRIVER(DRIVER(cuCtxCreate)(&own, nullptr, 0, 0));
        EXPECT(current() == own && number(own) == id(own));
        EXPECT(numbers.insert(number(own)).second);
        EXPECT(streams.insert(stream_number(own, nullptr)).second);
        EXPECT(storage->get(&value, own, &ended) == CUDA_ERROR_INVALID_HANDLE);
        CHECK_DRIVER(DRIVER(cuCtxDestroy)(own));
        EXPECT(number(own) == 0);

        CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxReset)(0));
        EXPECT(ended == round + 1);
        EXPECT(number(primary) == 0 && current() == primary);
        EXPECT(storage->get(&value, primary, &ended) == CUDA_ERROR_INVALID_HANDLE);
        EXPECT(storage->get(&value, nullptr, &ended) == CUDA_ERROR_INVALID_CONTEXT);
        CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(0));
    }
    EXPECT(numbers.size() == 6);

    // Each device has a primary context of its own, and they have numbers of their own.
    int devices = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetCount)(&devices));
    for (int device = 0; device < devices; device++) {
        CUcontext of_device = nullptr;
        CHECK_DRIVER((*primary_of)(&of_device, device));
        CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&retained, device));
        EXPECT(of_device == retained && numbers.insert(number(retained)).second);
    }
    // A forked child has no contexts.
    const pid_t child = fork();
    if (child == 0) _exit(number(primary) == 0 ? 0 : 1);
    expect_good_end(child);
    EXPECT(number(primary) != 0);
    printf("private tables: done\n");
    return outcome();
}
