/*
 * `reproducible` selective layers whose panels begin with each sequence, so that a few short sequences fill more than
 * one round of the cpu backend: their bits are those of any number of threads, and of each sequence alone.
 *
 *     layer_panels [--seed N] [--only TARGET]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "venues.h"
#include "words.h"

enum { MOST_STEPS = 400, MOST_CHANNELS = 512, STATES = 16, MOST_SEQUENCES = 4 };

typedef struct kind {
    int64_t channels, sequences;
    int64_t offsets[MOST_SEQUENCES + 1]; /* packed, or a batch of equal lengths */
    bool packed;
} kind;

static const kind kinds[] = {
    {512, 2, {0, 90, 180}, false},        {512, 2, {0, 65, 130}, false},           {40, 3, {0, 1, 2, 143}, true},
    {100, 4, {0, 63, 63, 64, 200}, true}, {512, 4, {0, 100, 101, 190, 290}, true},
};

typedef struct room {
    float x[MOST_STEPS * MOST_CHANNELS], W_delta[MOST_CHANNELS * MOST_CHANNELS];
    float W_B[STATES * MOST_CHANNELS], W_C[STATES * MOST_CHANNELS], A_log[MOST_CHANNELS * STATES];
    float b_delta[MOST_CHANNELS];
    float y[2][MOST_STEPS * MOST_CHANNELS], h_final[2][MOST_SEQUENCES * MOST_CHANNELS * STATES];
} room;

static void fill(float *to, int64_t count, rng *r, double size, double around)
{
    for (int64_t i = 0; i < count; i++) to[i] = (float)(around + size * (2 * rng_unit(r) - 1));
}

static void draw(room *m, const kind *k, rng *r)
{
    const int64_t D = k->channels;
    fill(m->x, MOST_STEPS * D, r, 1, 0);
    fill(m->W_delta, D * D, r, 1 / (double)D, 0);
    fill(m->W_B, STATES * D, r, 0.1, 0);
    fill(m->W_C, STATES * D, r, 0.1, 0);
    fill(m->A_log, D * STATES, r, 1, 0);
    fill(m->b_delta, D, r, 1, -4);
}

/* `count` sequences from the first one on. */
static rill_status run(rill_context *context, room *m, const kind *k, int turn, int64_t first, int64_t count)
{
    int64_t offsets[MOST_SEQUENCES + 1];
    const int64_t D = k->channels, begin = k->offsets[first], steps = k->offsets[first + count] - begin;
    const int64_t batch = k->packed ? 1 : count, length = steps / batch;
    for (int64_t s = 0; s <= count; s++) offsets[s] = k->offsets[first + s] - begin;
    rill_selective_layer_args args = {
        .x = rill_tensor_3d(m->x + begin * D, RILL_F32, batch, length, D),
        .W_delta = rill_tensor_2d(m->W_delta, RILL_F32, D, D),
        .W_B = rill_tensor_2d(m->W_B, RILL_F32, STATES, D),
        .W_C = rill_tensor_2d(m->W_C, RILL_F32, STATES, D),
        .A_log = rill_tensor_2d(m->A_log, RILL_F32, D, STATES),
        .b_delta = rill_tensor_1d(m->b_delta, RILL_F32, D),
        .y = rill_tensor_3d(m->y[turn] + begin * D, RILL_F32, batch, length, D),
        .h_final = rill_tensor_3d(m->h_final[turn] + first * D * STATES, RILL_F32, count, D, STATES),
    };
    if (k->packed) args.offsets = rill_tensor_1d(offsets, RILL_I64, count + 1);
    return rill_selective_layer(context, &args);
}

static bool same(const room *m, const kind *k)
{
    const size_t numbers = (size_t)(k->offsets[k->sequences] * k->channels) * sizeof(float);
    const size_t states = (size_t)(k->sequences * k->channels * STATES) * sizeof(float);
    return memcmp(m->y[0], m->y[1], numbers) == 0 && memcmp(m->h_final[0], m->h_final[1], states) == 0;
}

static int check(const venue *where, room *m, const kind *k)
{
    static const int threads[] = {1, 2, 3, 16};
    rill_context *one = venue_open(where, 1, true);
    int failed = 0;
    bool good = true;
    for (int64_t s = 0; s < k->sequences; s++) good &= run(one, m, k, 0, s, 1) == RILL_OK;
    for (size_t i = 0; i < sizeof threads / sizeof threads[0] && good; i++) {
        rill_context *more = venue_open(where, threads[i], true);
        const bool right = run(more, m, k, 1, 0, k->sequences) == RILL_OK && same(m, k);
        if (!right) printf("FAILED on %s: %d channels, %d threads\n", where->name, (int)k->channels, threads[i]);
        failed += !right;
        rill_context_destroy(more);
    }
    rill_context_destroy(one);
    return failed + !good;
}

int main(int count, char **words)
{
    const law_words given = law_words_read(count, words, 22);
    room *m = malloc(sizeof *m);
    int failed = 0, tested = 0;
    for (const venue *where = venue_table; where->name && m; where++) {
        if (where->backend != RILL_BACKEND_CPU || !venue_selected(where, given.only)) continue;
        rill_context *probe = venue_open(where, 1, false);
        rill_context_destroy(probe);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0] && probe; k++, tested++) {
            rng r = rng_make(given.seed, k);
            draw(m, &kinds[k], &r);
            failed += check(where, m, &kinds[k]);
        }
    }
    free(m);
    printf("%d layers, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
