// Collectives that are captured into graphs. Arguments: how the ranks of this process are called,
// "group" (one thread for all devices, and one graph) or "threads" (a thread and a graph for each).
#include "collectives.h"

static const size_t kCount = 1000;
static const int kLaunches = 20;

static void expect_sums(Rank& rank, int launches, float times) {
    std::vector<float> values = rank.result(kCount);
    float ranks = 0;
    for (int i = 0; i < rank.ranks; i++) ranks += i + launches;
    for (size_t i = 0; i < kCount; i++) {
        if (values[i] == times * (ranks + rank.ranks * float(i))) continue;
        printf("rank %d, launch %d: element %zu is %f\n", rank.rank, launches, i, values[i]);
        exit(1);
    }
}

static cudaGraphExec_t launchable(cudaGraph_t graph) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static void all_reduce(Rank& rank, const float* in, cudaStream_t stream) {
    WELL(ncclAllReduce(in, rank.out, kCount, kFloat, kSum, rank.comm, stream));
}

// All devices take part in one capture, which begins in the first rank's stream.
static void as_a_group(std::vector<Rank>& ranks) {
    Rank& first = ranks[0];
    CHECK(cudaSetDevice(first.device));
    CHECK(cudaStreamBeginCapture(first.stream, cudaStreamCaptureModeThreadLocal));
    std::vector<cudaEvent_t> events(ranks.size() + 1);
    CHECK(cudaEventCreateWithFlags(&events[0], cudaEventDisableTiming));
    CHECK(cudaEventRecord(events[0], first.stream));
    for (size_t i = 1; i < ranks.size(); i++) {
        CHECK(cudaSetDevice(ranks[i].device));
        CHECK(cudaStreamWaitEvent(ranks[i].stream, events[0], 0));
        CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    }
    WELL(ncclGroupStart());
    for (Rank& rank : ranks) all_reduce(rank, rank.in, rank.stream);
    WELL(ncclGroupEnd());
    for (size_t i = 1; i < ranks.size(); i++) {
        CHECK(cudaEventRecord(events[i], ranks[i].stream));
        CHECK(cudaStreamWaitEvent(first.stream, events[i], 0));
    }
    cudaGraph_t graph;
    CHECK(cudaSetDevice(first.device));
    CHECK(cudaStreamEndCapture(first.stream, &graph));
    cudaGraphExec_t exec = launchable(graph);
    for (int launch = 0; launch < kLaunches; launch++) {
        for (Rank& rank : ranks) rank.fill(kCount, rank.rank + launch);
        CHECK(cudaSetDevice(first.device));
        CHECK(cudaGraphLaunch(exec, first.stream));
        CHECK(cudaStreamSynchronize(first.stream));
        for (Rank& rank : ranks) expect_sums(rank, launch, 1);
    }
    CHECK(cudaGraphExecDestroy(exec));
}

// A graph in which two streams use the communicator, one after the other's work and beside it.
static cudaGraph_t two_streams(Rank& rank, cudaStream_t other, float* between) {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(event, rank.stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    // Beside each other, as far as the program says.
    all_reduce(rank, rank.in, rank.stream);
    WELL(ncclAllReduce(rank.in, between, kCount, kFloat, kSum, rank.comm, other));
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamWaitEvent(rank.stream, event, 0));
    // Both have the sums: their sum is that of the ranks once more.
    WELL(ncclAllReduce(between, rank.out, kCount, kFloat, kSum, rank.comm, rank.stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(rank.stream, &graph));
    CHECK(cudaEventDestroy(event));
    return graph;
}

static void launch_often(Rank& rank, cudaGraphExec_t exec, float times) {
    for (int launch = 0; launch < kLaunches; launch++) {
        rank.fill(kCount, rank.rank + launch);
        CHECK(cudaGraphLaunch(exec, rank.stream));
        expect_sums(rank, launch, times);
    }
}

static void on_a_thread(Rank& rank) {
    CHECK(cudaSetDevice(rank.device));
    cudaStream_t other;
    float* between;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&between, kCount * sizeof(float)));

    cudaGraph_t graph = two_streams(rank, other, between);
    // A copy of the graph, a graph that has it inside, and an executable outlive it.
    cudaGraph_t copy, outer;
    cudaGraphNode_t node;
    CHECK(cudaGraphClone(&copy, graph));
    CHECK(cudaGraphCreate(&outer, 0));
    CHECK(cudaGraphAddChildGraphNode(&node, outer, nullptr, 0, graph));
    cudaGraphExec_t exec = launchable(graph);
    launch_often(rank, exec, float(rank.ranks));
    cudaGraphExec_t of_copy = launchable(copy), of_outer = launchable(outer);
    launch_often(rank, of_copy, float(rank.ranks));
    launch_often(rank, of_outer, float(rank.ranks));

    // The same shape, captured again, with other buffers.
    std::swap(rank.out, between);
    cudaGraph_t again = two_streams(rank, other, between);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, again, &info));
    CHECK(cudaGraphDestroy(again));
    launch_often(rank, exec, float(rank.ranks));

    // Beside graphs, the communicator works as before.
    rank.fill(kCount, rank.rank);
    all_reduce(rank, rank.in, rank.stream);
    expect_sums(rank, 0, 1);

    // What is captured and what is not cannot be one group.
    CHECK(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    WELL(ncclGroupStart());
    all_reduce(rank, rank.in, rank.stream);
    WELL(ncclAllReduce(rank.in, between, kCount, kFloat, kSum, rank.comm, other));
    if (rank.rank == 0) {
        REFUSED(ncclGroupEnd(), kInvalidUsage);
    } else {
        EXPECT(ncclGroupEnd() == kInvalidUsage);
    }
    CHECK(cudaStreamEndCapture(rank.stream, &graph));
    CHECK(cudaGraphDestroy(graph));

    for (cudaGraphExec_t made : {exec, of_copy, of_outer}) CHECK(cudaGraphExecDestroy(made));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaFree(between));
}

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    std::vector<Comm> comms(devices);
    std::vector<Rank> ranks(devices);
    WELL(ncclCommInitAll(comms.data(), devices, nullptr));
    for (int i = 0; i < devices; i++) {
        ranks[i].comm = comms[i];
        ranks[i].allocate(kCount);
    }
    if (strcmp(argv[1], "group") == 0) {
        as_a_group(ranks);
    } else {
        std::vector<std::thread> threads;
        for (Rank& rank : ranks) threads.emplace_back([&rank] { on_a_thread(rank); });
        for (std::thread& thread : threads) thread.join();
    }
    for (Rank& rank : ranks) {
        WELL(ncclCommDestroy(rank.comm));
        rank.release();
    }
    printf("captured collectives: done\n");
    return 0;
}
