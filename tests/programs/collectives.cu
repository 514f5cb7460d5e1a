// Collectives of NCCL. The first argument says how: "all" the devices of one process, "threads"
// with a rank each, or "rank FILE RANK RANKS" of several processes. The others are about one thing
// each.
#include <chrono>
#include <unistd.h>

#include "collectives.h"

static const size_t COUNT = 10000;

static std::vector<Rank> init_all(size_t count) {
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    std::vector<Comm> comms(devices);
    WELL(ncclCommInitAll(comms.data(), devices, static_cast<const int*>(nullptr)));
    std::vector<Rank> ranks(devices);
    for (int i = 0; i < devices; i++) {
        ranks[i].comm = comms[i];
        ranks[i].allocate(count);
        EXPECT(ranks[i].rank == i && ranks[i].device == i && ranks[i].ranks == devices);
    }
    return ranks;
}

// Runs something for each rank as a group.
template <typename F>
static void together(std::vector<Rank>& ranks, F each) {
    WELL(ncclGroupStart());
    for (Rank& rank : ranks) each(rank);
    WELL(ncclGroupEnd());
}

static void destroy(std::vector<Rank>& ranks) {
    together(ranks, [](Rank& rank) { WELL(ncclCommDestroy(rank.comm)); });
    for (Rank& rank : ranks) rank.release();
}

// What element i is if each rank r has `seed(r)` + i.
static float sum(int ranks, size_t i) { return ranks * float(i) + ranks * (ranks - 1) / 2.0f; }

static void expect_sum(Rank& rank) {
    std::vector<float> values = rank.result(COUNT);
    for (size_t i = 0; i < COUNT; i++) EXPECT(values[i] == sum(rank.ranks, i));
}

static void each_collective(std::vector<Rank>& ranks) {
    const int n = ranks[0].ranks;
    for (Rank& rank : ranks) rank.fill(COUNT * n, rank.rank);
    together(ranks, [](Rank& r) { WELL(ncclAllReduce(r.in, r.out, COUNT, kFloat, kSum, r.comm, r.stream)); });
    for (Rank& rank : ranks) expect_sum(rank);
    together(ranks, [](Rank& r) { WELL(ncclAllReduce(r.in, r.out, COUNT, kFloat, kMax, r.comm, r.stream)); });
    for (Rank& rank : ranks) EXPECT(rank.result(COUNT)[7] == n - 1 + 7);
    together(ranks, [](Rank& r) { WELL(ncclBroadcast(r.in, r.out, COUNT, kFloat, 1 % r.ranks, r.comm, r.stream)); });
    for (Rank& rank : ranks) EXPECT(rank.result(COUNT)[5] == 1 % n + 5);
    together(ranks, [](Rank& r) { WELL(ncclReduce(r.in, r.out, COUNT, kFloat, kSum, 0, r.comm, r.stream)); });
    for (Rank& rank : ranks) {
        if (rank.rank == 0) expect_sum(rank);
    }
    together(ranks, [](Rank& r) { WELL(ncclAllGather(r.in, r.out, COUNT, kFloat, r.comm, r.stream)); });
    for (Rank& rank : ranks) {
        std::vector<float> values = rank.result(COUNT * n);
        for (int from = 0; from < n; from++) EXPECT(values[from * COUNT + 3] == from + 3);
    }
    together(ranks, [](Rank& r) { WELL(ncclReduceScatter(r.in, r.out, COUNT, kFloat, kSum, r.comm, r.stream)); });
    for (Rank& rank : ranks) EXPECT(rank.result(COUNT)[2] == sum(n, rank.rank * COUNT + 2));
    together(ranks, [](Rank& r) {
        WELL(ncclSend(r.in, COUNT, kFloat, (r.rank + 1) % r.ranks, r.comm, r.stream));
        WELL(ncclRecv(r.out, COUNT, kFloat, (r.rank + r.ranks - 1) % r.ranks, r.comm, r.stream));
    });
    for (Rank& rank : ranks) EXPECT(rank.result(COUNT)[9] == (rank.rank + n - 1) % n + 9);
    together(ranks, [](Rank& r) { WELL(ncclBcast(r.in, COUNT, kFloat, 0, r.comm, r.stream)); });
    printf("each collective is right\n");
}

static void products(std::vector<Rank>& ranks) {
    std::vector<int> ops(ranks.size());
    for (size_t i = 0; i < ranks.size(); i++) {
        ranks[i].fill(COUNT, ranks[i].rank);
        float half = 0.5f;
        WELL(ncclRedOpCreatePreMulSum(&ops[i], &half, kFloat, 1, ranks[i].comm));
    }
    size_t next = 0;
    together(ranks, [&](Rank& r) { WELL(ncclAllReduce(r.in, r.out, COUNT, kFloat, ops[next++], r.comm, r.stream)); });
    for (Rank& rank : ranks) EXPECT(rank.result(COUNT)[4] == sum(rank.ranks, 4) / 2);
    for (size_t i = 0; i < ranks.size(); i++) WELL(ncclRedOpDestroy(ops[i], ranks[i].comm));
    REFUSED(ncclAllReduce(ranks[0].in, ranks[0].out, COUNT, kFloat, ops[0], ranks[0].comm, ranks[0].stream), kInvalidArgument);
}

