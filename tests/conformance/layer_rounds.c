/*
 * The gradients of selective_layer with rounds so small that sequences are cut into slabs of time, and on the cpu
 * walked side by side: drawn calls against the judge; gradients of a sequence's own whose bits do not follow the
 * rounds, and none that follow the threads; on the cpu memory that does not grow with the length.
 *
 *     layer_rounds [--seed N] [--only TARGET]
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "context.h"
#include "cpu/layer_back.h"
#include "cuda/layer_slabs.h"
#include "strided.h"
#include "words.h"

enum { CASES = 150, LAWS = 40, EVERY = 15 /* of those, on devices */, CHANNELS = 32 /* of the one long sequence */ };

static int64_t round_bytes;

static rill_status run_small(rill_context *context, const rl_selective_layer_backward_problem *problem)
{
#ifdef RL_HAVE_CUDA
    if (context->backend->id == RILL_BACKEND_CUDA) return rl_cuda_layer_back_within(context, problem, round_bytes);
#endif
    return rl_layer_back_within(context, problem, round_bytes);
}

static bool is_here(const venue *t, const char *only)
{
    const bool cuts = t->backend == RILL_BACKEND_CPU || t->backend == RILL_BACKEND_CUDA;
    if (!cuts || !venue_selected(t, only)) return false;
    rill_context *probe = venue_open(t, 1, false);
    rill_context_destroy(probe);
    return probe;
}

static bool takes(const venue *t, uint64_t number)
{
    return t->backend == RILL_BACKEND_CPU || number % EVERY == 0;
}

/* A context whose rounds have round_bytes; it is destroyed as it was made. */
static rill_context *open_small(const venue *t, int threads, bool reproducible, rl_backend *backend)
{
    rill_context *context = venue_open(t, threads, reproducible);
    if (!context) return NULL;
    *backend = *context->backend;
    backend->selective_layer_backward = run_small;
    context->backend = backend;
    return context;
}

/* One sequence, a few, crowds; long ones, and short ones between them; and as many channels as make several blocks.
 */
static test_case draw(uint64_t seed, uint64_t number, bool plain)
{
    static const int64_t sizes[][4] = {
        /* batch, length, channels, states */
        {1, 700, 5, 3},   {3, 200, 33, 16}, {2, 130, 48, 5}, {1, 2049, 1, 1},  {9, 100, 7, 17},
        {1, 90, 1100, 2}, {300, 3, 16, 16}, {5, 64, 17, 0},  {2, 65, 300, 33}, {1, 1300, 8, 8},
    };
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F32, RILL_F16, RILL_F32, RILL_F64};
    const int64_t *row = sizes[number % 10];
    draw_limits limits = {.cost = 1e7,
                          .plain = plain,
                          .packed = number / 10 % 3 == 1 ? 1 : -1,
                          .op = op_find("selective_layer_backward"),
                          .activations = types[number % 7]};
    op_size_set(&limits.pinned, "batch", row[0]);
    op_size_set(&limits.pinned, "length", row[1]);
    op_size_set(&limits.pinned, "channels", row[2]);
    op_size_set(&limits.pinned, "states", row[3]);
    return case_draw(seed, number, &limits);
}

static bool agrees(const venue *t, const test_case *c, const judged *right)
{
    rl_backend backend;
    round_bytes = c->number % 2 ? 1 : 100000;
    rill_context *context = open_small(t, c->threads, c->reproducible, &backend);
    bool good = check_case(context, t, c, right);
    if (!good) {
        printf("FAILED on %s: ", t->name);
        case_print(c);
    }
    rill_context_destroy(context);
    return good;
}

/* On every instruction set that is there, and every device. */
static int judge(const judges *j, const law_words *given, uint64_t number)
{
    test_case c = draw(given->seed, number, false);
    judged right;
    int failed = !judge_case(j, &c, &right);
    for (const venue *t = venue_table; t->name && !failed; t++)
        if (takes(t, number) && is_here(t, given->only)) failed = !agrees(t, &c, &right);
    judged_free(&right);
    return failed;
}

