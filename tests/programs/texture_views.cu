// Textures that show an array in another way: as another format, some of its layers, some of its
// levels; and integers that linear filtering mixes.
#include "check.h"
#include "driver.h"

#include <cstring>

template <typename T>
__global__ void read_rows(cudaTextureObject_t t, T* out, int width) {
    out[blockIdx.x * width + threadIdx.x] = tex2D<T>(t, threadIdx.x + 0.5f, blockIdx.x + 0.5f);
}

__global__ void read_layers(cudaTextureObject_t t, float* out, int width) {
    out[blockIdx.x * width + threadIdx.x] = tex2DLayered<float>(t, threadIdx.x + 0.5f, 0.5f, blockIdx.x);
}

__global__ void read_level(cudaTextureObject_t t, float* out, int width, float level) {
    out[blockIdx.x * width + threadIdx.x] =
        tex2DLod<float>(t, (threadIdx.x + 0.5f) / width, (blockIdx.x + 0.5f) / gridDim.x, level);
}

template <typename T>
__global__ void read_quarters(cudaTextureObject_t t, T* out) {
    out[threadIdx.x] = tex2D<T>(t, threadIdx.x * 0.25f, 0.5f);
}

static const int WIDTH = 8, HEIGHT = 4, LAYERS = 5;

static void fill(cudaArray_t array, int width, int height, int layers, float first) {
    std::vector<float> values(width * height * layers);
    for (size_t i = 0; i < values.size(); i++) values[i] = first + i;
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(values.data(), width * sizeof(float), width, height);
    p.dstArray = array, p.extent = make_cudaExtent(width, height, layers), p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
}

static cudaTextureDesc plain() {
    cudaTextureDesc desc = {};
    desc.addressMode[0] = desc.addressMode[1] = desc.addressMode[2] = cudaAddressModeClamp;
    desc.readMode = cudaReadModeElementType;
    return desc;
}

static void formats() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, WIDTH, HEIGHT));
    fill(array, WIDTH, HEIGHT, 1, 0.5f);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray, resource.res.array.array = array;
    cudaResourceViewDesc view = {};
    view.format = cudaResViewFormatFloat1, view.width = WIDTH, view.height = HEIGHT;
    const cudaTextureDesc desc = plain();
    cudaTextureObject_t same, bits, none;
    CHECK(cudaCreateTextureObject(&same, &resource, &desc, &view));
    cudaResourceViewDesc said;
    CHECK(cudaGetTextureObjectResourceViewDesc(&said, same));
    EXPECT(said.format == cudaResViewFormatFloat1 && said.width == WIDTH && said.height == HEIGHT);
    view.format = cudaResViewFormatUnsignedInt1;
    CHECK(cudaCreateTextureObject(&bits, &resource, &desc, &view));
    DeviceArray<float> floats(WIDTH * HEIGHT);
    DeviceArray<unsigned> words(WIDTH * HEIGHT);
    read_rows<<<HEIGHT, WIDTH>>>(same, floats.get(), WIDTH);
    read_rows<<<HEIGHT, WIDTH>>>(bits, words.get(), WIDTH);
    const auto values = floats.download();
    const auto patterns = words.download();
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        EXPECT(values[i] == 0.5f + i);
        EXPECT(std::memcmp(&values[i], &patterns[i], sizeof(float)) == 0);
    }
    // An element of another size.
    view.format = cudaResViewFormatFloat2;
    EXPECT_ERROR(cudaCreateTextureObject(&none, &resource, &desc, &view), cudaErrorInvalidValue);
    CHECK(cudaDestroyTextureObject(same));
    CHECK(cudaDestroyTextureObject(bits));
    CHECK(cudaFreeArray(array));
}

static void layers() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(WIDTH, HEIGHT, LAYERS), cudaArrayLayered));
    fill(array, WIDTH, HEIGHT, LAYERS, 0);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray, resource.res.array.array = array;
    cudaResourceViewDesc view = {};
    view.format = cudaResViewFormatFloat1, view.width = WIDTH, view.height = HEIGHT, view.depth = 2;
    view.firstLayer = 2, view.lastLayer = 3;
    const cudaTextureDesc desc = plain();
    cudaTextureObject_t texture;
    // The depth is that of the whole array.
    EXPECT_ERROR(cudaCreateTextureObject(&texture, &resource, &desc, &view), cudaErrorInvalidValue);
    view.depth = LAYERS;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, &view));
    DeviceArray<float> out(2 * WIDTH);
    read_layers<<<2, WIDTH>>>(texture, out.get(), WIDTH);
    const auto values = out.download();
    for (int i = 0; i < 2 * WIDTH; i++) EXPECT(values[i] == (2 + i / WIDTH) * WIDTH * HEIGHT + i % WIDTH);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

