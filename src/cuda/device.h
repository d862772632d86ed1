/* What the files of the cuda backend share: a context's state, and the way in and out of the backend. */
#ifndef RL_CUDA_DEVICE_H
#define RL_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rl_cublas rl_cublas;

typedef struct rl_cuda_state {
    int device;
    int sms;             /* multiprocessors */
    size_t most_shared;  /* bytes of shared memory that a block may have */
    bool multiplies;     /* it has Hopper's products of matrices, and this build code for them */
    bool starts_early;   /* a kernel may start before the one ahead of it has ended, and wait for that itself */
    cudaStream_t own;    /* made with the context */
    cudaStream_t stream; /* where work goes: own, or the caller's */
    rl_cublas *cublas;   /* opened at first need */
    bool cublas_tried;   /* then cublas NULL means that it cannot be had */
    void (*encode_tiles)(void); /* cuTensorMapEncodeTiled, where kernels that use it can run; else NULL */
    int chains[9]; /* clusters of so many blocks of linear attention's chains that run at the same time */
    char name[256], blas[64];
} rl_cuda_state;

static inline rl_cuda_state *rl_cuda_state_of(const rill_context *context)
{
    return (rl_cuda_state *)context->state;
}

/* An axis of one element has no stride. */
static inline int64_t rl_cuda_stride(const rill_tensor *tensor, int axis)
{
    return tensor->shape[axis] == 1 ? 0 : tensor->stride[axis];
}

/* The caller's current device and pending error, kept over a call. */
typedef struct rl_cuda_scope {
    int device;
    bool switched;
    cudaError_t pending;
} rl_cuda_scope;

/* Makes the context's device current.  Every entry of the backend runs between these two. */
rl_cuda_scope rl_cuda_enter(const rill_context *context);
void rl_cuda_leave(const rill_context *context, const rl_cuda_scope *scope);

/* RILL_OK, or the failure of `what` ("selective_scan: launch") as a status and message. */
rill_status rl_cuda_check(rill_context *context, cudaError_t error, const char *what);

/* Whether the context's stream is being captured into a graph: then nothing may be allocated or waited for. */
bool rl_cuda_capturing(const rill_context *context);

/* A launch of blocks x rows blocks on the context's stream; `arguments` as cudaLaunchKernel takes them. */
rill_status rl_cuda_launch(rill_context *context, const void *kernel, int64_t blocks, int64_t rows, int threads,
                           size_t shared, void **arguments, const char *what);

/*
 * The same for a kernel that calls await_earlier (machine/early.cuh) before it touches memory: where the device can,
 * its blocks start while the last ones of the kernel ahead of it in the stream still run.
 */
rill_status rl_cuda_launch_early(rill_context *context, const void *kernel, int64_t blocks, int64_t rows, int threads,
                                 size_t shared, void **arguments, const char *what);

/* The same in clusters of some blocks, at most 8, on a device of compute capability 9.0. */
rill_status rl_cuda_launch_clusters(rill_context *context, const void *kernel, int64_t clusters, unsigned blocks,
                                    int threads, size_t shared, void **arguments, const char *what);

/*
 * Lets a kernel have more shared memory than it may unasked.  On a device that has not got as much, its launch is
 * answered by a status; where another kernel can do its work, that one is chosen instead.
 */
cudaError_t rl_cuda_allow(const rl_cuda_state *state, const void *kernel, size_t shared);

/* Once for the device, which is current: allows each operator's kernels what they need. */
cudaError_t rl_cuda_prepare_selective_scan(rl_cuda_state *state);
cudaError_t rl_cuda_prepare_selective_scan_backward(rl_cuda_state *state);
cudaError_t rl_cuda_prepare_scan(rl_cuda_state *state);
cudaError_t rl_cuda_prepare_attention(rl_cuda_state *state);        /* after the scan's */
cudaError_t rl_cuda_prepare_attention_floats(rl_cuda_state *state); /* after that */
cudaError_t rl_cuda_prepare_attention_tiles(rl_cuda_state *state);  /* likewise */
cudaError_t rl_cuda_prepare_product(rl_cuda_state *state);          /* after that */

/* Operators and hooks of the table. */
rill_status rl_cuda_copy(rill_context *context, const rill_tensor *destination, const rill_tensor *source);
rill_status rl_cuda_scan(rill_context *context, const rl_scan_problem *problem);
rill_status rl_cuda_scan_backward(rill_context *context, const rl_scan_backward_problem *problem);
rill_status rl_cuda_selective_scan(rill_context *context, const rl_selective_scan_problem *problem);
rill_status rl_cuda_selective_scan_backward(rill_context *context, const rl_selective_scan_backward_problem *problem);

/*
 * Sums that the scan's gradients leave to who asked for it, where that spares a launch: of dB and dC over `inputs`
 * dense parts, [parts, rows, 2, states]; of dA, dD and ddelta_bias over sequences.  All without data: it left none.
 */
typedef struct rl_cuda_scan_back_left {
    const void *BC, *A, *D, *bias;
    int64_t inputs;
} rl_cuda_scan_back_left;
rill_status rl_cuda_selective_scan_backward_but_sums(rill_context *context,
                                                     const rl_selective_scan_backward_problem *problem,
                                                     rl_cuda_scan_back_left *left);
rill_status rl_cuda_selective_layer(rill_context *context, const rl_selective_layer_problem *problem);
rill_status rl_cuda_selective_layer_backward(rill_context *context,
                                             const rl_selective_layer_backward_problem *problem);
rill_status rl_cuda_linear_attention(rill_context *context, const rl_linear_attention_problem *problem);
rill_status rl_cuda_linear_attention_backward(rill_context *context,
                                              const rl_linear_attention_backward_problem *problem);

#ifdef __cplusplus
}
#endif

#endif
