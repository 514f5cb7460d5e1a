// Every function of MPI that may be handed device memory, with small and large messages, buffers of
// the host on the other side, parts of buffers, and types with gaps. Four ranks.
#include <mpi.h>

#include <numeric>

#include "../check.h"
#include "mpi_check.h"

static int rank, ranks, left, right;

// Numbers that tell their rank.
static std::vector<int> numbers(int of, size_t count) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), of * 1000003);
    return values;
}

static void blocking(size_t count) {
    DeviceArray<int> sent(numbers(rank, count)), received(std::vector<int>(count + 3, -1));
    MPI_Status status;
    // The receiver's buffer is larger than the message: the rest stays as it is.
    MPI_CHECK(MPI_Sendrecv(sent.get(), int(count), MPI_INT, right, 1, received.get(), int(count) + 3, MPI_INT,
                           left, 1, MPI_COMM_WORLD, &status));
    int got = 0;
    MPI_CHECK(MPI_Get_count(&status, MPI_INT, &got));
    EXPECT(got == int(count) && status.MPI_SOURCE == left);
    std::vector<int> expected = numbers(left, count);
    expected.insert(expected.end(), 3, -1);
    EXPECT(received.download() == expected);

    // From the device to the host and back, whoever sends first.
    std::vector<int> host(count);
    if (rank % 2 == 0) {
        MPI_CHECK(MPI_Send(sent.get(), int(count), MPI_INT, rank ^ 1, 2, MPI_COMM_WORLD));
        MPI_CHECK(MPI_Recv(received.get(), int(count), MPI_INT, MPI_ANY_SOURCE, 30, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE));
        EXPECT(received.download()[count - 1] == numbers(rank ^ 1, count)[count - 1] + 1);
    } else {
        MPI_CHECK(MPI_Recv(host.data(), int(count), MPI_INT, rank ^ 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        EXPECT(host == numbers(rank ^ 1, count));
        host = numbers(rank, count);
        for (int& value : host) value++;
        MPI_CHECK(MPI_Ssend(host.data(), int(count), MPI_INT, rank ^ 1, 30, MPI_COMM_WORLD));
    }
}

static void immediate(size_t count) {
    enum { MESSAGES = 6 };
    std::vector<int> all;
    for (int i = 0; i < MESSAGES; i++) {
        std::vector<int> one = numbers(rank + i, count);
        all.insert(all.end(), one.begin(), one.end());
    }
    DeviceArray<int> sent(all);
    for (int way = 0; way < 6; way++) {
        DeviceArray<int> received(std::vector<int>(all.size(), -1));
        MPI_Request requests[2 * MESSAGES];
        for (int i = 0; i < MESSAGES; i++)
            MPI_CHECK(MPI_Irecv(received.get() + count * i, int(count), MPI_INT, left, i, MPI_COMM_WORLD,
                                &requests[i]));
        for (int i = 0; i < MESSAGES; i++)
            MPI_CHECK(MPI_Isend(sent.get() + count * i, int(count), MPI_INT, right, i, MPI_COMM_WORLD,
                                &requests[MESSAGES + i]));
        MPI_Status statuses[2 * MESSAGES];
        int indices[2 * MESSAGES], flag = 0, done = 0, index = 0;
        const int all_requests = 2 * MESSAGES;
        switch (way) {
        case 0: MPI_CHECK(MPI_Waitall(all_requests, requests, MPI_STATUSES_IGNORE)); break;
        case 1:
            for (MPI_Request& request : requests) MPI_CHECK(MPI_Wait(&request, &statuses[0]));
            break;
        case 2:
            for (int left_over = all_requests; left_over > 0; left_over--) {
                MPI_CHECK(MPI_Waitany(all_requests, requests, &index, &statuses[0]));
                EXPECT(index >= 0 && index < all_requests);
            }
            break;
        case 3:
            while (done != MPI_UNDEFINED)
                MPI_CHECK(MPI_Waitsome(all_requests, requests, &done, indices, statuses));
            break;
        case 4:
            while (!flag) MPI_CHECK(MPI_Testall(all_requests, requests, &flag, statuses));
            for (int i = 0; i < MESSAGES; i++) EXPECT(statuses[i].MPI_TAG == i);
            break;
        default:
            for (MPI_Request& request : requests)
                for (flag = 0; !flag;) MPI_CHECK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        }
        for (MPI_Request request : requests) EXPECT(request == MPI_REQUEST_NULL);
        std::vector<int> got = received.download();
        for (int i = 0; i < MESSAGES; i++)
            for (size_t at = 0; at < count; at++)
                EXPECT(got[count * i + at] == (left + i) * 1000003 + int(at));
    }
}

static void collective(size_t count) {
    DeviceArray<int> own(numbers(rank, count)), out(std::vector<int>(count, -1));
    int sum_of_ranks = ranks * (ranks - 1) / 2 * 1000003;
    auto is_sum = [&](const DeviceArray<int>& of) {
        std::vector<int> values = of.download();
        for (size_t i = 0; i < count; i++) EXPECT(values[i] == sum_of_ranks + ranks * int(i));
    };
    MPI_CHECK(MPI_Allreduce(own.get(), out.get(), int(count), MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    is_sum(out);
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, own.get(), int(count), MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    is_sum(own);
    own.upload(numbers(rank, count));
    out.upload(std::vector<int>(count, -1));
    // Elsewhere the buffer for results may be anything.
    MPI_CHECK(MPI_Reduce(own.get(), rank == 1 ? out.get() : nullptr, int(count), MPI_INT, MPI_SUM, 1,
                         MPI_COMM_WORLD));
    if (rank == 1) is_sum(out);
    MPI_CHECK(MPI_Bcast(own.get(), int(count), MPI_INT, 2, MPI_COMM_WORLD));
    EXPECT(own.download() == numbers(2, count));
    own.upload(numbers(rank, count));
    DeviceArray<int> all(count * ranks);
    MPI_CHECK(MPI_Allgather(own.get(), int(count), MPI_INT, all.get(), int(count), MPI_INT, MPI_COMM_WORLD));
    auto is_all = [&] {
        std::vector<int> values = all.download();
        for (int of = 0; of < ranks; of++)
            EXPECT(values[count * of] == of * 1000003 &&
                   values[count * of + count - 1] == of * 1000003 + int(count) - 1);
    };
    is_all();
    all.zero();
    CHECK(cudaMemcpy(all.get() + count * rank, own.get(), own.bytes(), cudaMemcpyDeviceToDevice));
    MPI_CHECK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, all.get(), int(count), MPI_INT, MPI_COMM_WORLD));
    is_all();
}

// A column of a matrix: what lies between its elements stays as it is. And memory that both sides
// of a program use.
static void gaps() {
    const int rows = 50, columns = 7;
    MPI_Datatype column;
    MPI_CHECK(MPI_Type_vector(rows, 1, columns, MPI_INT, &column));
    MPI_CHECK(MPI_Type_commit(&column));
    DeviceArray<int> matrix(std::vector<int>(rows * columns, 100 + rank));
    MPI_CHECK(MPI_Sendrecv(matrix.get() + 2, 1, column, right, 5, matrix.get() + 4, 1, column, left, 5,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    std::vector<int> values = matrix.download();
    for (int i = 0; i < rows * columns; i++) EXPECT(values[i] == 100 + (i % columns == 4 ? left : rank));
    MPI_CHECK(MPI_Type_free(&column));

    int* managed;
    CHECK(cudaMallocManaged(&managed, 2 * 70000 * sizeof(int)));
    CHECK(cudaMemset(managed, rank + 1, 70000 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    MPI_CHECK(MPI_Sendrecv(managed, 70000, MPI_INT, right, 6, managed + 70000, 70000, MPI_INT, left, 6,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 70000; i++) EXPECT(managed[70000 + i] == (left + 1) * 0x01010101);
    CHECK(cudaFree(managed));
}

int main(int argc, char** argv) {
    // MPI first, CUDA later.
    MPI_CHECK(MPI_Init(&argc, &argv));
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    int sum = 0;
    MPI_CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(ranks == 4 && sum == 6);
    left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    for (size_t count : {size_t(1), size_t(100), size_t(30000), size_t(1) << 19}) {
        blocking(count);
        immediate(count);
        collective(count);
    }
    gaps();
    MPI_CHECK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("device memory went everywhere\n");
    MPI_CHECK(MPI_Finalize());
    return 0;
}
