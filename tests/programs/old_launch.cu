// The launch interface of before CUDA 4: shape and parameters are set one by one, and a launch
// takes what was set.
#include "check.h"
#include "driver.h"

static const char PTX[] = R"(
.version 7.0
.target sm_52
.address_size 64

.visible .entry affine(.param .u64 out, .param .f32 scale, .param .u32 offset)
{
    .reg .b32 %r<7>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.f32 %f1, [scale];
    ld.param.u32 %r1, [offset];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r5, %r3, %r4, %r2;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    add.u32 %r6, %r5, %r1;
    cvt.rn.f32.u32 %f2, %r6;
    mul.f32 %f2, %f2, %f1;
    st.global.f32 [%rd4], %f2;
    ret;
}
)";

int main() {
    CHECK(cudaFree(nullptr));
    CUmodule module;
    CUfunction affine;
    CHECK_DRIVER(DRIVER(cuModuleLoadData)(&module, PTX));
    CHECK_DRIVER(DRIVER(cuModuleGetFunction)(&affine, module, "affine"));
    DeviceArray<float> data(128);
    float* pointer = data.get();
    CHECK_DRIVER(DRIVER(cuParamSetSize)(affine, 16));
    CHECK_DRIVER(DRIVER(cuParamSetv)(affine, 0, &pointer, sizeof pointer));
    CHECK_DRIVER(DRIVER(cuParamSetf)(affine, 8, 0.5f));
    CHECK_DRIVER(DRIVER(cuParamSeti)(affine, 12, 10));
    CHECK_DRIVER(DRIVER(cuFuncSetBlockShape)(affine, 32, 1, 1));
    CHECK_DRIVER(DRIVER(cuFuncSetSharedSize)(affine, 64));

    data.zero();
    CHECK_DRIVER(DRIVER(cuLaunch)(affine));
    std::vector<float> values = data.download();
    for (int i = 0; i < 128; i++) EXPECT(values[i] == (i < 32 ? 0.5f * (i + 10) : 0.0f));

    // What was set stays for the next launch.
    CHECK_DRIVER(DRIVER(cuParamSeti)(affine, 12, 20));
    CHECK_DRIVER(DRIVER(cuLaunchGrid)(affine, 2, 1));
    values = data.download();
    for (int i = 0; i < 128; i++) EXPECT(values[i] == (i < 64 ? 0.5f * (i + 20) : 0.0f));

    CUstream stream;
    CHECK_DRIVER(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(DRIVER(cuParamSetf)(affine, 8, 2.0f));
    CHECK_DRIVER(DRIVER(cuLaunchGridAsync)(affine, 4, 1, stream));
    CHECK_DRIVER(DRIVER(cuStreamSynchronize)(stream));
    values = data.download();
    for (int i = 0; i < 128; i++) EXPECT(values[i] == 2.0f * (i + 20));
    CHECK_DRIVER(DRIVER(cuStreamDestroy)(stream));
    CHECK_DRIVER(DRIVER(cuModuleUnload)(module));
    printf("launched\n");
    return outcome();
}
