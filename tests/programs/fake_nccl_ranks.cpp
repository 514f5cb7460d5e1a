// How ranks of the stand-in for NCCL find each other: over TCP, as NCCL's do. The process that
// makes the unique id listens; each rank listens, too, and tells the root where; the root tells all
// ranks where all listen, and they connect to each other.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "fake_nccl.h"

namespace fake {
namespace {

constexpr uint32_t kGoodbye = 0x600db4e;
// How often a connection is tried that nobody takes.
constexpr int kAttempts = 200;

struct Join {
    uint64_t magic;
    int version, count, rank;
    Address address;
};

struct Verdict {
    int result;
    // Of a refusal: rank and release that another one has.
    int rank, version;
};

struct Greeting {
    uint64_t magic;
    int rank, channel;
};

bool wait_for(int socket, short events) {
    pollfd entry{socket, events, 0};
    while (poll(&entry, 1, -1) < 0) {
        if (errno != EINTR) return false;
    }
    return true;
}

bool write_all(int socket, const void *bytes, size_t count) {
    for (const char *at = static_cast<const char *>(bytes); count > 0;) {
        ssize_t sent = send(socket, at, count, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for(socket, POLLOUT)) return false;
        } else if (sent <= 0) {
            return false;
        } else {
            at += sent, count -= sent;
        }
    }
    return true;
}

bool read_all(int socket, void *bytes, size_t count) {
    for (char *at = static_cast<char *>(bytes); count > 0;) {
        ssize_t got = recv(socket, at, count, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for(socket, POLLIN)) return false;
        } else if (got <= 0) {
            return false;
        } else {
            at += got, count -= got;
        }
    }
    return true;
}

socklen_t length(const Address &address) {
    return address.place.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

sockaddr *any(Address &address) { return reinterpret_cast<sockaddr *>(&address.place); }

// Ready for calls that must not wait.
int prepared(int socket) {
    int on = 1;
    if (socket < 0) return socket;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    return socket;
}

uint64_t some_number() {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number) number = getpid();
    return number | 1;
}

// The address of an interface that is not the loop, if there is one, else of the loop.
bool own_address(Address *address) {
    static const uint64_t process = some_number();
    ifaddrs *all = nullptr;
    bool found = false;
    if (getifaddrs(&all) != 0) return false;
    for (bool loop : {false, true}) {
        for (ifaddrs *at = all; at && !found; at = at->ifa_next) {
            int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
            if (family != AF_INET && family != AF_INET6) continue;
            if (((at->ifa_flags & IFF_LOOPBACK) != 0) != loop) continue;
            memset(address, 0, sizeof *address);
            address->process = process;
            memcpy(&address->place, at->ifa_addr,
                   family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
            found = true;
        }
    }
    freeifaddrs(all);
    return found;
}

// A listening socket, and where it listens.
int listen_somewhere(Address *address) {
    if (!own_address(address)) return -1;
    int listener = prepared(socket(address->place.sin6_family, SOCK_STREAM, 0));
    if (listener < 0) return -1;
    socklen_t bytes = length(*address);
    address->place.sin6_port = 0;
    if (bind(listener, any(*address), bytes) != 0 || listen(listener, 1024) != 0 ||
        getsockname(listener, any(*address), &bytes) != 0) {
        close(listener);
        return -1;
    }
    return listener;
}

int accept_one(int listener) {
    for (;;) {
        int taken = prepared(accept(listener, nullptr, nullptr));
        if (taken >= 0 || (errno != EAGAIN && errno != EINTR)) return taken;
        if (!wait_for(listener, POLLIN)) return -1;
    }
}

int connect_to(Address address) {
    for (int attempt = 0; attempt < kAttempts; attempt++) {
        int made = prepared(socket(address.place.sin6_family, SOCK_STREAM, 0));
        if (made < 0) return -1;
        int error = connect(made, any(address), length(address)) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
            socklen_t bytes = sizeof error;
            wait_for(made, POLLOUT);
            getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &bytes);
        }
        if (error == 0) return made;
        close(made);
        errno = error;
        if (error != ECONNREFUSED && error != ETIMEDOUT) return -1;
        usleep(20000);
    }
    return -1;
}

