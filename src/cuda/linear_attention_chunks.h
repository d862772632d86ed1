/*
 * Linear attention by chunks, as its kernels see it.  Every result is a walk: a state S [keys, values] goes through
 * S = g S + k vᵀ and answers y = f Sᵀ q, as on the cpu (src/cpu/linear_attention.h has the table):
 *
 *             q       k          v           y              state, time
 *     y       q       β k        v           y = scale ·    S, forward
 *     dq      dy      v          β k        dq = scale ·    Sᵀ, forward, summed over the heads of a query head
 *     dv      k       scale q    dy         dv = β ·        G, backward
 *     dk      v       dy         scale q    dk = β ·        Gᵀ, backward, summed likewise
 *
 * Steps are counted in the walk's own order.  A backward walk meets at each step the gate of the step that it comes
 * from.  Chunks are those of the recurrence's own order in every walk: the first chunk of a backward one holds what
 * is left over at the sequence's end, as its last steps.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNKS_H
#define RL_CUDA_LINEAR_ATTENTION_CHUNKS_H

#include <cuda.h>

#include "linear_attention_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is tuned: the launcher's side of it. */
enum {
    RL_CHUNKS_STEPS = 64,    /* of a chunk */
    RL_CHUNKS_VALUES = 64,   /* of a warpgroup that holds a state */
    RL_CHUNKS_THREADS = 128, /* of a warpgroup */
    RL_CHUNKS_WARPS = RL_CHUNKS_THREADS / 32,
    RL_CHUNKS_MOST_KEYS = 128,      /* of a kernel */
    RL_CHUNKS_TOGETHER = 2,         /* warpgroups with a state on a multiprocessor */
    RL_CHUNKS_DECAYS_TOGETHER = 20, /* blocks of a multiprocessor that make products of gates */
    RL_CHUNKS_GATES_TOGETHER = 10,  /* or their gradients */
    RL_CHUNKS_MOST_SEGMENTS = 32,   /* parts of time: each block adds up those before its own */
    RL_CHUNKS_LEAST_LENGTH = 32     /* steps of a sequence, on the average: below it the loop's order is as fast */
};

/*
 * What a walk is for: y alone, or with the state that leaves, or y of dq, or of dk, with what the gates' gradients
 * need; of dk with dv, too; or a segment's sum, and for a state
 * that is given out.
 */
typedef enum rl_chunks_purpose {
    RL_CHUNKS_Y,
    RL_CHUNKS_Y_AND_STATE,
    RL_CHUNKS_DQ,
    RL_CHUNKS_DK,
    RL_CHUNKS_DK_AND_DV,
    RL_CHUNKS_SUM,
    RL_CHUNKS_SUM_OF_STATE
} rl_chunks_purpose;

/* What a segment of time is: no state passes it; it cannot be told by a sum, and must be walked. */
enum { RL_CHUNKS_RESETS = 1, RL_CHUNKS_UNSTEADY = 2 };

/* A factor of each step: number times tensor, which may be absent. */
typedef struct rl_chunks_factor {
    rl_attention_view tensor;
    float number;
} rl_chunks_factor;

typedef struct rl_chunks_args {
    CUtensorMap q, k, v;
    rl_attention_view gate, y;
    rl_chunks_factor k_factor, y_factor;
    rl_attention_state start, end; /* absent ones as in the problem; their axes as this walk names them */
    const int64_t *offsets;        /* on the device, not checked: clamp */
    int64_t offsets_stride;
    int64_t length, heads, keys, values, sequences;
    int64_t q_share, k_share, v_share; /* heads that share one of the tensor's */
    int64_t slabs, segments;           /* parts of the values, and of time */
    bool gate_is_log, down, backward;
    bool weighs_values; /* in the loop's order the k factor multiplies v */
    bool stages_y;      /* y is bfloat16, and 8 neighbours are one aligned access */
    bool copies_y;      /* the copy engine can store y */
    CUtensorMap to;     /* y, then */

    void *gates; /* their products, by head and chunk, as the kernel of gates leaves them */

    /* Where time has more than one segment; by sequence, head, slab and then segment. */
    float *parts;   /* of states: the one that enters, and what each segment but the last makes, the first of it, */
                    /* the others of zero */
    double *decays; /* of each segment: what a state is multiplied by */
    int32_t *marks; /* of each segment: RL_CHUNKS_RESETS and the like */

    /* For the gates' gradients (linear_attention_chunk_gates.cuh). */
    CUtensorMap partner;
    int64_t partner_share;
    uint32_t *states;
    float *sums, *cross;
    int32_t *bad; /* [sequences, heads] */
    bool wants_whole;
    rl_attention_view other; /* dv of the walk of dk, as y with stages_y */
} rl_chunks_args;

/* The last kernel of the gates' gradients. */
typedef struct rl_chunks_gates_args {
    rl_chunks_args walk;                  /* of dk, with its sums */
    const float *read;                    /* sums of dq's walk */
    rl_attention_view gate, dgate, dbeta; /* in the recurrence's own order */
    bool has_state;                       /* S_init is given */
} rl_chunks_gates_args;

/* Chunks of all sequences, of one head. */
static inline int64_t rl_chunks_places(const rl_chunks_args *args)
{
    int64_t most = (args->length + RL_CHUNKS_STEPS - 1) / RL_CHUNKS_STEPS;
    return args->offsets ? args->length / RL_CHUNKS_STEPS + args->sequences : args->sequences * most;
}

/* Floats of a state's part. */
static inline int64_t rl_chunks_part(int64_t keys)
{
    return (keys <= RL_CHUNKS_MOST_KEYS / 2 ? RL_CHUNKS_MOST_KEYS / 2 : RL_CHUNKS_MOST_KEYS) * RL_CHUNKS_VALUES;
}

/* Warpgroups with a state of a block: slabs of values that it takes. */
static inline int64_t rl_chunks_groups(int64_t keys)
{
    return keys <= RL_CHUNKS_MOST_KEYS / 2 ? 1 : 2;
}

/*
 * Take an rl_chunks_args and rl_chunks_threads; a block has rl_chunks_groups
 * slabs of one segment of one head: all slabs of a head by that many x heads x sequences x segments of them, slabs
 * first.  The kernel of sums is for the segments but the last.  They run where the device's capability is 9.0 and
 * rl_chunks_has_products says that this build has code for it.
 */
const void *rl_chunks_kernel(int64_t keys, rl_chunks_purpose purpose);
/* Takes an rl_chunks_args, too, and RL_CHUNKS_STEPS threads: [sequences x heads] blocks by any number of rows. */
const void *rl_chunks_decays_kernel(void);
size_t rl_chunks_decays_bytes(void); /* of a chunk; the kernel's shared memory, too */

size_t rl_chunks_shared(int64_t keys, rl_chunks_purpose purpose);
int rl_chunks_threads(int64_t keys, rl_chunks_purpose purpose);
bool rl_chunks_has_products(void);

/* Takes an rl_chunks_gates_args: [sequences x heads] blocks by any number of rows, whole warps. */
const void *rl_chunks_gates_kernel(void);

#ifdef __cplusplus
}
#endif

#endif
