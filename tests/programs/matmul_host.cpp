// The loops of matmul_naive on the host, rows shared among threads: what the software device is
// measured against.
//
//   matmul_host N ROUNDS THREADS    the time of one product goes to standard error
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static void rows(const float* a, const float* b, float* c, int n, int from, int to) {
    for (int row = from; row < to; row++) {
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++) {
                sum += a[row * n + k] * b[k * n + column];
            }
            c[row * n + column] = sum;
        }
    }
}

int main(int argc, char** argv) {
    if (argc != 4) {
        printf("usage: matmul_host N ROUNDS THREADS\n");
        return 2;
    }
    const int n = atoi(argv[1]), rounds = atoi(argv[2]), threads = atoi(argv[3]);
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = static_cast<float>(i % 17 - 8);
        b[i] = static_cast<float>(i % 13 - 6);
    }
    auto start = std::chrono::steady_clock::now();
    for (int round = 0; round < rounds; round++) {
        std::vector<std::thread> running;
        for (int i = 0; i < threads; i++) {
            running.emplace_back(rows, a.data(), b.data(), c.data(), n, n * i / threads, n * (i + 1) / threads);
        }
        for (std::thread& thread : running) thread.join();
    }
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    fprintf(stderr, "seconds per product: %.6f\n", taken.count() / rounds);
    printf("%g\n", static_cast<double>(c[n + 1]));
    return 0;
}