// Brings the ranks of one communicator together.
void be_root(int listener, uint64_t magic) {
    std::vector<int> joined;
    std::vector<Address> addresses;
    Verdict verdict{kSuccess, 0, 0};
    int count = 0, first = 0, first_rank = 0;
    for (int present = 0; verdict.result == kSuccess && (count == 0 || present < count);) {
        int taken = accept_one(listener);
        if (taken < 0) break;
        Join join{};
        if (!read_all(taken, &join, sizeof join) || join.magic != magic) {
            close(taken);
            continue;
        }
        if (count == 0) {
            count = join.count, first = join.version, first_rank = join.rank;
            joined.assign(count, -1);
            addresses.resize(count);
        }
        if (join.version != first) {
            verdict = {kInvalidUsage, first_rank, first};
        } else if (join.count != count || join.rank >= count || joined[join.rank] >= 0) {
            verdict = {kInternalError, first_rank, first};
        }
        if (verdict.result == kSuccess) {
            joined[join.rank] = taken, addresses[join.rank] = join.address, present++;
        } else {
            write_all(taken, &verdict, sizeof verdict);
            close(taken);
            verdict.rank = join.rank, verdict.version = join.version;
        }
    }
    for (int member : joined) {
        if (member < 0) continue;
        write_all(member, &verdict, sizeof verdict);
        if (verdict.result == kSuccess) {
            write_all(member, addresses.data(), addresses.size() * sizeof(Address));
        }
        close(member);
    }
    close(listener);
}

// Connects each rank with each other one; `listener` is where this one listens.
Result connect_all(int listener, const std::vector<Address> &addresses, uint64_t magic,
                   Ranks *ranks) {
    int count = static_cast<int>(addresses.size());
    ranks->count = count;
    ranks->control.assign(count, -1);
    ranks->data.assign(count, -1);
    ranks->heard.resize(count);
    for (int peer = 0; peer < count; peer++) {
        bool same = addresses[peer].process == addresses[ranks->rank].process;
        if (!same) ranks->elsewhere.push_back(peer);
    }
    std::vector<int> *channels[] = {&ranks->control, &ranks->data};
    for (int below = 0; below < ranks->rank; below++) {
        for (int channel = 0; channel < 2; channel++) {
            Greeting greeting{magic, ranks->rank, channel};
            int made = connect_to(addresses[below]);
            if (made < 0) return fail(kSystemError, std::string("connect: ") + strerror(errno));
            (*channels[channel])[below] = made;
            if (!write_all(made, &greeting, sizeof greeting)) {
                return fail(kRemoteError, "a peer has gone");
            }
        }
    }
    for (int missing = 2 * (count - 1 - ranks->rank); missing > 0;) {
        Greeting greeting{};
        int taken = accept_one(listener);
        if (taken < 0) return fail(kSystemError, std::string("accept: ") + strerror(errno));
        bool known = read_all(taken, &greeting, sizeof greeting) && greeting.magic == magic &&
                     greeting.rank > ranks->rank && greeting.rank < count &&
                     (greeting.channel == 0 || greeting.channel == 1);
        if (!known) {
            close(taken);
            continue;
        }
        (*channels[greeting.channel])[greeting.rank] = taken;
        missing--;
    }
    return kSuccess;
}

}  // namespace

Result make_id(UniqueId *id) {
    memset(id, 0, sizeof *id);
    int listener = listen_somewhere(&id->root);
    if (listener < 0) return fail(kSystemError, std::string("no root: ") + strerror(errno));
    id->magic = some_number();
    std::thread(be_root, listener, id->magic).detach();
    return kSuccess;
}

Result meet(const UniqueId &id, int rank, int count, Ranks *ranks) {
    Join join{id.magic, version(), count, rank, {}};
    int listener = listen_somewhere(&join.address);
    if (listener < 0) return fail(kSystemError, std::string("listen: ") + strerror(errno));
    std::unique_ptr<int, void (*)(int *)> closed(&listener, [](int *socket) { close(*socket); });
    int root = connect_to(id.root);
    if (root < 0) return fail(kSystemError, std::string("connect: ") + strerror(errno));
    Verdict verdict{kRemoteError, 0, 0};
    std::vector<Address> addresses(count);
    bool heard = write_all(root, &join, sizeof join) && read_all(root, &verdict, sizeof verdict);
    if (heard && verdict.result == kSuccess) {
        heard = read_all(root, addresses.data(), addresses.size() * sizeof(Address));
    }
    close(root);
    if (!heard) return fail(kRemoteError, "the root has gone");
    if (verdict.result == kInvalidUsage) {
        return fail(kInvalidUsage, "Mismatched NCCL version detected : rank " +
                                       std::to_string(rank) + " version " +
                                       std::to_string(version()) + " rank " +
                                       std::to_string(verdict.rank) + " version " +
                                       std::to_string(verdict.version));
    }
    if (verdict.result != kSuccess) {
        return fail(kInternalError, "ranks say the same rank, or different numbers of ranks");
    }
    ranks->rank = rank;
    return connect_all(listener, addresses, id.magic, ranks);
}

