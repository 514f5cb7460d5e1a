// Sort, scan, reduce and compact with Thrust, whose kernels choose their tuning by the architecture
// that the driver reports, and use most of what a block and a warp can do together.
#include "check.h"

#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <algorithm>
#include <numeric>

int main() {
    const int n = 50000;
    std::vector<int> keys(n);
    std::vector<unsigned> values(n);
    Random random(13);
    for (int i = 0; i < n; i++) {
        keys[i] = static_cast<int>(random.below(20000)) - 10000;
        values[i] = i;
    }

    thrust::device_vector<int> device_keys(keys.begin(), keys.end());
    thrust::device_vector<unsigned> device_values(values.begin(), values.end());
    thrust::stable_sort_by_key(device_keys.begin(), device_keys.end(), device_values.begin());
    std::stable_sort(values.begin(), values.end(), [&](unsigned a, unsigned b) { return keys[a] < keys[b]; });
    EXPECT(thrust::equal(device_values.begin(), device_values.end(), thrust::device_vector<unsigned>(values).begin()));
    printf("stable sort by key: %d pairs right\n", n);

    std::sort(keys.begin(), keys.end());
    long long sum = thrust::reduce(device_keys.begin(), device_keys.end(), 0ll);
    EXPECT(sum == std::accumulate(keys.begin(), keys.end(), 0ll));
    printf("reduce: %lld\n", sum);

    thrust::device_vector<long long> sums(n);
    thrust::inclusive_scan(device_keys.begin(), device_keys.end(), sums.begin(), thrust::plus<long long>());
    std::vector<long long> result(n);
    thrust::copy(sums.begin(), sums.end(), result.begin());
    long long expected = 0;
    for (int i = 0; i < n; i++) {
        expected += keys[i];
        EXPECT(result[i] == expected);
    }
    printf("scan: checksum %016llx\n", (unsigned long long)checksum(result));

    size_t left = thrust::unique(device_keys.begin(), device_keys.end()) - device_keys.begin();
    EXPECT(left == static_cast<size_t>(std::unique(keys.begin(), keys.end()) - keys.begin()));
    printf("unique: %zu keys left\n", left);
    return 0;
}
