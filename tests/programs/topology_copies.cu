// Copies among the memory of all devices and of the host, at odd sizes and offsets, by each function
// of the driver that can express one, in streams of any device. A model on the host does the same;
// from time to time all memory must equal it. The first argument says how many copies to make.
#include <algorithm>
#include <cstring>
#include <string>

#include "driver.h"

// Memory of one device, or of the host, as a box of bytes. Linear memory has one row.
struct Side {
    enum Kind { LINEAR, PITCHED, ARRAY, PINNED, PAGEABLE } kind;
    int device;  // -1: the host
    size_t width, height, depth, pitch;
    CUdeviceptr memory = 0;
    CUarray array = nullptr;
    std::vector<unsigned char> host, model;

    bool is_linear() const { return depth == 1 && height == 1 && kind != ARRAY; }
    bool is_host() const { return kind == PINNED || kind == PAGEABLE; }
    size_t at(size_t x, size_t y, size_t z) const { return (z * height + y) * width + x; }
};

static std::vector<CUcontext> contexts;
static std::vector<std::vector<CUstream>> streams;
static std::vector<CUevent> events;
static Random numbers(19);

static void use(int device) { CHECK_DRIVER(DRIVER(cuCtxSetCurrent)(contexts[device])); }

static size_t less_than(size_t bound) { return bound < 2 ? 0 : numbers.below(uint32_t(bound)); }

static Side make(Side::Kind kind, int device, size_t width, size_t height = 1, size_t depth = 1) {
    Side side{kind, device, width, height, depth, width};
    if (kind == Side::ARRAY) {
        CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
        descriptor.Width = width, descriptor.Height = height, descriptor.Depth = depth > 1 ? depth : 0;
        descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8, descriptor.NumChannels = 1;
        CHECK_DRIVER(DRIVER(cuArray3DCreate)(&side.array, &descriptor));
    } else if (kind == Side::PITCHED) {
        CHECK_DRIVER(DRIVER(cuMemAllocPitch)(&side.memory, &side.pitch, width, height * depth, 4));
    } else if (kind == Side::LINEAR) {
        CHECK_DRIVER(DRIVER(cuMemAlloc)(&side.memory, width));
    } else if (kind == Side::PINNED) {
        void* memory;
        CHECK_DRIVER(DRIVER(cuMemHostAlloc)(&memory, width * height * depth, CU_MEMHOSTALLOC_PORTABLE));
        side.memory = reinterpret_cast<CUdeviceptr>(memory);
    } else {
        side.host.resize(width * height * depth);
        side.memory = reinterpret_cast<CUdeviceptr>(side.host.data());
    }
    return side;
}

// Both sides of a box to copy.
struct Box {
    Side *from, *to;
    size_t fx, fy, fz, tx, ty, tz, width, height, depth;
};

static CUDA_MEMCPY3D_PEER described(const Box& box) {
    CUDA_MEMCPY3D_PEER copy = {};
    copy.srcXInBytes = box.fx, copy.srcY = box.fy, copy.srcZ = box.fz;
    copy.dstXInBytes = box.tx, copy.dstY = box.ty, copy.dstZ = box.tz;
    copy.WidthInBytes = box.width, copy.Height = box.height, copy.Depth = box.depth;
    // Memory of the host may be called so, or left to be found out.
    bool unified = numbers.below(2) == 0;
    auto type = [&](const Side& side) {
        if (side.kind == Side::ARRAY) return CU_MEMORYTYPE_ARRAY;
        if (unified) return CU_MEMORYTYPE_UNIFIED;
        return side.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    };
    copy.srcMemoryType = type(*box.from), copy.dstMemoryType = type(*box.to);
    copy.srcArray = box.from->array, copy.dstArray = box.to->array;
    copy.srcDevice = box.from->memory, copy.dstDevice = box.to->memory;
    copy.srcHost = reinterpret_cast<const void*>(box.from->memory);
    copy.dstHost = reinterpret_cast<void*>(box.to->memory);
    copy.srcPitch = box.from->pitch, copy.dstPitch = box.to->pitch;
    copy.srcHeight = box.from->height, copy.dstHeight = box.to->height;
    return copy;
}

