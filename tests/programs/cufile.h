// cuFile as programs of these tests use it: its functions, from whichever libcufile.so.0 the
// process gets.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"

typedef void* Handle;

struct Error {
    int error;
    int cuda;
};

struct Description {
    int kind;
    union {
        int fd;
        void* handle;
    };
    const void* functions;
};

struct Properties {
    unsigned major, minor;
    size_t poll_threshold, max_direct_io;
    unsigned file_systems, control, features, device_cache, buffer_cache, pinned, batch, batch_timeout;
};

struct Part {
    void* base;
    size_t bytes;
};

struct Request {
    int mode;
    void* base;
    off_t file_offset;
    off_t base_offset;
    size_t bytes;
    Handle file;
    int operation;
    void* cookie;
};

struct Event {
    void* cookie;
    int status;
    ssize_t result;
};

enum Code {
    kSuccess = 0,
    kNotInitialized = 5001,
    kUnsupported = 5007,
    kIoNotSupported = 5008,
    kPointerInvalid = 5012,
    kBeyondMapped = 5017,
    kFileType = 5018,
    kInvalid = 5022,
    kMemoryAlready = 5023,
    kAlreadyOpen = 5026,
    kNotRegistered = 5027,
    kAlreadyRegistered = 5028,
    kBatchFull = 5037,
    kAsyncNotSupported = 5038,
};

enum Status { kCanceled = 0x08, kComplete = 0x10, kFailed = 0x40 };
enum Operation { kRead, kWrite };

