/*
 * Trains a selective layer to copy selectively: symbols stream by, some of them marked, and at every step the layer
 * is to tell the symbol that was marked last.  A linear recurrence whose decays are fixed cannot; one whose step
 * sizes depend on the input learns to take in what is marked and to let the rest pass.
 *
 *     x = embedding[symbol] + mark,    y = selective_layer(x),    logits = y W_outᵀ,    cross-entropy,    Adam
 *
 * Usage: train [cpu|cuda|auto [STEPS [SEED]]].  On a GPU the tensors still lie on the host: rill copies them.
 */
#include <math.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"

enum { BATCH = 16, LENGTH = 64, ROWS = BATCH * LENGTH, SYMBOLS = 8, CHANNELS = 32, STATES = 8 };

/* What is learned, and of each its gradient, and Adam's means of the gradient and of its square. */
enum { EMBEDDING, MARK, W_DELTA, B_DELTA, W_B, W_C, A_LOG, SKIP, W_OUT, PARAMETERS };
static const int64_t size_of[PARAMETERS][2] = {{SYMBOLS, CHANNELS}, {1, CHANNELS},      {CHANNELS, CHANNELS},
                                               {CHANNELS, 1},       {STATES, CHANNELS}, {STATES, CHANNELS},
                                               {CHANNELS, STATES},  {CHANNELS, 1},      {SYMBOLS, CHANNELS}};
enum { MOST = CHANNELS * CHANNELS };
static float value[PARAMETERS][MOST], gradient[PARAMETERS][MOST], mean[PARAMETERS][MOST], square[PARAMETERS][MOST];

/* A batch, and what goes through the layer. */
static int symbol[ROWS], marked[ROWS], wanted[ROWS];
static float x[ROWS][CHANNELS], y[ROWS][CHANNELS], dx[ROWS][CHANNELS], dy[ROWS][CHANNELS];

static uint64_t seed = 1;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

static int64_t numbers_of(int which)
{
    return size_of[which][0] * size_of[which][1];
}

static void begin(void)
{
    for (int which = 0; which < PARAMETERS; which++)
        for (int64_t k = 0; k < numbers_of(which); k++)
            value[which][k] = (float)((2 * uniform() - 1) / sqrt(CHANNELS));
    for (int k = 0; k < CHANNELS * STATES; k++) value[A_LOG][k] = logf((float)(k % STATES + 1));
    for (int k = 0; k < CHANNELS; k++) value[B_DELTA][k] = -2;
}

static void draw_batch(void)
{
    for (int row = 0; row < ROWS; row++) {
        symbol[row] = (int)(uniform() * SYMBOLS);
        marked[row] = row % LENGTH == 0 || uniform() < 0.15;
        wanted[row] = marked[row] ? symbol[row] : wanted[row - 1];
        for (int c = 0; c < CHANNELS; c++)
            x[row][c] = value[EMBEDDING][symbol[row] * CHANNELS + c] + (marked[row] ? value[MARK][c] : 0);
    }
}

static rill_tensor rows_of(const void *data)
{
    return rill_tensor_3d(data, RILL_F32, BATCH, LENGTH, CHANNELS);
}

static rill_tensor tensor_of(float (*of)[MOST], int which)
{
    const int64_t *size = size_of[which];
    return size[1] == 1 ? rill_tensor_1d(of[which], RILL_F32, size[0])
                        : rill_tensor_2d(of[which], RILL_F32, size[0], size[1]);
}

static rill_status run_layer(rill_context *context)
{
    const rill_selective_layer_args call = {
        .x = rows_of(x),
        .W_delta = tensor_of(value, W_DELTA),
        .W_B = tensor_of(value, W_B),
        .W_C = tensor_of(value, W_C),
        .A_log = tensor_of(value, A_LOG),
        .b_delta = tensor_of(value, B_DELTA),
        .D = tensor_of(value, SKIP),
        .y = rows_of(y),
    };
    return rill_selective_layer(context, &call);
}

static rill_status run_layer_back(rill_context *context)
{
    const rill_selective_layer_backward_args call = {
        .x = rows_of(x),
        .W_delta = tensor_of(value, W_DELTA),
        .W_B = tensor_of(value, W_B),
        .W_C = tensor_of(value, W_C),
        .A_log = tensor_of(value, A_LOG),
        .b_delta = tensor_of(value, B_DELTA),
        .D = tensor_of(value, SKIP),
        .dy = rows_of(dy),
        .dx = rows_of(dx),
        .dW_delta = tensor_of(gradient, W_DELTA),
        .dW_B = tensor_of(gradient, W_B),
        .dW_C = tensor_of(gradient, W_C),
        .dA_log = tensor_of(gradient, A_LOG),
        .db_delta = tensor_of(gradient, B_DELTA),
        .dD = tensor_of(gradient, SKIP),
    };
    return rill_selective_layer_backward(context, &call);
}

