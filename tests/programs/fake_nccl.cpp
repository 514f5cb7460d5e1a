// A stand-in for NCCL on machines without a GPU, for the tests of what forwards its functions: it
// makes collectives on the software device, whose device memory a process can read and write. Like
// NCCL, it finds the other ranks over TCP, waits for all of them before the first collective of a
// kind, and makes collectives in the order of their streams. Built as libnccl.so.2.
//
// OUTBOARD_TEST_NCCL_VERSION sets the release that it claims to be; OUTBOARD_TEST_NCCL_LOG a file
// to which it appends a line for each function that is called.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "fake_nccl.h"

using namespace fake;

namespace {

thread_local std::string last_error;

// The functions of the driver library that the process has loaded.
struct Driver {
    decltype(&cuCtxGetCurrent) current = nullptr;
    decltype(&cuCtxPushCurrent) push = nullptr;
    decltype(&cuCtxPopCurrent) pop = nullptr;
    decltype(&cuCtxGetDevice) device = nullptr;
    decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&cuLaunchHostFunc) launch = nullptr;
    decltype(&cuStreamIsCapturing) capturing = nullptr;
    decltype(&cuEventCreate) event = nullptr;
    decltype(&cuEventDestroy) forget = nullptr;
    decltype(&cuEventRecord) record = nullptr;
    decltype(&cuStreamWaitEvent) wait = nullptr;
    decltype(&cuMemAlloc) allocate = nullptr;
    decltype(&cuMemFree) release = nullptr;
};

#define NAME_OF(x) #x
#define NAME(x) NAME_OF(x)
#define FIND(field, function) \
    driver.field = reinterpret_cast<decltype(driver.field)>(dlsym(library, NAME(function)))

int look_for_driver(dl_phdr_info *info, size_t, void *found) {
    const char *name = strrchr(info->dlpi_name, '/');
    name = name ? name + 1 : info->dlpi_name;
    if (strncmp(name, "libcuda.so", 10) != 0 && strncmp(name, "liboutboard-cpu", 15) != 0) return 0;
    void *library = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return 0;
    Driver &driver = *static_cast<Driver *>(found);
    FIND(current, cuCtxGetCurrent);
    FIND(push, cuCtxPushCurrent);
    FIND(pop, cuCtxPopCurrent);
    FIND(device, cuCtxGetDevice);
    FIND(retain, cuDevicePrimaryCtxRetain);
    FIND(launch, cuLaunchHostFunc);
    FIND(capturing, cuStreamIsCapturing);
    FIND(event, cuEventCreate);
    FIND(forget, cuEventDestroy);
    FIND(record, cuEventRecord);
    FIND(wait, cuStreamWaitEvent);
    FIND(allocate, cuMemAlloc);
    FIND(release, cuMemFree);
    return 1;
}

const Driver *driver() {
    static Driver found;
    static const bool is_there = dl_iterate_phdr(look_for_driver, &found) == 1;
    return is_there ? &found : nullptr;
}

void log(const char *function) {
    static const char *path = getenv("OUTBOARD_TEST_NCCL_LOG");
    static const int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
    std::string line = std::string(function) + "\n";
    if (file >= 0 && write(file, line.data(), line.size()) < 0) _exit(3);
}

}  // namespace

struct ncclComm {
    Ranks ranks;
    CUcontext context = nullptr;
    int device = 0;
    std::atomic<int> error{kSuccess};
    // Operations in streams.
    std::atomic<int> queued{0};
    std::atomic<bool> aborted{false};
    std::mutex lock;
    // Kinds for which all ranks have met.
    std::set<std::string> met;
    std::vector<std::unique_ptr<Reduction>> reductions;
    // The stream that had the last operation.
    CUstream last = nullptr;
    bool used = false;
};

