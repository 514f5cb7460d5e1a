// Copies of two and three dimensions: any shape, any pitch, any offset, in every direction, by
// every function; compared with plain loops.
#include "check.h"
#include "driver.h"

#include <cstring>

typedef std::vector<unsigned char> Bytes;

static CUstream stream;

// Memory of one kind, with a copy of what should be in it.
struct Area {
    CUmemorytype kind;
    size_t bytes;
    unsigned char* host = nullptr;
    CUdeviceptr device = 0;
    bool pinned = false;
    Bytes wanted;

    Area(CUmemorytype kind, size_t bytes, bool pinned, Random& random) : kind(kind), bytes(bytes), pinned(pinned), wanted(bytes) {
        for (auto& byte : wanted) byte = static_cast<unsigned char>(random.next());
        if (kind == CU_MEMORYTYPE_HOST && pinned) {
            void* memory;
            CHECK_DRIVER(DRIVER(cuMemAllocHost)(&memory, bytes));
            host = static_cast<unsigned char*>(memory);
        } else if (kind == CU_MEMORYTYPE_HOST) {
            host = static_cast<unsigned char*>(malloc(bytes));
        } else {
            CHECK_DRIVER(DRIVER(cuMemAlloc)(&device, bytes));
            CHECK_DRIVER(DRIVER(cuMemcpyHtoD)(device, wanted.data(), bytes));
        }
        if (host) memcpy(host, wanted.data(), bytes);
    }

    ~Area() {
        if (device) CHECK_DRIVER(DRIVER(cuMemFree)(device));
        if (host && pinned) CHECK_DRIVER(DRIVER(cuMemFreeHost)(host));
        if (host && !pinned) free(host);
    }

    bool right() const {
        if (host) return memcmp(host, wanted.data(), bytes) == 0;
        Bytes found(bytes);
        CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(found.data(), device, bytes));
        return found == wanted;
    }
};

struct Shape {
    size_t x, y, z, pitch, height;
    size_t at(size_t i, size_t j, size_t k) const { return ((z + k) * height + y + j) * pitch + x + i; }
};

static CUDA_MEMCPY3D describe(const Area& dst, const Shape& to, const Area& src, const Shape& from, bool unified,
                              size_t width, size_t height, size_t depth) {
    CUDA_MEMCPY3D c = {};
    c.srcXInBytes = from.x, c.srcY = from.y, c.srcZ = from.z, c.srcPitch = from.pitch, c.srcHeight = from.height;
    c.dstXInBytes = to.x, c.dstY = to.y, c.dstZ = to.z, c.dstPitch = to.pitch, c.dstHeight = to.height;
    c.srcMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : src.kind;
    c.dstMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : dst.kind;
    c.srcHost = src.host, c.dstHost = dst.host;
    c.srcDevice = src.device, c.dstDevice = dst.device;
    if (unified && src.host) c.srcDevice = reinterpret_cast<CUdeviceptr>(src.host);
    if (unified && dst.host) c.dstDevice = reinterpret_cast<CUdeviceptr>(dst.host);
    c.WidthInBytes = width, c.Height = height, c.Depth = depth;
    return c;
}

static CUDA_MEMCPY2D flat(const CUDA_MEMCPY3D& c) {
    CUDA_MEMCPY2D f = {};
    f.srcXInBytes = c.srcXInBytes, f.srcY = c.srcY, f.srcPitch = c.srcPitch, f.srcMemoryType = c.srcMemoryType;
    f.srcHost = c.srcHost, f.srcDevice = c.srcDevice;
    f.dstXInBytes = c.dstXInBytes, f.dstY = c.dstY, f.dstPitch = c.dstPitch, f.dstMemoryType = c.dstMemoryType;
    f.dstHost = c.dstHost, f.dstDevice = c.dstDevice;
    f.WidthInBytes = c.WidthInBytes, f.Height = c.Height;
    return f;
}

static CUDA_MEMCPY3D_PEER between_contexts(const CUDA_MEMCPY3D& c, CUcontext context) {
    CUDA_MEMCPY3D_PEER p = {};
    p.srcXInBytes = c.srcXInBytes, p.srcY = c.srcY, p.srcZ = c.srcZ, p.srcPitch = c.srcPitch, p.srcHeight = c.srcHeight;
    p.dstXInBytes = c.dstXInBytes, p.dstY = c.dstY, p.dstZ = c.dstZ, p.dstPitch = c.dstPitch, p.dstHeight = c.dstHeight;
    p.srcMemoryType = c.srcMemoryType, p.dstMemoryType = c.dstMemoryType;
    p.srcHost = c.srcHost, p.dstHost = c.dstHost, p.srcDevice = c.srcDevice, p.dstDevice = c.dstDevice;
    p.srcContext = context, p.dstContext = context;
    p.WidthInBytes = c.WidthInBytes, p.Height = c.Height, p.Depth = c.Depth;
    return p;
}

