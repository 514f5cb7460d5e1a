//: title = "arrays, textures with filtering, layered arrays, surfaces"
#include "_check.h"
#include <vector>

__global__ void sample(cudaTextureObject_t texture, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<float>(texture, (x + 0.25f) * 0.9f, (y + 0.75f) * 0.8f);
}

__global__ void write(cudaSurfaceObject_t surface, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) surf2Dwrite(float(x * 100 + y), surface, x * 4, y);
}

int main() {
    const int width = 96, height = 54;
    std::vector<float> in(width * height), out(width * height);
    for (size_t i = 0; i < in.size(); i++) in[i] = float((i * 7919) % 1000);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, in.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    float *result;
    CHECK(cudaMalloc(&result, out.size() * 4));
    for (cudaTextureFilterMode filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
        cudaTextureDesc how = {};
        how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
        how.filterMode = filter;
        cudaTextureObject_t texture;
        CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
        sample<<<dim3(3, height), 32>>>(texture, result, width, height);
        CHECK(cudaMemcpy(out.data(), result, out.size() * 4, cudaMemcpyDeviceToHost));
        exact(filter == cudaFilterModePoint ? "nearest" : "linear", out.data(), out.size() * 4);
        CHECK(cudaDestroyTextureObject(texture));
    }
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    write<<<dim3(3, height), 32>>>(surface, width, height);
    CHECK(cudaMemcpy2DFromArray(out.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    require(out[3 * width + 17] == 1703.0f, "the surface was written");
    exact("surface", out.data(), out.size() * 4);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
}
