// Surfaces: loads and stores of every width and shape, and what happens at the edges.
#include "check.h"
#include "driver.h"

#include <cstring>

static cudaSurfaceObject_t surface_of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    return surface;
}

template <typename T>
__global__ void change(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width || y >= height) return;
    T value;
    surf2Dread(&value, from, x * static_cast<int>(sizeof(T)), y);
    unsigned char* bytes = reinterpret_cast<unsigned char*>(&value);
    for (size_t i = 0; i < sizeof(T); i++) bytes[i] = static_cast<unsigned char>(bytes[i] + x + y);
    surf2Dwrite(value, to, (width - 1 - x) * static_cast<int>(sizeof(T)), y);
}

template <typename T>
static void two_dimensions(const char* what) {
    const int width = 37, height = 11;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    cudaArray_t a, b;
    CHECK(cudaMallocArray(&a, &format, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMallocArray(&b, &format, width, height, cudaArraySurfaceLoadStore));
    const size_t row = width * sizeof(T);
    std::vector<unsigned char> in(row * height), out(in.size());
    Random random(2);
    for (auto& byte : in) byte = static_cast<unsigned char>(random.next());
    CHECK(cudaMemcpy2DToArray(a, 0, 0, in.data(), row, row, height, cudaMemcpyHostToDevice));
    cudaSurfaceObject_t from = surface_of(a), to = surface_of(b);
    change<T><<<dim3(1, height), 64>>>(from, to, width, height);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy2DFromArray(out.data(), row, b, 0, 0, row, height, cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (size_t i = 0; i < sizeof(T); i++)
                EXPECT(out[y * row + (width - 1 - x) * sizeof(T) + i] == static_cast<unsigned char>(in[y * row + x * sizeof(T) + i] + x + y));
    printf("%s: right\n", what);
    cudaResourceDesc said;
    CUDA_RESOURCE_DESC plain;
    CHECK(cudaGetSurfaceObjectResourceDesc(&said, from));
    EXPECT(said.resType == cudaResourceTypeArray && said.res.array.array == a);
    CHECK_DRIVER(DRIVER(cuSurfObjectGetResourceDesc)(&plain, from));
    EXPECT(plain.resType == CU_RESOURCE_TYPE_ARRAY);
    CHECK(cudaDestroySurfaceObject(from));
    CHECK(cudaDestroySurfaceObject(to));
    CHECK(cudaFreeArray(a));
    CHECK(cudaFreeArray(b));
}

__global__ void fill_shapes(cudaSurfaceObject_t one, cudaSurfaceObject_t three, cudaSurfaceObject_t layers, int n) {
    int i = threadIdx.x;
    surf1Dwrite(i * 3, one, i * 4);
    for (int z = 0; z < n; z++)
        for (int y = 0; y < n; y++) {
            surf3Dwrite((z * n + y) * n + i, three, i * 4, y, z);
            surf2DLayeredwrite((z * n + y) * n - i, layers, i * 4, y, z);
        }
}

__global__ void read_shapes(cudaSurfaceObject_t one, cudaSurfaceObject_t three, cudaSurfaceObject_t layers, int n, int* wrong) {
    int i = threadIdx.x, bad = 0;
    bad += surf1Dread<int>(one, i * 4) != i * 3;
    for (int z = 0; z < n; z++)
        for (int y = 0; y < n; y++) {
            bad += surf3Dread<int>(three, i * 4, y, z) != (z * n + y) * n + i;
            bad += surf2DLayeredread<int>(layers, i * 4, y, z) != (z * n + y) * n - i;
        }
    if (bad) atomicAdd(wrong, bad);
}

static void shapes() {
    const int n = 8;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    cudaArray_t one, three, layers;
    CHECK(cudaMalloc3DArray(&one, &format, make_cudaExtent(n, 0, 0), cudaArraySurfaceLoadStore));
    CHECK(cudaMalloc3DArray(&three, &format, make_cudaExtent(n, n, n), cudaArraySurfaceLoadStore));
    CHECK(cudaMalloc3DArray(&layers, &format, make_cudaExtent(n, n, n), cudaArraySurfaceLoadStore | cudaArrayLayered));
    cudaSurfaceObject_t s1 = surface_of(one), s3 = surface_of(three), sl = surface_of(layers);
    DeviceArray<int> wrong(1);
    wrong.zero();
    fill_shapes<<<1, n>>>(s1, s3, sl, n);
    read_shapes<<<1, n>>>(s1, s3, sl, n, wrong.get());
    EXPECT(wrong.download()[0] == 0);
    printf("one and three dimensions, layers: right\n");
    CHECK(cudaDestroySurfaceObject(s1));
    CHECK(cudaDestroySurfaceObject(s3));
    CHECK(cudaDestroySurfaceObject(sl));
    CHECK(cudaFreeArray(one));
    CHECK(cudaFreeArray(three));
    CHECK(cudaFreeArray(layers));
}

// Outside of a surface: zero or the nearest element; writes there are dropped.
__global__ void at_the_edges(cudaSurfaceObject_t s, int* out) {
    int i = threadIdx.x, x = (i % 12 - 4) * 4, y = i / 12 - 4;
    out[2 * i] = surf2Dread<int>(s, x, y, cudaBoundaryModeZero);
    out[2 * i + 1] = surf2Dread<int>(s, x, y, cudaBoundaryModeClamp);
    surf2Dwrite(-1, s, x < 0 ? x : x + 1000, y, cudaBoundaryModeZero);
}

static void edges() {
    const int n = 4;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, n, n, cudaArraySurfaceLoadStore));
    std::vector<int> in(n * n), out(n * n);
    for (int i = 0; i < n * n; i++) in[i] = i + 1;
    CHECK(cudaMemcpy2DToArray(array, 0, 0, in.data(), n * 4, n * 4, n, cudaMemcpyHostToDevice));
    cudaSurfaceObject_t s = surface_of(array);
    DeviceArray<int> found(2 * 144);
    at_the_edges<<<1, 144>>>(s, found.get());
    std::vector<int> values = found.download();
    for (int i = 0; i < 144; i++) {
        int x = i % 12 - 4, y = i / 12 - 4, cx = x < 0 ? 0 : x >= n ? n - 1 : x, cy = y < 0 ? 0 : y >= n ? n - 1 : y;
        bool inside = x == cx && y == cy;
        EXPECT(values[2 * i] == (inside ? in[y * n + x] : 0));
        EXPECT(values[2 * i + 1] == in[cy * n + cx]);
    }
    CHECK(cudaMemcpy2DFromArray(out.data(), n * 4, array, 0, 0, n * 4, n, cudaMemcpyDeviceToHost));
    EXPECT(out == in);
    printf("edges: right\n");
    CHECK(cudaDestroySurfaceObject(s));
    CHECK(cudaFreeArray(array));
}

static void mistakes() {
    CUDA_RESOURCE_DESC resource = {};
    CUsurfObject none;
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    EXPECT_DRIVER(DRIVER(cuSurfObjectCreate)(&none, &resource), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuSurfObjectCreate)(&none, nullptr), CUDA_ERROR_INVALID_VALUE);
}

int main() {
    two_dimensions<unsigned char>("unsigned char");
    two_dimensions<uchar2>("uchar2");
    two_dimensions<short>("short");
    two_dimensions<ushort4>("ushort4");
    two_dimensions<int>("int");
    two_dimensions<float2>("float2");
    two_dimensions<float4>("float4");
    shapes();
    edges();
    mistakes();
    printf("surfaces: done\n");
    return outcome();
}
