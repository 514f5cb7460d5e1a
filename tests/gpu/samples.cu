// Runs the kernels of samples.ptx on the inputs in inputs.bin and writes outputs.bin, all in the
// current directory: what a device makes of each instruction form. See
// crates/outboard-ptx/examples/samples.rs for the files and what they are for.
#include "../programs/check.h"

#include <string>

const size_t cases = 512, input_stride = 64, output_stride = 16;

std::vector<char> contents(const char* name) {
    FILE* file = fopen(name, "rb");
    EXPECT(file != nullptr);
    std::vector<char> bytes;
    char block[65536];
    for (size_t read; (read = fread(block, 1, sizeof(block), file)) > 0;) {
        bytes.insert(bytes.end(), block, block + read);
    }
    fclose(file);
    return bytes;
}

int main() {
    std::vector<char> text = contents("samples.ptx"), inputs = contents("inputs.bin");
    text.push_back(0);
    size_t kernels = inputs.size() / (cases * input_stride);
    DeviceArray<char> device_inputs(inputs), device_outputs(kernels * cases * output_stride);
    device_outputs.zero();

    cudaLibrary_t library;
    CHECK(cudaLibraryLoadData(&library, text.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    for (size_t i = 0; i < kernels; i++) {
        cudaKernel_t kernel;
        CHECK(cudaLibraryGetKernel(&kernel, library, ("k" + std::to_string(i)).c_str()));
        char* out = device_outputs.get() + i * cases * output_stride;
        char* in = device_inputs.get() + i * cases * input_stride;
        void* args[] = {&out, &in};
        CHECK(cudaLaunchKernel((const void*)kernel, dim3(cases / 128), dim3(128), args, 0, nullptr));
    }
    std::vector<char> outputs = device_outputs.download();
    FILE* file = fopen("outputs.bin", "wb");
    EXPECT(file != nullptr && fwrite(outputs.data(), 1, outputs.size(), file) == outputs.size());
    EXPECT(fclose(file) == 0);
    printf("%zu kernels\n", kernels);
    return 0;
}