static CUDA_MEMCPY2D flat(const CUDA_MEMCPY3D_PEER& box) {
    CUDA_MEMCPY2D copy = {};
    copy.srcXInBytes = box.srcXInBytes, copy.srcY = box.srcY, copy.srcMemoryType = box.srcMemoryType;
    copy.srcHost = box.srcHost, copy.srcDevice = box.srcDevice, copy.srcArray = box.srcArray;
    copy.srcPitch = box.srcPitch;
    copy.dstXInBytes = box.dstXInBytes, copy.dstY = box.dstY, copy.dstMemoryType = box.dstMemoryType;
    copy.dstHost = box.dstHost, copy.dstDevice = box.dstDevice, copy.dstArray = box.dstArray;
    copy.dstPitch = box.dstPitch;
    copy.WidthInBytes = box.WidthInBytes, copy.Height = box.Height;
    return copy;
}

static CUDA_MEMCPY3D deep(const CUDA_MEMCPY3D_PEER& box) {
    CUDA_MEMCPY3D copy = {};
    copy.srcXInBytes = box.srcXInBytes, copy.srcY = box.srcY, copy.srcZ = box.srcZ;
    copy.srcMemoryType = box.srcMemoryType, copy.srcHost = box.srcHost, copy.srcDevice = box.srcDevice;
    copy.srcArray = box.srcArray, copy.srcPitch = box.srcPitch, copy.srcHeight = box.srcHeight;
    copy.dstXInBytes = box.dstXInBytes, copy.dstY = box.dstY, copy.dstZ = box.dstZ;
    copy.dstMemoryType = box.dstMemoryType, copy.dstHost = box.dstHost, copy.dstDevice = box.dstDevice;
    copy.dstArray = box.dstArray, copy.dstPitch = box.dstPitch, copy.dstHeight = box.dstHeight;
    copy.WidthInBytes = box.WidthInBytes, copy.Height = box.Height, copy.Depth = box.Depth;
    return copy;
}

// Which functions were used, and how often for memory of two devices.
static unsigned used[32], across[32];

// One row of linear memory. Returns whether the call left work in the stream.
static bool copy_row(const Box& box, CUstream stream) {
    CUdeviceptr from = box.from->memory + box.fx, to = box.to->memory + box.tx;
    unsigned choice = numbers.below(box.from->is_host() || box.to->is_host() ? 2 : 6);
    used[choice]++, across[choice] += box.from->device != box.to->device;
    CUcontext source = contexts[std::max(0, box.from->device)], target = contexts[std::max(0, box.to->device)];
    switch (choice) {
        case 0: CHECK_DRIVER(DRIVER(cuMemcpy)(to, from, box.width)); return false;
        case 1: CHECK_DRIVER(DRIVER(cuMemcpyAsync)(to, from, box.width, stream)); return true;
        case 2: CHECK_DRIVER(DRIVER(cuMemcpyDtoD)(to, from, box.width)); return false;
        case 3: CHECK_DRIVER(DRIVER(cuMemcpyDtoDAsync)(to, from, box.width, stream)); return true;
        case 4: CHECK_DRIVER(DRIVER(cuMemcpyPeer)(to, target, from, source, box.width)); return false;
        default:
            CHECK_DRIVER(DRIVER(cuMemcpyPeerAsync)(to, target, from, source, box.width, stream));
            return true;
    }
}

