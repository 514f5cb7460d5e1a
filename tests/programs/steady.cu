// Copies, launches and copies back, checking every number, until the file END exists; then says how
// many rounds there were. Says "running" once the first round is done. With a second argument,
// launches alone come first, until the file BEGIN exists: no memory is allocated before. For tests
// of what a program does not notice.
//
//   steady END [BEGIN]
#include "rounds.h"

__global__ void nothing() {}

int main(int argc, char** argv) {
    EXPECT(argc > 1);
    const char* end = argv[1];
    if (argc > 2) {
        for (bool first = true; !exists(argv[2]); first = false) {
            nothing<<<1, 1>>>();
            CHECK(cudaDeviceSynchronize());
            if (first) {
                printf("waiting\n");
                fflush(stdout);
            }
            pause_briefly();
        }
    }
    // Some of it travels in messages, some on lanes.
    std::vector<unsigned> small(1000), large(200000);
    DeviceArray<unsigned> kept(large.size());
    unsigned round = 0;
    do {
        go_round(kept.get(), small, round);
        go_round(kept.get(), large, round);
        DeviceArray<unsigned> fresh(large.size() / 2 + round % 64);
        fresh.zero();
        go_round(fresh.get(), small, round);
        if (round++ == 0) {
            printf("running\n");
            fflush(stdout);
        }
    } while (!exists(end));
    printf("%u rounds\n", round);
    return 0;
}
