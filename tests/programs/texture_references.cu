// Texture and surface references by the driver API: what is set can be asked for, and kernels of
// PTX read and write through references of their module. Devices without references in modules say
// so; all have those that programs make.
#include "check.h"
#include "driver.h"

#include <cstring>

static const char PTX[] = R"(
.version 7.0
.target sm_60
.address_size 64

.global .texref image;
.global .texref line;
.global .surfref marks;

.visible .entry read_image(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<10>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    cvt.rn.f32.u32 %f1, %r1;
    cvt.rn.f32.u32 %f2, %r2;
    add.f32 %f1, %f1, 0f3F000000;
    add.f32 %f2, %f2, 0f3F000000;
    tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [image, {%f1, %f2}];
    mad.lo.u32 %r1, %r2, %r3, %r1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], %f3;
    ret;
}

.visible .entry read_line(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [line, {%r1}];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], %f1;
    ret;
}

.visible .entry mark()
{
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 1000, %r1;
    shl.b32 %r1, %r1, 2;
    sust.b.2d.b32.trap [marks, {%r1, %r2}], {%r3};
    ret;
}
)";

// References that no kernel uses.
static const char DECLARED[] = R"(
.version 7.0
.target sm_60
.address_size 64

.global .texref image;
.global .surfref marks;

.visible .entry nothing()
{
    ret;
}
)";

static const unsigned WIDTH = 32, HEIGHT = 8;

static CUarray array_of(CUarray_format format, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR d = {};
    d.Width = WIDTH, d.Height = HEIGHT, d.Format = format, d.NumChannels = 1, d.Flags = flags;
    CUarray array;
    CHECK_DRIVER(DRIVER(cuArray3DCreate)(&array, &d));
    return array;
}

static void copy(CUarray array, void* host, bool to_device) {
    CUDA_MEMCPY2D p = {};
    p.WidthInBytes = WIDTH * 4, p.Height = HEIGHT;
    if (to_device) {
        p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = host, p.srcPitch = WIDTH * 4;
        p.dstMemoryType = CU_MEMORYTYPE_ARRAY, p.dstArray = array;
    } else {
        p.srcMemoryType = CU_MEMORYTYPE_ARRAY, p.srcArray = array;
        p.dstMemoryType = CU_MEMORYTYPE_HOST, p.dstHost = host, p.dstPitch = WIDTH * 4;
    }
    CHECK_DRIVER(DRIVER(cuMemcpy2D)(&p));
}

