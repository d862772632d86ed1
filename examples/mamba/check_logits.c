/*
 * check_logits MODEL EXPECTED BACKEND: a model's logits beside stored ones, which another implementation has computed
 * in float64: of the whole text at once, in blocks of several sizes, and step by step.  Ends with 77 where the
 * backend is not there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "model.h"

typedef struct expected {
    int64_t *tokens, count, lines; /* rows[line] is the token after which logits[line] stand */
    const int32_t *rows;
    float *logits;
} expected;

static expected load(checkpoint *from, int64_t vocab)
{
    expected right;
    const int32_t *tokens = checkpoint_ints(from, "tokens", &right.count);
    right.tokens = take((size_t)right.count, sizeof *right.tokens);
    for (int64_t k = 0; k < right.count; k++) right.tokens[k] = tokens[k];
    right.rows = checkpoint_ints(from, "rows", &right.lines);
    right.logits = checkpoint_floats(from, "expect.logits", 2, (int64_t[]){right.lines, vocab});
    return right;
}

/* ‖found − right‖ / ‖right‖ over the stored lines. */
static double distance(const expected *right, const float *found, int64_t vocab)
{
    double difference = 0, norm = 0;
    for (int64_t line = 0; line < right->lines; line++)
        for (int64_t k = 0; k < vocab; k++) {
            const double value = right->logits[line * vocab + k];
            const double off = found[right->rows[line] * vocab + k] - value;
            difference += off * off;
            norm += value * value;
        }
    return sqrt(difference / norm);
}

static int report(const char *what, int64_t size, double found)
{
    const double bound = 1e-5;
    const int failed = !(found <= bound);
    printf("%s of %lld: %.2e of the logits%s\n", what, (long long)size, found, failed ? ", FAILED" : "");
    return failed;
}

static int check_blocks(model *made, const expected *right, int64_t vocab, int64_t size, float *found)
{
    model_forget(made);
    for (int64_t at = 0; at < right->count; at += size) {
        const int64_t left = right->count - at;
        model_logits(made, right->tokens + at, left < size ? left : size, found + at * vocab);
    }
    return report("blocks", size, distance(right, found, vocab));
}

/* Twice, for the second time all steps are replayed where the backend can. */
static int check_steps(model *made, const expected *right, int64_t vocab, float *found)
{
    int failed = 0;
    for (int time = 0; time < 2; time++) {
        model_forget(made);
        for (int64_t at = 0; at < right->count; at++) model_step(made, right->tokens + at, found + at * vocab);
        failed += report("steps", 1, distance(right, found, vocab));
    }
    return failed;
}

static compute *create(rill_context *context)
{
#ifdef MAMBA_CUDA
    if (rill_context_backend(context) == RILL_BACKEND_CUDA) return compute_create_cuda(context);
#endif
    return compute_create_cpu(context);
}

int main(int count, char **words)
{
    if (count != 4) fail("usage: check_logits MODEL EXPECTED cpu|cuda");
    const bool on_gpu = strcmp(words[3], "cuda") == 0;
    const rill_options options = {.backend = on_gpu ? RILL_BACKEND_CUDA : RILL_BACKEND_CPU};
    rill_context *context;
    const rill_status status = rill_context_create(&options, &context);
    if (status == RILL_UNSUPPORTED) {
        printf("%s\n", rill_last_error(NULL));
        return 77;
    }
    if (status != RILL_OK) fail("%s", rill_last_error(NULL));
    compute *on = create(context);
    checkpoint *opened = checkpoint_open(words[1]), *stored = checkpoint_open_file(words[2]);
    const int64_t vocab = checkpoint_config(opened)->vocab, sizes[] = {512, 100, 7, 3, 2};
    const expected right = load(stored, vocab);
    float *found = take((size_t)(right.count * vocab), sizeof *found);
    model *made = model_create(on, opened, 1, right.count, true);
    int failed = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        failed += check_blocks(made, &right, vocab, sizes[k], found);
    failed += check_steps(made, &right, vocab, found);
    model_destroy(made);
    free(found);
    free(right.logits);
    free(right.tokens);
    checkpoint_close(stored);
    checkpoint_close(opened);
    on->does->destroy(on);
    rill_context_destroy(context);
    return failed > 0;
}
