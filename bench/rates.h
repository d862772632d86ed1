/* Loops in registers that show what an instruction set's arithmetic can reach, and the plain yardsticks. */
#ifndef BENCH_RATES_H
#define BENCH_RATES_H

#include <stdint.h>

/* A selective scan of contiguous f32 tensors with softplus, bias and skip; one group, no states in or out. */
typedef struct yardstick_scan {
    int64_t batch, length, channels, states;
    const float *x, *delta; /* [batch, length, channels] */
    const float *A;         /* [states, channels]: transposed, so that channels lie side by side */
    const float *B, *C;     /* [batch, length, states] */
    const float *D, *delta_bias;
    float *y;
    float *room; /* (states + 3) * channels */
} yardstick_scan;

/* Linear attention of contiguous f32 tensors with logarithms of gates; no states in or out. */
typedef struct yardstick_attention {
    int64_t batch, length, heads, keys, values;
    const float *q, *k; /* [batch, length, heads, keys] */
    const float *v;     /* [batch, length, heads, values] */
    const float *gate;  /* [batch, length, heads] */
    float *y;
    float *state; /* keys * values */
} yardstick_attention;

/* Each loop runs `rounds` times and answers how many elements it has done; *sink keeps it from being optimised away.
 */
typedef int64_t rate_loop(int64_t rounds, float *sink);

/* a = b + 3 c; for the streaming one a begins on a line of 64 bytes. */
typedef void triad_loop(double *a, const double *b, const double *c, int64_t count);

typedef struct bench_rates {
    const char *isa;
    rate_loop *exponentials, *state_steps, *multiply_adds;
    triad_loop *triad, *streaming_triad;
    void (*selective_scan)(const yardstick_scan *problem);
    void (*functions)(const yardstick_scan *problem); /* the backend's softplus and exponentials; whole vectors */
    void (*linear_attention)(const yardstick_attention *problem);
} bench_rates;

/* The widest of this machine. */
const bench_rates *bench_rates_here(void);

/* Those of the instruction set that the cpu backend uses; the widest where it has no loops of that name. */
const bench_rates *bench_rates_of(const char *isa);

#endif
