// The parts of the stand-in for NCCL (fake_nccl.cpp).
#pragma once

#include <cuda.h>
#include <netinet/in.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fake {

// `ncclResult_t`.
enum Result {
    kSuccess,
    kUnhandledCudaError,
    kSystemError,
    kInternalError,
    kInvalidArgument,
    kInvalidUsage,
    kRemoteError,
    kInProgress,
};

// The function that `ncclGetLastError` answers from.
Result fail(Result result, const std::string &sentence);

// What `ncclGetVersion` says.
int version();

// Where a process listens, and which it is.
struct Address {
    sockaddr_in6 place;
    uint64_t process;
};

// What ranks find each other by: the root, which listens in the process that made it.
struct UniqueId {
    uint64_t magic;
    Address root;
    char unused[128 - sizeof(uint64_t) - sizeof(Address)];
};
static_assert(sizeof(UniqueId) == 128, "as NCCL's");

// The connections of a rank to each other one. `control` carries what ranks say before a
// collective of a new kind, and `data` the collectives.
struct Ranks {
    int rank = 0;
    int count = 1;
    std::vector<int> control, data;
    // What others have said of kinds that this rank has not come to yet.
    std::vector<std::multiset<uint32_t>> heard;
    // Ranks of other processes.
    std::vector<int> elsewhere;

    ~Ranks();
    // Tells those with whom a collective of this kind is, ...
    Result tell(int peer, uint32_t kind);
    // ... and waits until they have told.
    Result hear(int peer, uint32_t kind);
    // Whether a peer has gone without a word.
    bool lost();
    // Says a word, waits until the ranks of other processes go as well, and goes: as NCCL ends
    // ranks of one machine.
    void leave();
    // Ends what waits for a peer.
    void stop();
};

Result make_id(UniqueId *id);
Result meet(const UniqueId &id, int rank, int count, Ranks *ranks);
// Those of `old` that say the same colour, ordered by key. Without a colour (-1) nobody.
Result divide(Ranks &old, int color, int key, Ranks *ranks);

// Bytes to and from one peer, in order.
struct Stretch {
    const char *out;
    char *in;
    size_t bytes;
};
using Exchange = std::map<int, std::deque<Stretch>>;
// Moves what `out` says to peers while it takes what `in` says from them.
bool exchange(const Ranks &ranks, Exchange out, Exchange in);

enum Function { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kRecv };

// A reduction: one of NCCL's, or a sum of what was multiplied before.
struct Reduction {
    int op = 0;
    // Of a user's: a scalar, or where the device has it.
    std::vector<char> scalar;
    const void *device = nullptr;
};

struct Operation {
    Function function;
    const void *from;
    void *to;
    size_t count;
    int type;
    Reduction reduction;
    // Of a root, or of the peer.
    int other;
};

// Bytes of an element; 0 of an unknown type.
size_t size_of(int type);
// Makes operations that belong together: one collective, or several sends and receives.
bool perform(const Ranks &ranks, const std::vector<Operation> &operations);

}  // namespace fake
