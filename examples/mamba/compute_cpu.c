/* On the host: OpenBLAS and plain loops, shared by OpenMP's threads where there are rows enough. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute.h"
#include "fail.h"

enum { FEW = 8 }; /* rows that are not worth more threads */

static void destroy(compute *self)
{
    free(self);
}

static void multiply(compute *self, float *out, const float *x, const float *w, int64_t rows, int64_t columns,
                     int64_t inner, bool add)
{
    const double start = seconds();
    const float keep = add;
    const int r = (int)rows, c = (int)columns, k = (int)inner;
    if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, c, k, 1, w, k, x, 1, keep, out, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, r, c, k, 1, x, k, w, k, keep, out, c);
    self->product_seconds += seconds() - start;
}

static void embed(compute *self, float *out, const float *table, const int64_t *tokens, int64_t rows, int64_t width)
{
    (void)self;
    for (int64_t row = 0; row < rows; row++)
        memcpy(out + row * width, table + tokens[row] * width, (size_t)width * sizeof *out);
}

static void normalize(compute *self, float *out, const float *x, int64_t x_row, const float *weight, int64_t rows,
                      int64_t width, double epsilon)
{
    (void)self;
#pragma omp parallel for if (rows > FEW)
    for (int64_t row = 0; row < rows; row++) {
        const float *from = x + row * x_row;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < width; k++) sum += from[k] * from[k];
        const float factor = 1 / sqrtf(sum / (float)width + (float)epsilon);
        for (int64_t k = 0; k < width; k++) out[row * width + k] = weight[k] * (from[k] * factor);
    }
}

static void add_bias(compute *self, float *out, const float *bias, int64_t rows, int64_t width, bool add)
{
    (void)self;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < width; k++) out[row * width + k] = bias[k] + (add ? out[row * width + k] : 0);
}

/* The inputs `back` steps before step t: those of the window before the first step. */
static const float *input_at(const float *x, int64_t x_row, const float *window, int64_t channels, int64_t taps,
                             int64_t t)
{
    return t >= 0 ? x + t * x_row : window + (taps - 1 + t) * channels;
}

static void convolve_step(float *out, const float *x, int64_t x_row, const float *weight, const float *bias,
                          const float *window, int64_t t, int64_t channels, int64_t taps)
{
    for (int64_t c = 0; c < channels; c++) out[c] = bias ? bias[c] : 0;
    for (int64_t k = 0; k < taps; k++) {
        const float *from = input_at(x, x_row, window, channels, taps, t - taps + 1 + k), *w = weight + k * channels;
        for (int64_t c = 0; c < channels; c++) out[c] += w[c] * from[c];
    }
    for (int64_t c = 0; c < channels; c++) out[c] = out[c] / (1 + expf(-out[c]));
}

static void convolve(compute *self, float *out, const float *x, int64_t x_row, const float *weight, const float *bias,
                     float *window, int64_t batch, int64_t length, int64_t channels, int64_t taps)
{
    (void)self;
#pragma omp parallel for if (batch * length > FEW)
    for (int64_t row = 0; row < batch * length; row++) {
        const int64_t b = row / length, t = row % length;
        convolve_step(out + row * channels, x + b * length * x_row, x_row, weight, bias,
                      window + b * (taps - 1) * channels, t, channels, taps);
    }
    for (int64_t b = 0; b < batch; b++) {
        float *kept = window + b * (taps - 1) * channels; /* from the first on: each is moved before it is replaced */
        for (int64_t k = 0; k < taps - 1; k++)
            memmove(kept + k * channels,
                    input_at(x + b * length * x_row, x_row, kept, channels, taps, length - taps + 1 + k),
                    (size_t)channels * sizeof *kept);
    }
}

static void surprise(compute *self, float *bits, const float *logits, const int64_t *targets, int64_t rows,
                     int64_t vocab)
{
    (void)self;
#pragma omp parallel for if (rows > FEW)
    for (int64_t row = 0; row < rows; row++) {
        const float *line = logits + row * vocab;
        float most = line[0];
        double sum = 0;
        for (int64_t k = 1; k < vocab; k++) most = fmaxf(most, line[k]);
        for (int64_t k = 0; k < vocab; k++) sum += expf(line[k] - most);
        bits[row] = (float)((log(sum) + most - line[targets[row]]) / log(2));
    }
}

static recording *record(compute *self, void (*work)(void *), void *argument)
{
    (void)self;
    work(argument);
    return NULL;
}

static void replay(compute *self, recording *recorded)
{
    (void)self;
    (void)recorded;
}

static int64_t parts(const recording *recorded)
{
    (void)recorded;
    return 0;
}

static void forget(compute *self, recording *recorded)
{
    (void)self;
    (void)recorded;
}

compute *compute_create_cpu(rill_context *context)
{
    static const methods does = {destroy,  multiply, embed,  normalize, add_bias, convolve,
                                 surprise, record,   replay, parts,     forget};
    compute *self = take(1, sizeof *self);
    self->does = &does;
    self->rill = context;
    self->device = RILL_HOST;
    return self;
}
