// Counts the triangles of a generated graph: one warp for each edge intersects the sorted neighbour
// lists of its ends.
#include "check.h"

#include <algorithm>
#include <set>
#include <utility>

// `offsets` and `neighbours` hold, for each vertex, its neighbours with a larger number, sorted.
__global__ void count_triangles(const int2* edges, int edge_count, const int* offsets, const int* neighbours,
                                unsigned long long* total) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (warp >= edge_count) {
        return;
    }
    int2 edge = edges[warp];
    int found = 0;
    for (int i = offsets[edge.x] + lane; i < offsets[edge.x + 1]; i += 32) {
        int wanted = neighbours[i];
        int low = offsets[edge.y], high = offsets[edge.y + 1];
        while (low < high) {
            int middle = (low + high) / 2;
            if (neighbours[middle] < wanted) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        found += low < offsets[edge.y + 1] && neighbours[low] == wanted;
    }
    found += __shfl_xor_sync(0xffffffffu, found, 16);
    found += __shfl_xor_sync(0xffffffffu, found, 8);
    found += __shfl_xor_sync(0xffffffffu, found, 4);
    found += __shfl_xor_sync(0xffffffffu, found, 2);
    found += __shfl_xor_sync(0xffffffffu, found, 1);
    if (lane == 0 && found > 0) {
        atomicAdd(total, static_cast<unsigned long long>(found));
    }
}

int main() {
    // Preferential attachment: a few vertices get very many neighbours, as in real networks.
    const int vertices = 2000, per_vertex = 6;
    Random random(10);
    std::vector<int> ends = {0, 1};
    std::set<std::pair<int, int>> unique = {{0, 1}};
    for (int v = 2; v < vertices; v++) {
        for (int k = 0; k < per_vertex; k++) {
            int other = ends[random.below(static_cast<uint32_t>(ends.size()))];
            if (other != v && unique.insert({std::min(v, other), std::max(v, other)}).second) {
                ends.push_back(v);
                ends.push_back(other);
            }
        }
    }
    std::vector<int2> edges;
    std::vector<int> offsets(vertices + 1, 0), neighbours;
    for (auto [a, b] : unique) {
        edges.push_back(make_int2(a, b));
        neighbours.push_back(b);
        offsets[a + 1]++;
    }
    for (int v = 0; v < vertices; v++) offsets[v + 1] += offsets[v];

    unsigned long long wanted = 0;
    for (int2 edge : edges) {
        for (int i = offsets[edge.x]; i < offsets[edge.x + 1]; i++) {
            wanted += unique.count({edge.y, neighbours[i]});
        }
    }

    DeviceArray<int2> dedges(edges);
    DeviceArray<int> doffsets(offsets), dneighbours(neighbours);
    DeviceArray<unsigned long long> dtotal(1);
    dtotal.zero();
    int edge_count = static_cast<int>(edges.size());
    count_triangles<<<blocks_for(edges.size() * 32, 128), 128>>>(dedges.get(), edge_count, doffsets.get(),
                                                                 dneighbours.get(), dtotal.get());
    CHECK(cudaGetLastError());
    unsigned long long total = dtotal.download()[0];
    printf("triangles: %d vertices, %d edges, %llu triangles\n", vertices, edge_count, total);
    EXPECT(total == wanted);
    return 0;
}