// What is set is what is told.
static void settings() {
    CUtexref texture;
    CHECK_DRIVER(DRIVER(cuTexRefCreate)(&texture));
    CHECK_DRIVER(DRIVER(cuTexRefSetFormat)(texture, CU_AD_FORMAT_FLOAT, 2));
    CUarray_format format;
    int channels;
    CHECK_DRIVER(DRIVER(cuTexRefGetFormat)(&format, &channels, texture));
    EXPECT(format == CU_AD_FORMAT_FLOAT && channels == 2);
    const CUaddress_mode modes[] = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER};
    for (int i = 0; i < 3; i++) CHECK_DRIVER(DRIVER(cuTexRefSetAddressMode)(texture, i, modes[i]));
    for (int i = 0; i < 3; i++) {
        CUaddress_mode mode;
        CHECK_DRIVER(DRIVER(cuTexRefGetAddressMode)(&mode, texture, i));
        EXPECT(mode == modes[i]);
    }
    CUfilter_mode filter;
    CHECK_DRIVER(DRIVER(cuTexRefSetFilterMode)(texture, CU_TR_FILTER_MODE_LINEAR));
    CHECK_DRIVER(DRIVER(cuTexRefGetFilterMode)(&filter, texture));
    EXPECT(filter == CU_TR_FILTER_MODE_LINEAR);
    CHECK_DRIVER(DRIVER(cuTexRefSetMipmapFilterMode)(texture, CU_TR_FILTER_MODE_LINEAR));
    CHECK_DRIVER(DRIVER(cuTexRefGetMipmapFilterMode)(&filter, texture));
    EXPECT(filter == CU_TR_FILTER_MODE_LINEAR);
    float bias, least, most;
    CHECK_DRIVER(DRIVER(cuTexRefSetMipmapLevelBias)(texture, 0.5f));
    CHECK_DRIVER(DRIVER(cuTexRefGetMipmapLevelBias)(&bias, texture));
    CHECK_DRIVER(DRIVER(cuTexRefSetMipmapLevelClamp)(texture, 1.0f, 3.0f));
    CHECK_DRIVER(DRIVER(cuTexRefGetMipmapLevelClamp)(&least, &most, texture));
    EXPECT(bias == 0.5f && least == 1.0f && most == 3.0f);
    int anisotropy;
    CHECK_DRIVER(DRIVER(cuTexRefSetMaxAnisotropy)(texture, 8));
    CHECK_DRIVER(DRIVER(cuTexRefGetMaxAnisotropy)(&anisotropy, texture));
    EXPECT(anisotropy == 8);
    float colour[] = {1, 2, 3, 4}, told[4];
    CHECK_DRIVER(DRIVER(cuTexRefSetBorderColor)(texture, colour));
    CHECK_DRIVER(DRIVER(cuTexRefGetBorderColor)(told, texture));
    EXPECT(memcmp(colour, told, sizeof colour) == 0);
    unsigned flags;
    CHECK_DRIVER(DRIVER(cuTexRefSetFlags)(texture, CU_TRSF_NORMALIZED_COORDINATES));
    CHECK_DRIVER(DRIVER(cuTexRefGetFlags)(&flags, texture));
    EXPECT(flags == CU_TRSF_NORMALIZED_COORDINATES);
    EXPECT_DRIVER(DRIVER(cuTexRefGetArray)(nullptr, texture), CUDA_ERROR_INVALID_VALUE);

    CUDA_ARRAY3D_DESCRIPTOR d = {};
    d.Width = WIDTH, d.Height = WIDTH, d.Format = CU_AD_FORMAT_FLOAT, d.NumChannels = 1;
    CUmipmappedArray mipmap, bound;
    CHECK_DRIVER(DRIVER(cuMipmappedArrayCreate)(&mipmap, &d, 3));
    CHECK_DRIVER(DRIVER(cuTexRefSetMipmappedArray)(texture, mipmap, CU_TRSA_OVERRIDE_FORMAT));
    CHECK_DRIVER(DRIVER(cuTexRefGetMipmappedArray)(&bound, texture));
    EXPECT(bound == mipmap);
    CHECK_DRIVER(DRIVER(cuTexRefDestroy)(texture));
    CHECK_DRIVER(DRIVER(cuMipmappedArrayDestroy)(mipmap));
    printf("settings: right\n");
}

static void launch(CUmodule module, const char* name, unsigned blocks, CUdeviceptr out) {
    CUfunction kernel;
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&kernel, module, name));
    void* arguments[] = {&out};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(kernel, blocks, 1, 1, WIDTH, 1, 1, 0, nullptr, arguments, nullptr));
}

