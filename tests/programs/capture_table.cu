// What each call answers while a stream captures, and what becomes of the capture: every call, in
// every mode of capture, for streams of both kinds, on the thread that began the capture and on
// another one. The native driver's table is in capture_table.h; `capture_table print` prints the
// table at hand in that form.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "capture_table.h"
#include "check.h"
#include "driver.h"

__global__ void add(int* data, int amount) { data[threadIdx.x] += amount; }

__device__ int symbol;

static const char MODULE[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static void CUDART_CB nothing(void*) {}
static void CUDART_CB nothing_done(cudaStream_t, cudaError_t, void*) {}

// What the calls work on; made anew for each row.
struct Scene {
    cudaStream_t stream, other;
    cudaEvent_t captured, plain, fresh;
    int *data, *spare, *host, *ordered, *managed;
    cudaGraph_t graph, kernel_graph;
    cudaGraphExec_t exec, kernel_exec;
    std::vector<int> pageable;

    explicit Scene(unsigned flags) : pageable(32) {
        CHECK(cudaStreamCreateWithFlags(&stream, flags));
        CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
        for (cudaEvent_t* event : {&captured, &plain, &fresh}) CHECK(cudaEventCreate(event));
        CHECK(cudaMalloc(&data, 128));
        CHECK(cudaMalloc(&spare, 128));
        CHECK(cudaMallocHost(&host, 128));
        CHECK(cudaMallocAsync(&ordered, 128, other));
        CHECK(cudaMemset(data, 0, 128));
        CHECK(cudaEventRecord(plain, other));
        CHECK(cudaGraphCreate(&graph, 0));
        cudaGraphNode_t node;
        CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        int amount = 1;
        void* parameters[] = {&data, &amount};
        cudaKernelNodeParams kernel{};
        kernel.func = reinterpret_cast<void*>(add);
        kernel.gridDim = 1;
        kernel.blockDim = 32;
        kernel.kernelParams = parameters;
        CHECK(cudaGraphCreate(&kernel_graph, 0));
        CHECK(cudaGraphAddKernelNode(&node, kernel_graph, nullptr, 0, &kernel));
        CHECK(cudaGraphInstantiate(&kernel_exec, kernel_graph, 0));
        CHECK(cudaMallocManaged(&managed, 128));
        CHECK(cudaDeviceSynchronize());
    }

    // Some of it is gone already, and the last call may have failed.
    ~Scene() {
        cudaGraphExecDestroy(exec);
        if (kernel_exec != nullptr) cudaGraphExecDestroy(kernel_exec);
        cudaGraphDestroy(graph);
        cudaGraphDestroy(kernel_graph);
        cudaStreamDestroy(stream);
        cudaStreamDestroy(other);
        for (cudaEvent_t event : {captured, plain, fresh}) cudaEventDestroy(event);
        for (int* memory : {data, spare, ordered, managed})
            if (memory != nullptr) cudaFree(memory);
        if (host != nullptr) cudaFreeHost(host);
        cudaGetLastError();
        CHECK(cudaDeviceSynchronize());
    }
};

struct Call {
    const char* name;
    std::function<int(Scene&)> make;
};

// The runtime's errors have the driver's numbers where they mean the same.
static int launch(Scene& s, cudaStream_t stream) {
    int amount = 1;
    void* parameters[] = {&s.data, &amount};
    return cudaLaunchKernel(add, 1, 32, parameters, 0, stream);
}

static const cudaStream_t LEGACY = cudaStreamLegacy, OWN = cudaStreamPerThread;

static std::vector<Call> calls() {
    return {
        {"nothing", [](Scene&) { return 0; }},
        {"launch in the stream", [](Scene& s) { return launch(s, s.stream); }},
        {"launch in another stream", [](Scene& s) { return launch(s, s.other); }},
        {"launch in the legacy stream", [](Scene& s) { return launch(s, LEGACY); }},
        {"launch in the thread's stream", [](Scene& s) { return launch(s, OWN); }},
        {"copy to the device, waited for", [](Scene& s) { return cudaMemcpy(s.data, s.pageable.data(), 128, cudaMemcpyDefault); }},
        {"copy from the device, waited for", [](Scene& s) { return cudaMemcpy(s.pageable.data(), s.data, 128, cudaMemcpyDefault); }},
        {"copy on the device, waited for", [](Scene& s) { return cudaMemcpy(s.spare, s.data, 128, cudaMemcpyDefault); }},
        {"copy in the stream", [](Scene& s) { return cudaMemcpyAsync(s.spare, s.data, 128, cudaMemcpyDefault, s.stream); }},
        {"copy from page-locked memory in the stream", [](Scene& s) { return cudaMemcpyAsync(s.data, s.host, 128, cudaMemcpyDefault, s.stream); }},
        {"copy from pageable memory in the stream", [](Scene& s) { return cudaMemcpyAsync(s.data, s.pageable.data(), 128, cudaMemcpyDefault, s.stream); }},
        {"copy in another stream", [](Scene& s) { return cudaMemcpyAsync(s.spare, s.data, 128, cudaMemcpyDefault, s.other); }},
        {"copy in the legacy stream", [](Scene& s) { return cudaMemcpyAsync(s.spare, s.data, 128, cudaMemcpyDefault, LEGACY); }},
        {"copy in the thread's stream", [](Scene& s) { return cudaMemcpyAsync(s.spare, s.data, 128, cudaMemcpyDefault, OWN); }},
        {"copy to a symbol's memory in rows", [](Scene& s) { return cudaMemcpy2D(s.spare, 64, s.data, 64, 32, 2, cudaMemcpyDefault); }},
        {"memset, waited for", [](Scene& s) { return cudaMemset(s.data, 0, 128); }},
        {"memset in the stream", [](Scene& s) { return cudaMemsetAsync(s.data, 0, 128, s.stream); }},
        {"memset in another stream", [](Scene& s) { return cudaMemsetAsync(s.data, 0, 128, s.other); }},
        {"memset in the legacy stream", [](Scene& s) { return cudaMemsetAsync(s.data, 0, 128, LEGACY); }},
        {"allocate", [](Scene& s) { cudaFree(nullptr); int* more = nullptr; int error = cudaMalloc(&more, 64); if (!error) cudaFree(more); return error; }},
        {"allocate in rows", [](Scene& s) { int* more = nullptr; size_t pitch; int error = cudaMallocPitch(&more, &pitch, 64, 2); if (!error) cudaFree(more); return error; }},
        {"allocate managed memory", [](Scene& s) { int* more = nullptr; int error = cudaMallocManaged(&more, 64); if (!error) cudaFree(more); return error; }},
        {"allocate page-locked memory", [](Scene& s) { int* more = nullptr; int error = cudaMallocHost(&more, 64); if (!error) cudaFreeHost(more); return error; }},
        {"free", [](Scene& s) { int error = cudaFree(s.spare); if (!error) s.spare = nullptr; return error; }},
        {"free page-locked memory", [](Scene& s) { int error = cudaFreeHost(s.host); if (!error) s.host = nullptr; return error; }},
        {"allocate in the stream's order", [](Scene& s) { int* more = nullptr; int error = cudaMallocAsync(&more, 64, s.stream); if (!error) cudaFreeAsync(more, s.stream); return error; }},
        {"allocate in another stream's order", [](Scene& s) { int* more = nullptr; int error = cudaMallocAsync(&more, 64, s.other); if (!error) cudaFreeAsync(more, s.other); return error; }},
        {"allocate in the legacy stream's order", [](Scene& s) { int* more = nullptr; int error = cudaMallocAsync(&more, 64, LEGACY); if (!error) cudaFreeAsync(more, LEGACY); return error; }},
        {"free in another stream's order", [](Scene& s) { int error = cudaFreeAsync(s.ordered, s.other); if (!error) s.ordered = nullptr; return error; }},
        {"free in the stream's order", [](Scene& s) { return cudaFreeAsync(s.ordered, s.stream); }},
        {"register memory", [](Scene& s) { int error = cudaHostRegister(s.pageable.data(), 128, 0); if (!error) cudaHostUnregister(s.pageable.data()); return error; }},
        {"ask for free memory", [](Scene&) { size_t free, total; return cudaMemGetInfo(&free, &total); }},
        {"wait for the stream", [](Scene& s) { return cudaStreamSynchronize(s.stream); }},
        {"wait for another stream", [](Scene& s) { return cudaStreamSynchronize(s.other); }},
        {"wait for the legacy stream", [](Scene&) { return cudaStreamSynchronize(LEGACY); }},
        {"wait for the thread's stream", [](Scene&) { return cudaStreamSynchronize(OWN); }},
        {"ask the stream", [](Scene& s) { return cudaStreamQuery(s.stream); }},
        {"ask another stream", [](Scene& s) { return cudaStreamQuery(s.other); }},
        {"ask the legacy stream", [](Scene&) { return cudaStreamQuery(LEGACY); }},
        {"wait for the device", [](Scene&) { return cudaDeviceSynchronize(); }},
        {"wait for the context", [](Scene&) { return DRIVER(cuCtxSynchronize)(); }},
        {"record in the stream", [](Scene& s) { return cudaEventRecord(s.fresh, s.stream); }},
        {"record in another stream", [](Scene& s) { return cudaEventRecord(s.fresh, s.other); }},
        {"record in the legacy stream", [](Scene& s) { return cudaEventRecord(s.fresh, LEGACY); }},
        {"record a captured event in another stream", [](Scene& s) { return cudaEventRecord(s.captured, s.other); }},
        {"ask a captured event", [](Scene& s) { return cudaEventQuery(s.captured); }},
        {"ask a plain event", [](Scene& s) { return cudaEventQuery(s.plain); }},
        {"ask an event that was never recorded", [](Scene& s) { return cudaEventQuery(s.fresh); }},
        {"wait for a captured event", [](Scene& s) { return cudaEventSynchronize(s.captured); }},
        {"wait for a plain event", [](Scene& s) { return cudaEventSynchronize(s.plain); }},
        {"time between a plain and a captured event", [](Scene& s) { float time; return cudaEventElapsedTime(&time, s.plain, s.captured); }},
        {"time between plain events", [](Scene& s) { float time; return cudaEventElapsedTime(&time, s.plain, s.plain); }},
        {"the stream waits for a plain event", [](Scene& s) { return cudaStreamWaitEvent(s.stream, s.plain, 0); }},
        {"the stream waits for an event never recorded", [](Scene& s) { return cudaStreamWaitEvent(s.stream, s.fresh, 0); }},
        {"the stream waits for a captured event", [](Scene& s) { return cudaStreamWaitEvent(s.stream, s.captured, 0); }},
        {"another stream waits for a captured event", [](Scene& s) { return cudaStreamWaitEvent(s.other, s.captured, 0); }},
        {"the legacy stream waits for a captured event", [](Scene& s) { return cudaStreamWaitEvent(LEGACY, s.captured, 0); }},
        {"the legacy stream waits for a plain event", [](Scene& s) { return cudaStreamWaitEvent(LEGACY, s.plain, 0); }},
        {"begin a capture in the stream", [](Scene& s) { return cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeRelaxed); }},
        {"begin a capture in the legacy stream", [](Scene&) { return cudaStreamBeginCapture(LEGACY, cudaStreamCaptureModeRelaxed); }},
        {"end a capture in another stream", [](Scene& s) { cudaGraph_t graph; return cudaStreamEndCapture(s.other, &graph); }},
        {"end a capture in the legacy stream", [](Scene&) { cudaGraph_t graph; return cudaStreamEndCapture(LEGACY, &graph); }},
        {"does the stream capture", [](Scene& s) { cudaStreamCaptureStatus status; return cudaStreamIsCapturing(s.stream, &status); }},
        {"does another stream capture", [](Scene& s) { cudaStreamCaptureStatus status; return cudaStreamIsCapturing(s.other, &status); }},
        {"does the legacy stream capture", [](Scene&) { cudaStreamCaptureStatus status; return cudaStreamIsCapturing(LEGACY, &status); }},
        {"what does the legacy stream capture", [](Scene&) { cudaStreamCaptureStatus status; return DRIVER(cuStreamGetCaptureInfo)(CU_STREAM_LEGACY, reinterpret_cast<CUstreamCaptureStatus*>(&status), nullptr, nullptr, nullptr, nullptr, nullptr); }},
        {"create a stream", [](Scene&) { cudaStream_t more; int error = cudaStreamCreateWithFlags(&more, cudaStreamNonBlocking); if (!error) cudaStreamDestroy(more); return error; }},
        {"create a blocking stream", [](Scene&) { cudaStream_t more; int error = cudaStreamCreate(&more); if (!error) cudaStreamDestroy(more); return error; }},
        {"create an event", [](Scene&) { cudaEvent_t more; int error = cudaEventCreate(&more); if (!error) cudaEventDestroy(more); return error; }},
        {"priority of the stream", [](Scene& s) { int priority; return cudaStreamGetPriority(s.stream, &priority); }},
        {"a function of the host in the stream", [](Scene& s) { return cudaLaunchHostFunc(s.stream, nothing, nullptr); }},
        {"a function of the host in another stream", [](Scene& s) { return cudaLaunchHostFunc(s.other, nothing, nullptr); }},
        {"a function of the host in the legacy stream", [](Scene&) { return cudaLaunchHostFunc(LEGACY, nothing, nullptr); }},
        {"a callback in the stream", [](Scene& s) { return cudaStreamAddCallback(s.stream, nothing_done, nullptr, 0); }},
        {"a callback in another stream", [](Scene& s) { return cudaStreamAddCallback(s.other, nothing_done, nullptr, 0); }},
        {"attach memory to the stream", [](Scene& s) { return cudaStreamAttachMemAsync(s.stream, s.data, 0, cudaMemAttachGlobal); }},
        {"launch a graph in the stream", [](Scene& s) { return cudaGraphLaunch(s.exec, s.stream); }},
        {"launch a graph in another stream", [](Scene& s) { return cudaGraphLaunch(s.exec, s.other); }},
        {"launch a graph in the legacy stream", [](Scene& s) { return cudaGraphLaunch(s.exec, LEGACY); }},
        {"upload a graph in another stream", [](Scene& s) { return cudaGraphUpload(s.exec, s.other); }},
        {"instantiate a graph", [](Scene& s) { cudaGraphExec_t more; int error = cudaGraphInstantiate(&more, s.graph, 0); if (!error) cudaGraphExecDestroy(more); return error; }},
        {"attributes of a kernel", [](Scene&) { cudaFuncAttributes of; return cudaFuncGetAttributes(&of, add); }},
        {"set an attribute of a kernel", [](Scene&) { return cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024); }},
        {"occupancy", [](Scene&) { int blocks; return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 96, 0); }},
        {"a limit of the context", [](Scene&) { size_t value; return cudaDeviceGetLimit(&value, cudaLimitPrintfFifoSize); }},
        {"set a limit of the context", [](Scene&) { return cudaDeviceSetLimit(cudaLimitStackSize, 1024); }},
        {"an attribute of a pointer", [](Scene& s) { cudaPointerAttributes of; return cudaPointerGetAttributes(&of, s.data); }},
        {"an array", [](Scene&) { cudaArray_t array; cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(); int error = cudaMallocArray(&array, &format, 16, 16); if (!error) cudaFreeArray(array); return error; }},
        {"trim a pool", [](Scene&) { cudaMemPool_t pool; cudaDeviceGetDefaultMemPool(&pool, 0); return cudaMemPoolTrimTo(pool, 0); }},
        {"an attribute of a pool", [](Scene&) { cudaMemPool_t pool; cudaDeviceGetDefaultMemPool(&pool, 0); cuuint64_t bytes; return cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes); }},
        {"a handle for other processes", [](Scene& s) { cudaIpcMemHandle_t handle; return cudaIpcGetMemHandle(&handle, s.data); }},
        {"write a value in the stream", [](Scene& s) { return DRIVER(cuStreamWriteValue32)(s.stream, reinterpret_cast<CUdeviceptr>(s.data), 1, 0); }},
        {"write a value in another stream", [](Scene& s) { return DRIVER(cuStreamWriteValue32)(s.other, reinterpret_cast<CUdeviceptr>(s.data), 1, 0); }},
        {"launch a graph with a kernel in the stream", [](Scene& s) {
             // Made before the capture, as the other one.
             return cudaGraphLaunch(s.kernel_exec, s.stream);
         }},
        {"update an executable", [](Scene& s) { cudaGraphExecUpdateResultInfo info; return cudaGraphExecUpdate(s.exec, s.graph, &info); }},
        {"destroy an executable", [](Scene& s) { int error = cudaGraphExecDestroy(s.kernel_exec); if (!error) s.kernel_exec = nullptr; return error; }},
        {"copy to a symbol", [](Scene&) { int value = 1; return cudaMemcpyToSymbol(symbol, &value, sizeof value); }},
        {"copy to a symbol in the stream", [](Scene& s) { return cudaMemcpyToSymbolAsync(symbol, s.data, sizeof(int), 0, cudaMemcpyDeviceToDevice, s.stream); }},
        {"copy from a peer in another stream", [](Scene& s) { return cudaMemcpyPeerAsync(s.spare, 0, s.data, 0, 128, s.other); }},
        {"load a module", [](Scene&) { CUmodule module; int error = DRIVER(cuModuleLoadData)(&module, MODULE); if (!error) DRIVER(cuModuleUnload)(module); return error; }},
        {"load a library", [](Scene&) { cudaLibrary_t library; int error = cudaLibraryLoadData(&library, MODULE, nullptr, nullptr, 0, nullptr, nullptr, 0); if (!error) cudaLibraryUnload(library); return error; }},
        {"reserve addresses", [](Scene&) { CUdeviceptr at; int error = DRIVER(cuMemAddressReserve)(&at, 2 << 20, 0, 0, 0); if (!error) DRIVER(cuMemAddressFree)(at, 2 << 20); return error; }},
        {"create physical memory", [](Scene&) {
             CUmemAllocationProp prop{};
             prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
             prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
             CUmemGenericAllocationHandle handle;
             int error = DRIVER(cuMemCreate)(&handle, 2 << 20, &prop, 0);
             if (!error) DRIVER(cuMemRelease)(handle);
             return error;
         }},
        {"a mipmapped array", [](Scene&) { cudaMipmappedArray_t array; cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(); int error = cudaMallocMipmappedArray(&array, &format, cudaExtent{16, 16, 0}, 2); if (!error) cudaFreeMipmappedArray(array); return error; }},
        {"a texture object", [](Scene& s) {
             cudaResourceDesc resource{};
             resource.resType = cudaResourceTypeLinear;
             resource.res.linear.devPtr = s.data;
             resource.res.linear.desc = cudaCreateChannelDesc<int>();
             resource.res.linear.sizeInBytes = 128;
             cudaTextureDesc how{};
             cudaTextureObject_t texture;
             int error = cudaCreateTextureObject(&texture, &resource, &how, nullptr);
             if (!error) cudaDestroyTextureObject(texture);
             return error;
         }},
        {"create a pool", [](Scene&) {
             cudaMemPoolProps props{};
             props.allocType = cudaMemAllocationTypePinned;
             props.location.type = cudaMemLocationTypeDevice;
             cudaMemPool_t pool;
             int error = cudaMemPoolCreate(&pool, &props);
             if (!error) cudaMemPoolDestroy(pool);
             return error;
         }},
        {"set an attribute of a pool", [](Scene&) { cudaMemPool_t pool; cudaDeviceGetDefaultMemPool(&pool, 0); cuuint64_t bytes = 0; return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes); }},
        {"advise on managed memory", [](Scene& s) { return cudaMemAdvise(s.managed, 128, cudaMemAdviseSetReadMostly, cudaMemLocation{cudaMemLocationTypeDevice, 0}); }},
        {"prefetch managed memory in another stream", [](Scene& s) { return cudaMemPrefetchAsync(s.managed, 128, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, s.other); }},
        {"a device pointer of page-locked memory", [](Scene& s) { void* at; return cudaHostGetDevicePointer(&at, s.host, 0); }},
        {"retain the primary context", [](Scene&) { CUcontext context; int error = DRIVER(cuDevicePrimaryCtxRetain)(&context, 0); if (!error) DRIVER(cuDevicePrimaryCtxRelease)(0); return error; }},
        {"create a context", [](Scene&) {
             CUcontext context, top;
             DRIVER(cuCtxGetCurrent)(&top);
             int error = DRIVER(cuCtxCreate)(&context, nullptr, 0, 0);
             if (!error) DRIVER(cuCtxDestroy)(context);
             DRIVER(cuCtxSetCurrent)(top);
             return error;
         }},
        {"a handle of an event for other processes", [](Scene&) { cudaEvent_t event; int error = cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming); cudaIpcEventHandle_t handle; if (!error) error = cudaIpcGetEventHandle(&handle, event); return error; }},
        {"attributes of the stream", [](Scene& s) { cudaStreamAttrValue value; return cudaStreamGetAttribute(s.stream, cudaLaunchAttributePriority, &value); }},
        {"copy attributes between streams", [](Scene& s) { return cudaStreamCopyAttributes(s.other, s.stream); }},
        {"destroy another stream", [](Scene& s) { int error = cudaStreamDestroy(s.other); if (!error) s.other = nullptr; return error; }},
    };
}

