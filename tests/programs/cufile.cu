// Files and device memory, by cuFile. The first argument says what is tried, the second names a
// folder for files.
#include <atomic>
#include <chrono>
#include <thread>

#include "cufile.h"

static std::string folder;

static std::string path(const char* name) { return folder + "/" + name; }

static void reading() {
    const size_t all = 100000;
    File file(path("reading"), all);
    {
        Memory memory(all);
        EQUAL(cuFileRead(file.handle, memory.at, all, 0, 0), all);
        memory.expect(0, all, 0);
    }
    Memory memory(20000);
    // Offsets in the file and in memory, in between blocks.
    EQUAL(cuFileRead(file.handle, memory.at, 5001, 12345, 777), 5001);
    memory.expect(777, 5001, 12345);
    memory.fill(0xee);
    EQUAL(cuFileRead(file.handle, memory.at + 3, 1, all - 1, 0), 1);
    memory.expect(3, 1, all - 1);
    memory.fill(0xee);
    // The file ends, or has ended.
    EQUAL(cuFileRead(file.handle, memory.at, 20000, all - 150, 0), 150);
    memory.expect(0, 150, all - 150);
    memory.fill(0xee);
    EQUAL(cuFileRead(file.handle, memory.at, 100, all, 0), 0);
    EQUAL(cuFileRead(file.handle, memory.at, 100, all + 12345, 0), 0);
    EQUAL(cuFileRead(file.handle, memory.at, 0, 0, 0), 0);
    memory.expect(0, 0, 0);
    // Files that go past the system's cache are read in between blocks, too.
    int direct = open(file.path.c_str(), O_RDONLY | O_DIRECT);
    if (direct >= 0) {
        Handle handle;
        Description description = {1, {direct}, nullptr};
        WELL(cuFileHandleRegister(&handle, &description));
        EQUAL(cuFileRead(handle, memory.at, 5001, 12345, 777), 5001);
        memory.expect(777, 5001, 12345);
        cuFileHandleDeregister(handle);
        close(direct);
    }
    printf("files are read\n");
}

