/*
 * The inner loops of scan and its gradients: one table an instruction set and real type, as kernels.h.
 *
 * Both directions are one shape: a state walks through the rows of a tile, each row a vector of lanes,
 *
 *     forward     h = a h + input                                       out = h
 *     backward    g = input + u,  u = conj(a) g                         out = g,  da = g conj(before)
 *
 * where the state is h, or u: what the next row receives.  Backward, rows run against the recurrence, `input` is the
 * gradient of h and `before` the h that the row's decay met.  A decay of exactly 0 selects: h = input, u = 0, and da
 * is 0 where `before` is not finite.  Products are rounded before their sum, in the order of the plain loop, so that
 * a lane's bits are those of the loop.
 *
 * Complex numbers are pairs of lanes, real part first.  Lanes may be channels, or pieces of one channel's time.
 */
#ifndef RL_CPU_KERNELS_SCAN_H
#define RL_CPU_KERNELS_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

/* How numbers combine. */
typedef struct rl_scan_rule {
    bool back, is_complex;
} rl_scan_rule;

/* Rows of vectors in scratch memory, [rows][lanes] of real each. */
typedef struct rl_scan_tile {
    rl_scan_rule rule;
    int64_t rows;
    void *a;
    void *input;  /* becomes out */
    void *before; /* backward: becomes da; NULL: da is not wanted */
    void *state;  /* [lanes], in and out */
} rl_scan_tile;

/*
 * What rows do to the state that enters them: it leaves as decay * state + fresh, each lane for itself, in double
 * whatever the rows are.  decay is scaled by RL_DECAY_SCALE and fresh by RL_FRESH_SCALE.
 */
typedef struct rl_scan_summary {
    rl_scan_rule rule;
    bool narrow;         /* the rows are float, not double; they hold lanes of the double table all the same */
    int64_t rows, pitch; /* pitch: elements from row to row */
    const void *a, *input;
    double *decay, *fresh;         /* [lanes], all these */
    double *decay_low, *fresh_low; /* what rounding left out of the two; 0 where the rows are float */
    double *least;                 /* the least magnitude of the running product of decays, scaled as decay */
    double *largest; /* the largest decay's magnitude, NaN where any is; of float rows made only where `least` is
                        below RL_LEAST_DECAY */
    double *peak;  /* of the states on the way from zero: the largest, each times the sizes of the decays that follow
                      it, scaled as fresh; of complex ones in each part, or in both where a decay turns them */
    double *reset; /* not 0 where a decay was 0: `fresh` is then all that leaves */
    double *turns; /* of complex numbers: not 0 (it may be NaN) where a decay has an imaginary part */
} rl_scan_summary;

/*
 * With these scales a product of decays shows as infinity, which never turns finite again, from 2^513 on, or 2^65 on
 * where the rows are float; and so does a fresh state beyond the rows' range.  Products that were below
 * RL_LEAST_DECAY (scaled) may have lost bits.
 */
#define RL_DECAY_SCALE(narrow) ((narrow) ? 0x1p959 : 0x1p511)
#define RL_FRESH_SCALE(narrow) ((narrow) ? 0x1p896 : 1.0)
#define RL_LEAST_DECAY 0x1p-500

/* Whole rows of channels that lie side by side, straight from and to the tensors; strides in elements. */
typedef struct rl_scan_rows {
    rl_scan_rule rule;
    rill_dtype dtype;    /* of every tensor here */
    int64_t rows, lanes; /* lanes: reals of a row, at least one vector of them */
    const void *a, *input, *before;
    void *out, *da; /* backward: NULL where not wanted, before then too; out may be input */
    int64_t a_step, input_step, before_step, out_step, da_step;
    bool a_is_shared; /* all lanes have the decay at `a` */
    bool past_cache;  /* out and da are better not kept in cache */
    void *state;      /* [lanes], in and out */
} rl_scan_rows;

/*
 * One vector of real channels, or pieces of a channel, whose steps lie side by side in memory, straight from and to
 * the tensors; lane strides in elements, data at the first row.
 */
