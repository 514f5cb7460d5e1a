// L U = A in tiles of 16 x 16: the tile on the diagonal by one row of threads, those beside and
// below it by two, the others by a thread for each element. All that threads pass to each other
// goes across barriers, in loops, and within one tile.
#include <algorithm>

#include "check.h"

constexpr int TILE = 16;

// Thread t has row t of the tile below the diagonal, then column t beside it.
__global__ void diagonal(float* a, int n, int at) {
    __shared__ float s[TILE][TILE];
    int t = threadIdx.x;
    float* corner = a + at * n + at;
    for (int i = 0; i < TILE; i++) s[i][t] = corner[i * n + t];
    __syncthreads();
    for (int i = 0; i < TILE - 1; i++) {
        if (t > i) {
            for (int j = 0; j < i; j++) s[t][i] -= s[t][j] * s[j][i];
            s[t][i] /= s[i][i];
        }
        __syncthreads();
        if (t > i) {
            for (int j = 0; j <= i; j++) s[i + 1][t] -= s[i + 1][j] * s[j][t];
        }
        __syncthreads();
    }
    for (int i = 1; i < TILE; i++) corner[i * n + t] = s[i][t];
}

// Of 32 threads, 16 have the columns of a tile to the right, 16 the rows of one below.
__global__ void beside(float* a, int n, int at) {
    __shared__ float s[TILE][TILE], right[TILE][TILE], below[TILE][TILE];
    float* corner = a + at * n + at;
    int away = (blockIdx.x + 1) * TILE, t = threadIdx.x % TILE;
    bool is_right = threadIdx.x < TILE;
    if (is_right) {
        for (int i = 0; i < TILE / 2; i++) s[i][t] = corner[i * n + t];
        for (int i = 0; i < TILE; i++) right[i][t] = corner[i * n + away + t];
    } else {
        for (int i = TILE / 2; i < TILE; i++) s[i][t] = corner[i * n + t];
        for (int i = 0; i < TILE; i++) below[i][t] = corner[(away + i) * n + t];
    }
    __syncthreads();
    if (is_right) {
        for (int i = 1; i < TILE; i++)
            for (int j = 0; j < i; j++) right[i][t] -= s[i][j] * right[j][t];
    } else {
        for (int i = 0; i < TILE; i++) {
            for (int j = 0; j < i; j++) below[t][i] -= below[t][j] * s[j][i];
            below[t][i] /= s[i][i];
        }
    }
    __syncthreads();
    if (is_right) {
        for (int i = 1; i < TILE; i++) corner[i * n + away + t] = right[i][t];
    } else {
        for (int i = 0; i < TILE; i++) corner[(away + i) * n + t] = below[i][t];
    }
}

__global__ void inside(float* a, int n, int at) {
    __shared__ float right[TILE][TILE], below[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = at + (blockIdx.y + 1) * TILE, column = at + (blockIdx.x + 1) * TILE;
    right[y][x] = a[(at + y) * n + column + x];
    below[y][x] = a[(row + y) * n + at + x];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < TILE; i++) sum += below[y][i] * right[i][x];
    a[(row + y) * n + column + x] -= sum;
}

// One tile by a thread for each element, without pivots.
__global__ void elements(float* a, int n) {
    __shared__ float s[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    float* corner = a + blockIdx.x * TILE * (n + 1);
    s[y][x] = corner[y * n + x];
    __syncthreads();
    for (int k = 0; k < TILE - 1; k++) {
        if (x == k && y > k) s[y][k] /= s[k][k];
        __syncthreads();
        if (x > k && y > k) s[y][x] -= s[y][k] * s[k][x];
        __syncthreads();
    }
    corner[y * n + x] = s[y][x];
}

// The largest difference to `wanted` of the product of the factors in `lu`, in the tiles that were
// taken apart.
static double difference(const std::vector<float>& lu, const std::vector<float>& wanted, int n, bool only_diagonal) {
    double most = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            if (only_diagonal && i / TILE != j / TILE) continue;
            double sum = 0;
            int first = only_diagonal ? i / TILE * TILE : 0;
            for (int k = first; k <= std::min(i, j); k++) sum += (k == i ? 1.0 : lu[i * n + k]) * lu[k * n + j];
            most = std::max(most, std::fabs(sum - wanted[i * n + j]));
        }
    }
    return most;
}

int main(int count, char** args) {
    int n = TILE * (count > 1 ? atoi(args[1]) : 5), tiles = n / TILE;
    Random random(11);
    std::vector<float> a(n * n);
    for (float& value : a) value = random.unit();
    for (int i = 0; i < n; i++) a[i * n + i] += n;
    DeviceArray<float> whole(a), apart(a);
    for (int tile = 0; tile < tiles; tile++) {
        int at = tile * TILE, left = tiles - tile - 1;
        diagonal<<<1, TILE>>>(whole.get(), n, at);
        if (left == 0) break;
        beside<<<left, 2 * TILE>>>(whole.get(), n, at);
        inside<<<dim3(left, left), dim3(TILE, TILE)>>>(whole.get(), n, at);
    }
    elements<<<tiles, dim3(TILE, TILE)>>>(apart.get(), n);
    CHECK(cudaGetLastError());
    double limit = n * 1e-6;
    EXPECT(difference(whole.download(), a, n, false) < limit);
    EXPECT(difference(apart.download(), a, n, true) < limit);
    printf("lu: %d x %d right\n", n, n);
    return 0;
}
