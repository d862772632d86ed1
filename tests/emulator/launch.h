/* Kernels as the runtime knows them, and a launch of one. */
#ifndef EMULATOR_LAUNCH_H
#define EMULATOR_LAUNCH_H

#include <stddef.h>
#include <vector_types.h>

#include <memory>

namespace emulator
{

struct Cluster;

/* The limits of an H200. */
enum {
    MOST_THREADS = 1024,     /* of a block */
    MOST_SHARED = 227 << 10, /* of a block, in bytes */
    USUAL_SHARED = 48 << 10, /* what a kernel may have unasked */
    MULTIPROCESSOR_SHARED = 228 << 10,
    MULTIPROCESSOR_THREADS = 2048,
    MULTIPROCESSOR_BLOCKS = 32,
    MOST_CLUSTER = 8 /* blocks that run at the same time */
};

/* Made where the tree takes a kernel's address, which is where its type is known. */
struct Kernel {
    const char *name;
    void (*call)(const void *kernel, void *const *arguments);
    const size_t *sizes; /* of the arguments */
    size_t count;
};

struct Launch {
    const void *kernel;
    const Kernel *known;
    void *const *arguments;
    dim3 blocks, threads;
    size_t shared;
    unsigned cluster; /* blocks of one */
    std::shared_ptr<Cluster[]> clusters;
};

/* Those of a launch; NULL where each is one block. */
std::shared_ptr<Cluster[]> make_clusters(const Launch &launch);

/* Runs all blocks of a launch, several at a time, and returns when they are done. */
void run(const Launch &launch);

/* Runs the index-th block of a launch on the calling thread. */
void run_block(const Launch &launch, unsigned long index);

/* RILL_EMULATOR_SMS: multiprocessors of the device.  RILL_EMULATOR_SEED: draws the order of threads; 0: ascending. */
int multiprocessors();
size_t most_shared(); /* of a block; less than an H200's makes the device one of an earlier generation */
unsigned long seed();

/* Blocks of a kernel that a multiprocessor holds at a time. */
int blocks_together(unsigned threads, size_t shared);

} // namespace emulator

#endif
