/*
 * The scan as its kernels see it: one recurrence for both directions,
 *
 *     u = dropped(a_t, h);  h = u + input_t                     forward:   u = a_t h_{t-1},  output_t = h_t
 *     g = input_t + u;  u = dropped(conj(a_t), g)               backward:  output_t = g_t,  decay_t = g_t
 * conj(before_t)
 *
 * in the order of running.  The backward kernels carry u, which is what the next step run needs, so that no step
 * looks at another's decay.  dropped(a, h) is a h, or 0 where a is exactly 0, whatever h is.
 */
#ifndef RL_CUDA_SCAN_ARGS_H
#define RL_CUDA_SCAN_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/tensor.h>

/* A tensor [batch, length, channels]; strides in elements, `step` in the order of running. */
typedef struct rl_scan_view {
    void *data; /* NULL: absent */
    int64_t batch, step, channel;
    int32_t dtype;
} rl_scan_view;

/* A tensor [sequences, channels]. */
typedef struct rl_scan_state {
    void *data;
    int64_t sequence, channel;
    int32_t dtype;
} rl_scan_state;

typedef struct rl_scan_args {
    rl_scan_view a;
    rl_scan_view input;  /* b; backward: dh, may be absent */
    rl_scan_view output; /* h; backward: db, may be absent */
    rl_scan_view
        before; /* backward: h, read one step earlier in time than the step that is run; absent without decay */
    rl_scan_view decay;     /* backward: da, may be absent */
    rl_scan_state enter;    /* h_init; backward: dh_final */
    rl_scan_state leave;    /* h_final; backward: dh_init */
    rl_scan_state start;    /* backward: h_init, what comes before the first step in time */
    const int64_t *offsets; /* on the device, not checked: clamp */
    int64_t offsets_stride;
    int64_t length, channels, sequences;
    bool down; /* steps are run from the last of a sequence to its first */
} rl_scan_args;

#endif
