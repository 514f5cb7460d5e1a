// XGBoost of a wheel of PyPI, by its C interface: a program of years ago, in which an old release of
// CUDA's runtime is linked statically, with its kernels as PTX of that time. Device memory, copies,
// Thrust's and CUB's kernels and the library's own predict, and where it can, train; what comes of
// that is what the processor computes.
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

void* library;

template <typename Function>
Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

void check(int result, const char* what) {
    if (result == 0) return;
    printf("%s: %s\n", what, find<const char*()>("XGBGetLastError")());
    exit(1);
}

// From its release 1.0 on, the library says which it is, and training needs NCCL, and with it more
// of the machine than a device.
bool is_new() {
    return dlsym(library, "XGBoostVersion") != nullptr;
}

using Settings = std::initializer_list<std::pair<const char*, const char*>>;

const uint64_t rows = 256, columns = 8;

void* samples() {
    std::vector<float> values, labels;
    for (uint64_t row = 0; row < rows; row++) {
        // No two features say as much, so all ways to train choose the same ones.
        float sum = 0;
        for (uint64_t column = 0; column < columns; column++) {
            float bit = static_cast<float>(row >> column & 1);
            values.push_back(bit);
            sum += bit * static_cast<float>((column + 1) * (column + 1));
        }
        labels.push_back(sum / 100);
    }
    void* matrix = nullptr;
    check(find<int(const float*, uint64_t, uint64_t, float, void**)>("XGDMatrixCreateFromMat")(values.data(), rows, columns, NAN, &matrix), "XGDMatrixCreateFromMat");
    check(find<int(void*, const char*, const float*, uint64_t)>("XGDMatrixSetFloatInfo")(matrix, "label", labels.data(), rows), "XGDMatrixSetFloatInfo");
    return matrix;
}

std::vector<float> train_and_predict(void* matrix, Settings settings) {
    void* booster = nullptr;
    check(find<int(void**, uint64_t, void**)>("XGBoosterCreate")(&matrix, 1, &booster), "XGBoosterCreate");
    auto set = find<int(void*, const char*, const char*)>("XGBoosterSetParam");
    for (auto setting : Settings{{"max_depth", "4"}, {"nthread", "1"}, {"silent", "1"}, {"verbosity", "0"}}) {
        check(set(booster, setting.first, setting.second), setting.first);
    }
    for (auto setting : settings) check(set(booster, setting.first, setting.second), setting.first);
    for (int round = 0; round < 3; round++) {
        check(find<int(void*, int, void*)>("XGBoosterUpdateOneIter")(booster, round, matrix), "XGBoosterUpdateOneIter");
    }
    uint64_t length = 0;
    const float* values = nullptr;
    if (is_new()) {
        check(find<int(void*, void*, int, unsigned, int, uint64_t*, const float**)>("XGBoosterPredict")(booster, matrix, 0, 0, 0, &length, &values), "XGBoosterPredict");
    } else {
        check(find<int(void*, void*, int, unsigned, uint64_t*, const float**)>("XGBoosterPredict")(booster, matrix, 0, 0, &length, &values), "XGBoosterPredict");
    }
    std::vector<float> predicted(values, values + length);
    check(find<int(void*)>("XGBoosterFree")(booster), "XGBoosterFree");
    return predicted;
}

void compare(const char* what, const std::vector<float>& wanted, const std::vector<float>& found) {
    float furthest = found.size() == rows ? 0 : INFINITY;
    for (size_t row = 0; row < rows && found.size() == rows; row++) {
        furthest = std::fmax(furthest, std::fabs(found[row] - wanted[row]));
    }
    // Sums of floats in another order.
    if (!(furthest < 1e-5f)) {
        printf("trees: %s is off by %g\n", what, furthest);
        exit(1);
    }
    printf("trees: %s as on the processor\n", what);
}

void run() {
    void* matrix = samples();
    auto wanted = train_and_predict(matrix, {{"tree_method", "exact"}, {"predictor", "cpu_predictor"}});
    if (wanted.size() != rows || wanted.front() == wanted.back()) {
        printf("trees: the processor predicts nothing\n");
        exit(1);
    }
    compare("predicted", wanted, train_and_predict(matrix, {{"tree_method", "exact"}, {"predictor", "gpu_predictor"}}));
    if (!is_new()) {
        compare("trained", wanted, train_and_predict(matrix, {{"tree_method", "gpu_exact"}, {"predictor", "gpu_predictor"}}));
    }
    check(find<int(void*)>("XGDMatrixFree")(matrix), "XGDMatrixFree");
}

}  // namespace

int main() {
    library = dlopen("libxgboost.so", RTLD_NOW);
    if (library == nullptr) {
        printf("%s\n", dlerror());
        return 1;
    }
    // The library frees a thread's device memory with the thread, and the main thread's after its
    // runtime has ended, which no release of the driver allows.
    std::thread(run).join();
    return 0;
}