// One copy of a random shape between two areas, by one of the functions.
static void one(Random& random, Area& dst, Area& src, int function, CUcontext context) {
    bool two = function < 3;
    size_t width = 1 + random.below(random.below(4) == 0 ? 900 : 60), height = 1 + random.below(12);
    size_t depth = two ? 1 : 1 + random.below(5);
    auto shape = [&](size_t bytes) {
        Shape s;
        do {
            s.x = random.below(30), s.y = random.below(4), s.z = two ? 0 : random.below(3);
            s.pitch = s.x + width + random.below(50);
            s.height = s.y + height + random.below(4);
        } while (s.at(width, height - 1, depth - 1) > bytes);
        return s;
    };
    Shape to = shape(dst.bytes), from = shape(src.bytes);
    CUDA_MEMCPY3D c = describe(dst, to, src, from, random.below(4) == 0, width, height, depth);
    CUDA_MEMCPY2D f = flat(c);
    CUDA_MEMCPY3D_PEER p = between_contexts(c, context);
    switch (function) {
        case 0: CHECK_DRIVER(DRIVER(cuMemcpy2D)(&f)); break;
        case 1: CHECK_DRIVER(DRIVER(cuMemcpy2DUnaligned)(&f)); break;
        case 2: CHECK_DRIVER(DRIVER(cuMemcpy2DAsync)(&f, stream)); break;
        case 3: CHECK_DRIVER(DRIVER(cuMemcpy3D)(&c)); break;
        case 4: CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&c, stream)); break;
        case 5: CHECK_DRIVER(DRIVER(cuMemcpy3DPeer)(&p)); break;
        default: CHECK_DRIVER(DRIVER(cuMemcpy3DPeerAsync)(&p, stream)); break;
    }
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    for (size_t k = 0; k < depth; k++)
        for (size_t j = 0; j < height; j++)
            for (size_t i = 0; i < width; i++) dst.wanted[to.at(i, j, k)] = src.wanted[from.at(i, j, k)];
    EXPECT(dst.right());
}

static void random_shapes() {
    Random random(17);
    CUcontext context;
    CHECK_DRIVER(DRIVER(cuCtxGetCurrent)(&context));
    const char* names[] = {"device", "pageable", "pinned"};
    for (int to = 0; to < 3; to++)
        for (int from = 0; from < 3; from++) {
            auto area = [&](int kind) {
                return new Area(kind == 0 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST, 120000, kind == 2, random);
            };
            Area *dst = area(to), *src = area(from);
            for (int i = 0; i < 28; i++) one(random, *dst, *src, i % 7, context);
            printf("%s to %s: right\n", names[from], names[to]);
            delete dst;
            delete src;
        }
}

// Tens of megabytes in rows: only the rectangle is touched, and nobody waits for a copy from or to
// page-locked memory.
static void large(size_t width, size_t height, size_t depth, size_t pitch, size_t rows) {
    Random random(width);
    Shape shape = {16, 1, 0, pitch, rows};
    size_t bytes = shape.at(width, height - 1, depth - 1) + 100;
    Area host(CU_MEMORYTYPE_HOST, bytes, false, random), pinned(CU_MEMORYTYPE_HOST, bytes, true, random);
    Area device(CU_MEMORYTYPE_DEVICE, bytes, false, random);
    auto expect = [&](Area& dst, const Area& src) {
        for (size_t k = 0; k < depth; k++)
            for (size_t j = 0; j < height; j++)
                memcpy(&dst.wanted[shape.at(0, j, k)], &src.wanted[shape.at(0, j, k)], width);
        EXPECT(dst.right());
    };
    CUDA_MEMCPY3D c = describe(device, shape, host, shape, false, width, height, depth);
    CHECK_DRIVER(DRIVER(cuMemcpy3D)(&c));
    expect(device, host);
    c = describe(pinned, shape, device, shape, false, width, height, depth);
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&c, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    expect(pinned, device);
    // In a stream that waits: the copy returns at once, and what is read is what was there when it
    // was queued.
    CUdeviceptr flag;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&flag, 4));
    CHECK_DRIVER(DRIVER(cuMemsetD32)(flag, 0, 1));
    CHECK_DRIVER(DRIVER(cuMemsetD8)(device.device, 7, bytes));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    std::fill(device.wanted.begin(), device.wanted.end(), 7);
    CHECK_DRIVER(DRIVER(cuStreamWaitValue32)(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    c = describe(device, shape, pinned, shape, false, width, height, depth);
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&c, stream));
    EXPECT(DRIVER(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY);
    CUstream other;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(DRIVER(cuStreamWriteValue32)(other, flag, 1, 0));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    expect(device, pinned);
    c = describe(host, shape, device, shape, false, width, height, depth);
    CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&c, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    expect(host, device);
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(other));
    CHECK_DRIVER(DRIVER(cuMemFree)(flag));
    printf("%zu x %zu x %zu bytes: right\n", width, height, depth);
}