// Buffers that are registered, and memory of NCCL's.
static void registered(std::vector<Rank>& ranks) {
    std::vector<void*> handles(ranks.size()), memory(ranks.size());
    for (size_t i = 0; i < ranks.size(); i++) {
        CHECK(cudaSetDevice(ranks[i].device));
        WELL(ncclMemAlloc(&memory[i], COUNT * sizeof(float)));
        WELL(ncclCommRegister(ranks[i].comm, memory[i], COUNT * sizeof(float), &handles[i]));
        ranks[i].fill(COUNT, ranks[i].rank);
    }
    for (int round = 0; round < 3; round++) {
        size_t next = 0;
        together(ranks, [&](Rank& r) { WELL(ncclAllReduce(r.in, memory[next++], COUNT, kFloat, kSum, r.comm, r.stream)); });
    }
    for (size_t i = 0; i < ranks.size(); i++) {
        Rank& rank = ranks[i];
        CHECK(cudaSetDevice(rank.device));
        CHECK(cudaMemcpyAsync(rank.out, memory[i], COUNT * sizeof(float), cudaMemcpyDeviceToDevice, rank.stream));
        expect_sum(rank);
        WELL(ncclCommDeregister(rank.comm, handles[i]));
        WELL(ncclMemFree(memory[i]));
    }
    REFUSED(ncclCommDeregister(ranks[0].comm, handles[0]), kInvalidArgument);
    void* handle;
    REFUSED(ncclCommRegister(ranks[0].comm, memory[0], COUNT * sizeof(float), &handle), kInvalidArgument);
}

static void split(std::vector<Rank>& ranks) {
    std::vector<Comm> made(ranks.size());
    size_t next = 0;
    together(ranks, [&](Rank& r) { WELL(ncclCommSplit(r.comm, r.rank % 2, -r.rank, &made[next++], static_cast<void*>(nullptr))); });
    for (size_t i = 0; i < ranks.size(); i++) {
        int rank, count;
        WELL(ncclCommUserRank(made[i], &rank));
        WELL(ncclCommCount(made[i], &count));
        const int n = ranks[i].ranks, odd = ranks[i].rank % 2;
        EXPECT(count == (odd ? n / 2 : (n + 1) / 2));
        EXPECT(rank == count - 1 - ranks[i].rank / 2);
    }
    for (Comm comm : made) WELL(ncclCommDestroy(comm));
    next = 0;
    together(ranks, [&](Rank& r) { WELL(ncclCommSplit(r.comm, r.rank == 0 ? 0 : -1, 0, &made[next++], static_cast<void*>(nullptr))); });
    EXPECT(made[0]);
    for (size_t i = 1; i < made.size(); i++) EXPECT(!made[i]);
    WELL(ncclCommDestroy(made[0]));
    printf("communicators are split\n");
}

static void repeat(std::vector<Rank>& ranks, int rounds) {
    for (Rank& rank : ranks) rank.fill(COUNT, rank.rank);
    for (int i = 0; i < rounds; i++) {
        together(ranks, [](Rank& r) { WELL(ncclAllReduce(r.in, r.out, COUNT, kFloat, kSum, r.comm, r.stream)); });
    }
    for (Rank& rank : ranks) expect_sum(rank);
}

static void all() {
    std::vector<Rank> ranks = init_all(COUNT);
    each_collective(ranks);
    products(ranks);
    registered(ranks);
    split(ranks);
    repeat(ranks, 20);
    destroy(ranks);
    ranks = init_all(COUNT);
    repeat(ranks, 1);
    for (Rank& rank : ranks) WELL(ncclCommDestroy(rank.comm));
}

// A rank of a communicator, made outside of groups.
static Rank join(int ranks, const UniqueId& id, int rank, int device) {
    Rank made;
    CHECK(cudaSetDevice(device));
    WELL(ncclCommInitRank(&made.comm, ranks, id, rank));
    made.allocate(COUNT);
    EXPECT(made.rank == rank && made.ranks == ranks && made.device == device);
    return made;
}

static void one_rank(Rank rank, int rounds) {
    for (int i = 0; i < rounds; i++) {
        rank.fill(COUNT, rank.rank);
        WELL(ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, rank.comm, rank.stream));
        expect_sum(rank);
    }
    std::vector<Rank> only = {rank};
    each_collective(only);
    WELL(ncclCommDestroy(rank.comm));
    rank.release();
}