namespace {

using Comm = ncclComm *;

// What a stream comes to.
struct Step {
    Comm comm;
    std::vector<Operation> operations;
    // A graph's is made again and again.
    bool stays;
};

void make(void *argument) {
    Step *step = static_cast<Step *>(argument);
    Comm comm = step->comm;
    bool made = comm->error == kSuccess && perform(comm->ranks, step->operations);
    if (!made && !comm->aborted) {
        int none = kSuccess;
        comm->error.compare_exchange_strong(none, kRemoteError);
    }
    if (!step->stays) {
        comm->queued--;
        delete step;
    }
}

struct Current {
    explicit Current(CUcontext context) { is_set = driver()->push(context) == CUDA_SUCCESS; }
    ~Current() {
        CUcontext context;
        if (is_set) driver()->pop(&context);
    }
    bool is_set;
};

bool order(CUstream before, CUstream after) {
    CUevent event;
    if (driver()->event(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
    bool ordered = driver()->record(event, before) == CUDA_SUCCESS &&
                   driver()->wait(after, event, 0) == CUDA_SUCCESS;
    return driver()->forget(event) == CUDA_SUCCESS && ordered;
}

bool captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver()->capturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Queues operations that belong together, each of which names a stream.
Result queue(Comm comm, const std::vector<std::pair<Operation, CUstream>> &operations) {
    Current current(comm->context);
    CUstream stream = operations.front().second;
    bool stays = captures(stream);
    auto step = std::make_unique<Step>(Step{comm, {}, stays});
    std::set<CUstream> others;
    for (const auto &[operation, of] : operations) {
        step->operations.push_back(operation);
        if (of != stream) others.insert(of);
    }
    std::lock_guard<std::mutex> held(comm->lock);
    bool queued = true;
    if (comm->used && comm->last != stream && !stays) queued = order(comm->last, stream);
    for (CUstream other : others) queued = queued && order(other, stream);
    if (!queued || driver()->launch(stream, make, step.get()) != CUDA_SUCCESS) {
        return fail(kUnhandledCudaError, "the driver does not queue the operation");
    }
    if (!stays) comm->queued++, comm->last = stream, comm->used = true;
    step.release();
    for (CUstream other : others) queued = queued && order(stream, other);
    return queued ? kSuccess : fail(kUnhandledCudaError, "the driver does not order streams");
}

// A call in a group.
struct Call {
    Comm comm;
    Operation operation;
    CUstream stream;
};

struct Group {
    int depth = 0;
    Result error = kSuccess;
    std::vector<std::function<Result()>> meetings;
    std::vector<Call> calls;
};
thread_local Group group;

std::string kind(const Call &call, int from, int to) {
    const Operation &made = call.operation;
    bool is_pair = made.function >= kSend;
    std::string text = std::to_string(is_pair ? kSend : made.function);
    for (size_t part : {static_cast<size_t>(made.type), made.count,
                        static_cast<size_t>(is_pair ? from : made.reduction.op),
                        static_cast<size_t>(is_pair ? to : made.other)}) {
        text += ' ' + std::to_string(part);
    }
    return text;
}

uint32_t number_of(const std::string &text) {
    uint32_t number = 2166136261u;
    for (char letter : text) number = (number ^ static_cast<unsigned char>(letter)) * 16777619u;
    return number;
}

// Has all ranks of what is new meet: says so for all calls before it waits for any.
Result meet_for(const std::vector<Call> &calls) {
    struct Wait {
        Comm comm;
        int peer;
        uint32_t number;
    };
    std::vector<Wait> waits;
    for (const Call &call : calls) {
        int other = call.operation.other, own = call.comm->ranks.rank;
        bool sends = call.operation.function == kSend, is_pair = call.operation.function >= kSend;
        std::string text = kind(call, sends ? own : other, sends ? other : own);
        if (!call.comm->met.insert(text).second) continue;
        for (int peer = 0; peer < call.comm->ranks.count; peer++) {
            if (peer == own || (is_pair && peer != other)) continue;
            Wait wait{call.comm, peer, number_of(text)};
            if (Result error = wait.comm->ranks.tell(peer, wait.number)) return error;
            waits.push_back(wait);
        }
    }
    for (const Wait &wait : waits) {
        if (Result error = wait.comm->ranks.hear(wait.peer, wait.number)) return error;
    }
    return kSuccess;
}

// All meetings at once, as each waits for others.
Result meet_all(const std::vector<std::function<Result()>> &meetings) {
    std::vector<Result> results(meetings.size(), kSuccess);
    std::vector<std::string> sentences(meetings.size());
    std::vector<std::thread> threads;
    for (size_t index = 0; index < meetings.size(); index++) {
        threads.emplace_back([&, index] {
            results[index] = meetings[index]();
            sentences[index] = last_error;
        });
    }
    for (std::thread &thread : threads) thread.join();
    for (size_t index = 0; index < meetings.size(); index++) {
        if (results[index] != kSuccess) return fail(results[index], sentences[index]);
    }
    return kSuccess;
}

Result end_group() {
    if (group.depth == 0) return fail(kInvalidUsage, "ncclGroupEnd: not in a group call");
    if (--group.depth > 0) return kSuccess;
    Group ended;
    std::swap(ended, group);
    Result result = ended.error;
    if (result == kSuccess) result = meet_all(ended.meetings);
    if (result == kSuccess) result = meet_for(ended.calls);
    std::map<Comm, std::vector<std::pair<Operation, CUstream>>> pairs;
    for (const Call &call : ended.calls) {
        if (result != kSuccess) return result;
        if (call.operation.function >= kSend) {
            pairs[call.comm].push_back({call.operation, call.stream});
        } else {
            result = queue(call.comm, {{call.operation, call.stream}});
        }
    }
    for (const auto &[comm, operations] : pairs) {
        if (result == kSuccess) result = queue(comm, operations);
    }
    return result;
}

// The call's error, which becomes the group's.
Result in_group(Result error) {
    if (error != kSuccess && group.error == kSuccess) group.error = error;
    return error;
}

Result call(const char *name, Call made) {
    log(name);
    group.depth++;
    const Operation &operation = made.operation;
    Result error = kSuccess;
    if (!made.comm) {
        error = fail(kInvalidArgument, std::string(name) + " : comm argument is NULL");
    } else if (size_of(operation.type) == 0) {
        error = fail(kInvalidArgument, std::string(name) + " : invalid type");
    } else if (operation.other < 0 || operation.other >= made.comm->ranks.count) {
        error = fail(kInvalidArgument, std::string(name) + " : invalid root or peer");
    } else if (int at_once = made.comm->error) {
        error = fail(static_cast<Result>(at_once), "the communicator has failed");
    } else {
        int op = operation.reduction.op;
        auto &own = made.comm->reductions;
        if (op >= 5 && op - 5 < static_cast<int>(own.size()) && own[op - 5]) {
            made.operation.reduction = *own[op - 5];
        } else if (op < 0 || op > 4) {
            error = fail(kInvalidArgument, std::string(name) + " : invalid reduction operation");
        }
    }
    if (error == kSuccess) group.calls.push_back(made);
    in_group(error);
    Result ended = end_group();
    return error == kSuccess ? ended : error;
}

// Has a new communicator meet, at the end of the group.
Result join(const char *name, Comm *made, std::function<Result(Ranks *)> meeting) {
    log(name);
    if (!driver()) return fail(kUnhandledCudaError, "no driver library is loaded");
    CUcontext context = nullptr;
    int device = 0;
    if (driver()->current(&context) != CUDA_SUCCESS || !context ||
        driver()->device(&device) != CUDA_SUCCESS) {
        return fail(kUnhandledCudaError, "no context is current");
    }
    group.depth++;
    group.meetings.push_back([=] {
        auto comm = std::make_unique<ncclComm>();
        comm->context = context, comm->device = device;
        Result result = meeting(&comm->ranks);
        if (result == kSuccess) *made = comm->ranks.control.empty() ? nullptr : comm.release();
        return result;
    });
    return end_group();
}

Result destroy(Comm comm) {
    if (!comm) return kSuccess;
    for (int waited = 0; comm->queued > 0 && !comm->aborted && waited < 10000; waited++) {
        usleep(1000);
    }
    comm->ranks.leave();
    delete comm;
    return kSuccess;
}

}  // namespace

namespace fake {

Result fail(Result result, const std::string &sentence) {
    last_error = sentence;
    return result;
}

int version() {
    const char *claimed = getenv("OUTBOARD_TEST_NCCL_VERSION");
    return claimed ? atoi(claimed) : 22809;
}

}  // namespace fake

extern "C" {

Result ncclGetVersion(int *out) {
    if (!out) return fail(kInvalidArgument, "GetVersion : version argument is NULL");
    *out = version();
    return kSuccess;
}

Result ncclGetUniqueId(UniqueId *out) {
    log("GetUniqueId");
    return out ? make_id(out) : fail(kInvalidArgument, "GetUniqueId : out argument is NULL");
}

Result ncclCommInitRankConfig(Comm *comm, int count, UniqueId id, int rank, void *) {
    if (!comm || count < 1 || rank < 0 || rank >= count) {
        return fail(kInvalidArgument, "CommInitRank : invalid rank requested");
    }
    return join("CommInitRank", comm, [=](Ranks *ranks) { return meet(id, rank, count, ranks); });
}

Result ncclCommInitRank(Comm *comm, int count, UniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, count, id, rank, nullptr);
}

Result ncclGroupStart() {
    group.depth++;
    return kSuccess;
}

Result ncclGroupEnd() { return end_group(); }

Result ncclCommInitAll(Comm *comms, int count, const int *devices) {
    if (!comms || count < 1) return fail(kInvalidArgument, "CommInitAll : invalid device count");
    if (!driver()) return fail(kUnhandledCudaError, "no driver library is loaded");
    UniqueId id;
    if (Result error = make_id(&id)) return error;
    group.depth++;
    for (int rank = 0; rank < count; rank++) {
        CUcontext context;
        if (driver()->retain(&context, devices ? devices[rank] : rank) != CUDA_SUCCESS) {
            in_group(fail(kUnhandledCudaError, "CommInitAll : no such device"));
            break;
        }
        Current current(context);
        in_group(ncclCommInitRankConfig(comms + rank, count, id, rank, nullptr));
    }
    return end_group();
}

Result ncclCommSplit(Comm comm, int color, int key, Comm *made, void *) {
    if (!comm || !made) return fail(kInvalidArgument, "CommSplit : argument is NULL");
    *made = nullptr;
    return join("CommSplit", made,
                [=](Ranks *ranks) { return divide(comm->ranks, color, key, ranks); });
}

Result ncclCommFinalize(Comm comm) {
    log("CommFinalize");
    return comm ? kSuccess : fail(kInvalidArgument, "CommFinalize : comm argument is NULL");
}

Result ncclCommDestroy(Comm comm) {
    log("CommDestroy");
    return destroy(comm);
}

// What waits for a peer ends; the communicator itself is kept, as threads may still use it.
Result ncclCommAbort(Comm comm) {
    log("CommAbort");
    if (!comm) return kSuccess;
    comm->aborted = true;
    comm->ranks.stop();
    return kSuccess;
}

Result ncclCommGetAsyncError(Comm comm, Result *error) {
    if (!comm || !error) return fail(kInvalidArgument, "CommGetAsyncError : argument is NULL");
    if (comm->error == kSuccess && !comm->aborted && comm->ranks.lost()) {
        comm->error = kRemoteError;
        comm->ranks.stop();
    }
    *error = static_cast<Result>(comm->error.load());
    return kSuccess;
}

Result ncclCommCount(Comm comm, int *count) { return *count = comm->ranks.count, kSuccess; }
Result ncclCommCuDevice(Comm comm, int *device) { return *device = comm->device, kSuccess; }
Result ncclCommUserRank(Comm comm, int *rank) { return *rank = comm->ranks.rank, kSuccess; }

const char *ncclGetErrorString(Result result) {
    switch (result) {
        case kSuccess: return "no error";
        case kUnhandledCudaError: return "unhandled cuda error";
        case kSystemError: return "unhandled system error";
        case kInternalError: return "internal error";
        case kInvalidArgument: return "invalid argument";
        case kInvalidUsage: return "invalid usage";
        case kRemoteError: return "remote process exited or there was a network error";
        case kInProgress: return "NCCL operation in progress";
    }
    return "unknown result code";
}

const char *ncclGetLastError(Comm) { return last_error.c_str(); }

Result ncclAllReduce(const void *from, void *to, size_t count, int type, int op, Comm comm,
                     CUstream stream) {
    return call("AllReduce", {comm, {kAllReduce, from, to, count, type, {op}, 0}, stream});
}

Result ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, Comm comm,
                  CUstream stream) {
    return call("Reduce", {comm, {kReduce, from, to, count, type, {op}, root}, stream});
}

Result ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Comm comm,
                     CUstream stream) {
    return call("Broadcast", {comm, {kBroadcast, from, to, count, type, {}, root}, stream});
}

