// Kernel parameters of every size and alignment, by value, up to more than 4 KiB of them.
#include "check.h"

struct Mixed {
    char c;
    double d;
    short s;
    int values[3];
    unsigned char tail;
};

struct alignas(16) Aligned {
    float4 v;
    char c;
};

struct Huge {
    int values[1500];  // 6,000 bytes
};

__global__ void mixed(char a, short b, int c, long long d, float e, double f, bool g, Mixed m, Aligned n, uchar3 t,
                      double* out) {
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = static_cast<double>(d);
    out[4] = e;
    out[5] = f;
    out[6] = g;
    out[7] = m.c + m.d + m.s + m.values[0] + m.values[1] + m.values[2] + m.tail;
    out[8] = n.v.x + n.v.y + n.v.z + n.v.w + n.c;
    out[9] = t.x * 10000 + t.y * 100 + t.z;
}

__global__ void huge(Huge h, int index, int* out) {
    int sum = 0;
    for (int i = threadIdx.x; i < 1500; i += blockDim.x) sum += h.values[i];
    atomicAdd(out, sum);
    if (threadIdx.x == 0) atomicAdd(out + 1, h.values[index]);
}

__global__ void none() {}

__global__ void shape(int* out) {
    if (threadIdx.x == blockDim.x - 1 && threadIdx.y == blockDim.y - 1 && threadIdx.z == blockDim.z - 1 &&
        blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1 && blockIdx.z == gridDim.z - 1) {
        int all[] = {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z),
                     static_cast<int>(blockDim.x), static_cast<int>(blockDim.y), static_cast<int>(blockDim.z), warpSize};
        for (int i = 0; i < 7; i++) out[i] = all[i];
    }
}

int main() {
    DeviceArray<double> out(10);
    Mixed m = {1, 2.5, 3, {4, 5, 6}, 200};
    Aligned n = {make_float4(1, 2, 3, 4), 5};
    mixed<<<1, 1>>>(-7, -300, 1 << 30, 1ll << 50, 1.25f, -3.5, true, m, n, make_uchar3(1, 2, 3), out.get());
    CHECK(cudaGetLastError());
    std::vector<double> r = out.download();
    EXPECT(r[0] == -7 && r[1] == -300 && r[2] == 1 << 30 && r[3] == static_cast<double>(1ll << 50) && r[4] == 1.25);
    EXPECT(r[5] == -3.5 && r[6] == 1 && r[7] == 221.5 && r[8] == 15 && r[9] == 10203);

    Huge h;
    int sum = 0;
    for (int i = 0; i < 1500; i++) sum += h.values[i] = i * i % 1000;
    DeviceArray<int> sums(2);
    sums.zero();
    huge<<<1, 64>>>(h, 1499, sums.get());
    CHECK(cudaGetLastError());
    std::vector<int> s = sums.download();
    EXPECT(s[0] == sum && s[1] == h.values[1499]);

    none<<<3, 5>>>();
    CHECK(cudaGetLastError());
    DeviceArray<int> dims(7);
    shape<<<dim3(3, 2, 4), dim3(5, 3, 2)>>>(dims.get());
    CHECK(cudaGetLastError());
    EXPECT((dims.download() == std::vector<int>{3, 2, 4, 5, 3, 2, 32}));
    printf("parameters: right, sum %d\n", sum);
    return 0;
}