// Small rectangles from memory that changes as soon as the call is over, while the stream waits.
static void sources_are_taken() {
    const size_t width = 24, height = 9, pitch = 40;
    CUdeviceptr flag, memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&flag, 4));
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 100 * 1024));
    CHECK_DRIVER(DRIVER(cuMemsetD32)(flag, 0, 1));
    CHECK_DRIVER(DRIVER(cuCtxSynchronize)());
    std::vector<unsigned char> source(pitch * height), found(1024);
    for (int i = 0; i < 100; i++) {
        std::fill(source.begin(), source.end(), static_cast<unsigned char>(i));
        CUDA_MEMCPY2D c = {};
        c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = source.data(), c.srcPitch = pitch;
        c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = memory + i * 1024, c.dstPitch = 64;
        c.WidthInBytes = width, c.Height = height;
        CHECK_DRIVER(DRIVER(cuMemcpy2DAsync)(&c, stream));
    }
    std::fill(source.begin(), source.end(), 0xff);
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    for (int i = 0; i < 100; i++) {
        CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(found.data(), memory + i * 1024, 1024));
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++) EXPECT(found[y * 64 + x] == i);
    }
    CHECK_DRIVER(DRIVER(cuMemFree)(flag));
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
    printf("sources are taken: right\n");
}

// The runtime's own functions, which choose the driver's.
static void runtime() {
    const size_t width = 100, height = 30;
    cudaPitchedPtr pitched;
    CHECK(cudaMalloc3D(&pitched, make_cudaExtent(width, height, 4)));
    std::vector<unsigned char> in(width * height * 4), out(in.size());
    for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<unsigned char>(i * 7 + i / 251);
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(in.data(), width, width, height);
    p.dstPtr = pitched;
    p.extent = make_cudaExtent(width, height, 4);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    std::swap(p.srcPtr, p.dstPtr);
    p.dstPtr.ptr = out.data();
    p.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&p));
    EXPECT(in == out);
    std::fill(out.begin(), out.end(), 0);
    CHECK(cudaMemset2D(pitched.ptr, pitched.pitch, 3, width / 2, height));
    CHECK(cudaMemcpy2D(out.data(), width, pitched.ptr, pitched.pitch, width, height, cudaMemcpyDefault));
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) EXPECT(out[y * width + x] == (x < width / 2 ? 3 : in[y * width + x]));
    CHECK(cudaFree(pitched.ptr));
    printf("cudaMemcpy3D, cudaMemset2D, cudaMemcpy2D: right\n");
}

static void mistakes() {
    unsigned char host[64];
    CUdeviceptr memory;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&memory, 256));
    CUDA_MEMCPY2D c = {};
    c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = host, c.srcPitch = 8;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = memory, c.dstPitch = 16;
    c.WidthInBytes = 8, c.Height = 8;
    EXPECT_DRIVER(DRIVER(cuMemcpy2D)(&c), CUDA_SUCCESS);
    c.dstPitch = 4;
    EXPECT_DRIVER(DRIVER(cuMemcpy2D)(&c), CUDA_ERROR_INVALID_VALUE);
    c.dstPitch = 16, c.srcPitch = 7;
    EXPECT_DRIVER(DRIVER(cuMemcpy2DAsync)(&c, stream), CUDA_ERROR_INVALID_VALUE);
    c.srcPitch = 8, c.Height = 0;
    EXPECT_DRIVER(DRIVER(cuMemcpy2D)(&c), CUDA_SUCCESS);
    c.Height = 8, c.srcMemoryType = static_cast<CUmemorytype>(77);
    EXPECT_DRIVER(DRIVER(cuMemcpy2D)(&c), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuMemcpy2D)(nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(DRIVER(cuMemFree)(memory));
}

int main() {
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    random_shapes();
    sources_are_taken();
    large(3000, 5000, 1, 4096, 5001);
    large(100, 700, 90, 128, 702);
    large(2500000, 7, 2, 2500096, 9);
    large(7, 30000, 2, 40, 30001);
    runtime();
    mistakes();
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    printf("copies_2d_3d: done\n");
    return outcome();
}
