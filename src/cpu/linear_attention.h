/*
 * Linear attention on the cpu: every result but the gates' gradients is a walk (kernels/linear_attention.h).
 *
 *             q       k          v           y              state, time
 *     y       q       β k        v           y = scale ·    S, forward
 *     dq      dy      v          β k        dq = scale ·    Sᵀ, forward, summed over the heads of a query head
 *     dv      k       scale q    dy         dv = β ·        G, backward
 *     dk      v       dy         scale q    dk = β ·        Gᵀ, backward, summed likewise
 *
 * A backward walk meets at each step the gate of the step that it comes from.  No walk needs what another one has
 * computed, and no state is kept but for the gates' gradients, <G, S>: see linear_attention_backward.c.
 *
 * A line is a sequence of one head of y, with its members: the heads that are summed in y.  A thread by itself takes
 * one line after the other; where lines are too few for the threads, it takes a part of their panels, and prepares
 * for itself what the others prepare for theirs; where the threads are so many that this does not pay, all of them
 * share the lines' chunks to prepare them, then their panels to walk them.  Nothing of this shows in the results:
 * chunks are cut by the sequence's own length, panels never see each other, and sums over panels have one order.
 */
#ifndef RL_CPU_LINEAR_ATTENTION_H
#define RL_CPU_LINEAR_ATTENTION_H

#include "cpu.h"
#include "kernels/linear_attention.h"
#include "series.h"

typedef struct rl_attention_factor {
    rill_tensor tensor; /* [batch, length, heads] or absent: 1 */
    double scale;       /* 0 means 1 */
} rl_attention_factor;

typedef struct rl_attention_walk {
    const rl_kernels *kernels;
    bool f64;
    int64_t length, sequences, heads, keys, values; /* keys, values: of the state as this walk sees it */
    int64_t members;                                /* heads that are summed in a head of y */
    rill_tensor q, k, v, y;                         /* [batch, length, heads, ...]; q may be absent: zero; y too */
    rill_tensor partner;                            /* as v, or absent */
    rill_tensor gate, offsets, start, end; /* the states that enter and leave: absent ones as in the problem */
    int64_t q_share, k_share, v_share;     /* heads that share one of the tensor's */
    rl_attention_factor k_factor, v_factor, y_factor;
    bool no_input; /* k vᵀ is nothing, and neither is read */
    bool gate_is_log;
    bool reverse;  /* takes each sequence's last step first */
    bool backward; /* against the recurrence: a step has the gate of the one before it, the state that leaves the last
                    */
    bool transposed; /* the states in memory are */

    /* For the gates' gradients: reals [batch, length, heads, panels], or NULL. */
    void *inner, *whole; /* sums over a panel with the partner, as in rl_attention_panel */
    bool wants_plain;    /* products of a chunk's queries and keys without decays */

    /* Set by rl_attention_plan. */
    int64_t lines, panels, state_rows, q_pitch, chunks; /* chunks: of the longest sequence */
    int64_t vectors;
    int64_t chunk_cost, vector_cost; /* operations on vectors, a step: of a chunk prepared, of a vector of values */
    size_t real_size, vector_size, panel_size, slot_size, scratch_size; /* bytes */
    bool may_multiply;
} rl_attention_walk;

void rl_attention_plan(rl_attention_walk *walk);

/* A line, its steps in the walk's order. */
typedef struct rl_attention_line {
    int64_t sequence, head; /* of y */
    rl_sequence s;
    int64_t chunks;
} rl_attention_line;

rl_attention_line rl_attention_line_of(const rl_attention_walk *walk, int64_t index);

/* Where a panel's state lies at the begin of a chunk, and the bits of its largest magnitude. */
typedef struct rl_attention_state {
    char *numbers;
    int64_t *largest;
} rl_attention_state;

/* What is done at a panel of a chunk beside the walk: see linear_attention_backward.c. */
typedef struct rl_attention_place {
    const rl_attention_line *line;
    int64_t index, member, chunk, panel; /* index: of the line in its group */
    int64_t begin, rows;
} rl_attention_place;

/*
 * Lines walked side by side, by one thread or by all, and their memory: states [lines][members][panels] of
 * panel_size, slots [slab][lines][members] of slot_size; one line's where a thread is by itself.  All panels, or by
 * one thread a part of them.
 */
typedef struct rl_attention_group {
    int64_t first, count, slab;
    int64_t first_panel, panels;
    char *states, *slots;
    char *extra;   /* the owner's, by line */
    char *scratch; /* the worker's own */
    int worker, workers;

    /* Set by the job.  Called before a panel is walked, and after; may be NULL. */
    void (*before)(const struct rl_attention_group *group, const rl_attention_walk *walk,
                   const rl_attention_place *place, rl_attention_panel *panel);
    void (*after)(const struct rl_attention_group *group, const rl_attention_walk *walk,
                  const rl_attention_place *place, rl_attention_panel *panel);
    const void *owner;
} rl_attention_group;