/* The chances that a row's y gives the symbols. */
static void foretell(const float *from, float chance[SYMBOLS])
{
    float most = -INFINITY, sum = 0;
    for (int s = 0; s < SYMBOLS; s++) {
        chance[s] = 0;
        for (int c = 0; c < CHANNELS; c++) chance[s] += value[W_OUT][s * CHANNELS + c] * from[c];
        most = fmaxf(most, chance[s]);
    }
    for (int s = 0; s < SYMBOLS; s++) sum += chance[s] = expf(chance[s] - most);
    for (int s = 0; s < SYMBOLS; s++) chance[s] /= sum;
}

/* The loss, and from it dy and the gradient of W_out. */
static double judge(void)
{
    double loss = 0;
    memset(gradient[W_OUT], 0, sizeof gradient[W_OUT]);
    memset(dy, 0, sizeof dy);
    for (int row = 0; row < ROWS; row++) {
        float chance[SYMBOLS];
        foretell(y[row], chance);
        loss -= log(chance[wanted[row]]) / ROWS;
        for (int s = 0; s < SYMBOLS; s++) {
            const float off = (chance[s] - (s == wanted[row])) / ROWS;
            for (int c = 0; c < CHANNELS; c++) {
                gradient[W_OUT][s * CHANNELS + c] += off * y[row][c];
                dy[row][c] += off * value[W_OUT][s * CHANNELS + c];
            }
        }
    }
    return loss;
}

static void gather_inputs(void)
{
    memset(gradient[EMBEDDING], 0, sizeof gradient[EMBEDDING]);
    memset(gradient[MARK], 0, sizeof gradient[MARK]);
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < CHANNELS; c++) {
            gradient[EMBEDDING][symbol[row] * CHANNELS + c] += dx[row][c];
            if (marked[row]) gradient[MARK][c] += dx[row][c];
        }
}

static void learn(int step)
{
    const float rate = 0.003f, keep = 0.9f, keep_square = 0.99f;
    const float of_mean = 1 - powf(keep, (float)step), of_square = 1 - powf(keep_square, (float)step);
    for (int which = 0; which < PARAMETERS; which++)
        for (int64_t k = 0; k < numbers_of(which); k++) {
            const float g = gradient[which][k];
            mean[which][k] = keep * mean[which][k] + (1 - keep) * g;
            square[which][k] = keep_square * square[which][k] + (1 - keep_square) * g * g;
            value[which][k] -= rate * mean[which][k] / of_mean / (sqrtf(square[which][k] / of_square) + 1e-8f);
        }
}

static rill_backend backend_of(const char *name)
{
    if (strcmp(name, "auto") == 0) return RILL_BACKEND_AUTO;
    if (strcmp(name, "cpu") == 0) return RILL_BACKEND_CPU;
    if (strcmp(name, "cuda") == 0) return RILL_BACKEND_CUDA;
    fprintf(stderr, "'%s' is none of auto, cpu, cuda\n", name);
    exit(1);
}

static int64_t whole_argument(const char *text, const char *name)
{
    const double number = number_argument(text, name);
    if (number >= 0 && number <= 1e9 && floor(number) == number) return (int64_t)number;
    fprintf(stderr, "%s: %s is not a whole number from 0 to 1e9\n", name, text);
    exit(1);
}

int main(int count, char **words)
{
    if (count > 4) {
        fprintf(stderr, "usage: train [cpu|cuda|auto [STEPS [SEED]]]\n");
        return 1;
    }
    const rill_options options = {.backend = backend_of(count > 1 ? words[1] : "auto")};
    const int64_t steps = count > 2 ? whole_argument(words[2], "STEPS") : 200;
    if (count > 3) seed = (uint64_t)whole_argument(words[3], "SEED");
    rill_context *context;
    rill_status status = rill_context_create(&options, &context);
    if (status != RILL_OK) {
        fprintf(stderr, "%s\n", rill_last_error(NULL));
        return status == RILL_UNSUPPORTED ? 77 : 1;
    }
    begin();
    for (int step = 1; step <= steps && status == RILL_OK; step++) {
        draw_batch();
        status = run_layer(context);
        if (status != RILL_OK) break;
        const double loss = judge();
        status = run_layer_back(context);
        gather_inputs();
        learn(step);
        if (step % 20 == 0 || step == 1) printf("step %d: loss %.3g\n", step, loss);
    }
    if (status != RILL_OK) fprintf(stderr, "%s\n", rill_last_error(context));
    rill_context_destroy(context);
    return !output_arrived() || status != RILL_OK;
}
