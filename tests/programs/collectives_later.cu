// A rank that makes a second communicator, for which NCCL connects anew, once a file is there.
// Arguments: the file for the id, rank, ranks, the file that is waited for.
#include <unistd.h>

#include "collectives.h"

static void sum(Rank& rank, Comm comm) {
    rank.fill(1000, rank.rank);
    WELL(ncclAllReduce(rank.in, rank.out, 1000, kFloat, kSum, comm, rank.stream));
    const float first = rank.ranks * (rank.ranks - 1) / 2.0f;
    EXPECT(rank.result(1000)[999] == first + rank.ranks * 999.0f);
}

int main(int, char** argv) {
    const int number = atoi(argv[2]), ranks = atoi(argv[3]);
    const UniqueId id = meet(argv[1], number);
    Rank rank;
    WELL(ncclCommInitRank(&rank.comm, ranks, id, number));
    rank.allocate(1000);
    sum(rank, rank.comm);
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; access(argv[4], F_OK) != 0; i++) {
        EXPECT(i < 600);
        usleep(100000);
    }
    Comm second = nullptr;
    WELL(ncclCommSplit(rank.comm, 0, number, &second, static_cast<void*>(nullptr)));
    sum(rank, second);
    sum(rank, rank.comm);
    WELL(ncclCommDestroy(second));
    WELL(ncclCommDestroy(rank.comm));
    rank.release();
    printf("done\n");
    return 0;
}