static void kernels(CUmodule module, CUtexref image) {
    const unsigned count = WIDTH * HEIGHT;
    CUtexref again, line;
    CUsurfref marks;
    CHECK_DRIVER(DRIVER(cuModuleGetTexRef)(&again, module, "image"));
    EXPECT(again == image);
    CHECK_DRIVER(DRIVER(cuModuleGetTexRef)(&line, module, "line"));
    CHECK_DRIVER(DRIVER(cuModuleGetSurfRef)(&marks, module, "marks"));

    // An array, then rows of memory: a launch takes what is bound when it is made.
    std::vector<float> values(count);
    for (unsigned i = 0; i < count; i++) values[i] = static_cast<float>(i * 3);
    CUarray array = array_of(CU_AD_FORMAT_FLOAT, 0), told;
    copy(array, values.data(), true);
    CHECK_DRIVER(DRIVER(cuTexRefSetArray)(image, array, CU_TRSA_OVERRIDE_FORMAT));
    CHECK_DRIVER(DRIVER(cuTexRefGetArray)(&told, image));
    EXPECT(told == array);
    DeviceArray<float> out(count);
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(out.get());
    CUfunction kernel;
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&kernel, module, "read_image"));
    CHECK_DRIVER(DRIVER(cuParamSetTexRef)(kernel, CU_PARAM_TR_DEFAULT, image));
    launch(module, "read_image", HEIGHT, address);
    EXPECT(out.download() == values);
    printf("an array: right\n");

    for (auto& value : values) value += 1;
    CUdeviceptr rows;
    size_t pitch;
    CHECK_DRIVER(DRIVER(cuMemAllocPitch)(&rows, &pitch, WIDTH * 4, HEIGHT, 4));
    CHECK(cudaMemcpy2D(reinterpret_cast<void*>(rows), pitch, values.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
    CUDA_ARRAY_DESCRIPTOR d = {};
    d.Width = WIDTH, d.Height = HEIGHT, d.Format = CU_AD_FORMAT_FLOAT, d.NumChannels = 1;
    CHECK_DRIVER(DRIVER(cuTexRefSetAddress2D)(image, &d, rows, pitch));
    launch(module, "read_image", HEIGHT, address);
    EXPECT(out.download() == values);
    printf("rows of memory: right\n");

    DeviceArray<float> memory(values);
    size_t offset = 1;
    CUdeviceptr base;
    CHECK_DRIVER(DRIVER(cuTexRefSetFormat)(line, CU_AD_FORMAT_FLOAT, 1));
    CHECK_DRIVER(DRIVER(cuTexRefSetAddress)(&offset, line, reinterpret_cast<CUdeviceptr>(memory.get()), memory.bytes()));
    CHECK_DRIVER(DRIVER(cuTexRefGetAddress)(&base, line));
    EXPECT(offset == 0 && base == reinterpret_cast<CUdeviceptr>(memory.get()));
    out.zero();
    launch(module, "read_line", 1, address);
    EXPECT(memcmp(out.download().data(), values.data(), WIDTH * 4) == 0);
    printf("linear memory: right\n");

    CUarray written = array_of(CU_AD_FORMAT_UNSIGNED_INT32, CUDA_ARRAY3D_SURFACE_LDST);
    CHECK_DRIVER(DRIVER(cuSurfRefSetArray)(marks, written, 0));
    CHECK_DRIVER(DRIVER(cuSurfRefGetArray)(&told, marks));
    EXPECT(told == written);
    launch(module, "mark", HEIGHT, address);
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> found(count);
    copy(written, found.data(), false);
    for (unsigned i = 0; i < count; i++) EXPECT(found[i] == i / WIDTH * 1000 + i % WIDTH);
    printf("a surface: right\n");

    EXPECT_DRIVER(DRIVER(cuModuleGetTexRef)(&again, module, "none"), CUDA_ERROR_NOT_FOUND);
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(array));
    CHECK_DRIVER(DRIVER(cuArrayDestroy)(written));
    CHECK_DRIVER(DRIVER(cuMemFree)(rows));
}

int main() {
    CHECK(cudaFree(nullptr));
    settings();
    CUmodule module;
    CUtexref image;
    if (DRIVER(cuModuleLoadData)(&module, PTX) == CUDA_SUCCESS) {
        CHECK_DRIVER(DRIVER(cuModuleGetTexRef)(&image, module, "image"));
        kernels(module, image);
    } else {
        // Where no kernel can read through references, modules have none.
        CUsurfref marks;
        CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, DECLARED));
        EXPECT_DRIVER(DRIVER(cuModuleGetTexRef)(&image, module, "image"), CUDA_ERROR_NOT_FOUND);
        EXPECT_DRIVER(DRIVER(cuModuleGetSurfRef)(&marks, module, "marks"), CUDA_ERROR_NOT_FOUND);
    }
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    printf("texture references: done\n");
    return outcome();
}
