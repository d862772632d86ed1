/* What the launcher of the split scan and its kernels agree on. */
#ifndef RL_CUDA_SCAN_SPLIT_ARGS_H
#define RL_CUDA_SCAN_SPLIT_ARGS_H

#include <stddef.h>

#include "scan_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the tensors lie, which is how a tile's elements come into shared memory. */
typedef enum rl_split_layout {
    RL_SPLIT_ROWS, /* neighbouring channels are neighbours in memory: 16 bytes of channels at a time */
    RL_SPLIT_RUNS, /* neighbouring steps are: 16 bytes of steps at a time, one channel a tile */
    RL_SPLIT_DOWN, /* the same, for steps that are run down in memory */
    RL_SPLIT_ANY,  /* element by element, of types found at run time */
    RL_SPLIT_LAYOUTS
} rl_split_layout;

/*
 * A tile is workers >> lanes_log2 sub-chunks of consecutive steps by 1 << lanes_log2 channels, a thread
 * each.  Channels come in groups of a tile's width; a group's tiles are those of its sequences, one after the other.
 */
typedef struct rl_split_args {
    rl_scan_args scan;
    int32_t lanes_log2;
    int32_t groups;
    int64_t most_tiles; /* of a group: at least as many as it has */
    int32_t steps_log2; /* steps of a tile */
    int32_t unit;       /* RUNS: elements of 16 bytes; else 1 */
    bool is_backward;
    /* All bits set before the kernel runs. */
    uint32_t *tickets; /* [groups] the tile taken last */
    void *summaries;   /* [groups, most_tiles, lanes] */
    void *ends;        /* [groups, most_tiles, lanes] where a summary is not accepted: the state that a walk found */
} rl_split_args;

/*
 * Channels of a tile of ROWS, as a power of two: 64 bytes of them for float, else 32, a sector.  Longer rows load and
 * store faster; shorter ones leave fewer summaries to fold, for more groups share the tiles that are under way.
 */
#ifdef __cplusplus
constexpr
#else
static inline
#endif
    int
    rl_split_row(int size)
{
    return size == 2 || size == 4 ? 4 : 2;
}

/* A kernel and its sizes for elements of one type. */
typedef struct rl_split_kernel {
    const void *kernel;
    size_t shared;        /* bytes of dynamic shared memory */
    int32_t workers;      /* threads of a block that hold a tile's sub-chunks */
    int32_t threads;      /* of a block, all */
    int32_t blocks;       /* of a multiprocessor */
    int32_t steps;        /* of a sub-chunk */
    int32_t summary, end; /* bytes of an element of summaries and of ends */
} rl_split_kernel;

rl_split_kernel rl_scan_split_rows(rill_dtype dtype, bool backward);
/* Other layouts. */
rl_split_kernel rl_scan_split_f32(rl_split_layout layout, bool backward);
rl_split_kernel rl_scan_split_bf16(rl_split_layout layout, bool backward); /* ANY is f32's */
rl_split_kernel rl_scan_split_f16(rl_split_layout layout, bool backward);  /* likewise */
rl_split_kernel rl_scan_split_f64(rl_split_layout layout, bool backward);
rl_split_kernel rl_scan_split_c64(rl_split_layout layout, bool backward);
rl_split_kernel rl_scan_split_c128(rl_split_layout layout, bool backward); /* ANY only */

/* Arguments: the common memory, and its size in units of 16 bytes (int64_t). */
const void *rl_scan_split_reset(void);

#ifdef __cplusplus
}
#endif

#endif
