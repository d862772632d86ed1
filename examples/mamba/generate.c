#include <stdio.h>
#include <stdlib.h>

#include "fail.h"
#include "model.h"
#include "sample.h"
#include "tasks.h"
#include "tokens.h"

enum { LONG_PROMPT = 4 }; /* blocks */

/* What has been said of a text so far. */
typedef struct text {
    int64_t *tokens, count;
} text;

static void add_tokens(text *to, const int64_t *tokens, int64_t count)
{
    to->tokens = realloc(to->tokens, (size_t)(to->count + count) * sizeof *to->tokens);
    if (!to->tokens) fail("out of memory: a text of %lld tokens", (long long)(to->count + count));
    for (int64_t k = 0; k < count; k++) to->tokens[to->count++] = tokens[k];
}

/* Reads a prompt block by block into the text's state; its last token's logits. */
static void read_prompt(const task *asked, model *made, int64_t vocab, int64_t which, text *to, float *logits)
{
    token_source source = tokens_of_text(asked->prompts[which], asked->ids, vocab);
    int64_t *block = take((size_t)asked->block, sizeof *block), blocks = 0;
    for (int64_t count; (count = tokens_read(&source, block, asked->block)) > 0; blocks++) {
        model_read(made, block, which, 1, count, logits);
        add_tokens(to, block, count);
        if (blocks >= LONG_PROMPT)
            fprintf(stderr, "\rprompt %lld: %lld tokens", (long long)which + 1, (long long)to->count);
    }
    if (blocks > LONG_PROMPT) fputc('\n', stderr);
    if (to->count == 0) fail("prompt %lld has no tokens", (long long)which + 1);
    tokens_close(&source);
    free(block);
}

static void show(const task *asked, const text *said, int64_t from)
{
    for (int64_t k = from; k < said->count; k++) token_print(said->tokens[k], asked->ids, stdout);
}

static void tell_figures(const model *made, const compute *on, int64_t steps, double elapsed)
{
    rill_info info;
    check(on, rill_context_info(on->rill, &info));
    const double own = (double)on->allocated + (double)info.workspace, needed = (double)model_bytes(made);
    fprintf(stderr, "%s: %lld steps", info.backend_name, (long long)steps);
    if (steps > 0) fprintf(stderr, ", %.1f us each", 1e6 * elapsed / (double)steps);
    if (model_recorded(made) > 0) fprintf(stderr, ", %lld graph nodes", (long long)model_recorded(made));
    fprintf(stderr, "; %.2f MB allocated, %.2f times weights and states\n", own / 1e6, own / needed);
}

void task_generate(const task *asked, compute *on, checkpoint *opened)
{
    const int64_t vocab = checkpoint_config(opened)->vocab, texts = asked->texts;
    model *made = model_create(on, opened, texts, asked->block > texts ? asked->block : texts, false);
    model_use_recording(made, asked->records);
    float *logits = take((size_t)(texts * vocab), sizeof *logits);
    double *room = take((size_t)vocab, sizeof *room);
    int64_t *next = take((size_t)texts, sizeof *next);
    text *said = take((size_t)texts, sizeof *said);
    for (int64_t k = 0; k < texts; k++) read_prompt(asked, made, vocab, k, &said[k], logits + k * vocab);
    const bool is_alone = texts == 1; /* and printed as it comes */
    if (is_alone) show(asked, &said[0], 0);
    const double start = seconds();
    for (int64_t step = 0; step < asked->tokens; step++) {
        for (int64_t k = 0; k < texts; k++) {
            next[k] = sample(logits + k * vocab, vocab, asked->temperature, asked->seed, k, step, room);
            add_tokens(&said[k], &next[k], 1);
        }
        if (is_alone) show(asked, &said[0], said[0].count - 1);
        if (step + 1 < asked->tokens) model_step(made, next, logits);
    }
    const double elapsed = seconds() - start;
    for (int64_t k = 0; k < texts; k++) {
        if (!is_alone) show(asked, &said[k], 0);
        putchar('\n');
    }
    flush_output();
    tell_figures(made, on, asked->tokens > 0 ? asked->tokens - 1 : 0, elapsed);
    for (int64_t k = 0; k < texts; k++) free(said[k].tokens);
    free(said);
    free(next);
    free(room);
    free(logits);
    model_destroy(made);
}
