// Physical memory and memory pools passed between two processes as open files.
#include "check.h"
#include "driver.h"
#include "processes.h"

static CUmemAllocationProp prop;
static CUmemAccessDesc both_ways;
static size_t granule;

__global__ void fill(unsigned* out, size_t count, unsigned seed) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        out[i] = unsigned(i) * 2654435761u + seed;
}

static bool filled(CUdeviceptr from, size_t count, unsigned seed) {
    std::vector<unsigned> out(count);
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(out.data(), from, count * sizeof(unsigned)));
    for (size_t i = 0; i < count; i++)
        if (out[i] != unsigned(i) * 2654435761u + seed) return false;
    return true;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle) {
    CUdeviceptr address;
    CHECK_DRIVER(DRIVER(cuMemAddressReserve)(&address, granule, 0, 0, 0));
    CHECK_DRIVER(DRIVER(cuMemMap)(address, granule, 0, handle, 0));
    CHECK_DRIVER(DRIVER(cuMemSetAccess)(address, granule, &both_ways, 1));
    return address;
}

static void unmap(CUdeviceptr address) {
    CHECK_DRIVER(DRIVER(cuMemUnmap)(address, granule));
    CHECK_DRIVER(DRIVER(cuMemAddressFree)(address, granule));
}

static void prepare() {
    CHECK(cudaFree(nullptr));
    CUdevice device;
    CHECK_DRIVER(DRIVER(cuCtxGetDevice)(&device));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    both_ways.location = prop.location;
    both_ways.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(DRIVER(cuMemGetAllocationGranularity)(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

static const unsigned POOLED = 100000;

static CUmemGenericAllocationHandle import_physical(int file) {
    CUmemGenericAllocationHandle handle;
    void* given = reinterpret_cast<void*>(static_cast<uintptr_t>(file));
    CHECK_DRIVER(
        DRIVER(cuMemImportFromShareableHandle)(&handle, given, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

static int child() {
    // Memory that its process keeps, and memory that only the file keeps.
    for (unsigned seed = 1; seed <= 2; seed++) {
        int file = receive_descriptor(CHILD_SOCKET);
        EXPECT(receive_value<char>(CHILD_SOCKET) == 'g');
        CUmemGenericAllocationHandle handle = import_physical(file);
        close(file);
        CUmemAllocationProp asked = {};
        CHECK_DRIVER(DRIVER(cuMemGetAllocationPropertiesFromHandle)(&asked, handle));
        EXPECT(asked.type == prop.type && asked.location.id == prop.location.id);
        CUdeviceptr address = map(handle);
        CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
        EXPECT(filled(address, granule / 4, seed));
        fill<<<8, 256>>>(reinterpret_cast<unsigned*>(address), granule / 4, seed + 10);
        CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
        send_value(CHILD_SOCKET, 'd');
        EXPECT(receive_value<char>(CHILD_SOCKET) == 'o');
        unmap(address);
    }

    int file = receive_descriptor(CHILD_SOCKET);
    CUmemPoolPtrExportData data = receive_value<CUmemPoolPtrExportData>(CHILD_SOCKET);
    CUmemoryPool pool;
    void* given = reinterpret_cast<void*>(static_cast<uintptr_t>(file));
    CHECK_DRIVER(
        DRIVER(cuMemPoolImportFromShareableHandle)(&pool, given, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(file);
    CUdeviceptr pointer;
    CHECK_DRIVER(DRIVER(cuMemPoolImportPointer)(&pointer, pool, &data));
    EXPECT(filled(pointer, POOLED, 3));
    fill<<<8, 256>>>(reinterpret_cast<unsigned*>(pointer), POOLED, 13);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(pointer, nullptr));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    send_value(CHILD_SOCKET, 'd');
    return 0;
}

static int export_physical(CUmemGenericAllocationHandle handle) {
    int file = -1;
    CHECK_DRIVER(DRIVER(cuMemExportToShareableHandle)(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(file >= 0);
    return file;
}

static int parent() {
    int socket;
    pid_t other = start_child("child", &socket);
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(DRIVER(cuMemCreate)(&handle, granule, &prop, 0));
    CUdeviceptr address = map(handle);
    fill<<<8, 256>>>(reinterpret_cast<unsigned*>(address), granule / 4, 1);
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    int file = export_physical(handle);
    send_descriptor(socket, file);
    send_value(socket, 'g');
    EXPECT(receive_value<char>(socket) == 'd');
    EXPECT(filled(address, granule / 4, 11));
    send_value(socket, 'o');
    printf("memory that both have mapped\n");

    // Imported where it was made: one more handle for it.
    CUmemGenericAllocationHandle again = import_physical(file);
    close(file);
    CUdeviceptr second = map(again);
    EXPECT(filled(second, granule / 4, 11));
    unmap(second);
    CHECK_DRIVER(DRIVER(cuMemRelease)(again));
    unmap(address);
    CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    printf("imported by its own process\n");

    CHECK_DRIVER(DRIVER(cuMemCreate)(&handle, granule, &prop, 0));
    address = map(handle);
    fill<<<8, 256>>>(reinterpret_cast<unsigned*>(address), granule / 4, 2);
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    file = export_physical(handle);
    unmap(address);
    CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
    send_descriptor(socket, file);
    close(file);
    send_value(socket, 'g');
    EXPECT(receive_value<char>(socket) == 'd');
    send_value(socket, 'o');
    printf("memory that only its file keeps\n");

    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    props.location = prop.location;
    CUmemoryPool pool;
    CHECK_DRIVER(DRIVER(cuMemPoolCreate)(&pool, &props));
    CUdeviceptr pointer;
    CHECK_DRIVER(DRIVER(cuMemAllocFromPoolAsync)(&pointer, POOLED * sizeof(unsigned), pool, nullptr));
    fill<<<8, 256>>>(reinterpret_cast<unsigned*>(pointer), POOLED, 3);
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    CHECK_DRIVER(
        DRIVER(cuMemPoolExportToShareableHandle)(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemPoolPtrExportData data;
    CHECK_DRIVER(DRIVER(cuMemPoolExportPointer)(&data, pointer));
    send_descriptor(socket, file);
    send_value(socket, data);
    close(file);
    EXPECT(receive_value<char>(socket) == 'd');
    EXPECT(filled(pointer, POOLED, 13));
    expect_good_end(other);
    CHECK_DRIVER(DRIVER(cuMemFreeAsync)(pointer, nullptr));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    CHECK_DRIVER(DRIVER(cuMemPoolDestroy)(pool));
    printf("memory of a pool\n");

    // What was not made for it, and what is none.
    CUmemGenericAllocationHandle plain;
    CUmemAllocationProp unshared = prop;
    unshared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CHECK_DRIVER(DRIVER(cuMemCreate)(&plain, granule, &unshared, 0));
    EXPECT(DRIVER(cuMemExportToShareableHandle)(&file, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
           CUDA_SUCCESS);
    CHECK_DRIVER(DRIVER(cuMemRelease)(plain));
    void* input = nullptr;
    EXPECT(DRIVER(cuMemImportFromShareableHandle)(&plain, input, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
           CUDA_SUCCESS);
    printf("shareable_handles: done\n");
    return 0;
}

// Many tensors in few pieces of memory, as PyTorch's expandable segments have them: each is
// exported anew, and its piece mapped by the other process.
static const unsigned PIECES = 100, TENSORS = 1000;

static int many_child() {
    for (unsigned i = 0; i < TENSORS; i++) {
        int file = receive_descriptor(CHILD_SOCKET);
        CUmemGenericAllocationHandle handle = import_physical(file);
        close(file);
        CUdeviceptr address = map(handle);
        CHECK_DRIVER(DRIVER(cuMemRelease)(handle));
        unsigned value;
        CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(&value, address + i * sizeof value, sizeof value));
        EXPECT(value == i * 7 + 1);
        unmap(address);
        send_value(CHILD_SOCKET, 'd');
    }
    return 0;
}

static int thousand() {
    int socket;
    pid_t other = start_child("many", &socket);
    std::vector<CUmemGenericAllocationHandle> pieces(PIECES);
    std::vector<CUdeviceptr> addresses(PIECES);
    for (unsigned i = 0; i < PIECES; i++) {
        CHECK_DRIVER(DRIVER(cuMemCreate)(&pieces[i], granule, &prop, 0));
        addresses[i] = map(pieces[i]);
    }
    std::vector<int> files(TENSORS);
    for (unsigned i = 0; i < TENSORS; i++) {
        CHECK_DRIVER(DRIVER(cuMemsetD32)(addresses[i % PIECES] + i * sizeof(unsigned), i * 7 + 1, 1));
        files[i] = export_physical(pieces[i % PIECES]);
    }
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    printf("all are exported\n");
    // Those that are closed leave the others of the same memory as they are.
    for (unsigned i = 0; i < TENSORS; i++) {
        send_descriptor(socket, files[i]);
        close(files[i]);
        EXPECT(receive_value<char>(socket) == 'd');
    }
    expect_good_end(other);
    // All descriptors are gone, and the memory can be exported again.
    close(export_physical(pieces[0]));
    for (unsigned i = 0; i < PIECES; i++) {
        unmap(addresses[i]);
        CHECK_DRIVER(DRIVER(cuMemRelease)(pieces[i]));
    }
    printf("shareable_handles: done\n");
    return 0;
}

int main(int count, char** arguments) {
    prepare();
    const char* role = count > 1 ? arguments[1] : "parent";
    if (strcmp(role, "child") == 0) return child();
    if (strcmp(role, "many") == 0) return many_child();
    return strcmp(role, "thousand") == 0 ? thousand() : parent();
}
