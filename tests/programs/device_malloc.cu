// malloc and free in kernels: lists built by one kernel, walked by a second, freed by a third.
#include "check.h"

struct Node {
    int value;
    Node* next;
};

__global__ void build(Node** heads, int lists, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lists) {
        return;
    }
    heads[i] = nullptr;
    for (int k = 0; k < length; k++) {
        Node* node = static_cast<Node*>(malloc(sizeof(Node)));
        if (node == nullptr) {
            return;
        }
        node->value = i * 1000 + k;
        node->next = heads[i];
        heads[i] = node;
    }
}

__global__ void sum(Node** heads, int lists, int* sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < lists) {
        int total = 0;
        for (Node* node = heads[i]; node != nullptr; node = node->next) total += node->value;
        sums[i] = total;
    }
}

__global__ void release(Node** heads, int lists) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < lists) {
        while (heads[i] != nullptr) {
            Node* node = heads[i];
            heads[i] = node->next;
            free(node);
        }
    }
}

__global__ void too_much(int* got_null) { *got_null = malloc(size_t(1) << 40) == nullptr; }

int main() {
    const int lists = 200, length = 20;
    size_t heap = 0;
    CHECK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    EXPECT(heap >= 8 << 20);
    DeviceArray<Node*> heads(lists);
    DeviceArray<int> sums(lists);
    for (int round = 0; round < 3; round++) {
        build<<<blocks_for(lists, 64), 64>>>(heads.get(), lists, length);
        sum<<<blocks_for(lists, 64), 64>>>(heads.get(), lists, sums.get());
        release<<<blocks_for(lists, 64), 64>>>(heads.get(), lists);
        CHECK(cudaGetLastError());
        std::vector<int> result = sums.download();
        for (int i = 0; i < lists; i++) EXPECT(result[i] == i * 1000 * length + length * (length - 1) / 2);
    }
    DeviceArray<int> got_null(1);
    too_much<<<1, 1>>>(got_null.get());
    EXPECT(got_null.download()[0] == 1);
    printf("device_malloc: %d lists of %d nodes, three times: right\n", lists, length);
    return 0;
}
