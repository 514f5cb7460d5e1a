// Large messages of device memory, whose bytes go from one rank's server to the other's: in any
// order of matching, asked about before they are received, to and from memory of the host, types
// with gaps, buffers that are too small. Four ranks. The first argument says what to do: `all`;
// `bytes`, in which no message has another way; or `forever`, until somebody ends it.
#include <mpi.h>

#include <algorithm>
#include <cstring>

#include "../check.h"
#include "mpi_check.h"

static int rank, ranks, left, right;

enum { COUNT = 1 << 17 };

__global__ void fill(int* values, int count, int seed) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] = seed * 1000003 + at;
}

__global__ void compare(const int* values, int count, int seed, int* wrong) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count && values[at] != seed * 1000003 + at) atomicAdd(wrong, 1);
}

// Numbers that tell who made them.
struct Numbers {
    DeviceArray<int> values;
    int count;

    explicit Numbers(int count, int seed = -7) : values(count), count(count) { set(seed); }

    void set(int seed) {
        fill<<<blocks_for(count, 256), 256>>>(values.get(), count, seed);
        CHECK(cudaGetLastError());
    }

    void expect(int seed, int from = 0, int many = -1) const {
        DeviceArray<int> wrong(std::vector<int>(1, 0));
        many = many < 0 ? count : many;
        compare<<<blocks_for(many, 256), 256>>>(values.get() + from, many, seed, wrong.get());
        CHECK(cudaGetLastError());
        EXPECT(wrong.download()[0] == 0);
    }

    int* get() { return values.get(); }
};

static void expect_host(const std::vector<int>& values, int seed) {
    for (size_t at = 0; at < values.size(); at++) EXPECT(values[at] == seed * 1000003 + int(at));
}

static int count_of(const MPI_Status& status) {
    int count = -1;
    MPI_CHECK(MPI_Get_count(&status, MPI_INT, &count));
    return count;
}