Result divide(Ranks &old, int color, int key, Ranks *ranks) {
    struct Member {
        uint64_t magic;
        int color, key, rank;
        Address address;
    };
    Member own{some_number(), color, key, old.rank, {}};
    int listener = listen_somewhere(&own.address);
    if (listener < 0) return fail(kSystemError, std::string("listen: ") + strerror(errno));
    std::unique_ptr<int, void (*)(int *)> closed(&listener, [](int *socket) { close(*socket); });
    std::vector<Member> members(1, own);
    for (int peer = 0; peer < old.count; peer++) {
        if (peer != old.rank && !write_all(old.control[peer], &own, sizeof own)) {
            return fail(kRemoteError, "a peer has gone");
        }
    }
    for (int peer = 0; peer < old.count; peer++) {
        Member member{};
        if (peer == old.rank) continue;
        if (!read_all(old.control[peer], &member, sizeof member)) {
            return fail(kRemoteError, "a peer has gone");
        }
        if (member.color == color) members.push_back(member);
    }
    if (color < 0) return kSuccess;
    std::sort(members.begin(), members.end(), [](const Member &left, const Member &right) {
        return std::make_pair(left.key, left.rank) < std::make_pair(right.key, right.rank);
    });
    std::vector<Address> addresses;
    for (const Member &member : members) {
        if (member.rank == old.rank) ranks->rank = static_cast<int>(addresses.size());
        addresses.push_back(member.address);
    }
    return connect_all(listener, addresses, members[0].magic, ranks);
}

Ranks::~Ranks() {
    for (const std::vector<int> *channel : {&control, &data}) {
        for (int socket : *channel) {
            if (socket >= 0) close(socket);
        }
    }
}

Result Ranks::tell(int peer, uint32_t kind) {
    if (peer == rank || write_all(control[peer], &kind, sizeof kind)) return kSuccess;
    return fail(kRemoteError, "rank " + std::to_string(peer) + " has gone");
}

Result Ranks::hear(int peer, uint32_t kind) {
    while (peer != rank && heard[peer].count(kind) == 0) {
        uint32_t word = kGoodbye;
        if (!read_all(control[peer], &word, sizeof word) || word == kGoodbye) {
            return fail(kRemoteError, "rank " + std::to_string(peer) + " has gone");
        }
        heard[peer].insert(word);
    }
    if (peer != rank) heard[peer].erase(heard[peer].find(kind));
    return kSuccess;
}

bool Ranks::lost() {
    for (int socket : control) {
        char byte;
        if (socket < 0) continue;
        ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    }
    return false;
}

void Ranks::leave() {
    for (int socket : control) {
        if (socket >= 0) write_all(socket, &kGoodbye, sizeof kGoodbye);
    }
    for (int peer : elsewhere) {
        uint32_t word = 0;
        do {
            if (!read_all(control[peer], &word, sizeof word)) break;
        } while (word != kGoodbye);
    }
}

void Ranks::stop() {
    for (const std::vector<int> *channel : {&control, &data}) {
        for (int socket : *channel) {
            if (socket >= 0) shutdown(socket, SHUT_RDWR);
        }
    }
}

bool exchange(const Ranks &ranks, Exchange out, Exchange in) {
    for (;;) {
        std::vector<pollfd> entries;
        std::vector<int> peers;
        for (int peer = 0; peer < ranks.count; peer++) {
            for (Exchange *way : {&out, &in}) {
                auto &queue = (*way)[peer];
                while (!queue.empty() && queue.front().bytes == 0) queue.pop_front();
            }
            short events = (out[peer].empty() ? 0 : POLLOUT) | (in[peer].empty() ? 0 : POLLIN);
            if (peer == ranks.rank || events == 0) continue;
            entries.push_back({ranks.data[peer], events, 0});
            peers.push_back(peer);
        }
        if (entries.empty()) return true;
        if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return false;
        for (size_t index = 0; index < entries.size(); index++) {
            auto &to = out[peers[index]], &from = in[peers[index]];
            int socket = entries[index].fd;
            if (!to.empty() && (entries[index].revents & (POLLOUT | POLLERR | POLLHUP))) {
                Stretch &first = to.front();
                ssize_t sent = send(socket, first.out, first.bytes, MSG_NOSIGNAL);
                if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
                if (sent > 0) first.out += sent, first.bytes -= sent;
            }
            if (!from.empty() && (entries[index].revents & (POLLIN | POLLERR | POLLHUP))) {
                Stretch &first = from.front();
                ssize_t got = recv(socket, first.in, first.bytes, 0);
                if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
                if (got > 0) first.in += got, first.bytes -= got;
            }
        }
    }
}

}  // namespace fake
