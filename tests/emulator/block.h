/*
 * A block of threads on one thread of the host: each of its threads is a fiber, which runs until it has to wait for
 * others.  Kernels, and the instructions in machine/, see of it what is declared here.
 */
#ifndef EMULATOR_BLOCK_H
#define EMULATOR_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>

#include <functional>
#include <vector>

#include "launch.h"

namespace emulator
{

struct Block;

/* A copy by cp.async that has not been waited for: `given` bytes, and zeros up to `size`. */
struct Copy {
    void *to;
    const void *from;
    int given, size, group;
};

/* A copy by the copy engine that has not been waited for: of a group, or announced to a barrier with its bytes. */
struct Transfer {
    std::function<void()> copy;
    int group;
    uint64_t *barrier;
    uint32_t bytes;
};

enum Format { BFLOAT, HALF, TENSOR_FLOAT };

/* One product of a group of warps, as each of its threads asks for it. */
struct Request {
    Format format;
    int columns;
    bool a_turned, b_turned, adds, has_registers;
    uint32_t registers[4]; /* of A */
    uint64_t a, b;         /* descriptors */
};

/* A product that has not been waited for. */
struct Product {
    Request request;
    float *sum;
    std::vector<float> before; /* what the sums were, where no earlier product of the same ones is on its way */
    int group;
};

struct Thread {
    uint3 place;
    int rank; /* in the block */
    Block *block;
    void *stack; /* where it stands while another one runs */
    const char *waits_for;
    bool is_over;
    int outcome;     /* of the barrier that it was at */
    int copy_groups; /* closed ones */
    int store_groups;
    std::vector<Copy> copies;
    std::vector<Transfer> stores;
    int product_groups;
    std::vector<Product> products;
    size_t due; /* of them, at a wait */
};

/* Threads that wait at a named barrier. */
struct Barrier {
    int expected; /* 0: all threads that are not over */
    int arrived, holding;
    std::vector<Thread *> waiting;
};

/* By lane, NULL where there is none. */
typedef void (*Operation)(void **items);

/* An operation that some lanes have come for and others have not. */
struct Meeting {
    Operation operation;
    uint32_t lanes;
    int missing;
    void *items[128];
};
struct MeetingPlace {
    std::vector<Meeting> open;
};

struct Block {
    uint3 place;
    dim3 threads, blocks;
    const Launch *launch;
    char *shared; /* dynamic shared memory */
    int count, alive;
    void *scheduler; /* its stack, while a thread runs */
    std::vector<Thread> all;
    Thread *queue[MOST_THREADS]; /* of those that can run, a ring */
    unsigned first, queued;
    size_t idle; /* polls in vain since something last happened */
    unsigned wakes;
    uint64_t random;
    Barrier barriers[16];
    std::vector<MeetingPlace> warps, groups;
    std::vector<Transfer> loads;
    Cluster *cluster; /* NULL: none */
    int rank;         /* in it */
};

/* The thread that runs. */
extern __thread Thread *self __attribute__((tls_model("initial-exec")));

/* Ends the process with the kernel, the block and what its threads wait for. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Something has happened that others may wait for. */
void progress();

/* Lets others run, within a loop that waits for what they do. */
void poll(const char *what);

/* Whether something that the device may do early or late is done early: by chance where orders are drawn. */
bool is_early();

/* bar.sync: how many threads came with `value` true.  threads 0: all of the block that are not over. */
int meet_at_barrier(const char *what, int barrier, int threads, bool value);

/*
 * What lanes do together: each brings an item, the last one to come runs `operation` over all items; then all go on.
 * `count` is 32, a warp, or 128, a group of warps, of which all lanes take part.
 */
void meet_lanes(const char *what, int count, uint32_t lanes, void *item, Operation operation);

void sync_lanes(uint32_t lanes);
uint32_t ballot(uint32_t lanes, bool value);
uint64_t shuffle(uint32_t lanes, uint64_t value, int from);

/* Registers a kernel with the runtime, and gives back its address. */
const void *know(const void *kernel, const Kernel &known);

} // namespace emulator

#endif
