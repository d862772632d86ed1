/*
 * What a Mamba needs beside rill's selective layer, where rill's context computes: products with weights, and what
 * works on one row or channel at a time.  Matrices are float32, contiguous but where a row's stride is given.
 */
#ifndef MAMBA_COMPUTE_H
#define MAMBA_COMPUTE_H

#include <rill/rill.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct compute compute;
typedef struct recording recording;

typedef struct methods {
    void (*destroy)(compute *self);
    /* out[rows, columns] = x[rows, inner] wᵀ, or added to it */
    void (*multiply)(compute *self, float *out, const float *x, const float *w, int64_t rows, int64_t columns,
                     int64_t inner, bool add);
    /* out[row] = table[tokens[row]] */
    void (*embed)(compute *self, float *out, const float *table, const int64_t *tokens, int64_t rows, int64_t width);
    /* out[row] = weight x[row] / sqrt(mean(x[row]²) + epsilon) */
    void (*normalize)(compute *self, float *out, const float *x, int64_t x_row, const float *weight, int64_t rows,
                      int64_t width, double epsilon);
    /* out[row] = bias, or added to it */
    void (*add_bias)(compute *self, float *out, const float *bias, int64_t rows, int64_t width, bool add);
    /*
     * out[b, t, c] = silu(bias_c + Σ_k weight[k, c] x[b, t - taps + 1 + k, c]), where the inputs before the first
     * are those in window[b, taps - 1, c], which are replaced by the last ones.  A row of x has the stride x_row.
     */
    void (*convolve)(compute *self, float *out, const float *x, int64_t x_row, const float *weight, const float *bias,
                     float *window, int64_t batch, int64_t length, int64_t channels, int64_t taps);
    /* bits[row] = -log2 softmax(logits[row])[targets[row]] */
    void (*surprise)(compute *self, float *bits, const float *logits, const int64_t *targets, int64_t rows,
                     int64_t vocab);
    /* Runs the work and keeps it, to be replayed in one launch; NULL where that brings nothing. */
    recording *(*record)(compute *self, void (*work)(void *), void *argument);
    void (*replay)(compute *self, recording *recorded);
    int64_t (*parts)(const recording *recorded); /* nodes of the graph that a replay launches */
    void (*forget)(compute *self, recording *recorded);
} methods;

struct compute {
    const methods *does;
    rill_context *rill;
    rill_device device;
    size_t allocated;                     /* bytes of memory_take */
    double rill_seconds, product_seconds; /* cpu: time in rill, and in products */
};

/* On the context's backend.  The context stays the caller's. */
compute *compute_create_cpu(rill_context *context);
compute *compute_create_cuda(rill_context *context); /* only in builds with CUDA */

/* Memory of zeros where it computes, and copies between there and the host. */
void *memory_take(compute *on, size_t bytes);
void memory_put(compute *on, void *to, const void *from_host, rill_dtype dtype, int64_t count);
void memory_get(compute *on, void *to_host, const void *from, rill_dtype dtype, int64_t count);

/* Ends the program where a call of rill failed. */
void check(const compute *on, rill_status status);

double seconds(void);

#ifdef __cplusplus
}
#endif

#endif
