// Trains a small network: two layers, a loss and stochastic gradient descent in plain kernels, on
// batches that the host makes as it goes. Every step copies a batch to the device and the loss
// back, and counts itself there. Prints the loss of some steps bit for bit, so that two runs can be
// compared.
//
//   train [steps] [milliseconds between steps]
#include <chrono>
#include <thread>

#include <cstring>

#include "check.h"

constexpr int IN = 96, HIDDEN = 64, BATCH = 256;

__global__ void forward(const float* x, const float* w1, const float* w2, float* hidden, float* out) {
    int row = blockIdx.x, unit = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < IN; i++) sum = fmaf(x[row * IN + i], w1[i * HIDDEN + unit], sum);
    sum = fmaxf(sum, 0.01f * sum);
    hidden[row * HIDDEN + unit] = sum;
    __shared__ float part[HIDDEN];
    part[unit] = sum * w2[unit];
    __syncthreads();
    for (int half = HIDDEN / 2; half > 0; half /= 2) {
        if (unit < half) part[unit] += part[unit + half];
        __syncthreads();
    }
    if (unit == 0) out[row] = part[0];
}

__global__ void loss(const float* out, const float* wanted, float* slope, float* loss, unsigned long long* steps) {
    __shared__ float part[BATCH];
    int row = threadIdx.x;
    float error = out[row] - wanted[row];
    slope[row] = 2 * error / BATCH;
    part[row] = error * error;
    __syncthreads();
    for (int half = BATCH / 2; half > 0; half /= 2) {
        if (row < half) part[row] += part[row + half];
        __syncthreads();
    }
    if (row == 0) {
        *loss = part[0] / BATCH;
        atomicAdd(steps, 1);
    }
}

__global__ void learn_second(const float* hidden, const float* slope, float* w2, float rate) {
    int unit = threadIdx.x;
    float sum = 0;
    for (int row = 0; row < BATCH; row++) sum = fmaf(hidden[row * HIDDEN + unit], slope[row], sum);
    w2[unit] -= rate * sum;
}

__global__ void learn_first(const float* x, const float* hidden, const float* slope, const float* w2, float* w1, float rate) {
    int i = blockIdx.x, unit = threadIdx.x;
    float sum = 0;
    for (int row = 0; row < BATCH; row++) {
        float leak = hidden[row * HIDDEN + unit] > 0 ? 1.0f : 0.01f;
        sum = fmaf(x[row * IN + i] * leak, slope[row] * w2[unit], sum);
    }
    w1[i * HIDDEN + unit] -= rate * sum;
}

int main(int argc, char** argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 60;
    int pause = argc > 2 ? atoi(argv[2]) : 0;
    Random random(11);
    std::vector<float> first(IN * HIDDEN), second(HIDDEN), wanted(BATCH), truth(IN);
    for (float& w : first) w = 0.2f * (random.unit() - 0.5f);
    for (float& w : second) w = 0.4f * (random.unit() - 0.5f);
    for (float& w : truth) w = random.unit() - 0.5f;
    DeviceArray<float> w1(first), w2(second), x(std::vector<float>(IN * BATCH)), y(wanted);
    DeviceArray<float> hidden(std::vector<float>(HIDDEN * BATCH)), out(wanted), slope(wanted), result(std::vector<float>(1));
    DeviceArray<unsigned long long> counted(std::vector<unsigned long long>(1));
    float *batch, *told;
    CHECK(cudaMallocHost(&batch, IN * BATCH * sizeof(float)));
    CHECK(cudaMallocHost(&told, sizeof(float)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    printf("running\n");
    fflush(stdout);
    for (int step = 0; step < steps; step++) {
        for (int row = 0; row < BATCH; row++) {
            float sum = 0;
            for (int i = 0; i < IN; i++) {
                float value = random.unit() - 0.5f;
                batch[row * IN + i] = value;
                sum = std::fmaf(value, truth[i], sum);
            }
            wanted[row] = sum > 0 ? sum : 0.5f * sum;
        }
        // From page-locked memory and from pageable memory.
        CHECK(cudaMemcpyAsync(x.get(), batch, IN * BATCH * sizeof(float), cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(y.get(), wanted.data(), BATCH * sizeof(float), cudaMemcpyHostToDevice, stream));
        forward<<<BATCH, HIDDEN, 0, stream>>>(x.get(), w1.get(), w2.get(), hidden.get(), out.get());
        loss<<<1, BATCH, 0, stream>>>(out.get(), y.get(), slope.get(), result.get(), counted.get());
        learn_first<<<IN, HIDDEN, 0, stream>>>(x.get(), hidden.get(), slope.get(), w2.get(), w1.get(), 0.5f);
        learn_second<<<1, HIDDEN, 0, stream>>>(hidden.get(), slope.get(), w2.get(), 0.5f);
        CHECK(cudaMemcpyAsync(told, result.get(), sizeof(float), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        if (step % 10 == 0) {
            uint32_t bits;
            memcpy(&bits, told, sizeof bits);
            printf("step %d: loss %08x\n", step, bits);
            fflush(stdout);
        }
        if (pause > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    }
    EXPECT(counted.download()[0] == (unsigned long long)steps);
    printf("train: %d steps, weights %016llx %016llx\n", steps, (unsigned long long)checksum(w1.download()), (unsigned long long)checksum(w2.download()));
    return 0;
}