static void levels() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(WIDTH, HEIGHT, 0), 3));
    for (int level = 0; level < 3; level++) {
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
        fill(array, WIDTH >> level, HEIGHT >> level, 1, 1000.0f * level);
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray, resource.res.mipmap.mipmap = mipmap;
    cudaResourceViewDesc view = {};
    view.format = cudaResViewFormatFloat1, view.width = WIDTH, view.height = HEIGHT;
    view.firstMipmapLevel = 1, view.lastMipmapLevel = 2;
    cudaTextureDesc desc = plain();
    desc.normalizedCoords = 1, desc.maxMipmapLevelClamp = 10;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, &view));
    DeviceArray<float> out(8);
    read_level<<<2, 4>>>(texture, out.get(), 4, 0);
    auto values = out.download();
    for (int i = 0; i < 8; i++) EXPECT(values[i] == 1000 + i);
    read_level<<<1, 2>>>(texture, out.get(), 2, 1);
    values = out.download();
    for (int i = 0; i < 2; i++) EXPECT(values[i] == 2000 + i);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeMipmappedArray(mipmap));
}

// The runtime refuses to filter integers; the driver does not, and video filters rely on it.
template <typename T>
static void integers(CUarray_format format) {
    // As an H200 reads them.
    static const int WANTED[32] = {0,  0,  0,  28, 55, 83,  110, 88,  65, 43, 20, 48,  75,  103, 130, 108,
                                   85, 63, 40, 68, 95, 123, 150, 128, 105, 83, 60, 88, 115, 143, 170, 170};
    const size_t PITCH = 512;
    std::vector<unsigned char> rows(PITCH * HEIGHT);
    for (int x = 0; x < WIDTH; x++) {
        const T value = 100 * (x & 1) + 10 * x;
        std::memcpy(&rows[x * sizeof value], &value, sizeof value);
    }
    DeviceArray<unsigned char> memory(rows.size());
    memory.upload(rows);
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D.devPtr = reinterpret_cast<CUdeviceptr>(memory.get());
    resource.res.pitch2D.format = format, resource.res.pitch2D.numChannels = 1;
    resource.res.pitch2D.width = WIDTH, resource.res.pitch2D.height = HEIGHT, resource.res.pitch2D.pitchInBytes = PITCH;
    CUDA_TEXTURE_DESC desc = {};
    desc.addressMode[0] = desc.addressMode[1] = desc.addressMode[2] = CU_TR_ADDRESS_MODE_CLAMP;
    desc.filterMode = CU_TR_FILTER_MODE_LINEAR, desc.flags = CU_TRSF_READ_AS_INTEGER;
    CUtexObject texture;
    // Only arrays are seen through views: others change nothing, whatever they say.
    CUDA_RESOURCE_VIEW_DESC view = {}, told = {};
    view.format = CU_RES_VIEW_FORMAT_UINT_4X8, view.width = 1000, view.height = 1, view.firstLayer = view.lastLayer = 2;
    told.width = 77;
    CHECK_DRIVER(DRIVER(cuTexObjectCreate)(&texture, &resource, &desc, &view));
    CHECK_DRIVER(DRIVER(cuTexObjectGetResourceViewDesc)(&told, texture));
    EXPECT(told.width == 77);
    DeviceArray<T> out(32);
    read_quarters<<<1, 32>>>(texture, out.get());
    const auto values = out.download();
    for (int i = 0; i < 32; i++) EXPECT(values[i] == WANTED[i]);
    CHECK_DRIVER(DRIVER(cuTexObjectDestroy)(texture));
}

int main() {
    CHECK(cudaFree(nullptr));
    formats();
    layers();
    levels();
    integers<unsigned char>(CU_AD_FORMAT_UNSIGNED_INT8);
    integers<unsigned short>(CU_AD_FORMAT_UNSIGNED_INT16);
    printf("texture_views: done\n");
    return outcome();
}
