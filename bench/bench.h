/* What the parts of rill bench share: problems, samples of times, the machine's ceilings, results. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/rill.h>

#include "failure.h"
#include "operators.h"

enum { BENCH_NAME = 64, BENCH_TEXT = 256, BENCH_MAX_STATES = 32 };

/* How a time is taken: of one call, of many calls in a stream, or of many calls that update rotating states. */
typedef enum bench_mode { BENCH_ONE_CALL, BENCH_EAGER, BENCH_GRAPH, BENCH_DECODE } bench_mode;

/* The kinds of stores that a triad to compare with makes. */
typedef enum bench_stores { BENCH_ORDINARY, BENCH_STREAMING, BENCH_TRIADS } bench_stores;

/* A line of a shapes file; see shapes/default.txt for the format. */
typedef struct bench_problem {
    char name[BENCH_NAME], text[BENCH_TEXT];
    const op *operation;
    rill_dtype dtype;
    op_sizes sizes;
    bool given[OP_MAX_TENSORS]; /* by row of the operator's tensors */
    double option[8];           /* by row of its options; a bool is 0 or 1 */
    bench_mode mode;
    bool time_contiguous;        /* every [batch, length, channels] tensor lies as [batch, channels, length] */
    bool in_place;               /* the operator's overlay is made use of */
    bool on_cpu, on_cuda, quick; /* where it runs, and whether --quick keeps it, when none is named */
    bool yardstick, threads;     /* comparisons on the cpu */
    bool triad[BENCH_TRIADS];
    double cuda_mark_ms;      /* 0: none, as in those below */
    double triad_mark;        /* rill's time over the triad's, at most */
    double streaming_mark[2]; /* rill's speed over the triad's, at least: one thread, more threads */
} bench_problem;

/* Seconds of one call: over samples that may each hold many calls. */
typedef struct bench_sample {
    double median, least;
    int count;
} bench_sample;

/* Rates that the machine reached in this run; 0 is not measured. */
typedef struct bench_ceilings {
    double bytes;                                       /* per second: the best triad on the cpu, copy on the GPU */
    double exponentials;                                /* f32 exponentials per second, in registers */
    double state_steps;                                 /* one exponential and four multiply-adds each */
    double flops_f64, flops_f32, flops_bf16, flops_f16; /* matrix products at the accuracy of the type */
} bench_ceilings;

/* The least time that the ceilings leave to a problem, and which one it is. */
typedef struct bench_floor {
    double bytes, state_steps, flops;
    double seconds;
    const char *by;
} bench_floor;

/* Rill and a triad that moves as many bytes: the least times of both, by turns. */
typedef struct bench_beside {
    int threads;
    double seconds, triad_seconds;
} bench_beside;

typedef struct bench_result {
    bench_problem problem;
    bench_sample time;
    bench_floor floor;
    double yardstick_ratio; /* yardstick's time over rill's, one thread; 0: not compared */
    double yardstick_seconds;
    double yardstick_error; /* relative, between the two results */
    double functions_ratio; /* rill's time over that of its softplus and exponentials alone; 0: not compared */
    double functions_seconds;
    double threads_ratio; /* rill's speed-up by threads over an FMA loop's; 0: not compared */
    double threads_speedup, fma_speedup;
    bench_beside beside[BENCH_TRIADS][2]; /* with one thread, and with all */
    int beside_count;
} bench_result;

/* problem.c: parses a shapes line without its name; "operator:type:SIZES[:words] [key=value...]". */
bool bench_parse(const char *line, bench_problem *problem, failure *why);

/* shapes.c: problems by name, by file, or by text; all lists end after *count. */
bool bench_find_shapes(const char *what, bench_problem **list, int *count, failure *why);
bool bench_known_shapes(bench_problem **list, int *count, failure *why);

/* floor.c */
bench_floor bench_find_floor(const bench_problem *problem, const bench_ceilings *ceilings);

#endif
