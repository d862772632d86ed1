/*
 * scan and its gradients on the cpu: one shape for both (kernels/scan.h), walked in one of three ways.
 *
 *   whole      a thread walks a sequence's block of channels from its first step to its last: the loop itself.
 *   split      the lanes are channels still, but the tiles of time are shared among threads (scan_split.c).
 *   over time  one channel at a time; the lanes are consecutive pieces of a tile of its time.
 *
 * The walk's order is that of the recurrence, or backward that against it.
 */
#ifndef RL_CPU_SCAN_H
#define RL_CPU_SCAN_H

#include "cpu.h"
#include "kernels/scan.h"
#include "series.h"

enum {
    RL_TILE_ROWS = 256, /* of a tile in scratch: three tiles of the widest vectors are 48 KiB */
    RL_MOST_LANES = 16
};

typedef enum rl_scan_way { RL_SCAN_WHOLE, RL_SCAN_SPLIT, RL_SCAN_OVER_TIME } rl_scan_way;

typedef struct rl_scan_job {
    const rl_scan_kernels *kernels; /* of the accumulation type */
    const rl_scan_kernels *mover;   /* whose load and store move the elements: those of double for complex64 */
    const rl_scan_kernels *wide;    /* of double, for summaries */
    rl_scan_rule rule;
    rill_dtype real_dtype; /* of the parts of an activation */
    bool narrow;           /* the accumulation type is float */
    bool reverse;          /* of the walk */
    bool reproducible, past_cache;
    int threads;
    int64_t batch, length, channels, sequences;
    int64_t parts;                 /* reals of a number: 2 of a complex one */
    int64_t lanes, vectors;        /* numbers of a vector; vectors of the channels */
    int64_t block_vectors, blocks; /* channels that one thread walks together */
    size_t real_size, vector_size;

    /* complex64 is float64 here, for the mover */
    rill_tensor offsets, a, input, out; /* input: b, or dh; out: h, or db */
    rill_tensor h, da, h_init;          /* backward only; h_init forward too: absent, the first step meets no state */
    rill_tensor start, end; /* what enters the walk and leaves it: h_init and h_final, dh_final and dh_init */

    char *scratch; /* [threads][scratch_size] */
    size_t scratch_size;
    struct rl_scan_strip *strips; /* those that all threads share */
    int64_t strip_count;
} rl_scan_job;

/* A thread's scratch memory. */
typedef struct rl_scan_scratch {
    char *a, *input, *before; /* tiles; a serves stores too, once it has been walked */
    char *state;              /* of a block's vectors */
} rl_scan_scratch;

rl_scan_scratch rl_scan_scratch_of(const rl_scan_job *job, int thread);

/*
 * Rows of a tile in the tensors: the steps from t on of `lanes` channels from `channel` on; or, where piece > 0, of
 * one channel's `lanes` consecutive pieces of that many steps, with rows = piece.
 */
typedef struct rl_scan_place {
    rl_sequence s;
    int64_t sequence, t, rows, channel, lanes, piece;
} rl_scan_place;

/* The tile of a place, without its state. */
rl_scan_tile rl_scan_load_tile(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_place *place);

/* Its decays alone; and the largest magnitude of a tile's decays, infinite where any is NaN, for states of double. */
rl_scan_tile rl_scan_load_decays(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_place *place);
double rl_scan_largest_decay(const rl_scan_job *job, const rl_scan_tile *tile);

/* Its results, once it has been walked. */
void rl_scan_store_tile(const rl_scan_job *job, const rl_scan_scratch *scratch, const rl_scan_place *place);

/* The state that enters a sequence, and the one that leaves it; one vector. */
void rl_scan_load_state(const rl_scan_job *job, const rl_scan_place *place, void *state);
void rl_scan_store_state(const rl_scan_job *job, const rl_scan_place *place, const void *state);

/* Whether a tensor's whole vectors may be stored past the cache, at the matrix's data and strides of `across` on. */
bool rl_scan_is_aligned(const rl_scan_job *job, const rl_matrix *m, int64_t across);

/* Whether all tensors have steps side by side, as walk_columns takes them; the place of whole vectors as it does. */
bool rl_scan_has_columns(const rl_scan_job *job);
rl_scan_columns rl_scan_columns_of(const rl_scan_job *job, const rl_scan_place *place);

/* Channels of a sequence that one thread walks from its first step to its last. */
typedef struct rl_scan_block {
    rl_sequence s;
    int64_t sequence, first, end; /* channels */
} rl_scan_block;

void rl_scan_run_block(const rl_scan_job *job, const rl_scan_block *block, const rl_scan_scratch *scratch);

/* A channel or vector of a long sequence, cut into tiles of time. */
typedef struct rl_scan_strip rl_scan_strip;

size_t rl_scan_strip_size(void);

/* The channels of a strip. */
rl_scan_block rl_scan_block_of(const rl_scan_job *job, rl_scan_way way, int64_t sequence, int64_t index);

/* Walks a strip alone.  False: its channels are for the loop, and no state has left it; its results are not right. */
bool rl_scan_run_strip(const rl_scan_job *job, rl_scan_way way, int64_t sequence, int64_t index,
                       const rl_scan_scratch *scratch);

/*
 * The strip that threads share, by index in job->strips; every thread calls look, and then run.  When all have come
 * back from that, the last function tells whether its channels, the block, are for the loop.
 */
void rl_scan_make_shared_strip(const rl_scan_job *job, int64_t at, rl_scan_way way, int64_t sequence, int64_t index);
void rl_scan_look_at_shared_strip(const rl_scan_job *job, int64_t at, const rl_scan_scratch *scratch, int thread);
void rl_scan_run_shared_strip(const rl_scan_job *job, int64_t at, const rl_scan_scratch *scratch);
bool rl_scan_must_repeat(const rl_scan_job *job, int64_t at, rl_scan_block *block);

#endif