typedef struct rl_scan_columns {
    rl_scan_rule rule;
    rill_dtype dtype; /* of every tensor here */
    int64_t rows;     /* a multiple of the lanes */
    const void *a, *input, *before;
    void *out, *da; /* backward: NULL where not wanted, before then too; out may be input */
    int64_t a_lane, input_lane, before_lane, out_lane, da_lane;
    bool falling;       /* the next row lies before the last one in memory, in every tensor */
    bool a_is_constant; /* all rows have the decays at `a` */
    bool past_cache;    /* out and da are better not kept in cache, and whole lines of it lie at the first rows */
    int64_t ahead;      /* bytes from what is read now to what will be read soon */
    bool no_resets;     /* give_columns: no decay in the tile is 0 */
    void *tile_a, *tile_input; /* a and input as rows in scratch memory, in give_columns and take_columns */
    void *state;               /* [lanes], in and out */
} rl_scan_columns;

/*
 * The steps of one float64 channel that lie side by side in memory, forward, in blocks of lanes * lanes: read, walked
 * and written in the order of memory.
 */
typedef struct rl_scan_run {
    int64_t steps; /* a multiple of lanes * lanes */
    const double *a, *input;
    double *out;        /* may be input */
    bool falling;       /* the next step lies before the last one in memory, in every tensor */
    bool a_is_constant; /* all steps have the decay at `a` */
    bool past_cache;    /* out is better not kept in cache, and aligned to a vector */
    bool exact;         /* walk_run: also what each step's rounding leaves out is carried on */
    int64_t ahead;      /* bytes from what is read now to what will be read soon; 0: it lies in cache */
    double state, low;  /* in and out: high and low part of the state */
    double decay;       /* out, of walk_run: the product of the decays; not if exact */
    double largest;     /* out, of walk_run: the largest decay's magnitude, NaN where any is */
} rl_scan_run;

/* What a run does to its state: as rl_scan_summary, but `least` is that of the blocks' ends only. */
typedef struct rl_scan_run_summary {
    double decay, decay_low, fresh, fresh_low, least, largest, peak;
} rl_scan_run_summary;

/* Steps that are whole blocks, and whole cache lines, in every instruction set. */
enum { RL_BLOCK_STEPS = 64 };

/* Call it, after stores past the cache, before other threads may read what they wrote. */
static inline void rl_scan_settle(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

typedef struct rl_scan_kernels {
    /*
     * As rl_kernels' load and store with pitch lanes; besides, in the tables of double, float32 and complex128 (a
     * pair of lanes each).  complex64 moves as float64.  Strides of 0 are quick; data NULL loads as -0.
     */
    void (*load)(void *tile, const rl_matrix *from, int64_t rows, int64_t lanes);
    void (*store)(const rl_matrix *to, const void *tile, int64_t rows, int64_t lanes);
    /* Copies bytes past the cache, where the machine can; they and those of walk_rows settle with rl_scan_settle. */
    void (*stream)(void *to, const void *from, int64_t bytes);

    void (*walk)(const rl_scan_tile *tile);
    /*
     * One lane (or pair) of the tile; the state alone, in and out as double, and in the tables of double what the
     * steps' roundings leave out of it.
     */
    void (*walk_lane)(const rl_scan_tile *tile, int64_t lane, double *state, double *low);
    /* Only in the tables of double. */
    void (*summarise)(const rl_scan_summary *summary);
    void (*walk_rows)(const rl_scan_rows *rows);
    void (*walk_columns)(const rl_scan_columns *columns);
    /*
     * The same for two, of as many rows, whose a and input are in their tiles; and what puts them there, finding what
     * summarise finds: only in the tables of double, for float64.
     */
    void (*give_columns)(const rl_scan_columns *columns);
    void (*take_columns)(const rl_scan_columns *columns, const rl_scan_summary *summaries);

    /* Only in the tables of double. */
    void (*walk_run)(rl_scan_run *run);
    rl_scan_run_summary (*summarise_run)(const rl_scan_run *run);
} rl_scan_kernels;

#endif