Result ncclBcast(void *buffer, size_t count, int type, int root, Comm comm, CUstream stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

Result ncclAllGather(const void *from, void *to, size_t count, int type, Comm comm,
                     CUstream stream) {
    return call("AllGather", {comm, {kAllGather, from, to, count, type, {}, 0}, stream});
}

Result ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, Comm comm,
                         CUstream stream) {
    return call("ReduceScatter", {comm, {kReduceScatter, from, to, count, type, {op}, 0}, stream});
}

Result ncclSend(const void *from, size_t count, int type, int peer, Comm comm, CUstream stream) {
    return call("Send", {comm, {kSend, from, nullptr, count, type, {}, peer}, stream});
}

Result ncclRecv(void *to, size_t count, int type, int peer, Comm comm, CUstream stream) {
    return call("Recv", {comm, {kRecv, nullptr, to, count, type, {}, peer}, stream});
}

Result ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, Comm comm) {
    if (!op || !scalar || !comm || size_of(type) == 0) {
        return fail(kInvalidArgument, "RedOpCreatePreMulSum : invalid argument");
    }
    auto made = std::make_unique<Reduction>();
    made->op = 5;
    if (residence == 0) {
        made->device = scalar;
    } else {
        const char *bytes = static_cast<const char *>(scalar);
        made->scalar.assign(bytes, bytes + size_of(type));
    }
    std::lock_guard<std::mutex> held(comm->lock);
    comm->reductions.push_back(std::move(made));
    *op = 4 + static_cast<int>(comm->reductions.size());
    return kSuccess;
}

