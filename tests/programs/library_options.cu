// Libraries loaded from PTX: the option that the image stays where it is, with a value and, as
// cuBLAS does it, without.
#include "driver.h"

#include <algorithm>

static const char ptx[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry fill(.param .u64 out, .param .u32 value) {\n"
    "  .reg .u64 %address;\n"
    "  .reg .u32 %value;\n"
    "  ld.param.u64 %address, [out];\n"
    "  ld.param.u32 %value, [value];\n"
    "  st.global.u32 [%address], %value;\n"
    "  ret;\n"
    "}\n";

static unsigned run(CUlibrary library, unsigned value) {
    CUkernel kernel;
    CHECK_DRIVER(DRIVER(cuLibraryGetKernel)(&kernel, library, "fill"));
    CUdeviceptr out;
    CHECK_DRIVER(DRIVER(cuMemAlloc)(&out, sizeof(unsigned)));
    void* parameters[] = {&out, &value};
    CHECK_DRIVER(DRIVER(cuLaunchKernel)(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    unsigned result = 0;
    CHECK_DRIVER(DRIVER(cuMemcpyDtoH)(&result, out, sizeof result));
    CHECK_DRIVER(DRIVER(cuMemFree)(out));
    return result;
}

int main() {
    CHECK(cudaFree(nullptr));
    CUlibraryOption kept = CU_LIBRARY_BINARY_IS_PRESERVED;
    void* yes = reinterpret_cast<void*>(1);
    CUlibrary with_value, without_value, no_option;
    CHECK_DRIVER(DRIVER(cuLibraryLoadData)(&with_value, ptx, nullptr, nullptr, 0, &kept, &yes, 1));
    CHECK_DRIVER(DRIVER(cuLibraryLoadData)(&without_value, ptx, nullptr, nullptr, 0, &kept, nullptr, 1));
    {
        // Not kept: the text may go as soon as the call has returned.
        std::vector<char> copy(ptx, ptx + sizeof ptx);
        CHECK_DRIVER(DRIVER(cuLibraryLoadData)(&no_option, copy.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
        std::fill(copy.begin(), copy.end(), 'x');
    }
    unsigned value = 40;
    for (CUlibrary library : {with_value, without_value, no_option}) {
        EXPECT(run(library, ++value) == value);
        CHECK_DRIVER(DRIVER(cuLibraryUnload)(library));
    }
    printf("three libraries filled in %u\n", value);
    return outcome();
}
