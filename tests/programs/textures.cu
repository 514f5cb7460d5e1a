// Textures: every kind of resource, addressing, filtering, reading, and what objects say of
// themselves. Values are such that linear filtering, which is done with weights of 8 bits of
// fraction, is exact.
#include "check.h"
#include "driver.h"

#include <cstring>

template <typename T>
static cudaArray_t array_of(const std::vector<T>& values, size_t width, size_t height, size_t depth, unsigned flags) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth), flags));
    size_t h = height ? height : 1, d = depth ? depth : 1;
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(const_cast<T*>(values.data()), width * sizeof(T), width, h);
    p.dstArray = array;
    p.extent = make_cudaExtent(width, h, d);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    return array;
}

static cudaTextureObject_t texture_of(cudaArray_t array, cudaTextureAddressMode address, cudaTextureFilterMode filter,
                                      cudaTextureReadMode read, bool normalized) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc desc = {};
    // GPUs mix rows of one dimension with the border, if that is what lies beside them: the other
    // dimensions clamp.
    cudaExtent extent;
    CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, array));
    desc.addressMode[0] = address;
    desc.addressMode[1] = extent.height ? address : cudaAddressModeClamp;
    desc.addressMode[2] = extent.depth ? address : cudaAddressModeClamp;
    desc.filterMode = filter, desc.readMode = read, desc.normalizedCoords = normalized;
    for (int i = 0; i < 4; i++) desc.borderColor[i] = 16.0f * (i + 1);
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    return texture;
}

__global__ void read_1d(cudaTextureObject_t t, const float* at, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1D<float>(t, at[i]);
}

__global__ void read_2d(cudaTextureObject_t t, const float* at, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2D<float4>(t, at[2 * i], at[2 * i + 1]);
}

__global__ void read_3d(cudaTextureObject_t t, const float* at, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex3D<float>(t, at[3 * i], at[3 * i + 1], at[3 * i + 2]);
}

__global__ void read_layers(cudaTextureObject_t one, cudaTextureObject_t two, const float* at, float2* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = make_float2(tex1DLayered<float>(one, at[2 * i], i % 5), tex2DLayered<float>(two, at[2 * i], at[2 * i + 1], i % 5));
}

template <typename T>
__global__ void read_plain(cudaTextureObject_t t, T* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<T>(t, x + 0.5f, y + 0.5f);
}

template <typename T>
__global__ void fetch_linear(cudaTextureObject_t t, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1Dfetch<T>(t, i);
}

__global__ void gather(cudaTextureObject_t t, float4* out) {
    int i = threadIdx.x;
    float x = 1 + i % 5, y = 1 + i / 5;
    out[4 * i] = tex2Dgather<float4>(t, x, y, 0);
    out[4 * i + 1] = tex2Dgather<float4>(t, x, y, 1);
    out[4 * i + 2] = tex2Dgather<float4>(t, x, y, 2);
    out[4 * i + 3] = tex2Dgather<float4>(t, x, y, 3);
}

__global__ void read_levels(cudaTextureObject_t t, const float* at, const float* level, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2DLod<float>(t, at[2 * i], at[2 * i + 1], level[i]);
}

__global__ void read_cube(cudaTextureObject_t t, float* out) {
    int i = threadIdx.x, face = i / 16, x = i % 4, y = i / 4 % 4;
    float u = (2 * x + 1) / 4.0f - 1, v = (2 * y + 1) / 4.0f - 1;
    float3 d;
    switch (face) {
        case 0: d = make_float3(1, -v, -u); break;
        case 1: d = make_float3(-1, -v, u); break;
        case 2: d = make_float3(u, 1, v); break;
        case 3: d = make_float3(u, -1, -v); break;
        case 4: d = make_float3(u, -v, 1); break;
        default: d = make_float3(-u, -v, -1); break;
    }
    out[i] = texCubemap<float>(t, d.x, d.y, d.z);
}

