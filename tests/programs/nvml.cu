// NVML beside CUDA in one process: that they speak of the same devices and the same memory. With
// the argument `remote`, for a server's devices or the software device, also that nothing of theirs
// can be changed (which a native NVML would do), and that this process is listed by its number
// (which not every container's NVML does).
#include <dlfcn.h>
#include <nvml.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "check.h"

static void *library;

template <typename F>
static F *find(const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        printf("%s is not exported\n", name);
        exit(1);
    }
    return reinterpret_cast<F *>(symbol);
}

// A function of nvml.h by its own name: what the header renames to its latest form is looked up in
// that form.
#define NAME(f) #f
#define NVML(f) find<decltype(f)>(NAME(f))

#define OK(call)                                                                     \
    do {                                                                             \
        nvmlReturn_t status = (call);                                                \
        if (status != NVML_SUCCESS) {                                                \
            printf("%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, (int)status);  \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define GIVES(wanted, call)                                                                              \
    do {                                                                                                 \
        nvmlReturn_t status = (call);                                                                    \
        if (status != (wanted)) {                                                                        \
            printf("%s:%d: %s gives %d, not %s\n", __FILE__, __LINE__, #call, (int)status, #wanted);     \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

static unsigned long long used(nvmlDevice_t device) {
    nvmlMemory_v2_t memory = {};
    memory.version = nvmlMemory_v2;
    OK(NVML(nvmlDeviceGetMemoryInfo_v2)(device, &memory));
    return memory.used;
}

int main(int argc, char **argv) {
    const bool remote = argc > 1 && !strcmp(argv[1], "remote");
    // Others allocate on the same device, or free, at the same time.
    const bool alone = argc < 3 || strcmp(argv[2], "beside");
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    unsigned count = 0;
    GIVES(NVML_ERROR_UNINITIALIZED, NVML(nvmlDeviceGetCount_v2)(&count));
    OK(NVML(nvmlInit_v2)());
    OK(NVML(nvmlDeviceGetCount_v2)(&count));
    int version = 0, devices = 0;
    OK(NVML(nvmlSystemGetCudaDriverVersion_v2)(&version));
    int runtime = 0;
    CHECK(cudaDriverGetVersion(&runtime));
    CHECK(cudaGetDeviceCount(&devices));
    EXPECT(version == runtime && count >= (unsigned)devices && devices > 0);

    for (int ordinal = 0; ordinal < devices; ordinal++) {
        char address[32];
        CHECK(cudaDeviceGetPCIBusId(address, sizeof address, ordinal));
        nvmlDevice_t device;
        OK(NVML(nvmlDeviceGetHandleByPciBusId_v2)(address, &device));
        cudaDeviceProp properties;
        CHECK(cudaGetDeviceProperties(&properties, ordinal));

        char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE], uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
        OK(NVML(nvmlDeviceGetName)(device, name, sizeof name));
        OK(NVML(nvmlDeviceGetUUID)(device, uuid, sizeof uuid));
        EXPECT(!strcmp(name, properties.name));
        char expected[64] = "GPU";
        for (int i = 0; i < 16; i++) {
            const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
            snprintf(expected + strlen(expected), 8, dash ? "-%02x" : "%02x", (unsigned char)properties.uuid.bytes[i]);
        }
        EXPECT(!strcmp(uuid, expected));
        nvmlDevice_t same;
        OK(NVML(nvmlDeviceGetHandleByUUID)(uuid, &same));
        EXPECT(same == device);
        GIVES(NVML_ERROR_INSUFFICIENT_SIZE, NVML(nvmlDeviceGetName)(device, uuid, 3));
        GIVES(NVML_ERROR_INVALID_ARGUMENT, NVML(nvmlDeviceGetName)(device, nullptr, 64));

        int major = 0, minor = 0;
        OK(NVML(nvmlDeviceGetCudaComputeCapability)(device, &major, &minor));
        EXPECT(major == properties.major && minor == properties.minor);
        nvmlPciInfo_t pci;
        OK(NVML(nvmlDeviceGetPciInfo_v3)(device, &pci));
        EXPECT(pci.bus == (unsigned)properties.pciBusID && pci.device == (unsigned)properties.pciDeviceID);
        EXPECT(pci.domain == (unsigned)properties.pciDomainID);
        nvmlDevice_t there;
        OK(NVML(nvmlDeviceGetHandleByPciBusId_v2)(pci.busId, &there));
        EXPECT(there == device);
        OK(NVML(nvmlDeviceGetHandleByPciBusId_v2)(pci.busIdLegacy, &there));
        EXPECT(there == device);
        nvmlPciInfoExt_v1_t extended = {};
        extended.version = nvmlPciInfoExt_v1;
        OK(NVML(nvmlDeviceGetPciInfoExt)(device, &extended));
        EXPECT(extended.domain == pci.domain && !strcmp(extended.busId, pci.busId));
        // What they can do with each other; devices that nothing connects are no error.
        for (int other = 0; other < devices; other++) {
            if (other == ordinal) continue;
            char place[32];
            CHECK(cudaDeviceGetPCIBusId(place, sizeof place, other));
            OK(NVML(nvmlDeviceGetHandleByPciBusId_v2)(place, &there));
            int reach = 0;
            CHECK(cudaDeviceCanAccessPeer(&reach, ordinal, other));
            nvmlGpuP2PStatus_t way;
            OK(NVML(nvmlDeviceGetP2PStatus)(device, there, NVML_P2P_CAPS_INDEX_READ, &way));
            EXPECT((way == NVML_P2P_STATUS_OK) == (reach == 1));
            nvmlGpuTopologyLevel_t level;
            OK(NVML(nvmlDeviceGetTopologyCommonAncestor)(device, there, &level));
            EXPECT(reach == 1 || level == NVML_TOPOLOGY_SYSTEM);
        }
        nvmlMemory_t memory;
        OK(NVML(nvmlDeviceGetMemoryInfo)(device, &memory));
        EXPECT(memory.total >= properties.totalGlobalMem && memory.free <= memory.total);

        if (remote) {
            GIVES(NVML_ERROR_NO_PERMISSION, NVML(nvmlDeviceSetPowerManagementLimit)(device, 1));
            GIVES(NVML_ERROR_NO_PERMISSION, NVML(nvmlDeviceSetComputeMode)(device, NVML_COMPUTEMODE_PROHIBITED));
            GIVES(NVML_ERROR_NO_PERMISSION, NVML(nvmlDeviceSetGpuLockedClocks)(device, 1, 2));
        }
        nvmlMemory_v2_t odd = {};
        odd.version = 1234;
        EXPECT(NVML(nvmlDeviceGetMemoryInfo_v2)(device, &odd) != NVML_SUCCESS);

        // What one allocates the other sees.
        const size_t bytes = 96 << 20;
        CHECK(cudaSetDevice(ordinal));
        CHECK(cudaFree(nullptr));
        const unsigned long long before = used(device);
        void *allocated;
        CHECK(cudaMalloc(&allocated, bytes));
        EXPECT(!alone || used(device) >= before + bytes);
        if (remote) {
            unsigned listed = 0;
            GIVES(NVML_ERROR_INSUFFICIENT_SIZE, NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &listed, nullptr));
            EXPECT(listed > 0);
            std::vector<nvmlProcessInfo_t> infos(listed + 4);
            listed = (unsigned)infos.size();
            OK(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &listed, infos.data()));
            bool found = false;
            for (unsigned i = 0; i < listed; i++) {
                found = found || (infos[i].pid == (unsigned)getpid() && infos[i].usedGpuMemory >= bytes);
            }
            EXPECT(found);
            // As nvidia-smi lists them, with the names, through a function that is in no header.
            struct Process {
                unsigned number;
                unsigned long long bytes;
                unsigned instances[2];
                char name[4096];
                unsigned long long reserved;
            };
            static const unsigned char id[] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                               0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
            const size_t *table = nullptr;
            OK(find<nvmlReturn_t(const size_t **, const void *)>("nvmlInternalGetExportTable")(&table, id));
            EXPECT(table[0] > 0x6a8);
            auto list = reinterpret_cast<nvmlReturn_t (*)(nvmlDevice_t, unsigned *, Process *)>(table[0x6a8 / 8]);
            std::vector<Process> named(250);
            listed = (unsigned)named.size();
            OK(list(device, &listed, named.data()));
            EXPECT(listed > 0);
            for (unsigned i = 0; i < listed; i++) {
                EXPECT(named[i].number != (unsigned)getpid() || strstr(named[i].name, "nvml"));
            }
            char program[256];
            OK(NVML(nvmlSystemGetProcessName)(getpid(), program, sizeof program));
            EXPECT(strstr(program, "nvml"));
        }
        CHECK(cudaFree(allocated));
        printf("device %d: %s, %s\n", ordinal, name, uuid);
    }
    GIVES(NVML_ERROR_INVALID_ARGUMENT, NVML(nvmlDeviceGetIndex)(nullptr, &count));
    nvmlDevice_t none;
    GIVES(NVML_ERROR_INVALID_ARGUMENT, NVML(nvmlDeviceGetHandleByIndex_v2)(4096, &none));
    GIVES(NVML_ERROR_NOT_FOUND, NVML(nvmlDeviceGetHandleByUUID)("GPU-00000000-0000-0000-0000-000000000000", &none));
    EXPECT(strlen(NVML(nvmlErrorString)(NVML_ERROR_NO_PERMISSION)) > 0);
    OK(NVML(nvmlShutdown)());
    GIVES(NVML_ERROR_UNINITIALIZED, NVML(nvmlShutdown)());
    printf("nvml: ok\n");
    return 0;
}