static bool copy_box(const Box& box, CUstream stream) {
    CUDA_MEMCPY3D_PEER peer = described(box);
    bool is_flat = box.depth == 1 && box.fz == 0 && box.tz == 0;
    unsigned choice = 8 + numbers.below(is_flat ? 7 : 4);
    used[choice]++, across[choice] += box.from->device != box.to->device;
    CUDA_MEMCPY2D two = flat(peer);
    CUDA_MEMCPY3D three = deep(peer);
    peer.srcContext = contexts[std::max(0, box.from->device)];
    peer.dstContext = contexts[std::max(0, box.to->device)];
    switch (choice) {
        case 8: CHECK_DRIVER(DRIVER(cuMemcpy3D)(&three)); return false;
        case 9: CHECK_DRIVER(DRIVER(cuMemcpy3DAsync)(&three, stream)); return true;
        case 10: CHECK_DRIVER(DRIVER(cuMemcpy3DPeer)(&peer)); return false;
        case 11: CHECK_DRIVER(DRIVER(cuMemcpy3DPeerAsync)(&peer, stream)); return true;
        case 12: CHECK_DRIVER(DRIVER(cuMemcpy2D)(&two)); return false;
        case 13: CHECK_DRIVER(DRIVER(cuMemcpy2DUnaligned)(&two)); return false;
        default: CHECK_DRIVER(DRIVER(cuMemcpy2DAsync)(&two, stream)); return true;
    }
}

static size_t some(size_t most) {
    // Small ones, some that fill a page or two, and some as long as can be.
    switch (numbers.below(4)) {
        case 0: return 1 + less_than(std::min<size_t>(most, 100));
        case 1: return 1 + less_than(std::min<size_t>(most, 9000));
        case 2: return 1 + less_than(most);
        default: return most;
    }
}

static Box between(Side& from, Side& to) {
    Box box = {&from, &to};
    box.width = some(std::min(from.width, to.width));
    box.height = 1 + less_than(std::min(from.height, to.height));
    box.depth = 1 + less_than(std::min(from.depth, to.depth));
    box.fx = less_than(from.width - box.width + 1), box.tx = less_than(to.width - box.width + 1);
    box.fy = less_than(from.height - box.height + 1), box.ty = less_than(to.height - box.height + 1);
    box.fz = less_than(from.depth - box.depth + 1), box.tz = less_than(to.depth - box.depth + 1);
    return box;
}

static void in_the_model(const Box& box) {
    std::vector<unsigned char> row(box.width);
    for (size_t z = 0; z < box.depth; z++) {
        for (size_t y = 0; y < box.height; y++) {
            auto from = box.from->model.begin() + ptrdiff_t(box.from->at(box.fx, box.fy + y, box.fz + z));
            std::copy(from, from + ptrdiff_t(box.width), row.begin());
            std::copy(row.begin(), row.end(), box.to->model.begin() + ptrdiff_t(box.to->at(box.tx, box.ty + y, box.tz + z)));
        }
    }
}

// The bytes of a side, or the model's to it.
static void whole(Side& side, std::vector<unsigned char>& bytes, bool to_the_side) {
    use(std::max(0, side.device));
    if (side.is_host()) {
        auto memory = reinterpret_cast<unsigned char*>(side.memory);
        if (to_the_side) {
            memcpy(memory, bytes.data(), bytes.size());
        } else {
            memcpy(bytes.data(), memory, bytes.size());
        }
        return;
    }
    Side host{Side::PAGEABLE, -1, side.width, side.height, side.depth, side.width};
    host.memory = reinterpret_cast<CUdeviceptr>(bytes.data());
    Box box = {to_the_side ? &host : &side, to_the_side ? &side : &host, 0, 0, 0, 0, 0, 0, side.width, side.height, side.depth};
    CUDA_MEMCPY3D copy = deep(described(box));
    CHECK_DRIVER(DRIVER(cuMemcpy3D)(&copy));
}

static void compare(std::vector<Side>& sides, size_t done) {
    for (Side& side : sides) {
        std::vector<unsigned char> bytes(side.model.size());
        whole(side, bytes, false);
        for (size_t i = 0; i < bytes.size(); i++) {
            if (bytes[i] == side.model[i]) continue;
            printf("after %zu copies: byte %zu of %zu of kind %d on device %d is %d, not %d\n", done, i, bytes.size(),
                   int(side.kind), side.device, bytes[i], side.model[i]);
            exit(1);
        }
    }
}