// Texel index along one dimension, or -1 for the border.
static int address(int i, int n, cudaTextureAddressMode mode) {
    switch (mode) {
        case cudaAddressModeWrap: return ((i % n) + n) % n;
        case cudaAddressModeClamp: return i < 0 ? 0 : i >= n ? n - 1 : i;
        case cudaAddressModeMirror: {
            int m = ((i % (2 * n)) + 2 * n) % (2 * n);
            return m < n ? m : 2 * n - 1 - m;
        }
        default: return i < 0 || i >= n ? -1 : i;
    }
}

static const char* names[] = {"wrap", "clamp", "mirror", "border"};

// Modes that need normalised coordinates become clamping without them.
static cudaTextureAddressMode effective(cudaTextureAddressMode mode, bool normalized) {
    return !normalized && (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror) ? cudaAddressModeClamp : mode;
}

static void one_dimension() {
    const int width = 16, count = 257;
    std::vector<float> texels(width);
    for (int i = 0; i < width; i++) texels[i] = static_cast<float>((i * 7) % 16 * 4);
    cudaArray_t array = array_of(texels, width, 0, 0, 0);
    std::vector<float> at(count);
    for (int normalized = 0; normalized < 2; normalized++)
        for (int linear = 0; linear < 2; linear++)
            for (int m = 0; m < 4; m++) {
                auto mode = effective(static_cast<cudaTextureAddressMode>(m), normalized);
                // Sixteenths of a texel: weights are exact.
                for (int i = 0; i < count; i++) at[i] = (i - 96) * 0.25f + (linear ? 0.0625f : 0.03125f);
                std::vector<float> wanted(count);
                for (int i = 0; i < count; i++) {
                    auto texel = [&](int k) {
                        int j = address(k, width, mode);
                        return j < 0 ? 16.0f : texels[j];
                    };
                    if (linear) {
                        float x = at[i] - 0.5f, low = floorf(x), weight = x - low;
                        wanted[i] = (1 - weight) * texel(static_cast<int>(low)) + weight * texel(static_cast<int>(low) + 1);
                    } else {
                        wanted[i] = texel(static_cast<int>(floorf(at[i])));
                    }
                    if (normalized) at[i] /= width;
                }
                cudaTextureObject_t t = texture_of(array, static_cast<cudaTextureAddressMode>(m),
                                                   linear ? cudaFilterModeLinear : cudaFilterModePoint, cudaReadModeElementType, normalized);
                DeviceArray<float> in(at), out(count);
                read_1d<<<blocks_for(count, 64), 64>>>(t, in.get(), out.get(), count);
                std::vector<float> found = out.download();
                for (int i = 0; i < count; i++)
                    if (found[i] != wanted[i]) {
                        printf("1D %s at %g: %g instead of %g\n", names[m], at[i], found[i], wanted[i]);
                        exit(1);
                    }
                printf("1D, %s, %s, %s: %016llx\n", normalized ? "normalised" : "texels", linear ? "linear" : "point", names[m],
                       static_cast<unsigned long long>(checksum(found)));
                CHECK(cudaDestroyTextureObject(t));
            }
    CHECK(cudaFreeArray(array));
}

