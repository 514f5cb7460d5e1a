// Heat in a plate by Jacobi's iteration: each rank has a strip of rows on its device, and exchanges
// the rows at its borders with its neighbours after each step. Rank 0 compares the result with that
// of the host, bit by bit. With "device", MPI gets the device's addresses; without, the rows go
// through host memory.
#include <mpi.h>

#include <cstring>
#include <utility>

#include "../check.h"
#include "mpi_check.h"

static const int WIDTH = 256, ROWS_EACH = 40, STEPS = 60;

__device__ __host__ inline float mean(float above, float below, float left, float right) {
    return 0.25f * ((above + below) + (left + right));
}

__global__ void step(const float* old, float* next, int rows) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y + 1;
    if (x < 1 || x >= WIDTH - 1 || y > rows) return;
    const float* at = old + size_t(y) * WIDTH + x;
    next[size_t(y) * WIDTH + x] = mean(at[-WIDTH], at[WIDTH], at[-1], at[1]);
}

// What a place has at first, in a plate with this many rows inside its border.
static float at_first(int x, int y, int rows) {
    if (y == 0) return 1.0f;
    if (y == rows + 1) return 0.25f;
    return x == 0 || x == WIDTH - 1 ? float(y) / float(rows) : 0.0f;
}

static void exchange(float* rows, int count, int above, int below, bool staged) {
    float* first = rows + WIDTH;
    float* last = rows + size_t(count) * WIDTH;
    float *over = rows, *under = rows + size_t(count + 1) * WIDTH;
    const size_t bytes = WIDTH * sizeof(float);
    MPI_Status status;
    if (!staged) {
        CHECK(cudaDeviceSynchronize());
        MPI_CHECK(MPI_Sendrecv(first, WIDTH, MPI_FLOAT, above, 0, under, WIDTH, MPI_FLOAT, below, 0,
                               MPI_COMM_WORLD, &status));
        MPI_CHECK(MPI_Sendrecv(last, WIDTH, MPI_FLOAT, below, 1, over, WIDTH, MPI_FLOAT, above, 1,
                               MPI_COMM_WORLD, &status));
        return;
    }
    static float sent[WIDTH], received[WIDTH];
    CHECK(cudaMemcpy(sent, first, bytes, cudaMemcpyDeviceToHost));
    MPI_CHECK(MPI_Sendrecv(sent, WIDTH, MPI_FLOAT, above, 0, received, WIDTH, MPI_FLOAT, below, 0,
                           MPI_COMM_WORLD, &status));
    if (below != MPI_PROC_NULL) CHECK(cudaMemcpy(under, received, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(sent, last, bytes, cudaMemcpyDeviceToHost));
    MPI_CHECK(MPI_Sendrecv(sent, WIDTH, MPI_FLOAT, below, 1, received, WIDTH, MPI_FLOAT, above, 1,
                           MPI_COMM_WORLD, &status));
    if (above != MPI_PROC_NULL) CHECK(cudaMemcpy(over, received, bytes, cudaMemcpyHostToDevice));
}

static std::vector<float> on_the_host(int rows) {
    std::vector<float> plate(size_t(rows + 2) * WIDTH);
    for (int y = 0; y < rows + 2; y++)
        for (int x = 0; x < WIDTH; x++) plate[size_t(y) * WIDTH + x] = at_first(x, y, rows);
    std::vector<float> next = plate;
    for (int i = 0; i < STEPS; i++) {
        for (int y = 1; y <= rows; y++)
            for (int x = 1; x < WIDTH - 1; x++) {
                const float* at = &plate[size_t(y) * WIDTH + x];
                next[size_t(y) * WIDTH + x] = mean(at[-WIDTH], at[WIDTH], at[-1], at[1]);
            }
        std::swap(plate, next);
    }
    return plate;
}

int main(int argc, char** argv) {
    MPI_CHECK(MPI_Init(&argc, &argv));
    const bool staged = argc < 2 || strcmp(argv[1], "device") != 0;
    int rank = 0, ranks = 0, devices = 0;
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(rank % devices));

    const int all_rows = ROWS_EACH * ranks;
    const size_t strip = size_t(ROWS_EACH + 2) * WIDTH;
    std::vector<float> rows(strip);
    for (int y = 0; y < ROWS_EACH + 2; y++)
        for (int x = 0; x < WIDTH; x++)
            rows[size_t(y) * WIDTH + x] = at_first(x, rank * ROWS_EACH + y, all_rows);
    DeviceArray<float> first(rows), second(rows);
    float *old = first.get(), *next = second.get();

    const int above = rank == 0 ? MPI_PROC_NULL : rank - 1;
    const int below = rank == ranks - 1 ? MPI_PROC_NULL : rank + 1;
    for (int i = 0; i < STEPS; i++) {
        step<<<dim3((WIDTH + 127) / 128, ROWS_EACH), 128>>>(old, next, ROWS_EACH);
        CHECK(cudaGetLastError());
        exchange(next, ROWS_EACH, above, below, staged);
        std::swap(old, next);
    }
    CHECK(cudaMemcpy(rows.data(), old, strip * sizeof(float), cudaMemcpyDeviceToHost));

    std::vector<float> inside(size_t(all_rows) * WIDTH);
    const int count = ROWS_EACH * WIDTH;
    MPI_CHECK(MPI_Gather(&rows[WIDTH], count, MPI_FLOAT, inside.data(), count, MPI_FLOAT, 0,
                         MPI_COMM_WORLD));
    std::vector<int> seen(ranks);
    MPI_CHECK(MPI_Gather(&devices, 1, MPI_INT, seen.data(), 1, MPI_INT, 0, MPI_COMM_WORLD));
    if (rank == 0) {
        const std::vector<float> expected = on_the_host(all_rows);
        for (size_t i = 0; i < inside.size(); i++) EXPECT(inside[i] == expected[i + WIDTH]);
        printf("%d ranks agree with the host; devices of each:", ranks);
        for (int one : seen) printf(" %d", one);
        printf("\n");
    }
    MPI_CHECK(MPI_Finalize());
    return 0;
}
