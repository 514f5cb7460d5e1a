// The collectives of the stand-in for NCCL: each rank gets the others' bytes, and calculates by
// itself. Device memory is read and written directly, as the software device's addresses are its
// process's.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include <algorithm>

#include "fake_nccl.h"

namespace fake {
namespace {

enum { kSum, kProd, kMax, kMin, kAvg, kPreMulSum };

// As what a type is calculated.
template <typename T>
struct Number {
    static T of(T value) { return value; }
    static T back(T value) { return value; }
};
template <>
struct Number<__half> {
    static float of(__half value) { return __half2float(value); }
    static __half back(float value) { return __float2half(value); }
};
template <>
struct Number<__nv_bfloat16> {
    static float of(__nv_bfloat16 value) { return __bfloat162float(value); }
    static __nv_bfloat16 back(float value) { return __float2bfloat16(value); }
};

template <typename T>
T joined(T left, T right, int op) {
    switch (op) {
        case kProd: return left * right;
        case kMax: return std::max(left, right);
        case kMin: return std::min(left, right);
        default: return left + right;
    }
}

// Calls `with` with a value of the type.
template <typename With>
void of_type(int type, With with) {
    switch (type) {
        case 0: return with(int8_t());
        case 1: return with(uint8_t());
        case 2: return with(int32_t());
        case 3: return with(uint32_t());
        case 4: return with(int64_t());
        case 5: return with(uint64_t());
        case 6: return with(__half());
        case 7: return with(float());
        case 8: return with(double());
        case 9: return with(__nv_bfloat16());
    }
}

// What a rank contributes: its elements, multiplied before if the reduction says so.
std::vector<char> contribution(const Operation &operation, size_t count) {
    const char *from = static_cast<const char *>(operation.from);
    std::vector<char> own(from, from + count * size_of(operation.type));
    if (operation.reduction.op != kPreMulSum) return own;
    const Reduction &reduction = operation.reduction;
    const void *scalar = reduction.device ? reduction.device : reduction.scalar.data();
    of_type(operation.type, [&](auto kind) {
        using T = decltype(kind);
        T *values = reinterpret_cast<T *>(own.data()), factor;
        memcpy(&factor, scalar, sizeof factor);
        for (size_t index = 0; index < count; index++) {
            values[index] =
                Number<T>::back(Number<T>::of(values[index]) * Number<T>::of(factor));
        }
    });
    return own;
}

// Reduces `count` elements of each rank, the first of which are at `parts`.
void reduce(const std::vector<const char *> &parts, void *to, size_t count, int type, int op) {
    of_type(type, [&](auto kind) {
        using T = decltype(kind);
        for (size_t index = 0; index < count; index++) {
            auto value = [&](size_t rank) {
                return Number<T>::of(reinterpret_cast<const T *>(parts[rank])[index]);
            };
            auto all = value(0);
            for (size_t rank = 1; rank < parts.size(); rank++) {
                all = joined<decltype(all)>(all, value(rank), op);
            }
            if (op == kAvg) all = all / static_cast<decltype(all)>(parts.size());
            static_cast<T *>(to)[index] = Number<T>::back(all);
        }
    });
}

// `count` elements for each rank of `rooted`, or for all if it is -1: each gets from all others
// their part for it, and reduces them.
bool reduced(const Ranks &ranks, const Operation &operation, size_t whole, size_t step,
             int rooted) {
    size_t bytes = operation.count * size_of(operation.type);
    std::vector<char> own = contribution(operation, whole);
    std::vector<std::vector<char>> others(ranks.count);
    Exchange out, in;
    bool gets = rooted < 0 || rooted == ranks.rank;
    for (int peer = 0; peer < ranks.count; peer++) {
        if (peer == ranks.rank) continue;
        if (rooted < 0 || rooted == peer) {
            out[peer].push_back({own.data() + step * peer, nullptr, bytes});
        }
        if (gets) {
            others[peer].resize(bytes);
            in[peer].push_back({nullptr, others[peer].data(), bytes});
        }
    }
    if (!exchange(ranks, out, in)) return false;
    if (!gets) return true;
    std::vector<const char *> parts;
    for (const std::vector<char> &other : others) parts.push_back(other.data());
    parts[ranks.rank] = own.data() + step * ranks.rank;
    reduce(parts, operation.to, operation.count, operation.type, operation.reduction.op);
    return true;
}

bool broadcast(const Ranks &ranks, const Operation &operation) {
    size_t bytes = operation.count * size_of(operation.type);
    Exchange out, in;
    if (operation.other != ranks.rank) {
        in[operation.other].push_back({nullptr, static_cast<char *>(operation.to), bytes});
        return exchange(ranks, out, in);
    }
    for (int peer = 0; peer < ranks.count; peer++) {
        out[peer].push_back({static_cast<const char *>(operation.from), nullptr, bytes});
    }
    out.erase(ranks.rank);
    memmove(operation.to, operation.from, bytes);
    return exchange(ranks, out, in);
}

bool gather(const Ranks &ranks, const Operation &operation) {
    size_t bytes = operation.count * size_of(operation.type);
    char *to = static_cast<char *>(operation.to);
    Exchange out, in;
    memmove(to + bytes * ranks.rank, operation.from, bytes);
    for (int peer = 0; peer < ranks.count; peer++) {
        if (peer == ranks.rank) continue;
        out[peer].push_back({to + bytes * ranks.rank, nullptr, bytes});
        in[peer].push_back({nullptr, to + bytes * peer, bytes});
    }
    return exchange(ranks, out, in);
}

// Sends and receives at the same time. What a rank sends itself it copies.
bool point_to_point(const Ranks &ranks, const std::vector<Operation> &operations) {
    Exchange out, in;
    for (const Operation &operation : operations) {
        size_t bytes = operation.count * size_of(operation.type);
        if (operation.function == kSend) {
            out[operation.other].push_back(
                {static_cast<const char *>(operation.from), nullptr, bytes});
        } else {
            in[operation.other].push_back({nullptr, static_cast<char *>(operation.to), bytes});
        }
    }
    auto &sent = out[ranks.rank], &received = in[ranks.rank];
    for (; !sent.empty() && !received.empty(); sent.pop_front(), received.pop_front()) {
        memmove(received.front().in, sent.front().out,
                std::min(sent.front().bytes, received.front().bytes));
    }
    return exchange(ranks, out, in);
}

}  // namespace

size_t size_of(int type) {
    constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < 10 ? kSizes[type] : 0;
}

bool perform(const Ranks &ranks, const std::vector<Operation> &operations) {
    const Operation &first = operations.front();
    size_t bytes = first.count * size_of(first.type);
    switch (first.function) {
        case kAllReduce: return reduced(ranks, first, first.count, 0, -1);
        case kReduce: return reduced(ranks, first, first.count, 0, first.other);
        case kReduceScatter:
            return reduced(ranks, first, first.count * ranks.count, bytes, -1);
        case kBroadcast: return broadcast(ranks, first);
        case kAllGather: return gather(ranks, first);
        case kSend:
        case kRecv: return point_to_point(ranks, operations);
    }
    return false;
}

}  // namespace fake