static void two_dimensions() {
    const int width = 8, height = 16, count = 1000;
    std::vector<float4> texels(width * height);
    for (int i = 0; i < width * height; i++)
        texels[i] = make_float4((i * 5) % 64, (i * 3) % 32 - 16, i, (i * 11) % 128);
    cudaArray_t array = array_of(texels, width, height, 0, 0);
    Random random(3);
    for (int linear = 0; linear < 2; linear++)
        for (int m = 0; m < 4; m++) {
            auto mode = static_cast<cudaTextureAddressMode>(m);
            std::vector<float> at(2 * count);
            for (auto& x : at) x = (static_cast<int>(random.below(1024)) - 400) / 16.0f + 1 / 32.0f;
            if (linear)
                for (auto& x : at) x -= 1 / 32.0f;
            std::vector<float4> wanted(count);
            for (int i = 0; i < count; i++) {
                auto texel = [&](int x, int y) {
                    int j = address(x, width, mode), k = address(y, height, mode);
                    return j < 0 || k < 0 ? make_float4(16, 32, 48, 64) : texels[k * width + j];
                };
                float x = at[2 * i] - (linear ? 0.5f : 0), y = at[2 * i + 1] - (linear ? 0.5f : 0);
                float low = floorf(x), under = floorf(y), a = linear ? x - low : 0, b = linear ? y - under : 0;
                int j = static_cast<int>(low), k = static_cast<int>(under);
                float4 p = texel(j, k), q = texel(j + 1, k), r = texel(j, k + 1), s = texel(j + 1, k + 1);
                auto mix = [&](float p, float q, float r, float s) {
                    return (1 - a) * (1 - b) * p + a * (1 - b) * q + (1 - a) * b * r + a * b * s;
                };
                wanted[i] = linear ? make_float4(mix(p.x, q.x, r.x, s.x), mix(p.y, q.y, r.y, s.y), mix(p.z, q.z, r.z, s.z),
                                                 mix(p.w, q.w, r.w, s.w))
                                   : p;
                at[2 * i] /= width, at[2 * i + 1] /= height;
            }
            cudaTextureObject_t t =
                texture_of(array, mode, linear ? cudaFilterModeLinear : cudaFilterModePoint, cudaReadModeElementType, true);
            DeviceArray<float> in(at);
            DeviceArray<float4> out(count);
            read_2d<<<blocks_for(count, 64), 64>>>(t, in.get(), out.get(), count);
            std::vector<float4> found = out.download();
            for (int i = 0; i < count; i++)
                if (memcmp(&found[i], &wanted[i], 16) != 0) {
                    printf("2D %d %s at %g %g: %g %g %g %g instead of %g %g %g %g\n", linear, names[m], at[2 * i] * width, at[2 * i + 1] * height, found[i].x, found[i].y,
                           found[i].z, found[i].w, wanted[i].x, wanted[i].y, wanted[i].z, wanted[i].w);
                    exit(1);
                }
            printf("2D, %s, %s: %016llx\n", linear ? "linear" : "point", names[m], static_cast<unsigned long long>(checksum(found)));
            CHECK(cudaDestroyTextureObject(t));
        }
    CHECK(cudaFreeArray(array));
}

static void three_dimensions() {
    const int n = 8, count = 500;
    std::vector<float> texels(n * n * n);
    for (int i = 0; i < n * n * n; i++) texels[i] = static_cast<float>((i * 37) % 256);
    cudaArray_t array = array_of(texels, n, n, n, 0);
    Random random(4);
    std::vector<float> at(3 * count), wanted(count);
    // Quarters of a texel: the products of three weights still have no more than 8 bits of
    // fraction.
    for (auto& x : at) x = random.below(4 * 12) / 4.0f - 1;
    for (int i = 0; i < count; i++) {
        float f[3];
        int base[3];
        for (int d = 0; d < 3; d++) {
            float x = at[3 * i + d] - 0.5f;
            base[d] = static_cast<int>(floorf(x)), f[d] = x - floorf(x);
        }
        float sum = 0;
        for (int corner = 0; corner < 8; corner++) {
            float weight = 1;
            int index[3];
            for (int d = 0; d < 3; d++) {
                int up = corner >> d & 1;
                weight *= up ? f[d] : 1 - f[d];
                index[d] = address(base[d] + up, n, cudaAddressModeClamp);
            }
            sum += weight * texels[(index[2] * n + index[1]) * n + index[0]];
        }
        wanted[i] = sum;
    }
    cudaTextureObject_t t = texture_of(array, cudaAddressModeClamp, cudaFilterModeLinear, cudaReadModeElementType, false);
    DeviceArray<float> in(at), out(count);
    read_3d<<<blocks_for(count, 64), 64>>>(t, in.get(), out.get(), count);
    std::vector<float> found = out.download();
    for (int i = 0; i < count; i++)
        if (found[i] != wanted[i]) {
            printf("3D at %g %g %g: %g instead of %g\n", at[3 * i], at[3 * i + 1], at[3 * i + 2], found[i], wanted[i]);
            exit(1);
        }
    printf("3D, linear: %016llx\n", static_cast<unsigned long long>(checksum(found)));
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeArray(array));
}