static bool run(rill_context *context, const call *made)
{
    args_room args;
    call_args(made, &args);
    bool good = args_run(context, made->c->op, &args);
    rill_context_destroy(context);
    return good;
}

/* On the cpu with `reproducible` whole sequences and slabs; in any mode one thread and three. */
static bool keeps_bits(const venue *t, uint64_t seed, uint64_t number)
{
    test_case c = draw(seed, number, true);
    rl_backend backend;
    call whole = call_make(&c, false), cut = call_make(&c, false), shared = call_make(&c, false);
    const bool reproducible = number % 2, whole_too = reproducible && t->backend == RILL_BACKEND_CPU;
    round_bytes = 1;
    bool good = run(venue_open(t, 2, reproducible), &whole) && run(open_small(t, 1, reproducible, &backend), &cut) &&
                run(open_small(t, 3, reproducible, &backend), &shared);
    good = good && (!whole_too || calls_same_outputs(&whole, &cut, "whole and in slabs", false)) &&
           calls_same_outputs(&cut, &shared, "one thread and three", true);
    if (!good) case_print(&c);
    call_free(&whole);
    call_free(&cut);
    call_free(&shared);
    return good;
}

/* The workspace of a call of one sequence. */
static int64_t workspace_of(const venue *t, int64_t length)
{
    enum { STATES = 16, TENSORS = 8 };
    const int64_t shapes[TENSORS][3] = {{1, length, CHANNELS}, {CHANNELS, CHANNELS}, {STATES, CHANNELS},
                                        {STATES, CHANNELS},    {CHANNELS, STATES},   {1, length, CHANNELS},
                                        {1, length, CHANNELS}, {CHANNELS, CHANNELS}};
    rill_tensor m[TENSORS];
    rl_backend backend;
    rill_info info;
    for (int i = 0; i < TENSORS; i++) {
        m[i] = view_alloc(RILL_F32, shapes[i][2] ? 3 : 2, shapes[i]);
        view_fill(&m[i], 0.01);
    }
    rill_context *context = open_small(t, 2, false, &backend);
    rill_selective_layer_backward_args args = {.x = m[0],
                                               .W_delta = m[1],
                                               .W_B = m[2],
                                               .W_C = m[3],
                                               .A_log = m[4],
                                               .dy = m[5],
                                               .dx = m[6],
                                               .dW_delta = m[7]};
    rill_status status = rill_selective_layer_backward(context, &args);
    if (status == RILL_OK) status = rill_context_info(context, &info);
    if (status != RILL_OK) printf("%s\n", rill_last_error(context));
    rill_context_destroy(context);
    for (int i = 0; i < TENSORS; i++) free(m[i].data);
    return status == RILL_OK ? info.workspace : INT64_MAX;
}

/*
 * Four times the length: of memory, only the states between slabs are more, 16 of them to thousands of rows.  With
 * rounds as the operator has them it is at most three times the size of x.
 */
static bool stays_small(const venue *t)
{
    round_bytes = 1 << 20;
    const int64_t some = workspace_of(t, 10000), more = workspace_of(t, 40000);
    round_bytes = RL_LAYER_BACK_BYTES;
    const int64_t whole = workspace_of(t, 40000);
    const bool good = some < 3 << 20 && more - some < 100 << 10 && whole <= 3 * 40000 * CHANNELS * 4;
    if (!good)
        printf("%s: %lld bytes, then %lld, then %lld\n", t->name, (long long)some, (long long)more, (long long)whole);
    return good;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 4);
    judges j = judges_open();
    int failed = 0, tested = 0;
    for (uint64_t number = 0; number < CASES; number++) failed += judge(&j, &given, number);
    judges_close(&j);
    for (const venue *t = venue_table; t->name; t++) {
        if (!is_here(t, given.only)) continue;
        for (uint64_t number = 0; number < LAWS; number++)
            if (takes(t, number)) failed += !keeps_bits(t, given.seed, number);
        if (t->backend == RILL_BACKEND_CPU) failed += !stays_small(t);
        tested++;
    }
    printf("%d instruction sets and devices, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