static void threads() {
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    UniqueId id;
    WELL(ncclGetUniqueId(&id));
    std::vector<std::thread> all;
    for (int i = 0; i < devices; i++) all.emplace_back([=] { one_rank(join(devices, id, i, i), 20); });
    for (std::thread& thread : all) thread.join();
}

// One thread queues all its rounds, and only then does the other one begin.
static void ahead(int rounds) {
    std::vector<Rank> ranks = init_all(COUNT);
    repeat(ranks, 1);
    std::vector<std::thread> all;
    for (Rank& rank : ranks) {
        all.emplace_back([&rank, rounds] {
            CHECK(cudaSetDevice(rank.device));
            if (rank.rank > 0) usleep(500000);
            for (int i = 0; i < rounds; i++) {
                WELL(ncclAllReduce(rank.in, rank.out, 16, kFloat, kSum, rank.comm, rank.stream));
            }
            CHECK(cudaStreamSynchronize(rank.stream));
        });
    }
    for (std::thread& thread : all) thread.join();
    destroy(ranks);
}

static void expect_error(Comm comm, int wanted, const char* what) {
    auto begun = std::chrono::steady_clock::now();
    int error = 0;
    do {
        usleep(10000);
        WELL(ncclCommGetAsyncError(comm, &error));
        EXPECT(std::chrono::steady_clock::now() - begun < std::chrono::seconds(60));
    } while (error == kSuccess || error == kInProgress);
    auto taken = std::chrono::steady_clock::now() - begun;
    printf("%s after %d ms: %s\n", what, int(taken / std::chrono::milliseconds(1)), ncclGetLastError(comm));
    EXPECT(error == wanted);
}

