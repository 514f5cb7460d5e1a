// A rank that lies about messages whose bytes go from server to server. The ranks of a job are one
// user's programs and share a mark that tells headers from messages, so that one which was taken
// over can send any header. Two ranks: the second one lies to the first, as the argument says. The
// first one says what came of it, and whether memory beside its buffer is as it was.
#include <mpi.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "../check.h"
#include "mpi_check.h"

enum { COUNT = 1 << 17, HEADER = 64, GUARD = 0x5a };
enum { LEARN = 1, RELAYED, BACK, LIE };

// What MPI carries in place of a message.
struct Header {
    char mark[16];
    uint32_t link, zero;
    uint64_t number, bytes;
    char rest[24];
};
static_assert(sizeof(Header) == HEADER, "as libraries have it");

static void be_honest() {
    // A buffer, and as much behind it.
    DeviceArray<int> memory(2 * COUNT);
    CHECK(cudaMemset(memory.get(), GUARD, 2 * COUNT * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    // The other rank learns what a header is like by one of its own, which this one does not follow.
    Header header;
    MPI_CHECK(PMPI_Recv(&header, HEADER, MPI_BYTE, 1, RELAYED, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_CHECK(PMPI_Send(&header, HEADER, MPI_BYTE, 1, BACK, MPI_COMM_WORLD));
    for (int message = 0; message < 2; message++) {
        MPI_Status status;
        int result = MPI_Recv(memory.get(), COUNT, MPI_INT, 1, LIE, MPI_COMM_WORLD, &status);
        printf("message %d: %s\n", message, result == MPI_SUCCESS ? "received" : "refused");
        fflush(stdout);
        std::vector<int> now = memory.download();
        int guard;
        memset(&guard, GUARD, sizeof guard);
        for (int at = COUNT; at < 2 * COUNT; at++) {
            if (now[at] != guard) {
                printf("memory behind the buffer was changed\n");
                fflush(stdout);
                _exit(3);
            }
        }
    }
    _exit(0);
}

static void lie(const char* how) {
    DeviceArray<int> memory(COUNT);
    CHECK(cudaMemset(memory.get(), 1, COUNT * sizeof(int)));
    MPI_CHECK(MPI_Send(memory.get(), COUNT, MPI_INT, 0, RELAYED, MPI_COMM_WORLD));
    Header header;
    MPI_CHECK(PMPI_Recv(&header, HEADER, MPI_BYTE, 0, BACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (header.bytes != COUNT * sizeof(int)) {
        printf("that is no header\n");
        _exit(4);
    }
    Header lies[2] = {header, header};
    if (!strcmp(how, "twice")) {
        // The same one, which is there once.
    } else if (!strcmp(how, "longer")) {
        lies[0].bytes += 4;
    } else if (!strcmp(how, "shorter")) {
        lies[0].bytes -= 4;
    } else if (!strcmp(how, "endless")) {
        lies[0].bytes = ~0ull;
        lies[1].bytes = 1ull << 62;
    } else if (!strcmp(how, "number")) {
        lies[0].number += 1000;
    } else if (!strcmp(how, "link")) {
        lies[0].link ^= 0x00ff8000;
        lies[1].link = ~0u;
    } else if (!strcmp(how, "own")) {
        // The link of the other direction.
        lies[0].link = (header.link & 0xc0000000) | 1;
    } else {
        printf("no such lie\n");
        _exit(4);
    }
    for (const Header& one : lies) {
        MPI_CHECK(PMPI_Send(&one, HEADER, MPI_BYTE, 0, LIE, MPI_COMM_WORLD));
    }
    pause();
}

int main(int argc, char** argv) {
    MPI_CHECK(MPI_Init(&argc, &argv));
    int rank;
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (rank == 0) be_honest();
    lie(argc > 1 ? argv[1] : "");
}
