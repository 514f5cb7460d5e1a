// The mean of many square roots: rank 0 hands numbers out, each rank's device works on its part, and
// the sums come back together.
#include <mpi.h>

#include "../check.h"
#include "mpi_check.h"

static const int EACH = 1 << 16;

__global__ void roots(float* numbers, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) numbers[i] = sqrtf(numbers[i]);
}

int main(int argc, char** argv) {
    MPI_CHECK(MPI_Init(&argc, &argv));
    int rank = 0, ranks = 0;
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    std::vector<float> all(rank == 0 ? size_t(EACH) * ranks : 0), part(EACH);
    Random random(7);
    for (float& number : all) number = random.unit();
    MPI_CHECK(MPI_Scatter(all.data(), EACH, MPI_FLOAT, part.data(), EACH, MPI_FLOAT, 0,
                          MPI_COMM_WORLD));
    DeviceArray<float> numbers(part);
    roots<<<(EACH + 255) / 256, 256>>>(numbers.get(), EACH);
    CHECK(cudaGetLastError());
    double sum = 0, total = 0;
    for (float root : numbers.download()) sum += root;
    MPI_CHECK(MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD));
    if (rank == 0) {
        double expected = 0;
        for (float number : all) expected += std::sqrt(double(number));
        EXPECT(std::fabs(total - expected) < 1e-6 * expected);
        printf("%d ranks: the mean is %.4f\n", ranks, total / double(all.size()));
    }
    MPI_CHECK(MPI_Finalize());
    return 0;
}