// What the call answered, what the stream then said of its capture, and what ending it gave.
static std::string row(const Call& call, cudaStreamCaptureMode mode, unsigned flags, bool elsewhere) {
    Scene scene(flags);
    CHECK(cudaStreamBeginCapture(scene.stream, mode));
    launch(scene, scene.stream);
    CHECK(cudaEventRecord(scene.captured, scene.stream));
    int answer = -1;
    if (elsewhere) {
        std::thread([&] { answer = call.make(scene); cudaGetLastError(); }).join();
    } else {
        answer = call.make(scene);
    }
    cudaStreamCaptureStatus status;
    int asked = cudaStreamIsCapturing(scene.stream, &status);
    cudaGraph_t graph = nullptr;
    int ended = cudaStreamEndCapture(scene.stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    if (status == cudaStreamCaptureStatusNone || ended == cudaErrorStreamCaptureUnjoined) cudaStreamEndCapture(scene.other, &graph);
    cudaGetLastError();
    std::string text = std::to_string(answer) + "/" + (asked != 0 ? "?" : status == cudaStreamCaptureStatusActive ? "active" : status == cudaStreamCaptureStatusNone ? "none" : "spoilt");
    return ended == 0 ? text : text + "/" + std::to_string(ended);
}

int main(int count, char** arguments) {
    bool print = count > 1 && strcmp(arguments[1], "print") == 0;
    CHECK(cudaFree(nullptr));
    std::map<std::string, std::string> native;
    for (const Native& known : NATIVE) native[known.call] = known.answers;
    for (const Call& call : calls()) {
        // Global, of the thread, relaxed; each in a stream that does not block and in one that
        // does; here, and in another thread.
        std::string answers;
        for (cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed})
            for (unsigned flags : {cudaStreamNonBlocking, cudaStreamDefault})
                for (bool elsewhere : {false, true}) answers += (answers.empty() ? "" : " ") + row(call, mode, flags, elsewhere);
        if (print) {
            printf("    {\"%s\", \"%s\"},\n", call.name, answers.c_str());
            fflush(stdout);
        } else if (native.count(call.name) == 0 || native[call.name] != answers) {
            printf("%s:\n  here   %s\n  native %s\n", call.name, answers.c_str(), native[call.name].c_str());
            unexpected_errors++;
        }
    }
    if (!print) printf("%zu calls answered during captures\n", calls().size());
    return outcome();
}
