/* Decodes a sequence step by step, with the state updated in place, and compares with the whole sequence at once. */
#include <math.h>
#include <stdio.h>

#include <rill/rill.h>

#include "numbers.h"

enum { LENGTH = 64, CHANNELS = 8, STATES = 4 };

static float x[LENGTH][CHANNELS], delta[LENGTH][CHANNELS], A[CHANNELS][STATES];
static float B[LENGTH][STATES], C[LENGTH][STATES], whole[LENGTH][CHANNELS], stepped[LENGTH][CHANNELS];
static float h[CHANNELS][STATES];

static void fill(void)
{
    for (int d = 0; d < CHANNELS; d++)
        for (int n = 0; n < STATES; n++) A[d][n] = -(float)(n + 1);
    for (int t = 0; t < LENGTH; t++) {
        for (int d = 0; d < CHANNELS; d++) x[t][d] = sinf((float)(t + d)), delta[t][d] = 0.1f + 0.01f * (float)d;
        for (int n = 0; n < STATES; n++) B[t][n] = 1.0f, C[t][n] = cosf((float)(t * n));
    }
}

/* The call for `length` steps from step t on. */
static rill_selective_scan_args steps(int t, int length, float y[][CHANNELS])
{
    return (rill_selective_scan_args){
        .x = rill_tensor_3d(x[t], RILL_F32, 1, length, CHANNELS),
        .delta = rill_tensor_3d(delta[t], RILL_F32, 1, length, CHANNELS),
        .A = rill_tensor_2d(A, RILL_F32, CHANNELS, STATES),
        .B = rill_tensor_4d(B[t], RILL_F32, 1, length, 1, STATES),
        .C = rill_tensor_4d(C[t], RILL_F32, 1, length, 1, STATES),
        .y = rill_tensor_3d(y[t], RILL_F32, 1, length, CHANNELS),
    };
}

int main(void)
{
    rill_context *context;
    if (rill_context_create(NULL, &context) != RILL_OK) {
        fprintf(stderr, "%s\n", rill_last_error(NULL));
        return 1;
    }
    fill();
    rill_selective_scan_args call = steps(0, LENGTH, whole);
    rill_status status = rill_selective_scan(context, &call);
    for (int t = 0; t < LENGTH && status == RILL_OK; t++) {
        call = steps(t, 1, stepped);
        call.h_init = rill_tensor_3d(h, RILL_F32, 1, CHANNELS, STATES); /* zero before the first step */
        call.h_final = call.h_init;
        status = rill_selective_scan(context, &call);
    }
    if (status != RILL_OK) fprintf(stderr, "%s\n", rill_last_error(context));
    float largest = 0;
    for (int t = 0; t < LENGTH; t++)
        for (int d = 0; d < CHANNELS; d++) largest = fmaxf(largest, fabsf(whole[t][d] - stepped[t][d]));
    printf("largest difference of %d steps: %g\n", LENGTH, (double)largest);
    rill_context_destroy(context);
    return !output_arrived() || status != RILL_OK || !(largest <= 1e-5f);
}
