// Large copies, pageable and pinned, synchronous and asynchronous, both ways, each byte checked on
// the other side.
//
//   big_copy [MEBIBYTES]    default 96. Rates go to standard error.
#include "check.h"

#include <chrono>
#include <cstring>

__host__ __device__ inline uint32_t pattern(uint64_t index, uint32_t salt) {
    return static_cast<uint32_t>((index ^ salt) * 2654435761u ^ index >> 13);
}

__global__ void write_pattern(uint32_t* data, uint64_t n, uint32_t salt) {
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += static_cast<uint64_t>(gridDim.x) * blockDim.x) {
        data[i] = pattern(i, salt);
    }
}

__global__ void count_wrong(const uint32_t* data, uint64_t n, uint32_t salt, unsigned long long* wrong) {
    unsigned long long mine = 0;
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += static_cast<uint64_t>(gridDim.x) * blockDim.x) {
        mine += data[i] != pattern(i, salt);
    }
    if (mine > 0) {
        atomicAdd(wrong, mine);
    }
}

static uint64_t wrong_on_host(const uint32_t* data, uint64_t n, uint32_t salt) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) wrong += data[i] != pattern(i, salt);
    return wrong;
}

struct Clock {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    double gigabytes_per_second(uint64_t bytes) const {
        std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        return static_cast<double>(bytes) / taken.count() / 1e9;
    }
};

static void round_trip(const char* kind, uint32_t* host, uint64_t n, uint32_t salt, cudaStream_t stream) {
    uint64_t bytes = n * sizeof(uint32_t);
    DeviceArray<uint32_t> device(n);
    DeviceArray<unsigned long long> wrong(1);
    wrong.zero();
    for (uint64_t i = 0; i < n; i++) host[i] = pattern(i, salt);
    Clock in;
    if (stream == nullptr) {
        CHECK(cudaMemcpy(device.get(), host, bytes, cudaMemcpyHostToDevice));
    } else {
        CHECK(cudaMemcpyAsync(device.get(), host, bytes, cudaMemcpyHostToDevice, stream));
        count_wrong<<<32, 128, 0, stream>>>(device.get(), n, salt, wrong.get());
        CHECK(cudaStreamSynchronize(stream));
    }
    fprintf(stderr, "%s to the device: %.2f GB/s\n", kind, in.gigabytes_per_second(bytes));
    count_wrong<<<32, 128, 0, stream>>>(device.get(), n, salt, wrong.get());
    write_pattern<<<32, 128, 0, stream>>>(device.get(), n, salt + 1);
    CHECK(cudaStreamSynchronize(stream));
    Clock out;
    if (stream == nullptr) {
        CHECK(cudaMemcpy(host, device.get(), bytes, cudaMemcpyDeviceToHost));
    } else {
        CHECK(cudaMemcpyAsync(host, device.get(), bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    fprintf(stderr, "%s from the device: %.2f GB/s\n", kind, out.gigabytes_per_second(bytes));
    EXPECT(wrong.download()[0] == 0);
    EXPECT(wrong_on_host(host, n, salt + 1) == 0);
    printf("%s, %llu bytes there and back: right\n", kind, (unsigned long long)bytes);
}

// The host buffer may be used again as soon as an asynchronous copy from pageable memory has
// returned.
static void reuse_of_the_buffer(uint64_t n) {
    std::vector<uint32_t> host(n);
    DeviceArray<uint32_t> a(n), b(n);
    DeviceArray<unsigned long long> wrong(1);
    wrong.zero();
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (uint32_t salt : {5u, 6u, 7u, 8u}) {
        DeviceArray<uint32_t>& to = salt % 2 ? a : b;
        for (uint64_t i = 0; i < n; i++) host[i] = pattern(i, salt);
        CHECK(cudaMemcpyAsync(to.get(), host.data(), n * sizeof(uint32_t), cudaMemcpyHostToDevice, stream));
        count_wrong<<<16, 128, 0, stream>>>(to.get(), n, salt, wrong.get());
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(wrong.download()[0] == 0);
    CHECK(cudaStreamDestroy(stream));
    printf("the buffer used again after each copy: right\n");
}

int main(int argc, char** argv) {
    uint64_t n = (argc > 1 ? strtoull(argv[1], nullptr, 10) : 96) << 18;
    n += 3;  // no round number
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    {
        std::vector<uint32_t> pageable(n);
        round_trip("pageable", pageable.data(), n, 1, nullptr);
        round_trip("pageable async", pageable.data(), n, 11, stream);
    }
    uint32_t* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, n * sizeof(uint32_t)));
    round_trip("pinned", pinned, n, 21, nullptr);
    round_trip("pinned async", pinned, n, 31, stream);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
    reuse_of_the_buffer((1 << 19) + 1);
    return 0;
}