static void layers() {
    const int width = 9, height = 7, layers = 5, count = 200;
    std::vector<float> one(width * layers), two(width * height * layers);
    for (size_t i = 0; i < one.size(); i++) one[i] = static_cast<float>(i);
    for (size_t i = 0; i < two.size(); i++) two[i] = static_cast<float>(i * 3 % 512);
    cudaArray_t a = array_of(one, width, 0, layers, cudaArrayLayered), b = array_of(two, width, height, layers, cudaArrayLayered);
    cudaTextureObject_t s = texture_of(a, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, false);
    cudaTextureObject_t t = texture_of(b, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, false);
    Random random(8);
    std::vector<float> at(2 * count);
    for (auto& x : at) x = random.below(12) + 0.5f - 2;
    DeviceArray<float> in(at);
    DeviceArray<float2> out(count);
    read_layers<<<blocks_for(count, 64), 64>>>(s, t, in.get(), out.get(), count);
    std::vector<float2> found = out.download();
    for (int i = 0; i < count; i++) {
        int x = address(static_cast<int>(floorf(at[2 * i])), width, cudaAddressModeClamp);
        int y = address(static_cast<int>(floorf(at[2 * i + 1])), height, cudaAddressModeClamp);
        EXPECT(found[i].x == one[i % 5 * width + x] && found[i].y == two[(i % 5 * height + y) * width + x]);
    }
    printf("layers: %016llx\n", static_cast<unsigned long long>(checksum(found)));
    CHECK(cudaDestroyTextureObject(s));
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeArray(a));
    CHECK(cudaFreeArray(b));
}

// Integers as they are, and as fractions.
template <typename T, typename F>
static void elements(const char* what, bool fractions) {
    const int width = 50, height = 20;
    std::vector<T> texels(width * height);
    Random random(6);
    for (auto& texel : texels)
        for (size_t i = 0; i < sizeof(T); i++) reinterpret_cast<unsigned char*>(&texel)[i] = static_cast<unsigned char>(random.next());
    cudaArray_t array = array_of(texels, width, height, 0, 0);
    cudaTextureObject_t t = texture_of(array, cudaAddressModeClamp, cudaFilterModePoint,
                                       fractions ? cudaReadModeNormalizedFloat : cudaReadModeElementType, false);
    if (fractions) {
        DeviceArray<F> out(width * height);
        read_plain<F><<<dim3(1, height), 64>>>(t, out.get(), width, height);
        printf("%s as fractions: %016llx\n", what, static_cast<unsigned long long>(checksum(out.download())));
    } else {
        DeviceArray<T> out(width * height);
        read_plain<T><<<dim3(1, height), 64>>>(t, out.get(), width, height);
        std::vector<T> found = out.download();
        EXPECT(memcmp(found.data(), texels.data(), texels.size() * sizeof(T)) == 0);
        printf("%s: right\n", what);
    }
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeArray(array));
}

