#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "model.h"
#include "tasks.h"
#include "tokens.h"

/* Block after block, with the states carried over: each token but the first is foretold from all that precede it. */
void task_score(const task *asked, compute *on, checkpoint *opened)
{
    const int64_t vocab = checkpoint_config(opened)->vocab;
    token_source source = tokens_of_file(asked->score, asked->ids, vocab);
    model *made = model_create(on, opened, 1, asked->block, true);
    int64_t *tokens = take((size_t)asked->block + 1, sizeof *tokens), count = 0;
    float *bits = take((size_t)asked->block, sizeof *bits);
    double sum = 0;
    if (tokens_read(&source, tokens, 1) == 0) fail("%s has no tokens", asked->score);
    on->rill_seconds = on->product_seconds = 0;
    const double start = seconds();
    for (int64_t length; (length = tokens_read(&source, tokens + 1, asked->block)) > 0; count += length) {
        model_score(made, tokens, tokens + 1, length, bits);
        for (int64_t k = 0; k < length; k++) sum += bits[k];
        tokens[0] = tokens[length];
    }
    const double elapsed = seconds() - start;
    if (count == 0) fail("%s has one token, expected two at least", asked->score);
    printf("%.4f bits a %s, %lld %s\n", sum / (double)count, asked->ids ? "token" : "byte", (long long)count,
           asked->ids ? "tokens" : "bytes");
    flush_output();
    fprintf(stderr, "%.2f s, %.0f tokens/s", elapsed, (double)count / elapsed);
    if (on->device == RILL_HOST)
        fprintf(stderr, "; rill %.1f%%, products %.1f%%", 100 * on->rill_seconds / elapsed,
                100 * on->product_seconds / elapsed);
    fputc('\n', stderr);
    tokens_close(&source);
    free(bits);
    free(tokens);
    model_destroy(made);
}