Result ncclRedOpDestroy(int op, Comm comm) {
    if (!comm || op < 5 || op - 5 >= static_cast<int>(comm->reductions.size()) ||
        !comm->reductions[op - 5]) {
        return fail(kInvalidArgument, "RedOpDestroy : invalid operator");
    }
    comm->reductions[op - 5].reset();
    return kSuccess;
}

Result ncclMemAlloc(void **at, size_t bytes) {
    CUdeviceptr address = 0;
    if (!driver() || driver()->allocate(&address, bytes) != CUDA_SUCCESS) {
        return fail(kUnhandledCudaError, "the driver has no memory");
    }
    *at = reinterpret_cast<void *>(address);
    return kSuccess;
}

Result ncclMemFree(void *at) {
    bool freed = driver() &&
                 driver()->release(reinterpret_cast<CUdeviceptr>(at)) == CUDA_SUCCESS;
    return freed ? kSuccess : fail(kUnhandledCudaError, "it is no memory of the driver's");
}

// Memory needs no registration here: the handle says what was registered.
Result ncclCommRegister(Comm comm, void *at, size_t, void **handle) {
    log("CommRegister");
    if (!comm || !at) return fail(kInvalidArgument, "CommRegister : argument is NULL");
    *handle = at;
    return kSuccess;
}

Result ncclCommDeregister(Comm comm, void *handle) {
    log("CommDeregister");
    bool known = comm && handle;
    return known ? kSuccess : fail(kInvalidArgument, "CommDeregister : argument is NULL");
}

}  // extern "C"