static void errors() {
    UniqueId id;
    WELL(ncclGetUniqueId(&id));
    Comm comm = reinterpret_cast<Comm>(1);
    REFUSED(ncclCommInitRank(&comm, 2, id, 2), kInvalidArgument);
    REFUSED(ncclCommInitRank(&comm, 0, id, 0), kInvalidArgument);
    REFUSED(ncclCommInitRank(&comm, 1, id, -1), kInvalidArgument);
    const int twice[] = {0, 0};
    Comm pair[2];
    REFUSED(ncclCommInitAll(pair, 2, twice), kInvalidUsage);
    REFUSED(ncclGroupEnd(), kInvalidUsage);
    Rank rank = join(1, id, 0, 0);
    std::vector<float> host(COUNT);
    REFUSED(ncclAllReduce(rank.in, rank.out, COUNT, 99, kSum, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclAllReduce(rank.in, rank.out, COUNT, kFloat, 77, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclAllReduce(rank.in, rank.out, COUNT * 100, kFloat, kSum, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclAllReduce(host.data(), rank.out, COUNT, kFloat, kSum, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclAllReduce(rank.in, rank.out, size_t(-1), kFloat, kSum, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclBroadcast(rank.in, rank.out, COUNT, kFloat, 1, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, Comm(nullptr), rank.stream), kInvalidArgument);
    REFUSED(ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, reinterpret_cast<Comm>(host.data()), rank.stream), kInvalidArgument);
    REFUSED(ncclCommRevoke(rank.comm, 0), kInvalidUsage);
    // Older ones do not have it; nor has the stand-in.
    int exchanged = ncclAlltoAll(rank.in, rank.out, COUNT, kFloat, rank.comm, rank.stream);
    if (exchanged != kSuccess) printf("%s\n", ncclGetLastError(rank.comm));
    // A group fails with its first call, and makes none.
    WELL(ncclGroupStart());
    WELL(ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, rank.comm, rank.stream));
    REFUSED(ncclAllReduce(rank.in, rank.out, COUNT, 99, kSum, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclGroupEnd(), kInvalidArgument);
    rank.fill(COUNT, 0);
    WELL(ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, rank.comm, rank.stream));
    expect_sum(rank);
    WELL(ncclCommDestroy(rank.comm));
    REFUSED(ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, rank.comm, rank.stream), kInvalidArgument);
    REFUSED(ncclCommDestroy(rank.comm), kInvalidArgument);
    printf("%s\n", ncclGetErrorString(kInvalidUsage));
}

// A rank waits for one that never comes to a collective, until another thread aborts it.
static void abandoned() {
    std::vector<Rank> ranks = init_all(COUNT);
    std::thread waits([&] {
        Rank& rank = ranks[0];
        CHECK(cudaSetDevice(rank.device));
        int result = ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, rank.comm, rank.stream);
        printf("%s\n", result == kSuccess ? "it went through" : "it was ended");
    });
    usleep(500000);
    for (Rank& rank : ranks) WELL(ncclCommAbort(rank.comm));
    waits.join();
    REFUSED(ncclAllReduce(ranks[0].in, ranks[0].out, COUNT, kFloat, kSum, ranks[0].comm, ranks[0].stream), kInvalidArgument);
}

// The numbers of an ncclConfig_t, undefined but for `blocking`.
struct Config {
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef, version = 22809;
    int blocking = 0, numbers[3];
    const char* net = nullptr;
    int more[2];
    Config() {
        for (int& number : numbers) number = -2147483647 - 1;
        for (int& number : more) number = -2147483647 - 1;
    }
};

static void wait_for(Comm comm) {
    int state = kInProgress;
    for (int i = 0; i < 3000 && state == kInProgress; i++) {
        usleep(10000);
        WELL(ncclCommGetAsyncError(comm, &state));
    }
    WELL(state);
}

static void not_blocking() {
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    UniqueId id;
    WELL(ncclGetUniqueId(&id));
    std::vector<Rank> ranks(devices);
    Config config;
    for (int i = 0; i < devices; i++) {
        CHECK(cudaSetDevice(i));
        EXPECT(ncclCommInitRankConfig(&ranks[i].comm, devices, id, i, static_cast<void*>(&config)) == kInProgress);
        int count;
        if (i == 0 && devices > 1) EXPECT(ncclCommCount(ranks[i].comm, &count) == kInProgress);
    }
    for (Rank& rank : ranks) wait_for(rank.comm);
    for (Rank& rank : ranks) {
        rank.allocate(COUNT);
        rank.fill(COUNT, rank.rank);
        int result = ncclAllReduce(rank.in, rank.out, COUNT, kFloat, kSum, rank.comm, rank.stream);
        EXPECT(result == kInProgress);
    }
    for (Rank& rank : ranks) wait_for(rank.comm);
    for (Rank& rank : ranks) expect_sum(rank);
    for (Rank& rank : ranks) WELL(ncclCommAbort(rank.comm));
    printf("it went on meanwhile\n");
}

int main(int argc, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const std::string how = argc > 1 ? argv[1] : "all";
    if (how == "version") {
        int version;
        WELL(ncclGetVersion(&version));
        printf("%d\n", version);
    } else if (how == "all") {
        all();
    } else if (how == "threads") {
        threads();
    } else if (how == "ahead") {
        ahead(atoi(argv[2]));
    } else if (how == "errors") {
        errors();
    } else if (how == "abandoned") {
        abandoned();
    } else if (how == "not_blocking") {
        not_blocking();
    } else if (how == "absent") {
        UniqueId id;
        WELL(ncclGetUniqueId(&id));
        Comm comm;
        REFUSED(ncclCommInitRank(&comm, 2, id, 0), kSystemError);
        EXPECT(!comm);
    } else if (how == "refused") {
        int version;
        REFUSED(ncclGetVersion(&version), kSystemError);
    } else if (how == "idle") {
        std::vector<Rank> ranks = init_all(COUNT);
        void* memory;
        CHECK(cudaMalloc(&memory, size_t(160) << 20));
        CHECK(cudaDeviceSynchronize());
        printf("idle\n");
        sleep(atoi(argv[2]));
        repeat(ranks, 3);
        destroy(ranks);
    } else if (how == "same") {
        // Two programs that are the same rank.
        Comm comm;
        const UniqueId id = meet(argv[2], atoi(argv[3]));
        int result = ncclCommInitRank(&comm, 2, id, 0);
        printf("%d: %s\n", result, ncclGetLastError(Comm()));
        EXPECT(result != kSuccess);
    } else if (how == "steady") {
        std::vector<Rank> ranks = init_all(COUNT);
        repeat(ranks, atoi(argv[2]));
        destroy(ranks);
    } else if (how == "rank" || how == "lost" || how == "leave" || how == "versions") {
        EXPECT(argc > 4);
        const int rank = atoi(argv[3]), ranks = atoi(argv[4]);
        const int device = argc > 5 ? atoi(argv[5]) : 0;
        const UniqueId id = meet(argv[2], rank);
        if (how == "versions") {
            Comm comm;
            REFUSED(ncclCommInitRank(&comm, ranks, id, rank), kInvalidUsage);
            return 0;
        }
        Rank made = join(ranks, id, rank, device);
        if (how == "rank") {
            one_rank(made, 10);
        } else {
            made.fill(COUNT, rank);
            WELL(ncclAllReduce(made.in, made.out, COUNT, kFloat, kSum, made.comm, made.stream));
            expect_sum(made);
            printf("ready\n");
            if (how == "leave") _exit(0);
            expect_error(made.comm, kRemoteError, "it was lost");
        }
    } else {
        printf("there is no %s\n", how.c_str());
        return 1;
    }
    printf("done\n");
}