// Filter and address modes do not matter to linear memory, and its size may be given larger than
// the allocation.
static void beyond() {
    const int width = 1024, height = 256, padding = 16, count = width * height;
    std::vector<float2> values(count);
    for (int i = 0; i < count; i++) values[i] = make_float2(i, -i);
    DeviceArray<float2> data(values), out(count);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = data.get();
    resource.res.linear.desc = cudaCreateChannelDesc<float2>();
    resource.res.linear.sizeInBytes = sizeof(float2) * height * (width + padding);
    cudaTextureDesc desc = {};
    desc.filterMode = cudaFilterModeLinear, desc.addressMode[0] = cudaAddressModeWrap;
    cudaTextureObject_t t;
    CHECK(cudaCreateTextureObject(&t, &resource, &desc, nullptr));
    fetch_linear<float2><<<blocks_for(count, 256), 256>>>(t, out.get(), count);
    EXPECT(memcmp(out.download().data(), values.data(), data.bytes()) == 0);
    printf("linear memory, said to be larger: right\n");
    CHECK(cudaDestroyTextureObject(t));
}

static void memory() {
    const int count = 1000, width = 60, height = 15;
    std::vector<int2> values(count);
    for (int i = 0; i < count; i++) values[i] = make_int2(i * 3, -i);
    DeviceArray<int2> data(values), out(count);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = data.get();
    resource.res.linear.desc = cudaCreateChannelDesc<int2>();
    resource.res.linear.sizeInBytes = data.bytes();
    cudaTextureDesc desc = {};
    cudaTextureObject_t t;
    CHECK(cudaCreateTextureObject(&t, &resource, &desc, nullptr));
    fetch_linear<int2><<<blocks_for(count, 64), 64>>>(t, out.get(), count);
    EXPECT(memcmp(out.download().data(), values.data(), data.bytes()) == 0);
    printf("linear memory: right\n");
    cudaResourceDesc said;
    CHECK(cudaGetTextureObjectResourceDesc(&said, t));
    EXPECT(said.resType == cudaResourceTypeLinear && said.res.linear.devPtr == data.get() && said.res.linear.sizeInBytes == data.bytes());
    CHECK(cudaDestroyTextureObject(t));

    void* pitched;
    size_t pitch;
    CHECK(cudaMallocPitch(&pitched, &pitch, width * 4, height));
    std::vector<float> rows(width * height);
    for (int i = 0; i < width * height; i++) rows[i] = static_cast<float>(i);
    CHECK(cudaMemcpy2D(pitched, pitch, rows.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = pitched, resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    resource.res.pitch2D.width = width, resource.res.pitch2D.height = height, resource.res.pitch2D.pitchInBytes = pitch;
    desc = {};
    desc.addressMode[0] = desc.addressMode[1] = cudaAddressModeClamp;
    CHECK(cudaCreateTextureObject(&t, &resource, &desc, nullptr));
    DeviceArray<float> found(width * height);
    read_plain<float><<<dim3(1, height), 64>>>(t, found.get(), width, height);
    EXPECT(memcmp(found.download().data(), rows.data(), rows.size() * 4) == 0);
    printf("memory in rows: right\n");
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFree(pitched));
}

static void gathering() {
    const int width = 6, height = 6;
    std::vector<float4> texels(width * height);
    for (int i = 0; i < width * height; i++) texels[i] = make_float4(i, i + 100, i + 200, i + 300);
    cudaArray_t array = array_of(texels, width, height, 0, cudaArrayTextureGather);
    cudaTextureObject_t t = texture_of(array, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, false);
    DeviceArray<float4> out(4 * 25);
    gather<<<1, 25>>>(t, out.get());
    std::vector<float4> found = out.download();
    for (int i = 0; i < 25; i++)
        for (int c = 0; c < 4; c++) {
            int x = i % 5, y = i / 5;
            auto texel = [&](int x, int y) { return static_cast<float>(y * width + x + 100 * c); };
            float4 f = found[4 * i + c];
            EXPECT(f.x == texel(x, y + 1) && f.y == texel(x + 1, y + 1) && f.z == texel(x + 1, y) && f.w == texel(x, y));
        }
    printf("gathered: right\n");
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeArray(array));
}

