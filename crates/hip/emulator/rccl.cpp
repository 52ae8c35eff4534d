// RCCL's functions for processes of one machine: ranks pass data through pipes in a file that they share, one for each
// pair of ranks and direction. Like all work of the emulated GPU, a collective is done when it is asked for; what is
// sent waits in the pipe as it does in RCCL's own buffers.
#include "runtime.h"
#include <atomic>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {
enum { SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
constexpr size_t ROOM = 4 << 20;

struct Id { char path[128]; };
// Counts of bytes that were written and read so far.
struct Pipe { std::atomic<size_t> written, read; char data[ROOM]; };
struct Shared { std::atomic<int> joined, aborted; Pipe pipes[]; };
struct Comm { Shared* shared; int rank, size; };

// Bytes on their way to or from a rank.
struct Transfer { int peer; bool sends; char* at; size_t left; };

struct Op {
    enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV } kind;
    const char* input;
    char* output;
    size_t count;
    int type, op, peer;
    Comm* comm;
    void* stream;
};

thread_local int depth;
thread_local std::vector<Op> group;

size_t width(int type) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < 10 ? sizes[type] : 0;
}

// Does what transfers can be done until all are; those between the same ranks in the same direction in their order.
int transfer(Comm* comm, std::vector<Transfer>& all) {
    for (size_t left = all.size(); left > 0;) {
        bool moved = false;
        std::vector<bool> taken(2 * comm->size);
        for (Transfer& t : all) {
            size_t way = 2 * t.peer + t.sends;
            if (t.left == 0 || taken[way]) continue;
            taken[way] = true;
            Pipe& pipe = comm->shared->pipes[t.sends ? comm->rank * comm->size + t.peer : t.peer * comm->size + comm->rank];
            size_t there = pipe.written.load(std::memory_order_acquire) - pipe.read.load(std::memory_order_acquire);
            std::atomic<size_t>& count = t.sends ? pipe.written : pipe.read;
            size_t at = count.load(std::memory_order_relaxed) % ROOM;
            size_t bytes = std::min(std::min(t.left, t.sends ? ROOM - there : there), ROOM - at);
            if (bytes == 0) continue;
            if (t.sends) memcpy(pipe.data + at, t.at, bytes);
            else memcpy(t.at, pipe.data + at, bytes);
            count.fetch_add(bytes, std::memory_order_release);
            t.at += bytes, t.left -= bytes, moved = true;
            if (t.left == 0) left--;
        }
        if (comm->shared->aborted) return SYSTEM_ERROR;
        if (!moved) sched_yield();
    }
    return SUCCESS;
}

template <class A> A combined(int op, A a, A b) { return op == 1 ? a * b : op == 2 ? (b > a || b != b ? b : a) : op == 3 ? (b < a || b != b ? b : a) : a + b; }

// The ranks' data, which are consecutive, in the order of the ranks.
void combine(const Op& o, const char* from, char* to, size_t count) {
    // rocBLAS's numbers of the same types.
    int floats = o.type == 6 ? 150 : o.type == 7 ? 151 : o.type == 8 ? 152 : o.type == 9 ? 168 : 0;
    auto integer = [&](size_t i) -> int64_t {
        const char* at = from + i * width(o.type);
        return o.type == 0 ? *(int8_t*)at : o.type == 1 ? *(uint8_t*)at : o.type == 2 ? *(int32_t*)at : *(int64_t*)at;
    };
    for (size_t i = 0; i < count; i++) {
        if (floats) {
            double all = load(from, floats, i);
            // Floats are added as floats: longer numbers would hide an order that differs between ranks.
            for (int r = 1; r < o.comm->size; r++) {
                all = combined(o.op, all, load(from, floats, r * count + i));
                if (floats != 152) all = (float)all;
            }
            store(to, floats, i, o.op == 4 ? all / o.comm->size : all);
        } else {
            int64_t all = integer(i);
            for (int r = 1; r < o.comm->size; r++) all = combined(o.op, all, integer(r * count + i));
            if (o.op == 4) all /= o.comm->size;
            memcpy(to + i * width(o.type), &all, width(o.type));
        }
    }
}

