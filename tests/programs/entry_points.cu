// Which functions there are: version and entry points, asked before cuInit, as runtimes do, and
// after it.
//
// Arguments say what to expect of a driver that is not today's: its version, and names that it
// lacks.
#include "check.h"
#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

static int version;

// The address at a version, and what is said of it.
static void* find(const char* name, int at, CUresult wanted = CUDA_SUCCESS, int wanted_status = CU_GET_PROC_ADDRESS_SUCCESS) {
    void* address = &version;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = DRIVER(cuGetProcAddress)(name, &address, at, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    if (result != wanted || (result == CUDA_SUCCESS && status != wanted_status)) {
        printf("%s at %d: result %d, status %d\n", name, at, result, status);
        exit(1);
    }
    return result == CUDA_SUCCESS ? address : nullptr;
}

static void look_up(int count, char** names) {
    EXPECT(find("cuInit", 2000) != nullptr);
    EXPECT(find("cuMemAlloc", version) != nullptr && find("cuMemAlloc", version) != find("cuMemAlloc", 2000));
    EXPECT(find("cuNothing", version, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) == nullptr);
    EXPECT(find("cuGreenCtxCreate", 11000, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT) == nullptr);
    // A version that the driver does not have.
    find("cuMemAlloc", version + 10, CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < count; i++) {
        EXPECT(find(names[i], version, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) == nullptr);
    }
}

static void use() {
    CHECK_DRIVER(DRIVER(cuInit)(0));
    int devices = 0;
    CHECK_DRIVER(DRIVER(cuDeviceGetCount)(&devices));
    EXPECT(devices > 0);
    CUcontext context;
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(context));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 64));
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
}

int main(int argc, char** argv) {
    CHECK_DRIVER(DRIVER(cuDriverGetVersion)(&version));
    EXPECT(argc < 2 || version == atoi(argv[1]));
    look_up(argc - 2, argv + 2);
    // Asking is not using: a child may still use the device.
    pid_t child = fork();
    if (child == 0) {
        use();
        _exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    use();
    int after = 0;
    CHECK_DRIVER(DRIVER(cuDriverGetVersion)(&after));
    EXPECT(after == version);
    look_up(argc - 2, argv + 2);
    printf("as the driver's version says\n");
    return 0;
}
