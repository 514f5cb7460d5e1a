// Lanes of a warp that pass values to each other through memory with nothing between that orders
// them: undefined by the book, and right on every GPU whose warps run in step. Code from before
// CUDA 9 is written so.
#include "check.h"

__global__ void reverse(int* out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t;
    out[t] = s[t / 32 * 32 + 31 - t % 32];
}

__global__ void reverse_volatile(int* out) {
    __shared__ volatile int s[64];
    int t = threadIdx.x;
    s[t] = t + 100;
    out[t] = s[t / 32 * 32 + 31 - t % 32];
}

// The tail of a reduction as in the samples of CUDA before 2018, Rodinia and SHOC.
__global__ void tail(int* out) {
    __shared__ volatile int s[128];
    int t = threadIdx.x;
    s[t] = t + 1;
    __syncthreads();
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        s[t] += s[t + 16];
        s[t] += s[t + 8];
        s[t] += s[t + 4];
        s[t] += s[t + 2];
        s[t] += s[t + 1];
    }
    if (t == 0) *out = s[0];
}

// The same as a loop, and as conditions that ever fewer lanes meet.
__global__ void tail_loop(int* out) {
    extern __shared__ int dynamic[];
    int t = threadIdx.x;
    dynamic[t] = t + 1;
    __syncthreads();
    for (int by = blockDim.x / 2; by > 0; by /= 2) {
        if (t < by) dynamic[t] += dynamic[t + by];
        if (by > 32) __syncthreads();
    }
    if (t == 0) *out = dynamic[0];
}

__global__ void tail_guarded(int* out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t + 1;
    s[t + 32] = t + 33;
    if (t < 32) s[t] += s[t + 32];
    if (t < 16) s[t] += s[t + 16];
    if (t < 8) s[t] += s[t + 8];
    if (t < 4) s[t] += s[t + 4];
    if (t < 2) s[t] += s[t + 2];
    if (t < 1) s[t] += s[t + 1];
    out[t] = s[0];
}

// An inclusive sum of each warp, by doubling.
__global__ void scan(int* out) {
    __shared__ int s[256];
    int t = threadIdx.x, lane = t & 31;
    s[t] = t % 7;
    for (int by = 1; by < 32; by *= 2)
        if (lane >= by) s[t] += s[t - by];
    out[t] = s[t];
}

__device__ __noinline__ void put(int* to, int value) { *to = value; }
__device__ __noinline__ int take(const int* from) { return *from; }

__global__ void through_functions(int* out) {
    __shared__ int s[32];
    int t = threadIdx.x;
    put(s + t, t * 3);
    out[t] = take(s + (t + 5) % 32);
    put(s + (t + 7) % 32, t);
    out[t] += 100 * s[t];
}

// A warp that has two rows of a block.
__global__ void rows(int* out) {
    __shared__ int s[16][17];
    int x = threadIdx.x, y = threadIdx.y;
    s[y][x] = y * 16 + x;
    out[y * 16 + x] = s[y ^ 1][15 - x];
}

// Each lane goes round as often as it says, then all read what they left.
__global__ void after_loops(int* out) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = 0;
    for (int i = 0; i < t * 5 % 32; i++) s[t] += s[(t + i) & 31] >= 0;
    out[t] = s[31 - t];
}

// Marks are cleared, then set elsewhere; vectors are read over words that others wrote.
__global__ void marks(int* out) {
    __shared__ alignas(16) int s[64];
    int t = threadIdx.x;
    s[t] = 0;
    s[(t * 9 + 5) & 31] = t + 1;
    int4 four = reinterpret_cast<int4*>(s)[t & 7];
    out[t] = four.x + 10 * four.y + 100 * four.z + 1000 * four.w;
}

__global__ void counted(int* out) {
    __shared__ int s[2];
    int t = threadIdx.x;
    if (t < 2) s[t] = 0;
    atomicAdd(&s[t & 1], t);
    out[t] = s[0] * 1000 + s[1];
}

// Device memory, plain and volatile, read where a neighbour has written and written where one has
// read.
__global__ void device_memory(int* o, volatile int* v) {
    int t = threadIdx.x;
    o[t] = t * 2;
    int mirrored = o[31 - t];
    int shifted = o[t + 1];
    o[t] = mirrored + shifted;
    v[t] = o[t];
    int round = v[(t * t) & 31];
    v[t] = round;
}