static void mipmapped() {
    const int size = 16, levels = 4, count = 300;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(size, size, 0), levels));
    std::vector<std::vector<float>> texels;
    for (int level = 0; level < levels; level++) {
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
        int n = size >> level;
        std::vector<float> values(n * n);
        for (int i = 0; i < n * n; i++) values[i] = static_cast<float>(level * 256 + i % 256);
        CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), n * 4, n * 4, n, cudaMemcpyHostToDevice));
        texels.push_back(values);
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmap;
    cudaTextureDesc desc = {};
    desc.addressMode[0] = desc.addressMode[1] = cudaAddressModeClamp;
    desc.normalizedCoords = 1, desc.maxMipmapLevelClamp = levels - 1;
    cudaTextureObject_t t;
    CHECK(cudaCreateTextureObject(&t, &resource, &desc, nullptr));
    Random random(12);
    std::vector<float> at(2 * count), level(count);
    for (auto& x : at) x = random.unit();
    for (auto& x : level) x = random.below(levels);
    DeviceArray<float> in(at), in_level(level), out(count);
    read_levels<<<blocks_for(count, 64), 64>>>(t, in.get(), in_level.get(), out.get(), count);
    std::vector<float> found = out.download();
    for (int i = 0; i < count; i++) {
        int l = static_cast<int>(level[i]), n = size >> l;
        EXPECT(found[i] == texels[l][static_cast<int>(at[2 * i + 1] * n) * n + static_cast<int>(at[2 * i] * n)]);
    }
    printf("levels: right\n");
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeMipmappedArray(mipmap));
}

static void cubemap() {
    std::vector<float> texels(96);
    for (int i = 0; i < 96; i++) texels[i] = static_cast<float>(i);
    cudaArray_t array = array_of(texels, 4, 4, 6, cudaArrayCubemap);
    cudaTextureObject_t t = texture_of(array, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, true);
    DeviceArray<float> out(96);
    read_cube<<<1, 96>>>(t, out.get());
    std::vector<float> found = out.download();
    for (int i = 0; i < 96; i++) EXPECT(found[i] == texels[i]);
    printf("a cubemap: right\n");
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeArray(array));
}

static void objects() {
    std::vector<float> texels(64);
    cudaArray_t array = array_of(texels, 8, 8, 0, 0);
    cudaTextureObject_t t = texture_of(array, cudaAddressModeMirror, cudaFilterModeLinear, cudaReadModeElementType, true);
    cudaTextureDesc said;
    CHECK(cudaGetTextureObjectTextureDesc(&said, t));
    EXPECT(said.addressMode[0] == cudaAddressModeMirror && said.filterMode == cudaFilterModeLinear && said.normalizedCoords == 1);
    cudaResourceDesc resource;
    CHECK(cudaGetTextureObjectResourceDesc(&resource, t));
    EXPECT(resource.resType == cudaResourceTypeArray && resource.res.array.array == array);
    CHECK(cudaDestroyTextureObject(t));
    CUDA_RESOURCE_DESC wrong = {};
    CUDA_TEXTURE_DESC desc = {};
    CUtexObject none;
    wrong.resType = static_cast<CUresourcetype>(9);
    EXPECT_DRIVER(DRIVER(cuTexObjectCreate)(&none, &wrong, &desc, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_DRIVER(DRIVER(cuTexObjectCreate)(&none, nullptr, &desc, nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK(cudaFreeArray(array));
}

int main() {
    one_dimension();
    two_dimensions();
    three_dimensions();
    layers();
    elements<uchar4, float4>("uchar4", false);
    elements<short2, float2>("short2", false);
    elements<unsigned, float>("unsigned", false);
    elements<int4, float4>("int4", false);
    elements<uchar4, float4>("uchar4", true);
    elements<char2, float2>("char2", true);
    elements<ushort1, float1>("ushort1", true);
    elements<short4, float4>("short4", true);
    memory();
    beyond();
    gathering();
    mipmapped();
    cubemap();
    objects();
    printf("textures: done\n");
    return outcome();
}