int main(int argc, char** argv) {
    EXPECT(argc > 1);
    size_t copies = size_t(atoi(argv[1]));
    int devices;
    CHECK_DRIVER(DRIVER(cuInit)(0));
    CHECK_DRIVER(DRIVER(cuDeviceGetCount)(&devices));
    std::vector<Side> sides;
    for (int device = 0; device < devices; device++) {
        CUcontext context;
        CHECK_DRIVER(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
        contexts.push_back(context);
        use(device);
        streams.emplace_back(3);
        CHECK_DRIVER(DRIVER(cuStreamCreate)(&streams.back()[1], CU_STREAM_NON_BLOCKING));
        CHECK_DRIVER(DRIVER(cuStreamCreate)(&streams.back()[2], CU_STREAM_DEFAULT));
        events.emplace_back();
        CHECK_DRIVER(DRIVER(cuEventCreate)(&events.back(), CU_EVENT_DISABLE_TIMING));
        sides.push_back(make(Side::LINEAR, device, 4500001));
        sides.push_back(make(Side::LINEAR, device, 70001));
        sides.push_back(make(Side::PITCHED, device, 1021, 53));
        sides.push_back(make(Side::PITCHED, device, 333, 21, 11));
        sides.push_back(make(Side::ARRAY, device, 999, 47));
        sides.push_back(make(Side::ARRAY, device, 301, 19, 13));
    }
    use(0);
    sides.push_back(make(Side::PINNED, -1, 600011));
    sides.push_back(make(Side::PAGEABLE, -1, 300007));
    sides.push_back(make(Side::PAGEABLE, -1, 500, 40, 3));
    for (Side& side : sides) {
        side.model.resize(side.width * side.height * side.depth);
        for (size_t i = 0; i < side.model.size(); i += 8) {
            uint64_t word = numbers.next();
            memcpy(&side.model[i], &word, std::min<size_t>(8, side.model.size() - i));
        }
        whole(side, side.model, true);
    }
    compare(sides, 0);
    // The stream of the last copy that may not be done yet.
    int last = -1;
    CUstream pending = nullptr;
    for (size_t done = 1; done <= copies; done++) {
        Side &from = sides[less_than(sides.size())], &to = sides[less_than(sides.size())];
        // Between overlapping ranges nothing is promised, and between two places of the host there is
        // nothing to test.
        if (&from == &to || (from.is_host() && to.is_host())) continue;
        Box box = between(from, to);
        int device = int(less_than(size_t(devices)));
        use(device);
        CUstream stream = streams[device][less_than(3)];
        bool as_row = from.is_linear() && to.is_linear();
        if (last >= 0) {
            // A copy that waits for itself takes the legacy stream, and the stream of this copy waits
            // for that of the last one.
            CHECK_DRIVER(DRIVER(cuEventRecord)(events[last], (use(last), pending)));
            use(device);
            CHECK_DRIVER(DRIVER(cuStreamWaitEvent)(stream, events[last], 0));
            CHECK_DRIVER(DRIVER(cuStreamWaitEvent)(nullptr, events[last], 0));
            // The host's own memory is read when the function is called.
            if (from.kind == Side::PAGEABLE || to.kind == Side::PAGEABLE || numbers.below(4) == 0) {
                CHECK_DRIVER(DRIVER(cuEventSynchronize)(events[last]));
            }
        }
        bool is_queued = as_row ? copy_row(box, stream) : copy_box(box, stream);
        in_the_model(box);
        last = device, pending = is_queued ? stream : nullptr;
        // A copy of pageable memory in a stream may read it until the stream has come so far.
        if (from.kind == Side::PAGEABLE || to.kind == Side::PAGEABLE) {
            CHECK_DRIVER(DRIVER(cuStreamSynchronize)(pending));
        }
        if (done % 60 == 0) {
            CHECK_DRIVER(DRIVER(cuStreamSynchronize)(pending));
            compare(sides, done);
        }
    }
    if (last >= 0) CHECK_DRIVER(DRIVER(cuStreamSynchronize)((use(last), pending)));
    compare(sides, copies);
    uint64_t sum = 0;
    for (const Side& side : sides) sum = sum * 31 + checksum(side.model);
    for (unsigned choice = 0; choice < 32; choice++) {
        if (used[choice] > 0) printf("function %u: %u copies, %u of them between two devices\n", choice, used[choice], across[choice]);
    }
    printf("topology_copies: %016llx\n", static_cast<unsigned long long>(sum));
}
