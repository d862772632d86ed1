/*
 * The selective layer where one channel of x is far larger than all others, and no weight takes it: what the others
 * give must keep its accuracy, on products of tiles too.
 *
 *     layer_outliers [--only VENUE]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "rng.h"
#include "venues.h"

enum { LENGTH = 1100, CHANNELS = 128, STATES = 8, LARGE = 5 };

static const double sizes[] = {0x1p12, 0x1p20, 0x1p40, 0x1p90};

typedef struct inputs {
    float x[LENGTH][CHANNELS], W_delta[CHANNELS][CHANNELS], W_B[STATES][CHANNELS], W_C[STATES][CHANNELS];
    float A_log[CHANNELS][STATES];
} inputs;

static void fill(rng *r, float *to, int64_t rows, double size)
{
    for (int64_t row = 0; row < rows; row++)
        for (int k = 0; k < CHANNELS; k++) to[row * CHANNELS + k] = (float)(size * (2 * rng_unit(r) - 1));
}

/* Weights are 0 for the large channel. */
static void make(inputs *in, double size)
{
    rng r = rng_make(7, 0);
    fill(&r, in->x[0], LENGTH, 1);
    fill(&r, in->W_delta[0], CHANNELS, 0.2);
    fill(&r, in->W_B[0], STATES, 0.2);
    fill(&r, in->W_C[0], STATES, 0.2);
    for (int t = 0; t < LENGTH; t++) in->x[t][LARGE] = (float)(t % 2 ? size : -size);
    for (int k = 0; k < CHANNELS; k++) in->W_delta[k][LARGE] = 0;
    for (int k = 0; k < STATES; k++) in->W_B[k][LARGE] = in->W_C[k][LARGE] = 0;
    for (int k = 0; k < CHANNELS; k++)
        for (int n = 0; n < STATES; n++) in->A_log[k][n] = (float)(rng_unit(&r) - 1);
}

static float *compute(rill_context *context, inputs *in)
{
    float *y = malloc(sizeof in->x);
    const rill_selective_layer_args args = {
        .x = rill_tensor_3d(in->x, RILL_F32, 1, LENGTH, CHANNELS),
        .W_delta = rill_tensor_2d(in->W_delta, RILL_F32, CHANNELS, CHANNELS),
        .W_B = rill_tensor_2d(in->W_B, RILL_F32, STATES, CHANNELS),
        .W_C = rill_tensor_2d(in->W_C, RILL_F32, STATES, CHANNELS),
        .A_log = rill_tensor_2d(in->A_log, RILL_F32, CHANNELS, STATES),
        .y = rill_tensor_3d(y, RILL_F32, 1, LENGTH, CHANNELS),
    };
    if (y && rill_selective_layer(context, &args) == RILL_OK) return y;
    printf("%s\n", rill_last_error(context));
    exit(1);
}

static double error_of(const float *y, const float *right, int channel)
{
    double error = 0, size = 0;
    for (int t = 0; t < LENGTH; t++) {
        const double expected = right[t * CHANNELS + channel], off = y[t * CHANNELS + channel] - expected;
        error += off * off;
        size += expected * expected;
    }
    return sqrt(error / size);
}

static int run(const venue *where, rill_context *context)
{
    rill_context *reference = context_open(RILL_BACKEND_REFERENCE);
    inputs *in = malloc(sizeof *in);
    int failed = 0;
    for (size_t k = 0; in && k < sizeof sizes / sizeof sizes[0]; k++) {
        make(in, sizes[k]);
        float *y = compute(context, in), *right = compute(reference, in);
        double worst = 0;
        for (int channel = 0; channel < CHANNELS; channel++)
            if (channel != LARGE) worst = fmax(worst, error_of(y, right, channel));
        if (!(worst <= 4e-6)) printf("%s: error %g beside a channel of %g\n", where->name, worst, sizes[k]), failed++;
        free(y);
        free(right);
    }
    free(in);
    rill_context_destroy(reference);
    return failed;
}

int main(int count, char **words)
{
    return venues_main(count, words, run);
}
