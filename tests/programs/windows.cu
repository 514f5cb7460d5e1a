// Where memory of every kind lies: a line for each, its name, address and bytes in hexadecimal
// digits.
//
//   windows [occupy ADDRESS]... [wait FILE]
//
// With `occupy`, the program has a page at this address (hexadecimal) before it uses CUDA. With
// `wait`, it allocates all again once the file is there.
#include "check.h"
#include "driver.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

__device__ int variable[1000];
__managed__ int managed_variable[1000];

static void show(const char* name, const void* address, size_t bytes) {
    printf("%s %zx %zx\n", name, reinterpret_cast<size_t>(address), bytes);
}

static void occupy(const char* address) {
    char* at = reinterpret_cast<char*>(strtoull(address, nullptr, 16));
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    EXPECT(mmap(at, 4096, PROT_NONE, flags, -1, 0) == at);
}

__global__ void add(int* mapped, int* managed) {
    atomicAdd(mapped, 1 + managed_variable[0]);
    managed[1] = managed[0] + 1;
    variable[0] = 1;
}

static void reservations() {
    const size_t bytes = 64 << 20;
    CUdeviceptr anywhere, there;
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&anywhere, bytes, 0, 0, 0));
    show("reserved", reinterpret_cast<void*>(anywhere), bytes);
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(anywhere, bytes));
    CUdeviceptr wanted = anywhere + (128LL << 30);
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&there, bytes, 0, wanted, 0));
    show(there == wanted ? "reserved_there" : "reserved_elsewhere", reinterpret_cast<void*>(there), bytes);

    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CHECK_DRIVER(DRIVER(cuMemCreate)(&memory, bytes, &kind, 0));
    CHECK_DRIVER(DRIVER(cuMemMap)(there, bytes, 0, memory, 0));
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(there, bytes, &access, 1));
    CHECK(cudaMemset(reinterpret_cast<void*>(there), 7, bytes));
    unsigned char last = 0;
    CHECK(cudaMemcpy(&last, reinterpret_cast<char*>(there) + bytes - 1, 1, cudaMemcpyDefault));
    EXPECT(last == 7);
    CHECK_DRIVER(DRIVER(cuMemUnmap)(there, bytes));
    CHECK_DRIVER(DRIVER(cuMemRelease)(memory));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(there, bytes));
}

// Has everything once, uses it, and frees it.
static void allocate() {
    void *small, *large, *pitched, *pooled, *symbol;
    size_t pitch;
    int *managed, *locked, *own;
    CHECK(cudaMalloc(&small, 100));
    show("small", small, 100);
    CHECK(cudaMalloc(&large, 96 << 20));
    show("large", large, 96 << 20);
    CHECK(cudaMallocPitch(&pitched, &pitch, 1000, 100));
    show("pitched", pitched, pitch * 100);
    CHECK(cudaMallocAsync(&pooled, 5 << 20, 0));
    show("pooled", pooled, 5 << 20);
    CHECK(cudaGetSymbolAddress(&symbol, variable));
    show("variable", symbol, sizeof variable);
    CHECK(cudaGetSymbolAddress(&symbol, managed_variable));
    show("managed_variable", symbol, sizeof managed_variable);
    CHECK(cudaMallocManaged(&managed, 3 << 20));
    show("managed", managed, 3 << 20);
    reservations();

    CHECK(cudaMallocHost(&locked, 1 << 20));
    show("locked", locked, 1 << 20);
    own = static_cast<int*>(malloc(1 << 20));
    CHECK(cudaHostRegister(own, 1 << 20, cudaHostRegisterDefault));
    show("registered", own, 1 << 20);
    // Where a device has addresses, the program has none.
    void* hint = reinterpret_cast<void*>((reinterpret_cast<size_t>(large) + (1LL << 30)) & ~0xfffLL);
    void* host = mmap(hint, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(host != MAP_FAILED);
    show("host", host, 4096);
    munmap(host, 4096);

    for (int* memory : {locked, own}) {
        memory[0] = 40;
        managed[0] = 5;
        managed_variable[0] = 1;
        add<<<1, 1>>>(memory, managed);
        CHECK(cudaDeviceSynchronize());
        EXPECT(memory[0] == 42 && managed[1] == 6);
    }
    CHECK(cudaHostUnregister(own));
    free(own);
    CHECK(cudaFreeHost(locked));
    CHECK(cudaFree(managed));
    CHECK(cudaFreeAsync(pooled, 0));
    CHECK(cudaDeviceSynchronize());
    for (void* memory : {small, large, pitched}) CHECK(cudaFree(memory));
}

int main(int count, char** words) {
    const char* file = nullptr;
    for (int at = 1; at < count; at++) {
        if (strcmp(words[at], "occupy") == 0 && at + 1 < count) {
            occupy(words[++at]);
        } else if (strcmp(words[at], "wait") == 0 && at + 1 < count) {
            file = words[++at];
        }
    }
    allocate();
    if (file != nullptr) {
        printf("waiting\n");
        fflush(stdout);
        while (access(file, F_OK) != 0) usleep(10000);
        allocate();
    }
    printf("done\n");
    return outcome();
}