/* In a set of the group's states. */
rl_attention_state rl_attention_state_at(const rl_attention_walk *walk, const rl_attention_group *group, char *states,
                                         int64_t index, int64_t member, int64_t panel);
void rl_attention_load_states(const rl_attention_walk *walk, const rl_attention_group *group);
void rl_attention_store_states(const rl_attention_walk *walk, const rl_attention_group *group);
/* The chunks from `begin` on up to `end`, of those lines that have them. */
void rl_attention_walk_chunks(const rl_attention_walk *walk, const rl_attention_group *group, int64_t begin,
                              int64_t end);
void rl_attention_meet(const rl_attention_group *group);

/* What a call's lines need to be walked. */
typedef struct rl_attention_need {
    int64_t lines, panels, chunks, neighbours;  /* neighbours: lines whose steps lie side by side */
    int threads;                                /* that the work is worth */
    int64_t parts;                              /* of a line's panels, each walked by itself; 0: all threads share */
    size_t states_size, slots_size, extra_size; /* bytes of a part; of a line's prepared chunk; of a part's `extra` */
    size_t scratch_size;                        /* of a worker */
    bool by_line;                               /* the job walks one line after the other, in the memory of one */
    void (*job)(rl_attention_group *, const void *); /* walks a group's lines; every worker of it is called */
    const void *owner;
} rl_attention_need;

rl_attention_need rl_attention_need_of(const rill_context *context, const rl_attention_walk *walk);

/* Shares the lines out among threads: each its own or its parts of them, or all of them all lines. */
rill_status rl_attention_share(rill_context *context, const rl_attention_need *need);

/* Walks all lines from their first chunk to the last. */
rill_status rl_attention_run(rill_context *context, rl_attention_walk *walk);

/* The part [begin, end) of `count` tasks that is the worker's. */
static inline void rl_attention_part(const rl_attention_group *group, int64_t count, int64_t *begin, int64_t *end)
{
    *begin = count * group->worker / group->workers;
    *end = count * (group->worker + 1) / group->workers;
}

/* The steps of a chunk; those of a backward walk are the same as forward. */
static inline int64_t rl_attention_begin_of(const rl_attention_walk *walk, const rl_attention_line *line,
                                            int64_t chunk)
{
    int64_t last = line->chunks - chunk; /* a backward walk's chunk 0 is what is left over at the sequence's end */
    if (!walk->backward) return chunk * RL_CHUNK;
    return chunk == 0 ? 0 : line->s.length - last * RL_CHUNK;
}

static inline int64_t rl_attention_end_of(const rl_attention_walk *walk, const rl_attention_line *line, int64_t chunk)
{
    return chunk + 1 < line->chunks ? rl_attention_begin_of(walk, line, chunk + 1) : line->s.length;
}

/* Rows are steps from `step` on in the walk's order, lanes from `channel` on. */
rl_matrix rl_attention_rows(const rill_tensor *tensor, rl_sequence s, int64_t step, int64_t head, int64_t channel);
/* The factors of some steps, [RL_CHUNK] of real; false where all are 1. */
bool rl_attention_load_factors(const rl_attention_walk *walk, const rl_attention_factor *factor, rl_sequence s,
                               int64_t head, int64_t begin, int64_t rows, void *to);
/* The gates of some steps of the recurrence in its own order, without regard to what enters. */
void rl_attention_load_gates(const rl_attention_walk *walk, rl_sequence s, int64_t head, int64_t begin, int64_t rows,
                             double *gate, bool *reset);

/* The same as the walk meets them: a backward one that of the step before; without a state before it, none. */
void rl_attention_walk_gates(const rl_attention_walk *walk, rl_sequence s, int64_t head, int64_t begin, int64_t rows,
                             double *gate, bool *reset);

/* The place of a step's sums over panels. */
static inline int64_t rl_attention_sums_at(const rl_attention_walk *walk, rl_sequence s, int64_t step, int64_t head)
{
    int64_t time = s.row * walk->length + (s.reverse ? s.first - step : s.first + step);
    return (time * walk->heads + head) * walk->panels;
}

static inline double rl_attention_get(const rl_attention_walk *walk, const void *numbers, int64_t i)
{
    return walk->f64 ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
}

static inline void rl_attention_put(const rl_attention_walk *walk, void *numbers, int64_t i, double value)
{
    if (walk->f64)
        ((double *)numbers)[i] = value;
    else
        ((float *)numbers)[i] = (float)value;
}

#endif
