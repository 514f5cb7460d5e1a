// What calls answer that have a wrong argument, come at a wrong time or are seldom made: a line for
// each, which a test compares with what NVIDIA's driver answered (native_answers.tsv).
#include "check.h"
#include "driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <string>

static void say(const std::string& name, long long answer) { printf("%s\t%lld\n", name.c_str(), answer); }

static std::string part;
#define ANSWER(name, call) say(part + "." + (name), static_cast<long long>(call))

static const char ptx[] = R"(
.version 6.4
.target sm_50
.address_size 64
.visible .global .align 4 .b8 table[64];
.visible .entry store(.param .u64 place, .param .u32 number)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [place];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u32 %r1, [number];
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry empty() { ret; }
)";

static const CUdeviceptr NOWHERE = 0x1234567000;

template <typename T>
static CUresult flags_of(unsigned* flags, T* host) {
    return DRIVER(cuMemHostGetFlags)(flags, const_cast<std::remove_const_t<T>*>(host));
}

static void before_init() {
    part = "before_init";
    int number = 0, active = 0;
    unsigned flags = 0;
    size_t bytes = 0;
    void* host = nullptr;
    const char* text = nullptr;
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    CUmoduleLoadingMode mode;
    ANSWER("cuDeviceGetCount", DRIVER(cuDeviceGetCount)(&number));
    ANSWER("cuDeviceGet", DRIVER(cuDeviceGet)(&device, 0));
    ANSWER("cuCtxGetCurrent", DRIVER(cuCtxGetCurrent)(&context));
    ANSWER("cuCtxSynchronize", DRIVER(cuCtxSynchronize)());
    ANSWER("cuMemAlloc", DRIVER(cuMemAlloc)(&memory, 16));
    ANSWER("cuMemGetInfo", DRIVER(cuMemGetInfo)(&bytes, &bytes));
    ANSWER("cuStreamCreate", DRIVER(cuStreamCreate)(&stream, 0));
    ANSWER("cuMemHostAlloc", DRIVER(cuMemHostAlloc)(&host, 64, 0));
    ANSWER("cuDevicePrimaryCtxGetState", DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    ANSWER("cuDeviceGetDefaultMemPool", DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    ANSWER("cuModuleGetLoadingMode", DRIVER(cuModuleGetLoadingMode)(&mode));
    ANSWER("cuDriverGetVersion", DRIVER(cuDriverGetVersion)(&number));
    ANSWER("cuDriverGetVersion of null", DRIVER(cuDriverGetVersion)(nullptr));
    ANSWER("cuGetErrorName", DRIVER(cuGetErrorName)(CUDA_ERROR_INVALID_VALUE, &text));
    ANSWER("cuInit with flags", DRIVER(cuInit)(1));
    ANSWER("cuDeviceGetCount after it", DRIVER(cuDeviceGetCount)(&number));
}

static void without_context() {
    part = "without_context";
    int number = 0;
    size_t bytes = 0, more = 0;
    void* host = nullptr;
    char name[300];
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUmodule module = nullptr;
    CUuuid* no_uuid = nullptr;
    CUmoduleLoadingMode mode = static_cast<CUmoduleLoadingMode>(0);
    ANSWER("cuInit", DRIVER(cuInit)(0));
    ANSWER("cuInit with flags again", DRIVER(cuInit)(5));
    ANSWER("cuModuleGetLoadingMode", DRIVER(cuModuleGetLoadingMode)(&mode));
    ANSWER("loading mode", mode);
    ANSWER("cuCtxGetDevice", DRIVER(cuCtxGetDevice)(&device));
    ANSWER("cuCtxSynchronize", DRIVER(cuCtxSynchronize)());
    ANSWER("cuCtxPopCurrent", DRIVER(cuCtxPopCurrent)(&context));
    ANSWER("cuCtxSetCurrent of null", DRIVER(cuCtxSetCurrent)(nullptr));
    ANSWER("cuCtxPushCurrent of null", DRIVER(cuCtxPushCurrent)(nullptr));
    ANSWER("cuCtxDestroy of null", DRIVER(cuCtxDestroy)(nullptr));
    ANSWER("cuMemAlloc", DRIVER(cuMemAlloc)(&memory, 16));
    ANSWER("cuMemGetInfo", DRIVER(cuMemGetInfo)(&bytes, &more));
    ANSWER("cuStreamCreate", DRIVER(cuStreamCreate)(&stream, 0));
    ANSWER("cuEventCreate", DRIVER(cuEventCreate)(&event, 0));
    ANSWER("cuModuleLoadData", DRIVER(cuModuleLoadData)(&module, ptx));
    ANSWER("cuMemHostAlloc", DRIVER(cuMemHostAlloc)(&host, 64, 0));
    ANSWER("cuStreamSynchronize", DRIVER(cuStreamSynchronize)(nullptr));
    ANSWER("cuDeviceGet -1", DRIVER(cuDeviceGet)(&device, -1));
    ANSWER("cuDeviceGet 1000", DRIVER(cuDeviceGet)(&device, 1000));
    ANSWER("cuDeviceGet to null", DRIVER(cuDeviceGet)(nullptr, 0));
    ANSWER("cuDeviceGetCount to null", DRIVER(cuDeviceGetCount)(nullptr));
    ANSWER("cuDeviceGet", DRIVER(cuDeviceGet)(&device, 0));
    ANSWER("cuDeviceGetAttribute to null", DRIVER(cuDeviceGetAttribute)(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    ANSWER("cuDeviceGetAttribute 0", DRIVER(cuDeviceGetAttribute)(&number, static_cast<CUdevice_attribute>(0), device));
    ANSWER("cuDeviceGetAttribute 100000", DRIVER(cuDeviceGetAttribute)(&number, static_cast<CUdevice_attribute>(100000), device));
    ANSWER("cuDeviceGetAttribute of device 77", DRIVER(cuDeviceGetAttribute)(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 77));
    ANSWER("cuDeviceGetName to null", DRIVER(cuDeviceGetName)(nullptr, 10, device));
    ANSWER("cuDeviceGetName of 4", DRIVER(cuDeviceGetName)(name, 4, device));
    ANSWER("cuDeviceGetName of device 77", DRIVER(cuDeviceGetName)(name, 100, 77));
    ANSWER("cuDeviceTotalMem to null", DRIVER(cuDeviceTotalMem)(nullptr, device));
    ANSWER("cuDeviceTotalMem of device 77", DRIVER(cuDeviceTotalMem)(&bytes, 77));
    ANSWER("cuDeviceGetUuid to null", DRIVER(cuDeviceGetUuid)(no_uuid, device));
    for (int length : {1, 5, 12, 13, 14}) {
        memset(name, 'x', sizeof name);
        ANSWER("cuDeviceGetPCIBusId of " + std::to_string(length), DRIVER(cuDeviceGetPCIBusId)(name, length, device));
        ANSWER("its length", strlen(name));
    }
    ANSWER("cuDeviceGetByPCIBusId of nonsense", DRIVER(cuDeviceGetByPCIBusId)(&device, "nonsense"));
    ANSWER("cuDeviceGetByPCIBusId of none", DRIVER(cuDeviceGetByPCIBusId)(&device, "00ff:ff:1f.0"));
    ANSWER("cuDeviceGetByPCIBusId of null", DRIVER(cuDeviceGetByPCIBusId)(&device, nullptr));
    device = 0;
    ANSWER("cuDeviceCanAccessPeer of itself", DRIVER(cuDeviceCanAccessPeer)(&number, 0, 0));
    ANSWER("cuDeviceCanAccessPeer to null", DRIVER(cuDeviceCanAccessPeer)(nullptr, 0, 0));
    ANSWER("cuDeviceCanAccessPeer of device 77", DRIVER(cuDeviceCanAccessPeer)(&number, 0, 77));
    ANSWER("cuDeviceGetP2PAttribute of itself", DRIVER(cuDeviceGetP2PAttribute)(&number, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    ANSWER("cuDeviceGetP2PAttribute to null", DRIVER(cuDeviceGetP2PAttribute)(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    ANSWER("cuDevicePrimaryCtxRelease of nobody", DRIVER(cuDevicePrimaryCtxRelease)(0));
    ANSWER("cuDevicePrimaryCtxRetain of device 77", DRIVER(cuDevicePrimaryCtxRetain)(&context, 77));
    ANSWER("cuLaunchKernel of null", DRIVER(cuLaunchKernel)(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

static void memory() {
    part = "memory";
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0, more = 0;
    char own[16] = {};
    ANSWER("cuMemGetInfo without free", DRIVER(cuMemGetInfo)(nullptr, &bytes));
    ANSWER("cuMemGetInfo without total", DRIVER(cuMemGetInfo)(&bytes, nullptr));
    ANSWER("cuMemGetInfo without both", DRIVER(cuMemGetInfo)(nullptr, nullptr));
    ANSWER("cuMemAlloc of 0", DRIVER(cuMemAlloc)(&address, 0));
    ANSWER("cuMemAlloc to null", DRIVER(cuMemAlloc)(nullptr, 16));
    ANSWER("cuMemAlloc of 2^60", DRIVER(cuMemAlloc)(&address, size_t(1) << 60));
    ANSWER("cuMemFree of null", DRIVER(cuMemFree)(0));
    ANSWER("cuMemFree of nothing", DRIVER(cuMemFree)(NOWHERE));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&address, 4096));
    ANSWER("cuMemFree inside", DRIVER(cuMemFree)(address + 256));
    ANSWER("cuMemGetAddressRange to nulls", DRIVER(cuMemGetAddressRange)(nullptr, nullptr, address + 100));
    ANSWER("cuMemGetAddressRange without size", DRIVER(cuMemGetAddressRange)(&base, nullptr, address + 100));
    ANSWER("base is right", base == address);
    ANSWER("cuMemGetAddressRange without base", DRIVER(cuMemGetAddressRange)(nullptr, &bytes, address + 4095));
    ANSWER("size", bytes);
    ANSWER("cuMemcpyHtoD of nothing", DRIVER(cuMemcpyHtoD)(address, nullptr, 0));
    ANSWER("cuMemcpyDtoH of nothing", DRIVER(cuMemcpyDtoH)(nullptr, address, 0));
    ANSWER("cuMemcpyHtoD to null", DRIVER(cuMemcpyHtoD)(0, own, sizeof own));
    ANSWER("cuMemcpyDtoH to null", DRIVER(cuMemcpyDtoH)(nullptr, address, 16));
    ANSWER("cuMemsetD8 of nothing", DRIVER(cuMemsetD8)(address, 1, 0));
    ANSWER("cuMemsetD32 not aligned", DRIVER(cuMemsetD32)(address + 1, 1, 4));
    ANSWER("cuMemAllocPitch for elements of 3", DRIVER(cuMemAllocPitch)(&base, &bytes, 16, 16, 3));
    ANSWER("cuMemFree", DRIVER(cuMemFree)(address));
    ANSWER("cuMemFree again", DRIVER(cuMemFree)(address));

    void* host = nullptr;
    unsigned flags = 77;
    ANSWER("cuMemHostAlloc with unknown flags", DRIVER(cuMemHostAlloc)(&host, 64, 0xff00));
    ANSWER("cuMemFreeHost of the stack", DRIVER(cuMemFreeHost)(own));
    for (unsigned wish = 0; wish < 8; wish++) {
        CHECK_DRIVER(DRIVER(cuMemHostAlloc)(&host, 8192, wish));
        ANSWER("cuMemHostGetFlags of " + std::to_string(wish), flags_of(&flags, host));
        ANSWER("flags", flags);
        CHECK_DRIVER(DRIVER(cuMemFreeHost)(host));
    }
    CHECK_DRIVER(DRIVER(cuMemHostAlloc)(&host, 8192, 0));
    ANSWER("cuMemHostGetFlags inside", flags_of(&flags, static_cast<char*>(host) + 100));
    ANSWER("cuMemHostGetFlags of the stack", flags_of(&flags, own));
    ANSWER("cuMemHostGetDevicePointer with flags", DRIVER(cuMemHostGetDevicePointer)(&base, host, 1));
    ANSWER("cuMemHostGetDevicePointer of the stack", DRIVER(cuMemHostGetDevicePointer)(&base, own, 0));
    ANSWER("cuMemFreeHost inside", DRIVER(cuMemFreeHost)(static_cast<char*>(host) + 64));
    ANSWER("cuMemHostUnregister of allocated", DRIVER(cuMemHostUnregister)(host));
    ANSWER("cuMemFreeHost", DRIVER(cuMemFreeHost)(host));

    const size_t length = 1 << 16;
    char* pages = static_cast<char*>(mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT(pages != MAP_FAILED);
    ANSWER("cuMemHostUnregister of unregistered", DRIVER(cuMemHostUnregister)(pages));
    ANSWER("cuMemHostRegister of 0", DRIVER(cuMemHostRegister)(pages, 0, 0));
    ANSWER("cuMemHostRegister of null", DRIVER(cuMemHostRegister)(nullptr, 4096, 0));
    ANSWER("cuMemHostRegister with unknown flags", DRIVER(cuMemHostRegister)(pages, 4096, 0x80));
    ANSWER("cuMemHostRegister", DRIVER(cuMemHostRegister)(pages, 16384, 0));
    ANSWER("cuMemHostRegister again", DRIVER(cuMemHostRegister)(pages, 16384, 0));
    ANSWER("cuMemHostRegister inside", DRIVER(cuMemHostRegister)(pages + 4096, 4096, 0));
    ANSWER("cuMemHostRegister across", DRIVER(cuMemHostRegister)(pages + 12288, 8192, 0));
    ANSWER("cuMemHostUnregister inside", DRIVER(cuMemHostUnregister)(pages + 4096));
    ANSWER("cuMemHostUnregister", DRIVER(cuMemHostUnregister)(pages));
    ANSWER("cuMemHostUnregister again", DRIVER(cuMemHostUnregister)(pages));
    for (unsigned wish : {0u, 1u, 2u, 3u}) {
        CHECK_DRIVER(DRIVER(cuMemHostRegister)(pages, length, wish));
        CHECK_DRIVER(flags_of(&flags, pages));
        ANSWER("flags of registered " + std::to_string(wish), flags);
        CHECK_DRIVER(DRIVER(cuMemHostUnregister)(pages));
    }
    EXPECT(mprotect(pages, length, PROT_READ) == 0);
    ANSWER("cuMemHostRegister of what is read only", DRIVER(cuMemHostRegister)(pages, length, 0));
    EXPECT(munmap(pages, length) == 0);

    CUmemoryPool pool = nullptr;
    uint64_t number = 5;
    CHECK_DRIVER(DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    ANSWER("cuMemPoolSetAttribute high 5", DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &number));
    ANSWER("cuMemPoolGetAttribute 77", DRIVER(cuMemPoolGetAttribute)(pool, static_cast<CUmemPool_attribute>(77), &number));
    ANSWER("cuMemPoolSetAttribute current", DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &number));
    ANSWER("cuMemFreeAsync of nothing", DRIVER(cuMemFreeAsync)(NOWHERE, nullptr));
    ANSWER("cuMemAllocManaged without flags", DRIVER(cuMemAllocManaged)(&base, 64, 0));
    CUDA_ARRAY_DESCRIPTOR shape = {0, 0, CU_AD_FORMAT_FLOAT, 1};
    CUarray array = nullptr;
    ANSWER("cuArrayCreate of 0", DRIVER(cuArrayCreate)(&array, &shape));
    shape.Width = 16, shape.NumChannels = 3;
    ANSWER("cuArrayCreate of 3 channels", DRIVER(cuArrayCreate)(&array, &shape));
    shape.Width = 1 << 30, shape.NumChannels = 1;
    ANSWER("cuArrayCreate of 2^30", DRIVER(cuArrayCreate)(&array, &shape));

    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUmemGenericAllocationHandle physical = 0;
    for (auto [place, id] : {std::pair{CU_MEM_LOCATION_TYPE_DEVICE, 77}, {CU_MEM_LOCATION_TYPE_HOST, 0}, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0}, {CU_MEM_LOCATION_TYPE_INVALID, 0}}) {
        kind.location = {place, id};
        const std::string what = " at " + std::to_string(place) + ", " + std::to_string(id);
        const CUresult made = DRIVER(cuMemCreate)(&physical, 2 << 20, &kind, 0);
        ANSWER("cuMemCreate" + what, made);
        if (made == CUDA_SUCCESS) CHECK_DRIVER(DRIVER(cuMemRelease)(physical));
        ANSWER("cuMemGetAllocationGranularity" + what, DRIVER(cuMemGetAllocationGranularity)(&more, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        ANSWER("granularity", more);
    }
    kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const size_t granule = 2 << 20;
    CHECK_DRIVER(DRIVER(cuMemCreate)(&physical, 2 * granule, &kind, 0));
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&address, 8 * granule, 0, 0, 0));
    ANSWER("cuMemMap at an offset", DRIVER(cuMemMap)(address, granule, granule, physical, 0));
    ANSWER("cuMemMap beyond the memory, at an offset", DRIVER(cuMemMap)(address, 2 * granule, granule, physical, 0));
    ANSWER("cuMemMap of a part", DRIVER(cuMemMap)(address, granule, 0, physical, 0));
    ANSWER("cuMemMap of more than there is", DRIVER(cuMemMap)(address, 4 * granule, 0, physical, 0));
    CHECK_DRIVER(DRIVER(cuMemMap)(address, 2 * granule, 0, physical, 0));
    CHECK_DRIVER(DRIVER(cuMemMap)(address + 4 * granule, 2 * granule, 0, physical, 0));
    ANSWER("cuMemUnmap of 0", DRIVER(cuMemUnmap)(address, 0));
    ANSWER("cuMemUnmap of a part", DRIVER(cuMemUnmap)(address + granule, granule));
    ANSWER("cuMemUnmap of two parts", DRIVER(cuMemUnmap)(address + granule, 4 * granule));
    ANSWER("cuMemUnmap with a hole", DRIVER(cuMemUnmap)(address, 6 * granule));
    ANSWER("cuMemUnmap of what is not mapped", DRIVER(cuMemUnmap)(address, 6 * granule));
    ANSWER("cuMemUnmap beyond the reservation", DRIVER(cuMemUnmap)(address, 16 * granule));
    ANSWER("cuMemUnmap of nowhere", DRIVER(cuMemUnmap)(granule, granule));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(address, 8 * granule));
    CHECK_DRIVER(DRIVER(cuMemRelease)(physical));
}

static void streams() {
    part = "streams";
    CUstream stream = nullptr, first = nullptr;
    CUevent event = nullptr, untimed = nullptr;
    float milliseconds = 0;
    unsigned long long id = 0;
    for (auto [name, which] : {std::pair{"null", static_cast<CUstream>(nullptr)}, {"legacy", CU_STREAM_LEGACY}, {"of the thread", CU_STREAM_PER_THREAD}}) {
        CHECK_DRIVER(DRIVER(cuStreamGetId)(which, &id));
        ANSWER(std::string("number of ") + name, id);
    }
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&first, 0));
    CHECK_DRIVER(DRIVER(cuStreamGetId)(first, &id));
    ANSWER("number of the first", id);
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(first));
    ANSWER("cuStreamCreate with unknown flags", DRIVER(cuStreamCreate)(&stream, 99));
    ANSWER("cuStreamCreate to null", DRIVER(cuStreamCreate)(nullptr, 0));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    ANSWER("cuCtxGetStreamPriorityRange to nulls", DRIVER(cuCtxGetStreamPriorityRange)(nullptr, nullptr));
    ANSWER("cuEventCreate with unknown flags", DRIVER(cuEventCreate)(&event, 0x80));
    ANSWER("cuEventCreate for processes, with times", DRIVER(cuEventCreate)(&event, CU_EVENT_INTERPROCESS));
    CHECK_DRIVER(DRIVER(cuEventCreate)(&event, 0));
    CHECK_DRIVER(DRIVER(cuEventCreate)(&untimed, CU_EVENT_DISABLE_TIMING));
    ANSWER("cuEventQuery of unrecorded", DRIVER(cuEventQuery)(event));
    ANSWER("cuEventSynchronize of unrecorded", DRIVER(cuEventSynchronize)(event));
    ANSWER("cuEventElapsedTime of unrecorded", DRIVER(cuEventElapsedTime)(&milliseconds, event, event));
    CHECK_DRIVER(DRIVER(cuEventRecord)(event, stream));
    CHECK_DRIVER(DRIVER(cuEventRecord)(untimed, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    ANSWER("cuEventElapsedTime of untimed", DRIVER(cuEventElapsedTime)(&milliseconds, event, untimed));
    ANSWER("cuEventElapsedTime of one", DRIVER(cuEventElapsedTime)(&milliseconds, event, event));
    ANSWER("cuEventElapsedTime to null", DRIVER(cuEventElapsedTime)(nullptr, event, event));
    ANSWER("cuStreamWaitEvent with unknown flags", DRIVER(cuStreamWaitEvent)(stream, event, 77));
    CUgraph graph = nullptr;
    ANSWER("cuGraphCreate with flags", DRIVER(cuGraphCreate)(&graph, 3));
    CHECK_DRIVER(DRIVER(cuEventDestroy)(event));
    CHECK_DRIVER(DRIVER(cuEventDestroy)(untimed));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
}

// Images that are refused, and after each of them a wait, which has nothing to do with it.
static void refused_images() {
    part = "images";
    CUmodule module = nullptr;
    CUlibrary library = nullptr;
    const std::string garbage(1 << 14, 'Z');
    const auto wait = [] { ANSWER("a wait after it", DRIVER(cuCtxSynchronize)()); };
    ANSWER("cuModuleLoadData of null", DRIVER(cuModuleLoadData)(&module, nullptr));
    for (int round = 0; round < 2; round++) {
        ANSWER("cuModuleLoadData of garbage", DRIVER(cuModuleLoadData)(&module, garbage.c_str()));
        wait();
        ANSWER("cuModuleLoadData of nothing", DRIVER(cuModuleLoadData)(&module, ""));
        wait();
        ANSWER("cuModuleLoadDataEx of nothing", DRIVER(cuModuleLoadDataEx)(&module, "", 0, nullptr, nullptr));
        wait();
        ANSWER("cuModuleLoadFatBinary of nothing", DRIVER(cuModuleLoadFatBinary)(&module, ""));
        wait();
        ANSWER("cuModuleLoadData of a letter", DRIVER(cuModuleLoadData)(&module, "Z"));
        wait();
        ANSWER("cuLibraryLoadData of nothing", DRIVER(cuLibraryLoadData)(&library, "", nullptr, nullptr, 0, nullptr, nullptr, 0));
        wait();
    }
    ANSWER("cuModuleLoadData of wrong PTX", DRIVER(cuModuleLoadData)(&module, ".version 6.4\n.target sm_50\n.address_size 64\n.entry broken( { nonsense; }\n"));
    wait();
    ANSWER("cuModuleLoadData of PTX to come", DRIVER(cuModuleLoadData)(&module, ".version 99.0\n.target sm_50\n.address_size 64\n"));
    wait();
    ANSWER("cuModuleLoad of no file", DRIVER(cuModuleLoad)(&module, "/no/such/file.cubin"));
    ANSWER("cuModuleLoad of no name", DRIVER(cuModuleLoad)(&module, ""));
    ANSWER("cuModuleLoad of a folder", DRIVER(cuModuleLoad)(&module, "/"));
    char folder[] = "/tmp/outboard-answers-XXXXXX";
    EXPECT(mkdtemp(folder) != nullptr);
    const std::string pipe = std::string(folder) + "/pipe";
    EXPECT(mkfifo(pipe.c_str(), 0600) == 0);
    const int end = open(pipe.c_str(), O_RDWR);
    ANSWER("cuModuleLoad of a pipe", DRIVER(cuModuleLoad)(&module, pipe.c_str()));
    close(end), unlink(pipe.c_str()), rmdir(folder);
    ANSWER("cuModuleLoad of an empty file", DRIVER(cuModuleLoad)(&module, "/dev/null"));
    wait();
}

static void functions() {
    part = "functions";
    CUmodule module = nullptr;
    CUfunction store = nullptr, empty = nullptr, absent = nullptr;
    CUdeviceptr place = 0, address = 0;
    CUstream stream = nullptr;
    size_t bytes = 0, offset = 0;
    int number = 0;
    const char* text = nullptr;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, ptx));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&store, module, "store"));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&empty, module, "empty"));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&place, 4096));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, 0));
    ANSWER("cuModuleGetFunction of none", DRIVER(cuModuleGetFunction)(&absent, module, "absent"));
    ANSWER("cuModuleGetFunction of null", DRIVER(cuModuleGetFunction)(&absent, module, nullptr));
    ANSWER("cuModuleGetGlobal to nulls", DRIVER(cuModuleGetGlobal)(nullptr, nullptr, module, "table"));
    ANSWER("cuModuleGetGlobal without size", DRIVER(cuModuleGetGlobal)(&address, nullptr, module, "table"));
    ANSWER("cuModuleGetGlobal without address", DRIVER(cuModuleGetGlobal)(nullptr, &bytes, module, "table"));
    ANSWER("size", bytes);
    ANSWER("cuModuleGetGlobal of none", DRIVER(cuModuleGetGlobal)(&address, &bytes, module, "absent"));
    ANSWER("cuFuncGetAttribute 1000", DRIVER(cuFuncGetAttribute)(&number, static_cast<CUfunction_attribute>(1000), store));
    ANSWER("cuFuncGetAttribute to null", DRIVER(cuFuncGetAttribute)(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, store));
    ANSWER("cuFuncSetAttribute shared 2^20", DRIVER(cuFuncSetAttribute)(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
    ANSWER("cuFuncSetAttribute shared -1", DRIVER(cuFuncSetAttribute)(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
    ANSWER("cuFuncSetAttribute version", DRIVER(cuFuncSetAttribute)(store, CU_FUNC_ATTRIBUTE_BINARY_VERSION, 70));
    for (int carveout : {-2, -1, 0, 50, 100, 101}) {
        ANSWER("cuFuncSetAttribute carveout " + std::to_string(carveout), DRIVER(cuFuncSetAttribute)(store, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, carveout));
    }
    ANSWER("cuFuncGetName to null", DRIVER(cuFuncGetName)(nullptr, store));
    ANSWER("cuFuncGetName of null", DRIVER(cuFuncGetName)(&text, nullptr));
    ANSWER("cuKernelGetName of null", DRIVER(cuKernelGetName)(&text, nullptr));
    ANSWER("cuFuncGetParamInfo 0", DRIVER(cuFuncGetParamInfo)(store, 0, &offset, &bytes));
    ANSWER("offset and size", offset * 100 + bytes);
    ANSWER("cuFuncGetParamInfo 1 without size", DRIVER(cuFuncGetParamInfo)(store, 1, &offset, nullptr));
    ANSWER("cuFuncGetParamInfo 2", DRIVER(cuFuncGetParamInfo)(store, 2, &offset, &bytes));
    ANSWER("cuOccupancyMaxActiveBlocksPerMultiprocessor to null", DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(nullptr, store, 32, 0));
    ANSWER("cuOccupancyMaxActiveBlocksPerMultiprocessor of 0", DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&number, store, 0, 0));

    unsigned value = 5;
    void* parameters[] = {&place, &value};
    const auto launch = DRIVER(cuLaunchKernel);
    ANSWER("grid 0", launch(store, 0, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    ANSWER("block 0", launch(store, 1, 1, 1, 0, 1, 1, 0, stream, parameters, nullptr));
    ANSWER("block 2048", launch(store, 1, 1, 1, 2048, 1, 1, 0, stream, parameters, nullptr));
    ANSWER("block 1, 1, 65", launch(store, 1, 1, 1, 1, 1, 65, 0, stream, parameters, nullptr));
    ANSWER("grid 1, 65536", launch(empty, 1, 65536, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    ANSWER("grid 2^31", launch(empty, 1u << 31, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    ANSWER("shared memory 2^20", launch(store, 1, 1, 1, 1, 1, 1, 1 << 20, stream, parameters, nullptr));
    ANSWER("cuLaunchKernel of null", launch(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    char packed[12];
    memcpy(packed, &place, 8), memcpy(packed + 8, &value, 4);
    size_t length = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &length, CU_LAUNCH_PARAM_END};
    ANSWER("parameters in both forms", launch(store, 1, 1, 1, 1, 1, 1, 0, stream, parameters, extra));
    ANSWER("parameters in a buffer", launch(store, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra));
    CUlaunchAttribute attribute = {};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, nullptr, 0};
    const auto launch_ex = DRIVER(cuLaunchKernelEx);
    ANSWER("without attributes", launch_ex(&config, store, parameters, nullptr));
    ANSWER("without a configuration", launch_ex(nullptr, store, parameters, nullptr));
    config.attrs = &attribute, config.numAttrs = 1;
    const auto with = [&](const char* name, CUlaunchAttributeID id, CUfunction function, void** given) {
        attribute.id = id;
        ANSWER(name, launch_ex(&config, function, given, nullptr));
        attribute = {};
    };
    with("an attribute to ignore", CU_LAUNCH_ATTRIBUTE_IGNORE, store, parameters);
    with("not cooperative", CU_LAUNCH_ATTRIBUTE_COOPERATIVE, store, parameters);
    attribute.value.cooperative = 1;
    with("cooperative", CU_LAUNCH_ATTRIBUTE_COOPERATIVE, store, parameters);
    config.gridDimX = 1 << 20, attribute.value.cooperative = 1;
    with("cooperative, too large", CU_LAUNCH_ATTRIBUTE_COOPERATIVE, empty, nullptr);
    config.gridDimX = 1;
    with("serialised", CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, store, parameters);
    with("a cluster of nothing", CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, store, parameters);
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    with("a cluster of 0, 1, 1", CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, store, parameters);
    ANSWER("cuStreamSynchronize", DRIVER(cuStreamSynchronize)(stream));
    unsigned found = 0;
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(&found, place, 4));
    ANSWER("what the kernel stored", found);
    ANSWER("cuCtxGetLimit to null", DRIVER(cuCtxGetLimit)(nullptr, CU_LIMIT_STACK_SIZE));
    ANSWER("cuCtxGetLimit 99", DRIVER(cuCtxGetLimit)(&bytes, static_cast<CUlimit>(99)));
    ANSWER("cuCtxSetCacheConfig of L1", DRIVER(cuCtxSetCacheConfig)(CU_FUNC_CACHE_PREFER_L1));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    CHECK_DRIVER(DRIVER(cuMemFree)(place));
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
}

// What the runtime's functions give that few programs call.
static void runtime() {
    part = "runtime";
    unsigned flags = 77;
    int device = 77, count = 0;
    CHECK(cudaInitDevice(0, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid));
    CHECK(cudaSetDevice(0));
    CHECK(cudaGetDeviceFlags(&flags));
    ANSWER("flags of the device", flags);
    ANSWER("cudaSetDeviceFlags", cudaSetDeviceFlags(cudaDeviceScheduleYield));
    CHECK(cudaGetDeviceFlags(&flags));
    ANSWER("flags of the device then", flags);
    cudaDeviceProp wish = {};
    wish.major = 7, wish.minor = 5;
    CHECK(cudaChooseDevice(&device, &wish));
    ANSWER("chosen", device);
    char bus[8];
    ANSWER("cudaDeviceGetPCIBusId of 5", cudaDeviceGetPCIBusId(bus, 5, 0));
    cudaGetLastError();
    void* entry = &entry;
    cudaDriverEntryPointQueryResult state;
    ANSWER("no such entry point", cudaGetDriverEntryPointByVersion("cuNoSuchCall", &entry, 12000, cudaEnableDefault, &state));
    ANSWER("it is null", entry == nullptr);
    ANSWER("why", state);
    cudaGetLastError();
    ANSWER("an entry point of later", cudaGetDriverEntryPointByVersion("cuGreenCtxCreate", &entry, 11000, cudaEnableDefault, &state));
    ANSWER("why", state);
    cudaGetLastError();
    for (cudaLimit limit : {cudaLimitStackSize, cudaLimitMallocHeapSize}) {
        size_t was = 0, now = 0;
        CHECK(cudaDeviceGetLimit(&was, limit));
        CHECK(cudaDeviceSetLimit(limit, was * 2));
        CHECK(cudaDeviceGetLimit(&now, limit));
        ANSWER("a limit doubled", now == was * 2);
    }
    CHECK(cudaGetDeviceCount(&count));
    ANSWER("there are devices", count > 0);
}

int main() {
    CUcontext context = nullptr;
    before_init();
    without_context();
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(context));
    streams();
    memory();
    refused_images();
    functions();
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRelease)(0));
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(nullptr));
    runtime();
    return 0;
}