static void writing() {
    File file(path("writing"), 10);
    Memory memory(50000);
    std::vector<unsigned char> bytes(memory.bytes);
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = byte_at(i + 7);
    CHECK(cudaMemcpy(memory.at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    EQUAL(cuFileWrite(file.handle, memory.at, 40000, 100, 123), 40000);
    EQUAL(fsync(file.fd), 0);
    struct stat facts;
    EQUAL(stat(file.path.c_str(), &facts), 0);
    EQUAL(facts.st_size, 40100);
    std::vector<unsigned char> written(40100);
    EQUAL(pread(file.fd, written.data(), written.size(), 0), written.size());
    for (size_t i = 0; i < 100; i++) EXPECT(written[i] == (i < 10 ? byte_at(i) : 0));
    EXPECT(memcmp(&written[100], &bytes[123], 40000) == 0);
    memory.fill(0xee);
    EQUAL(cuFileRead(file.handle, memory.at, 40000, 100, 5), 40000);
    memory.expect(5, 40000, 130);
    // A file that appends is written where the call says.
    int appending = open(file.path.c_str(), O_RDWR | O_APPEND);
    Handle handle;
    Description description = {1, {appending}, nullptr};
    WELL(cuFileHandleRegister(&handle, &description));
    EQUAL(cuFileWrite(handle, memory.at, 5, 0, 5), 5);
    EQUAL(pread(file.fd, written.data(), 5, 0), 5);
    EXPECT(written[0] == byte_at(130));
    EQUAL(stat(file.path.c_str(), &facts), 0);
    EQUAL(facts.st_size, 40100);
    cuFileHandleDeregister(handle);
    close(appending);
    // Work of the default stream that comes before is in what is written.
    CHECK(cudaMemsetAsync(memory.at, 0x33, memory.bytes));
    EQUAL(cuFileWrite(file.handle, memory.at, 50000, 0, 0), 50000);
    written.resize(50000);
    EQUAL(pread(file.fd, written.data(), written.size(), 0), written.size());
    for (unsigned char byte : written) EXPECT(byte == 0x33);
    printf("files are written\n");
}

static void large() {
    const size_t all = 64 << 20;
    File file(path("large"), all);
    Memory memory(all + 1000);
    EQUAL(cuFileRead(file.handle, memory.at, all, 0, 1000), all);
    memory.expect(1000, all, 0);
    File other(path("copy"), 0);
    EQUAL(cuFileWrite(other.handle, memory.at, all, 5, 1000), all);
    memory.fill(0xee);
    EQUAL(cuFileRead(other.handle, memory.at, all, 5, 0), all);
    memory.expect(0, all, 0);
    // A file ends within a piece of a large transfer.
    memory.fill(0xee);
    EQUAL(cuFileRead(file.handle, memory.at, all, 30000000, 0), all - 30000000);
    memory.expect(0, all - 30000000, 30000000);
    printf("a large file is read and written\n");
}

static void mistakes() {
    File file(path("mistakes"), 10000);
    Memory memory(4096);
    Handle other = nullptr;
    Description description = {1, {file.fd}, nullptr};
    GIVES(cuFileHandleRegister(&other, &description), kAlreadyRegistered);
    GIVES(cuFileHandleRegister(&other, (Description*)nullptr), kInvalid);
    GIVES(cuFileHandleRegister((Handle*)nullptr, &description), kInvalid);
    description.kind = 9;
    GIVES(cuFileHandleRegister(&other, &description), kInvalid);
    description.kind = 3;
    GIVES(cuFileHandleRegister(&other, &description), kIoNotSupported);
    description = {1, {-1}, nullptr};
    GIVES(cuFileHandleRegister(&other, &description), kInvalid);
    description.fd = 9999;
    GIVES(cuFileHandleRegister(&other, &description), kFileType);
    int there = open(folder.c_str(), O_RDONLY);
    description.fd = there;
    GIVES(cuFileHandleRegister(&other, &description), kFileType);
    close(there);
    EQUAL(cuFileRead((Handle) nullptr, memory.at, 100, 0, 0), -kInvalid);
    EQUAL(cuFileRead((Handle)0x1234560, memory.at, 100, 0, 0), -kNotRegistered);
    EQUAL(cuFileRead(file.handle, (void*)nullptr, 100, 0, 0), -kInvalid);
    EQUAL(cuFileRead(file.handle, memory.at, 100, -1, 0), -kInvalid);
    EQUAL(cuFileRead(file.handle, memory.at, 100, 0, -1), -kInvalid);
    EQUAL(cuFileRead(file.handle, memory.at, (size_t)-1, 0, 0), -kInvalid);
    EQUAL(cuFileRead(file.handle, memory.at, 4097, 0, 0), -kPointerInvalid);
    EQUAL(cuFileRead(file.handle, memory.at, 100, 0, 4000), -kPointerInvalid);
    EQUAL(cuFileRead(file.handle, (void*)64, 100, 0, 0), -kPointerInvalid);
    memory.expect(0, 0, 0);
    // What may only be read.
    int fd = open(file.path.c_str(), O_RDONLY);
    description = {1, {fd}, nullptr};
    WELL(cuFileHandleRegister(&other, &description));
    errno = 0;
    EQUAL(cuFileWrite(other, memory.at, 100, 0, 0), -1);
    EQUAL(errno, EBADF);
    EQUAL(cuFileRead(other, memory.at, 100, 0, 0), 100);
    cuFileHandleDeregister(other);
    EQUAL(cuFileRead(other, memory.at, 100, 0, 0), -kNotRegistered);
    cuFileHandleDeregister(other);
    cuFileHandleDeregister(nullptr);
    close(fd);
    // Registered memory has bounds.
    GIVES(cuFileBufRegister((void*)nullptr, (size_t)10, 0), kInvalid);
    GIVES(cuFileBufRegister(memory.at, (size_t)0, 0), kInvalid);
    GIVES(cuFileBufRegister(memory.at, (size_t)2048, 64), kInvalid);
    WELL(cuFileBufRegister(memory.at, (size_t)2048, 0));
    GIVES(cuFileBufRegister(memory.at, (size_t)2048, 0), kMemoryAlready);
    EQUAL(cuFileRead(file.handle, memory.at, 2048, 0, 0), 2048);
    EQUAL(cuFileRead(file.handle, memory.at, 2048, 0, 1), -kBeyondMapped);
    WELL(cuFileBufDeregister(memory.at));
    GIVES(cuFileBufDeregister(memory.at), kInvalid);
    EQUAL(cuFileRead(file.handle, memory.at, 2048, 0, 1), 2048);
    printf("mistakes are errors\n");
}

// Memory that is no more. On a device of this process it may still be there, as memory of the host.
static void freed() {
    File file(path("freed"), 10000);
    Memory memory(4096);
    unsigned char* gone;
    CHECK(cudaMalloc(&gone, 1 << 20));
    WELL(cuFileBufRegister(gone, (size_t)1 << 20, 0));
    EQUAL(cuFileRead(file.handle, gone, 100, 0, 0), 100);
    CHECK(cudaFree(gone));
    CHECK(cudaDeviceSynchronize());
    EXPECT(cuFileRead(file.handle, gone, 100, 0, 0) < 0);
    EXPECT(cuFileWrite(file.handle, gone, 100, 0, 0) < 0);
    WELL(cuFileBufDeregister(gone));
    EQUAL(cuFileRead(file.handle, memory.at, 100, 0, 0), 100);
    printf("freed memory is an error\n");
}

// Memory of the host, of all kinds.
static void host() {
    const size_t all = 20 << 20;
    File file(path("host"), all);
    std::vector<unsigned char> own(all), back(all);
    unsigned char *pinned, *managed;
    CHECK(cudaMallocHost(&pinned, all));
    CHECK(cudaMallocManaged(&managed, all));
    for (unsigned char* memory : {own.data(), pinned, managed}) {
        memset(memory, 0, all);
        EQUAL(cuFileRead(file.handle, memory, all - 9, 9, 4), all - 9);
        for (size_t i = 0; i < all - 13; i++) EXPECT(memory[4 + i] == byte_at(9 + i));
        memset(memory, 0x5a, all);
        EQUAL(cuFileWrite(file.handle, memory, all, 0, 0), all);
        EQUAL(pread(file.fd, back.data(), all, 0), all);
        EXPECT(memcmp(back.data(), memory, all) == 0);
        for (size_t i = 0; i < all; i++) back[i] = byte_at(i);
        EQUAL(pwrite(file.fd, back.data(), all, 0), all);
    }
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(managed));
    printf("host memory is read and written\n");
}

static void vectors() {
    File file(path("vectors"), 100000);
    Memory one(1000), two(30000), three(500);
    std::vector<unsigned char> own(70);
    Part parts[] = {{one.at, 1000}, {two.at + 10, 20000}, {own.data(), 70}, {three.at, 0}, {three.at, 500}};
    EQUAL(cuFileReadv(file.handle, parts, 5, 300, 0u), 21570);
    one.expect(0, 1000, 300);
    two.expect(10, 20000, 1300);
    three.expect(0, 500, 21370);
    EXPECT(own[69] == byte_at(21369));
    EQUAL(cuFileReadv(file.handle, parts, 5, 100000 - 1100, 0u), 1100);
    EQUAL(cuFileReadv(file.handle, parts, 0, 0, 0u), 0);
    EQUAL(cuFileReadv(file.handle, (Part*)nullptr, 2, 0, 0u), -kInvalid);
    EQUAL(cuFileReadv(file.handle, parts, 5, -1, 0u), -kInvalid);
    EQUAL(cuFileReadv(file.handle, parts, 5, 0, 1u), -kInvalid);
    EQUAL(cuFileReadv(file.handle, parts, 5, 300, 0u), 21570);
    EQUAL(cuFileWritev(file.handle, parts, 5, 200000, 0u), 21570);
    std::vector<unsigned char> written(21570);
    EQUAL(pread(file.fd, written.data(), written.size(), 200000), written.size());
    for (size_t i = 0; i < written.size(); i++) EXPECT(written[i] == byte_at(300 + i));
    printf("vectors are read and written\n");
}

static void wait_for_it(void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
}

// Transfers in a stream, which reads its arguments when it comes to them.
static void streams() {
    File file(path("streams"), 100000);
    for (int kind = 0; kind < 3; kind++) {
        Memory memory(50000);
        cudaStream_t stream = nullptr;
        if (kind == 1) CHECK(cudaStreamCreate(&stream));
        if (kind == 2) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        std::atomic<bool> go(false);
        size_t bytes = 1;
        off_t place = 2, offset = 3;
        ssize_t moved = -77, written = -77, failed = -77;
        CHECK(cudaLaunchHostFunc(stream, wait_for_it, &go));
        WELL(cuFileReadAsync(file.handle, memory.at, &bytes, &place, &offset, &moved, stream));
        EQUAL(moved, -77);
        bytes = 20000, place = 555, offset = 99;
        go = true;
        CHECK(cudaStreamSynchronize(stream));
        EQUAL(moved, 20000);
        memory.expect(99, 20000, 555);
        // Work before and behind a transfer is in its order.
        CHECK(cudaMemsetAsync(memory.at, 0xee, memory.bytes, stream));
        WELL(cuFileReadAsync(file.handle, memory.at, &bytes, &place, &offset, &moved, stream));
        off_t behind = 100000;
        WELL(cuFileWriteAsync(file.handle, memory.at, &bytes, &behind, &offset, &written, stream));
        CHECK(cudaMemsetAsync(memory.at, 0xee, memory.bytes, stream));
        CHECK(cudaStreamSynchronize(stream));
        EQUAL(moved, 20000);
        EQUAL(written, 20000);
        memory.expect(0, 0, 0);
        std::vector<unsigned char> all(20000);
        EQUAL(pread(file.fd, all.data(), all.size(), 100000), all.size());
        for (size_t i = 0; i < all.size(); i++) EXPECT(all[i] == byte_at(555 + i));
        EQUAL(ftruncate(file.fd, 100000), 0);
        // Errors are results.
        off_t before = -1, beyond = 1 << 20;
        WELL(cuFileReadAsync(file.handle, memory.at, &bytes, &before, &offset, &failed, stream));
        WELL(cuFileReadAsync(file.handle, memory.at, &bytes, &beyond, &offset, &moved, stream));
        CHECK(cudaStreamSynchronize(stream));
        EQUAL(failed, -kInvalid);
        EQUAL(moved, 0);
        // Values that a registered stream takes at once.
        WELL(cuFileStreamRegister(stream, 7u));
        go = false;
        CHECK(cudaLaunchHostFunc(stream, wait_for_it, &go));
        WELL(cuFileReadAsync(file.handle, memory.at, &bytes, &place, &offset, &moved, stream));
        bytes = 1, place = 2, offset = 3;
        go = true;
        CHECK(cudaStreamSynchronize(stream));
        EQUAL(moved, 20000);
        memory.expect(99, 20000, 555);
        WELL(cuFileStreamDeregister(stream));
        GIVES(cuFileStreamRegister(stream, 99u), kInvalid);
        GIVES(cuFileReadAsync(file.handle, memory.at, (size_t*)nullptr, &place, &offset, &moved, stream), kInvalid);
        GIVES(cuFileReadAsync(file.handle, memory.at, &bytes, &place, &offset, (ssize_t*)nullptr, stream), kInvalid);
        GIVES(cuFileReadAsync(file.handle, (void*)nullptr, &bytes, &place, &offset, &moved, stream), kInvalid);
        GIVES(cuFileReadAsync((Handle)16000, memory.at, &bytes, &place, &offset, &moved, stream), kNotRegistered);
        if (stream) {
            CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
            GIVES(cuFileReadAsync(file.handle, memory.at, &bytes, &place, &offset, &moved, stream), kAsyncNotSupported);
            cudaGraph_t graph;
            CHECK(cudaStreamEndCapture(stream, &graph));
            CHECK(cudaGraphDestroy(graph));
            CHECK(cudaStreamDestroy(stream));
        }
    }
    // Other threads may transfer while a stream waits, and a large one fits into a stream.
    const size_t all = 20 << 20;
    File big(path("streams_big"), all);
    Memory memory(all), other(50000);
    std::atomic<bool> go(false);
    size_t bytes = all;
    off_t none = 0;
    ssize_t moved = -77;
    CHECK(cudaLaunchHostFunc(nullptr, wait_for_it, &go));
    WELL(cuFileReadAsync(big.handle, memory.at, &bytes, &none, &none, &moved, (cudaStream_t) nullptr));
    EQUAL(cuFileRead(file.handle, other.at, 50000, 1, 0), 50000);
    go = true;
    CHECK(cudaDeviceSynchronize());
    EQUAL(moved, all);
    memory.expect(0, all, 0);
    other.expect(0, 50000, 1);
    printf("streams make transfers\n");
}

static void batches() {
    const unsigned count = 32;
    const size_t each = 5000;
    File file(path("batches"), count * each);
    Memory memory(count * each);
    Handle batch, other;
    GIVES(cuFileBatchIOSetUp((Handle*)nullptr, count), kInvalid);
    GIVES(cuFileBatchIOSetUp(&other, 0u), kInvalid);
    GIVES(cuFileBatchIOSetUp(&other, 100000u), kInvalid);
    WELL(cuFileBatchIOSetUp(&batch, count));
    std::vector<Request> requests;
    for (size_t i = 0; i < count; i++) {
        requests.push_back({1, memory.at, off_t(i * each), off_t(i * each), each, file.handle, kRead, (void*)(i + 1)});
    }
    WELL(cuFileBatchIOSubmit(batch, count, requests.data(), 0u));
    GIVES(cuFileBatchIOSubmit(batch, 1u, requests.data(), 0u), kBatchFull);
    std::vector<bool> told(count);
    unsigned all = 0;
    while (all < count) {
        Event events[7];
        unsigned number = 7;
        timespec second = {1, 0};
        WELL(cuFileBatchIOGetStatus(batch, all + 2 <= count ? 2u : 1u, &number, events, &second));
        for (unsigned i = 0; i < number; i++) {
            size_t which = (size_t)events[i].cookie - 1;
            EXPECT(which < count && !told[which]);
            told[which] = true;
            EQUAL(events[i].status, kComplete);
            EQUAL(events[i].result, each);
        }
        all += number;
    }
    memory.expect(0, count * each, 0);
    // Nothing more will come, and a wait for it ends.
    Event events[64];
    unsigned number = 64;
    timespec soon = {0, 1000000};
    WELL(cuFileBatchIOGetStatus(batch, 0u, &number, events, &soon));
    EQUAL(number, 0);
    number = 64;
    WELL(cuFileBatchIOGetStatus(batch, 1u, &number, events, &soon));
    EQUAL(number, 0);
    // One that fails does not keep the others from it.
    requests[0].bytes = count * each + 1;
    requests[1].operation = kWrite;
    requests[1].file_offset = count * each;
    WELL(cuFileBatchIOSubmit(batch, 3u, requests.data(), 0u));
    number = 64;
    WELL(cuFileBatchIOGetStatus(batch, 3u, &number, events, (timespec*)nullptr));
    EQUAL(number, 3);
    for (const Event& event : {events[0], events[1], events[2]}) {
        bool fails = (size_t)event.cookie == 1;
        EQUAL(event.status, fails ? kFailed : kComplete);
        EQUAL(event.result, fails ? -kPointerInvalid : (ssize_t)each);
    }
    struct stat facts;
    EQUAL(fstat(file.fd, &facts), 0);
    EQUAL(facts.st_size, (count + 1) * each);
    // Mistakes.
    GIVES(cuFileBatchIOSubmit(batch, 0u, requests.data(), 0u), kInvalid);
    GIVES(cuFileBatchIOSubmit(batch, 1u, (Request*)nullptr, 0u), kInvalid);
    GIVES(cuFileBatchIOSubmit((Handle)1600, 1u, requests.data(), 0u), kInvalid);
    Request wrong = requests[2];
    wrong.mode = 2;
    GIVES(cuFileBatchIOSubmit(batch, 1u, &wrong, 0u), kInvalid);
    wrong = requests[2], wrong.operation = 5;
    GIVES(cuFileBatchIOSubmit(batch, 1u, &wrong, 0u), kInvalid);
    wrong = requests[2], wrong.file = (Handle)16000;
    GIVES(cuFileBatchIOSubmit(batch, 1u, &wrong, 0u), kNotRegistered);
    number = 1;
    GIVES(cuFileBatchIOGetStatus(batch, 2u, &number, events, &soon), kInvalid);
    GIVES(cuFileBatchIOGetStatus(batch, 0u, (unsigned*)nullptr, events, &soon), kInvalid);
    GIVES(cuFileBatchIOGetStatus(batch, 0u, &number, (Event*)nullptr, &soon), kInvalid);
    // What is cancelled ends, one way or the other.
    requests[0].bytes = each;
    WELL(cuFileBatchIOSubmit(batch, count, requests.data(), 0u));
    WELL(cuFileBatchIOCancel(batch));
    number = 64;
    WELL(cuFileBatchIOGetStatus(batch, count, &number, events, (timespec*)nullptr));
    EQUAL(number, count);
    for (unsigned i = 0; i < count; i++) EXPECT(events[i].status == kComplete || events[i].status == kCanceled);
    WELL(cuFileBatchIOSubmit(batch, count, requests.data(), 0u));
    cuFileBatchIODestroy(batch);
    GIVES(cuFileBatchIOCancel(batch), kInvalid);
    cuFileBatchIODestroy(batch);
    printf("batches end\n");
}

static void threads() {
    const size_t each = 3 << 20;
    File file(path("threads"), 8 * each);
    Memory memory(8 * each);
    std::vector<std::thread> all;
    for (size_t i = 0; i < 8; i++) {
        // A thread that has never used CUDA.
        all.emplace_back([&, i] {
            for (int round = 0; round < 3; round++) {
                EQUAL(cuFileRead(file.handle, memory.at, each, i * each, i * each), each);
            }
            EQUAL(cuFileWrite(file.handle, memory.at, each, i * each, i * each), each);
        });
    }
    for (std::thread& thread : all) thread.join();
    memory.expect(0, 8 * each, 0);
    std::vector<unsigned char> back(8 * each);
    EQUAL(pread(file.fd, back.data(), back.size(), 0), back.size());
    EXPECT(back == memory.get());
    printf("threads read and write at once\n");
}

static void settings() {
    EQUAL(cuFileUseCount(), 0);
    GIVES(cuFileDriverClose_v2(), kNotInitialized);
    GIVES(cuFileStatsStart(), kNotInitialized);
    int version = 0, level = -1;
    WELL(cuFileGetVersion(&version));
    EXPECT(version >= 1070);
    size_t value = 0, least = 0, greatest = 0;
    WELL(cuFileGetParameterMinMaxValue(9, &least, &greatest));
    EXPECT(least == 1 && greatest == 256);
    WELL(cuFileSetParameterSizeT(9, (size_t)7));
    WELL(cuFileGetParameterSizeT(9, &value));
    EQUAL(value, 7);
    GIVES(cuFileSetParameterSizeT(9, (size_t)0), kInvalid);
    GIVES(cuFileSetParameterSizeT(99, (size_t)1), kInvalid);
    GIVES(cuFileGetParameterSizeT(9, (size_t*)nullptr), kInvalid);
    bool flag = true;
    WELL(cuFileSetParameterBool(0, true));
    WELL(cuFileGetParameterBool(0, &flag));
    EXPECT(flag);
    GIVES(cuFileGetParameterBool(99, &flag), kInvalid);
    char text[40];
    WELL(cuFileSetParameterString(0, "ERROR"));
    WELL(cuFileGetParameterString(0, text, 40));
    EXPECT(strcmp(text, "ERROR") == 0);
    GIVES(cuFileGetParameterString(0, text, 5), kInvalid);
    size_t sizes[] = {4, 8}, counts[] = {1, 2}, got[2], numbers[2];
    GIVES(cuFileGetParameterPosixPoolSlabArray(got, numbers, 2), kInvalid);
    WELL(cuFileSetParameterPosixPoolSlabArray(sizes, counts, 2));
    WELL(cuFileGetParameterPosixPoolSlabArray(got, numbers, 2));
    EXPECT(got[1] == 8 && numbers[1] == 2);
    GIVES(cuFileSetStatsLevel(4), kInvalid);
    WELL(cuFileSetStatsLevel(3));
    WELL(cuFileGetStatsLevel(&level));
    EQUAL(level, 3);

    WELL(cuFileDriverOpen());
    WELL(cuFileDriverOpen());
    EQUAL(cuFileUseCount(), 2);
    GIVES(cuFileSetParameterSizeT(9, (size_t)7), kAlreadyOpen);
    Properties properties;
    WELL(cuFileDriverGetProperties(&properties));
    EXPECT(properties.batch == 7 && (properties.control & 1) == 1 && properties.features == 14);
    GIVES(cuFileDriverGetProperties((Properties*)nullptr), kInvalid);
    WELL(cuFileDriverSetPollMode(false, (size_t)64));
    WELL(cuFileDriverSetMaxDirectIOSize((size_t)1024));
    GIVES(cuFileDriverSetMaxDirectIOSize((size_t)1), kInvalid);
    WELL(cuFileDriverSetMaxCacheSize((size_t)4096));
    WELL(cuFileDriverSetMaxPinnedMemSize((size_t)64));
    WELL(cuFileDriverGetProperties(&properties));
    EXPECT(properties.max_direct_io == 1024 && properties.poll_threshold == 64 && properties.control == 2);
    Memory memory(1 << 20);
    GIVES(cuFileBufRegister(memory.at, (size_t)1 << 20, 0), 5036);
    WELL(cuFileBufRegister(memory.at, (size_t)65536, 0));
    size_t bar = 0;
    WELL(cuFileGetBARSizeInKB(0, &bar));
    EXPECT(bar > 0);
    GIVES(cuFileGetBARSizeInKB(99, &bar), kInvalid);
    int p2p = -1;
    WELL(cuFileDriverGetP2PFlags(4, &p2p));
    EQUAL(p2p, 0);
    GIVES(cuFileDriverSetP2PFlags(4, 1), kUnsupported);
    GIVES(cuFileDriverGetP2PFlags(99, &p2p), kInvalid);
    GIVES(cuFileExportPCIeTopology((const char*)nullptr), kInvalid);

    // Statistics begin with counts of reads and writes, good and bad; bytes are numbers 12 and 13.
    uint64_t all[4000] = {};
    File file(path("settings"), 10000);
    WELL(cuFileStatsStart());
    EQUAL(cuFileRead(file.handle, memory.at, 4096, 0, 0), 4096);
    EQUAL(cuFileRead(file.handle, memory.at, 4096, -1, 0), -kInvalid);
    EQUAL(cuFileWrite(file.handle, memory.at, 1000, 0, 0), 1000);
    WELL(cuFileStatsStop());
    EQUAL(cuFileRead(file.handle, memory.at, 4096, 0, 0), 4096);
    WELL(cuFileGetStatsL1(all));
    EXPECT(all[0] == 1 && all[1] == 1 && all[2] == 1 && all[3] == 0 && all[12] == 4096 && all[13] == 1000);
    WELL(cuFileGetStatsL3(all));
    WELL(cuFileStatsReset());
    WELL(cuFileGetStatsL1(all));
    EXPECT(all[0] == 0 && all[12] == 0);
    WELL(cuFileSetStatsLevel(1));
    GIVES(cuFileGetStatsL2(all), kInvalid);
    GIVES(cuFileGetStatsL1((void*)nullptr), kInvalid);

    WELL(cuFileDriverClose_v2());
    WELL(cuFileDriverClose_v2());
    EQUAL(cuFileUseCount(), 0);
    // Who never opens it uses it all the same.
    EQUAL(cuFileRead(file.handle, memory.at, 4096, 0, 0), 4096);
    EQUAL(cuFileUseCount(), 1);
    printf("settings are kept\n");
}

int main(int argc, char** argv) {
    EXPECT(argc == 3);
    folder = argv[2];
    const std::string how = argv[1];
    if (how == "absent") {
        // The driver library is none of Outboard's.
        Handle handle;
        Description description = {1, {0}, nullptr};
        GIVES(cuFileDriverOpen(), kNotInitialized);
        description.fd = open(argv[0], O_RDONLY);
        GIVES(cuFileHandleRegister(&handle, &description), kNotInitialized);
        int version;
        WELL(cuFileGetVersion(&version));
        return 0;
    }
    struct {
        const char* name;
        void (*run)();
    } const all[] = {
        {"settings", settings}, {"reading", reading}, {"writing", writing}, {"large", large},     {"mistakes", mistakes},
        {"host", host},         {"vectors", vectors}, {"streams", streams}, {"batches", batches}, {"threads", threads},
        {"freed", freed},
    };
    bool found = false;
    for (const auto& one : all) {
        if (how == one.name || (how == "all" && one.run != settings && one.run != freed)) {
            found = true;
            one.run();
        }
    }
    EXPECT(found);
    return outcome();
}