int run(std::vector<Op> ops) {
    Comm* comm = ops[0].comm;
    std::vector<Transfer> all;
    // What ranks send to be combined, an operation each.
    std::vector<std::vector<char>> gathered(ops.size());
    auto pass = [&](int peer, bool sends, const char* at, size_t bytes) { if (bytes) all.push_back({peer, sends, (char*)at, bytes}); };
    for (size_t i = 0; i < ops.size(); i++) {
        Op& o = ops[i];
        size_t bytes = o.count * width(o.type);
        bool collects = o.kind == Op::ALL_REDUCE || o.kind == Op::REDUCE_SCATTER || (o.kind == Op::REDUCE && o.peer == comm->rank);
        if (collects) gathered[i].resize(bytes * comm->size);
        if (o.kind == Op::SEND || o.kind == Op::RECV) pass(o.peer, o.kind == Op::SEND, o.kind == Op::SEND ? o.input : o.output, bytes);
        for (int r = 0; r < comm->size; r++) {
            if (o.kind == Op::SEND || o.kind == Op::RECV) break;
            bool self = r == comm->rank;
            // What goes to the rank, and where what comes from it is put; null where nothing is.
            const char* out = o.kind == Op::REDUCE_SCATTER ? o.input + r * bytes
                              : o.kind == Op::BROADCAST    ? (o.peer == comm->rank ? o.input : nullptr)
                              : o.kind == Op::REDUCE       ? (o.peer == r ? o.input : nullptr)
                                                           : o.input;
            char* in = collects                    ? gathered[i].data() + r * bytes
                       : o.kind == Op::ALL_GATHER  ? o.output + r * bytes
                       : o.kind == Op::BROADCAST   ? (o.peer == r ? o.output : nullptr)
                                                   : nullptr;
            if (self) {
                if (in && out) memmove(in, out, bytes);
                continue;
            }
            if (out) pass(r, true, out, bytes);
            if (in) pass(r, false, in, bytes);
        }
    }
    if (int code = transfer(comm, all)) return code;
    for (size_t i = 0; i < ops.size(); i++) if (!gathered[i].empty()) combine(ops[i], gathered[i].data(), ops[i].output, ops[i].count);
    return SUCCESS;
}

int add(Op op) {
    if (!op.comm || width(op.type) == 0 || op.op < 0 || op.op > 4 || op.peer < 0 || op.peer >= op.comm->size) return INVALID_ARGUMENT;
    if (!group.empty() && (group[0].comm != op.comm || group[0].stream != op.stream)) return INVALID_USAGE;
    group.push_back(op);
    if (depth > 0) return SUCCESS;
    std::vector<Op> ops;
    ops.swap(group);
    return submit(op.stream, [ops] { return run(ops); });
}
}  // namespace

API int ncclGetVersion(int* to) { return *to = 22105, SUCCESS; }
API const char* ncclGetErrorString(int code) { return code == SUCCESS ? "no error" : code == SYSTEM_ERROR ? "aborted" : "invalid use"; }
API int ncclGetUniqueId(Id* to) {
    static std::atomic<int> next{0};
    memset(to, 0, sizeof *to);
    auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    snprintf(to->path, sizeof to->path, "/dev/shm/rushlight-rccl-%d-%lld-%d", (int)getpid(), (long long)now, next++);
    return SUCCESS;
}
API int ncclCommInitRank(Comm** to, int size, Id id, int rank) {
    id.path[sizeof id.path - 1] = 0;
    size_t bytes = sizeof(Shared) + (size_t)size * size * sizeof(Pipe);
    int file = open(id.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool sized = file >= 0 && ftruncate(file, bytes) == 0;
    void* made = sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) close(file);
    if (made == MAP_FAILED) return SYSTEM_ERROR;
    Shared* shared = (Shared*)made;
    shared->joined++;
    while (shared->joined < size) usleep(100);
    // All have it open.
    if (rank == 0) unlink(id.path);
    return *to = new Comm{shared, rank, size}, SUCCESS;
}
// Memory stays: others may still read what this rank has sent.
API int ncclCommDestroy(Comm* comm) { return delete comm, SUCCESS; }
API int ncclCommAbort(Comm* comm) { return comm->shared->aborted = 1, SUCCESS; }
API int ncclCommGetAsyncError(Comm*, int* to) { return *to = SUCCESS, SUCCESS; }
API int ncclGroupStart() { return depth++, SUCCESS; }
API int ncclGroupEnd() {
    if (depth == 0) return INVALID_USAGE;
    if (--depth > 0 || group.empty()) return SUCCESS;
    std::vector<Op> ops;
    ops.swap(group);
    return submit(ops[0].stream, [ops] { return run(ops); });
}
API int ncclAllReduce(const char* in, char* out, size_t n, int type, int op, Comm* comm, void* stream) { return add({Op::ALL_REDUCE, in, out, n, type, op, 0, comm, stream}); }
API int ncclBroadcast(const char* in, char* out, size_t n, int type, int root, Comm* comm, void* stream) { return add({Op::BROADCAST, in, out, n, type, 0, root, comm, stream}); }
API int ncclReduce(const char* in, char* out, size_t n, int type, int op, int root, Comm* comm, void* stream) { return add({Op::REDUCE, in, out, n, type, op, root, comm, stream}); }
API int ncclAllGather(const char* in, char* out, size_t n, int type, Comm* comm, void* stream) { return add({Op::ALL_GATHER, in, out, n, type, 0, 0, comm, stream}); }
API int ncclReduceScatter(const char* in, char* out, size_t n, int type, int op, Comm* comm, void* stream) { return add({Op::REDUCE_SCATTER, in, out, n, type, op, 0, comm, stream}); }
API int ncclSend(const char* in, size_t n, int type, int peer, Comm* comm, void* stream) { return add({Op::SEND, in, nullptr, n, type, 0, peer, comm, stream}); }
API int ncclRecv(char* out, size_t n, int type, int peer, Comm* comm, void* stream) { return add({Op::RECV, nullptr, out, n, type, 0, peer, comm, stream}); }