#define CUFILE(result, name, ...)                                                            \
    template <typename... Args>                                                              \
    static result name(Args... args) {                                                       \
        static const auto function = reinterpret_cast<result (*)(__VA_ARGS__)>(find(#name)); \
        return function(args...);                                                            \
    }

static void* find(const char* name) {
    static void* const library = dlopen("libcufile.so.0", RTLD_NOW);
    void* found = library ? dlsym(library, name) : nullptr;
    if (!found) {
        printf("there is no %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

CUFILE(Error, cuFileDriverOpen)
CUFILE(Error, cuFileDriverClose_v2)
CUFILE(long, cuFileUseCount)
CUFILE(Error, cuFileDriverGetProperties, Properties*)
CUFILE(Error, cuFileDriverSetPollMode, bool, size_t)
CUFILE(Error, cuFileDriverSetMaxDirectIOSize, size_t)
CUFILE(Error, cuFileDriverSetMaxCacheSize, size_t)
CUFILE(Error, cuFileDriverSetMaxPinnedMemSize, size_t)
CUFILE(Error, cuFileGetVersion, int*)
CUFILE(Error, cuFileGetBARSizeInKB, int, size_t*)
CUFILE(Error, cuFileDriverGetP2PFlags, int, int*)
CUFILE(Error, cuFileDriverSetP2PFlags, int, int)
CUFILE(Error, cuFileExportPCIeTopology, const char*)
CUFILE(Error, cuFileHandleRegister, Handle*, Description*)
CUFILE(void, cuFileHandleDeregister, Handle)
CUFILE(Error, cuFileBufRegister, const void*, size_t, int)
CUFILE(Error, cuFileBufDeregister, const void*)
CUFILE(ssize_t, cuFileRead, Handle, void*, size_t, off_t, off_t)
CUFILE(ssize_t, cuFileWrite, Handle, const void*, size_t, off_t, off_t)
CUFILE(ssize_t, cuFileReadv, Handle, const Part*, size_t, off_t, unsigned)
CUFILE(ssize_t, cuFileWritev, Handle, const Part*, size_t, off_t, unsigned)
CUFILE(Error, cuFileReadAsync, Handle, void*, size_t*, off_t*, off_t*, ssize_t*, cudaStream_t)
CUFILE(Error, cuFileWriteAsync, Handle, void*, size_t*, off_t*, off_t*, ssize_t*, cudaStream_t)
CUFILE(Error, cuFileStreamRegister, cudaStream_t, unsigned)
CUFILE(Error, cuFileStreamDeregister, cudaStream_t)
CUFILE(Error, cuFileBatchIOSetUp, Handle*, unsigned)
CUFILE(Error, cuFileBatchIOSubmit, Handle, unsigned, Request*, unsigned)
CUFILE(Error, cuFileBatchIOGetStatus, Handle, unsigned, unsigned*, Event*, timespec*)
CUFILE(Error, cuFileBatchIOCancel, Handle)
CUFILE(void, cuFileBatchIODestroy, Handle)
CUFILE(Error, cuFileGetParameterSizeT, int, size_t*)
CUFILE(Error, cuFileGetParameterBool, int, bool*)
CUFILE(Error, cuFileGetParameterString, int, char*, int)
CUFILE(Error, cuFileGetParameterMinMaxValue, int, size_t*, size_t*)
CUFILE(Error, cuFileSetParameterSizeT, int, size_t)
CUFILE(Error, cuFileSetParameterBool, int, bool)
CUFILE(Error, cuFileSetParameterString, int, const char*)
CUFILE(Error, cuFileGetParameterPosixPoolSlabArray, size_t*, size_t*, int)
CUFILE(Error, cuFileSetParameterPosixPoolSlabArray, const size_t*, const size_t*, int)
CUFILE(Error, cuFileSetStatsLevel, int)
CUFILE(Error, cuFileGetStatsLevel, int*)
CUFILE(Error, cuFileStatsStart)
CUFILE(Error, cuFileStatsStop)
CUFILE(Error, cuFileStatsReset)
CUFILE(Error, cuFileGetStatsL1, void*)
CUFILE(Error, cuFileGetStatsL2, void*)
CUFILE(Error, cuFileGetStatsL3, void*)

// The call must give this error.
#define GIVES(call, wanted)                                                                          \
    do {                                                                                             \
        Error gives_error = (call);                                                                  \
        if (gives_error.error != (wanted)) {                                                         \
            printf("%s:%d: %s gave %d (%d)\n", __FILE__, __LINE__, #call, gives_error.error,         \
                   gives_error.cuda);                                                                \
            end_wrong();                                                                             \
        }                                                                                            \
    } while (0)
#define WELL(call) GIVES(call, kSuccess)

// The call must give this number.
#define EQUAL(call, wanted)                                                                            \
    do {                                                                                               \
        long long equal_result = (call);                                                               \
        if (equal_result != (long long)(wanted)) {                                                     \
            printf("%s:%d: %s gave %lld, errno %d\n", __FILE__, __LINE__, #call, equal_result, errno); \
            end_wrong();                                                                               \
        }                                                                                              \
    } while (0)

// What stands at a place of a file.
static unsigned char byte_at(size_t place) { return (unsigned char)(place * 2654435761u >> 13); }

// A file of so many bytes, which is registered.
struct File {
    std::string path;
    int fd = -1;
    Handle handle = nullptr;

    File(const std::string& path, size_t bytes, int flags = O_RDWR) : path(path) {
        std::vector<unsigned char> all(bytes);
        for (size_t i = 0; i < bytes; i++) all[i] = byte_at(i);
        int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        EXPECT(made >= 0 && write(made, all.data(), bytes) == (ssize_t)bytes);
        close(made);
        open(flags);
    }

    void open(int flags) {
        fd = ::open(path.c_str(), flags);
        EXPECT(fd >= 0);
        Description description = {1, {fd}, nullptr};
        WELL(cuFileHandleRegister(&handle, &description));
    }

    ~File() {
        cuFileHandleDeregister(handle);
        close(fd);
        unlink(path.c_str());
    }
};

// Device memory, filled with one byte.
struct Memory {
    unsigned char* at = nullptr;
    size_t bytes;

    explicit Memory(size_t bytes) : bytes(bytes) {
        CHECK(cudaMalloc(&at, bytes));
        fill(0xee);
    }

    void fill(int value) {
        CHECK(cudaMemset(at, value, bytes));
        CHECK(cudaDeviceSynchronize());
    }

    std::vector<unsigned char> get() const {
        std::vector<unsigned char> all(bytes);
        CHECK(cudaMemcpy(all.data(), at, bytes, cudaMemcpyDeviceToHost));
        return all;
    }

    // From `offset` on are `count` bytes of the file from `place` on, and elsewhere nothing has
    // changed.
    void expect(size_t offset, size_t count, size_t place) const {
        std::vector<unsigned char> all = get();
        for (size_t i = 0; i < bytes; i++) {
            bool within = i >= offset && i < offset + count;
            EXPECT(all[i] == (within ? byte_at(place + i - offset) : 0xee));
        }
    }

    ~Memory() { cudaFree(at); }
};