// Which lane of those with the same key was the last to write, as histograms were made before
// shared memory had atomics.
__global__ void tagged(int* out) {
    __shared__ volatile unsigned s[8];
    int t = threadIdx.x;
    unsigned tag = static_cast<unsigned>(t) << 27, count;
    if (t < 8) s[t] = 0;
    do {
        count = (s[t % 8] & 0x07ffffffu) + 1;
        count |= tag;
        s[t % 8] = count;
    } while (s[t % 8] != count);
    out[t] = static_cast<int>(s[t % 8] & 0x07ffffffu);
}

// Warps go forward evenly: all have read the word before the first one has done its shuffles and
// writes it.
__global__ void race(int* out) {
    __shared__ int s[32];
    int w = threadIdx.x / 32, l = threadIdx.x % 32;
    if (l == 0) s[w] = w + 1;
    __syncthreads();
    int first = s[0], v = first;
    for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
    if (l == 0) s[w] = 100 + v;
    __syncthreads();
    out[threadIdx.x] = first;
}

template <typename... Arguments>
static std::vector<int> run(void (*kernel)(int*, Arguments...), dim3 block, size_t shared, Arguments... arguments) {
    int count = static_cast<int>(block.x * block.y);
    std::vector<int> host(count);
    int* device;
    CHECK(cudaMalloc(&device, (count + 32) * sizeof(int)));
    CHECK(cudaMemset(device, 0, (count + 32) * sizeof(int)));
    kernel<<<1, block, shared>>>(device, arguments...);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    return host;
}

static int failed = 0;

static void expect(const char* what, const std::vector<int>& got, int (*expected)(int), int count) {
    int wrong = 0;
    for (int t = 0; t < count; t++) wrong += got[t] != expected(t);
    printf("%s: %d of %d wrong\n", what, wrong, count);
    failed += wrong;
}

// What the kernels leave when each statement is done by all lanes before the next.
static int looped(int t) {
    int s[32] = {};
    for (int lane = 0; lane < 32; lane++) s[lane] = lane * 5 % 32;
    return s[31 - t];
}

static int marked(int t) {
    int s[64] = {};
    for (int lane = 0; lane < 32; lane++) s[(lane * 9 + 5) & 31] = lane + 1;
    const int* four = s + (t & 7) * 4;
    return four[0] + 10 * four[1] + 100 * four[2] + 1000 * four[3];
}

static int scanned(int t) {
    int sum = 0;
    for (int i = t / 32 * 32; i <= t; i++) sum += i % 7;
    return sum;
}

int main() {
    auto mirrored = [](int t) { return t / 32 * 32 + 31 - t % 32; };
    expect("reverse", run(reverse, 64, 0), mirrored, 64);
    expect("reverse, volatile", run(reverse_volatile, 64, 0), [](int t) { return t / 32 * 32 + 131 - t % 32; }, 64);
    expect("tail", run(tail, 128, 0), [](int) { return 128 * 129 / 2; }, 1);
    expect("tail as a loop", run(tail_loop, 256, 256 * sizeof(int)), [](int) { return 256 * 257 / 2; }, 1);
    expect("tail of conditions", run(tail_guarded, 32, 0), [](int) { return 64 * 65 / 2; }, 32);
    expect("scan", run(scan, 256, 0), scanned, 256);
    expect("through functions", run(through_functions, 32, 0),
           [](int t) { return (t + 5) % 32 * 3 + 100 * ((t + 25) % 32); }, 32);
    expect("rows", run(rows, dim3(16, 16), 0), [](int i) { return (i / 16 ^ 1) * 16 + 15 - i % 16; }, 256);
    expect("after loops", run(after_loops, 32, 0), looped, 32);
    expect("marks", run(marks, 32, 0), marked, 32);
    expect("counted", run(counted, 32, 0), [](int) { return 240 * 1000 + 256; }, 32);
    int* device;
    CHECK(cudaMalloc(&device, 128));
    expect("device memory", run(device_memory, dim3(32), 0, static_cast<volatile int*>(device)),
           [](int t) { return (31 - t) * 2 + (t < 31 ? (t + 1) * 2 : 0); }, 32);
    std::vector<int> squares(32);
    CHECK(cudaMemcpy(squares.data(), device, 128, cudaMemcpyDeviceToHost));
    expect("device memory, volatile", squares, [](int t) {
        int i = t * t & 31;
        return (31 - i) * 2 + (i < 31 ? (i + 1) * 2 : 0);
    }, 32);
    expect("tagged", run(tagged, 32, 0), [](int) { return 4; }, 32);
    expect("race", run(race, 128, 0), [](int) { return 1; }, 128);
    return failed != 0;
}