// Many under way, received in another order than they were sent.
static void out_of_order() {
    enum { MANY = 6 };
    Numbers sent(COUNT * MANY);
    std::vector<MPI_Request> requests(MANY);
    for (int i = 0; i < MANY; i++) {
        int* part = sent.get() + COUNT * i;
        fill<<<blocks_for(COUNT, 256), 256>>>(part, COUNT, rank * MANY + i);
        MPI_CHECK(MPI_Isend(part, COUNT - i, MPI_INT, right, i, MPI_COMM_WORLD, &requests[i]));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        Numbers received(COUNT);
        MPI_Status status;
        MPI_CHECK(MPI_Recv(received.get(), COUNT, MPI_INT, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &status));
        EXPECT(status.MPI_SOURCE == left && status.MPI_TAG == i && count_of(status) == COUNT - i);
        received.expect(left * MANY + i, 0, COUNT - i);
    }
    MPI_CHECK(MPI_Waitall(MANY, requests.data(), MPI_STATUSES_IGNORE));
    // Of one tag, in their order.
    for (int i = 0; i < MANY; i++) {
        int* part = sent.get() + COUNT * i;
        MPI_CHECK(MPI_Issend(part, COUNT, MPI_INT, right, 3, MPI_COMM_WORLD, &requests[i]));
    }
    for (int i = 0; i < MANY; i++) {
        Numbers received(COUNT);
        MPI_CHECK(MPI_Recv(received.get(), COUNT, MPI_INT, left, MPI_ANY_TAG, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE));
        received.expect(left * MANY + i);
    }
    MPI_CHECK(MPI_Waitall(MANY, requests.data(), MPI_STATUSES_IGNORE));
    // The sender's memory is its own again when it has sent.
    for (int turn = 0; turn < 2; turn++) {
        Numbers own(COUNT, rank);
        if (turn == rank % 2) {
            MPI_CHECK(MPI_Send(own.get(), COUNT, MPI_INT, rank ^ 1, 2, MPI_COMM_WORLD));
            own.set(-1);
        } else {
            MPI_CHECK(MPI_Recv(own.get(), COUNT, MPI_INT, rank ^ 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            own.expect(rank ^ 1);
        }
        CHECK(cudaDeviceSynchronize());
    }
}

// Requests whose messages come while the program waits for something else.
static void while_waiting() {
    Numbers sent(COUNT, rank), received(COUNT);
    MPI_Request request;
    MPI_CHECK(MPI_Irecv(received.get(), COUNT, MPI_INT, left, 4, MPI_COMM_WORLD, &request));
    MPI_CHECK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_CHECK(MPI_Send(sent.get(), COUNT, MPI_INT, right, 4, MPI_COMM_WORLD));
    // All have sent, and the receivers have not looked.
    MPI_CHECK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Status status;
    for (int flag = 0; !flag;) MPI_CHECK(MPI_Request_get_status(request, &flag, &status));
    EXPECT(count_of(status) == COUNT && status.MPI_TAG == 4);
    MPI_CHECK(MPI_Wait(&request, &status));
    EXPECT(count_of(status) == COUNT && status.MPI_TAG == 4);
    received.expect(left);
}

static void host_memory() {
    Numbers device(COUNT, rank);
    std::vector<int> host(COUNT, 0);
    MPI_Request requests[2];
    MPI_Status status;
    MPI_CHECK(MPI_Irecv(host.data(), COUNT, MPI_INT, left, 5, MPI_COMM_WORLD, &requests[0]));
    MPI_CHECK(MPI_Isend(device.get(), COUNT, MPI_INT, right, 5, MPI_COMM_WORLD, &requests[1]));
    MPI_CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    expect_host(host, left);
    // And from the host to the device.
    for (int at = 0; at < COUNT; at++) host[at] = rank * 1000003 + at;
    MPI_CHECK(MPI_Sendrecv(host.data(), COUNT, MPI_INT, right, 6, device.get(), COUNT, MPI_INT, left, 6,
                           MPI_COMM_WORLD, &status));
    device.expect(left);
    EXPECT(count_of(status) == COUNT);
    // One buffer for both.
    MPI_CHECK(MPI_Sendrecv_replace(device.get(), COUNT, MPI_INT, right, 7, left, 7, MPI_COMM_WORLD, &status));
    device.expect((left + ranks - 1) % ranks);
    // A request that is started again.
    MPI_CHECK(MPI_Recv_init(host.data(), COUNT, MPI_INT, left, 8, MPI_COMM_WORLD, &requests[0]));
    for (int round = 0; round < 3; round++) {
        device.set(rank + 10 * round);
        MPI_CHECK(MPI_Start(&requests[0]));
        MPI_CHECK(MPI_Send(device.get(), COUNT, MPI_INT, right, 8, MPI_COMM_WORLD));
        MPI_CHECK(MPI_Wait(&requests[0], &status));
        EXPECT(count_of(status) == COUNT);
        expect_host(host, left + 10 * round);
    }
    MPI_CHECK(MPI_Request_free(&requests[0]));
#if MPI_VERSION >= 4
    device.set(rank);
    MPI_CHECK(MPI_Isendrecv(device.get(), COUNT, MPI_INT, right, 13, host.data(), COUNT, MPI_INT, left, 13,
                            MPI_COMM_WORLD, &requests[0]));
    MPI_CHECK(MPI_Wait(&requests[0], &status));
    EXPECT(count_of(status) == COUNT);
    expect_host(host, left);
    MPI_CHECK(MPI_Isendrecv_replace(device.get(), COUNT, MPI_INT, right, 14, left, 14, MPI_COMM_WORLD,
                                    &requests[0]));
    MPI_CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    device.expect(left);
    host.assign(COUNT, 0);
    MPI_CHECK(MPI_Irecv_c(host.data(), COUNT, MPI_INT, left, 15, MPI_COMM_WORLD, &requests[0]));
    MPI_CHECK(MPI_Send_c(device.get(), COUNT, MPI_INT, right, 15, MPI_COMM_WORLD));
    MPI_CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    expect_host(host, (left + ranks - 1) % ranks);
#endif
    // A message of the program's that is as long as what goes in place of others.
    std::vector<int> small(16, rank), other(COUNT, -1);
    MPI_CHECK(MPI_Sendrecv(small.data(), 16, MPI_INT, right, 9, other.data(), COUNT, MPI_INT, left, 9,
                           MPI_COMM_WORLD, &status));
    EXPECT(count_of(status) == 16 && other[15] == left && other[16] == -1);
}

static void gaps() {
    const int rows = COUNT / 4, columns = 3;
    MPI_Datatype column;
    MPI_CHECK(MPI_Type_vector(rows, 1, columns, MPI_INT, &column));
    MPI_CHECK(MPI_Type_commit(&column));
    Numbers sent(rows, rank);
    std::vector<int> blank(rows * columns, -1);
    DeviceArray<int> matrix(blank);
    MPI_CHECK(MPI_Sendrecv(sent.get(), rows, MPI_INT, right, 10, matrix.get() + 1, 1, column, left, 10,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    std::vector<int> host = blank, values = matrix.download();
    MPI_CHECK(MPI_Sendrecv(sent.get(), rows, MPI_INT, right, 11, host.data() + 1, 1, column, left, 11,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (const std::vector<int>& all : {values, host})
        for (int at = 0; at < rows * columns; at++)
            EXPECT(all[at] == (at % columns == 1 ? left * 1000003 + at / columns : -1));
    // All of it as one element.
    MPI_Datatype whole;
    MPI_CHECK(MPI_Type_contiguous(COUNT, MPI_INT, &whole));
    MPI_CHECK(MPI_Type_commit(&whole));
    Numbers one(COUNT, rank), received(COUNT);
    MPI_Status status;
    MPI_CHECK(MPI_Sendrecv(one.get(), 1, whole, right, 12, received.get(), COUNT, MPI_INT, left, 12,
                           MPI_COMM_WORLD, &status));
    EXPECT(count_of(status) == COUNT);
    received.expect(left);
    MPI_CHECK(MPI_Type_free(&column));
    MPI_CHECK(MPI_Type_free(&whole));
}

static void probes() {
    for (int way = 0; way < 6; way++) {
        const int size = COUNT - way;
        Numbers sent(COUNT, rank + way), received(COUNT);
        MPI_Request sending;
        MPI_CHECK(MPI_Isend(sent.get(), size, MPI_INT, right, 20, MPI_COMM_WORLD, &sending));
        MPI_CHECK(MPI_Send(sent.get(), 16, MPI_INT, right, 21, MPI_COMM_WORLD));
        MPI_Status status;
        MPI_Message message;
        MPI_Request request;
        int flag = 0;
        if (way == 0 || way == 5) {
            MPI_CHECK(MPI_Probe(MPI_ANY_SOURCE, 20, MPI_COMM_WORLD, &status));
        } else if (way == 1) {
            while (!flag) MPI_CHECK(MPI_Iprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
        } else if (way == 2) {
            MPI_CHECK(MPI_Mprobe(left, 20, MPI_COMM_WORLD, &message, &status));
        } else if (way == 3) {
            while (!flag) MPI_CHECK(MPI_Improbe(left, 20, MPI_COMM_WORLD, &flag, &message, &status));
        } else {
            // Asked about twice, the second time to have it.
            MPI_CHECK(MPI_Probe(left, 20, MPI_COMM_WORLD, &status));
            MPI_CHECK(MPI_Mprobe(left, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
        }
        EXPECT(status.MPI_SOURCE == left && status.MPI_TAG == 20 && count_of(status) == size);
        if (way == 0) {
            MPI_CHECK(MPI_Recv(received.get(), size, MPI_INT, left, 20, MPI_COMM_WORLD, &status));
        } else if (way == 1) {
            MPI_CHECK(MPI_Irecv(received.get(), size, MPI_INT, MPI_ANY_SOURCE, 20, MPI_COMM_WORLD, &request));
            MPI_CHECK(MPI_Wait(&request, &status));
        } else if (way == 3) {
            MPI_CHECK(MPI_Imrecv(received.get(), size, MPI_INT, &message, &request));
            MPI_CHECK(MPI_Wait(&request, &status));
        } else if (way == 5) {
            MPI_CHECK(MPI_Sendrecv(nullptr, 0, MPI_INT, right, 22, received.get(), size, MPI_INT, left, 20,
                                   MPI_COMM_WORLD, &status));
            int nothing;
            MPI_CHECK(MPI_Recv(&nothing, 0, MPI_INT, left, 22, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            MPI_CHECK(MPI_Mrecv(received.get(), size, MPI_INT, &message, &status));
        }
        EXPECT(status.MPI_SOURCE == left && status.MPI_TAG == 20 && count_of(status) == size);
        received.expect(left + way, 0, size);
        // The small one is 64 bytes long and of the program.
        MPI_CHECK(MPI_Probe(left, 21, MPI_COMM_WORLD, &status));
        EXPECT(count_of(status) == 16);
        std::vector<int> small(16);
        MPI_CHECK(MPI_Recv(small.data(), 16, MPI_INT, left, 21, MPI_COMM_WORLD, &status));
        EXPECT(status.MPI_TAG == 21 && count_of(status) == 16);
        expect_host(small, left + way);
        MPI_CHECK(MPI_Wait(&sending, MPI_STATUS_IGNORE));
    }
    MPI_CHECK(MPI_Barrier(MPI_COMM_WORLD));
}

static void too_small() {
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    Numbers sent(COUNT, rank), received(COUNT);
    std::vector<int> host(COUNT);
    for (int* buffer : {received.get(), host.data()}) {
        MPI_Request sending;
        MPI_CHECK(MPI_Isend(sent.get(), COUNT, MPI_INT, right, 30, MPI_COMM_WORLD, &sending));
        int error = MPI_Recv(buffer, COUNT - 1, MPI_INT, left, 30, MPI_COMM_WORLD, MPI_STATUS_IGNORE), kind = 0;
        MPI_Error_class(error, &kind);
        EXPECT(kind == MPI_ERR_TRUNCATE);
        MPI_CHECK(MPI_Wait(&sending, MPI_STATUS_IGNORE));
    }
    received.expect(-7);
    // What comes later is right.
    MPI_CHECK(MPI_Sendrecv(sent.get(), COUNT, MPI_INT, right, 31, received.get(), COUNT, MPI_INT, left, 31,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    received.expect(left);
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

// Of all ranks of a communicator.
static void collectives(int count, MPI_Comm comm) {
    int rank, ranks;
    MPI_CHECK(MPI_Comm_rank(comm, &rank));
    MPI_CHECK(MPI_Comm_size(comm, &ranks));
    Numbers own(count), out(count), all(count * ranks);
    for (int root : {0, ranks - 1}) {
        own.set(rank);
        MPI_CHECK(MPI_Bcast(own.get(), count, MPI_INT, root, comm));
        own.expect(root);
    }
    own.set(rank);
    MPI_CHECK(MPI_Allgather(own.get(), count, MPI_INT, all.get(), count, MPI_INT, comm));
    for (int of = 0; of < ranks; of++) {
        const int* part = all.get() + size_t(of) * count;
        CHECK(cudaMemcpy(out.get(), part, size_t(count) * 4, cudaMemcpyDeviceToDevice));
        out.expect(of);
    }
    MPI_CHECK(MPI_Allreduce(own.get(), out.get(), count, MPI_INT, MPI_MAX, comm));
    out.expect(ranks - 1);
    MPI_CHECK(MPI_Reduce(own.get(), out.get(), count, MPI_INT, MPI_MIN, 1, comm));
    out.expect(rank == 1 ? 0 : ranks - 1);
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, own.get(), count, MPI_INT, MPI_MIN, comm));
    own.expect(0);
}

// What only MPI carries: to itself and to nobody, and what is small.
static void others() {
    Numbers sent(COUNT, rank), received(COUNT);
    MPI_CHECK(MPI_Sendrecv(sent.get(), COUNT, MPI_INT, rank, 42, received.get(), COUNT, MPI_INT, rank, 42,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    received.expect(rank);
    MPI_CHECK(MPI_Send(sent.get(), COUNT, MPI_INT, MPI_PROC_NULL, 42, MPI_COMM_WORLD));
    collectives(COUNT / 8 + 1, MPI_COMM_WORLD);
    // One rank's memory is the host's.
    std::vector<int> host(COUNT, 0);
    int* buffer = rank == 3 ? host.data() : received.get();
    MPI_CHECK(MPI_Bcast(rank == 0 ? sent.get() : buffer, COUNT, MPI_INT, 0, MPI_COMM_WORLD));
    if (rank == 3) {
        expect_host(host, 0);
    } else {
        received.expect(rank == 0 ? rank : 0);
    }
    // Numbers that are no integers, and an operation of the program's.
    std::vector<double> values(COUNT, 0.5 + rank);
    DeviceArray<double> parts(values), sums(COUNT);
    MPI_CHECK(MPI_Allreduce(parts.get(), sums.get(), COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (double sum : sums.download()) EXPECT(sum == 8.0);
    MPI_Op operation;
    auto larger = [](void* in, void* out, int* count, MPI_Datatype*) {
        for (int at = 0; at < *count; at++)
            static_cast<double*>(out)[at] = std::max(static_cast<double*>(in)[at], static_cast<double*>(out)[at]);
    };
    MPI_CHECK(MPI_Op_create(larger, 1, &operation));
    MPI_CHECK(MPI_Allreduce(parts.get(), sums.get(), COUNT, MPI_DOUBLE, operation, MPI_COMM_WORLD));
    for (double sum : sums.download()) EXPECT(sum == 3.5);
    MPI_CHECK(MPI_Op_free(&operation));
}

static void forever() {
    Numbers sent(COUNT, rank), received(COUNT);
    for (int round = 0;; round++) {
        MPI_CHECK(MPI_Sendrecv(sent.get(), COUNT, MPI_INT, right, 50, received.get(), COUNT, MPI_INT, left, 50,
                               MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (round == 3 && rank == 0) {
            printf("under way\n");
            fflush(stdout);
        }
    }
}

// Communicators in which ranks have other numbers, and ranks of one server.
static void communicators() {
    MPI_Comm turned, halves;
    MPI_CHECK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned));
    MPI_CHECK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves));
    Numbers sent(COUNT, rank), received(COUNT);
    int own;
    MPI_CHECK(MPI_Comm_rank(turned, &own));
    EXPECT(own == ranks - 1 - rank);
    MPI_CHECK(MPI_Sendrecv(sent.get(), COUNT, MPI_INT, (own + 1) % ranks, 40, received.get(), COUNT, MPI_INT,
                           (own + ranks - 1) % ranks, 40, turned, MPI_STATUS_IGNORE));
    received.expect(right);
    MPI_CHECK(MPI_Comm_rank(halves, &own));
    MPI_CHECK(MPI_Sendrecv(sent.get(), COUNT, MPI_INT, 1 - own, 41, received.get(), COUNT, MPI_INT, 1 - own,
                           41, halves, MPI_STATUS_IGNORE));
    received.expect(rank ^ 2);
    collectives(COUNT, halves);
    MPI_CHECK(MPI_Comm_free(&turned));
    MPI_CHECK(MPI_Comm_free(&halves));
}


int main(int argc, char** argv) {
    MPI_CHECK(MPI_Init(&argc, &argv));
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    EXPECT(ranks == 4 && argc == 2);
    left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    if (!strcmp(argv[1], "forever")) forever();
    out_of_order();
    while_waiting();
    communicators();
    collectives(COUNT, MPI_COMM_WORLD);
    if (!strcmp(argv[1], "all")) {
        host_memory();
        gaps();
        probes();
        too_small();
        others();
    }
    if (rank == 0) printf("large messages went everywhere\n");
    MPI_CHECK(MPI_Finalize());
    return 0;
}
