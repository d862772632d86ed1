/*
 * Selective scans of few channels over very long sequences, which the cpu backend cuts in time: their bits are those
 * of one thread, whatever the decays and values, for any number of threads.
 *
 *     long_selective [--seed N] [--only TARGET]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "venues.h"
#include "words.h"

enum { MOST_CHANNELS = 40, MOST_STATES = 17, LENGTH = 45000, BEHIND = 100 /* steps of a second, short sequence */ };

typedef struct kind {
    const char *name;
    double delta, A; /* the largest magnitudes; of A with its sign */
    int64_t channels, states;
    bool gated, begins, packed, reverse, in_place;
    double odd; /* a value of x after a third of the steps, where not 0 */
} kind;

static const kind kinds[] = {
    {"ordinary decays", 0.1, -16, 16, 16, .begins = true},
    {"one channel, packed", 0.1, -4, 1, 4, .packed = true, .reverse = true},
    {"more channels than a vector", 0.1, -8, 40, 17, .gated = true},
    {"slow decays", 1e-4, -0.5, 3, 5, .begins = true},
    {"no decay", 0.1, 0, 2, 2, .begins = true},
    {"growth", 1e-3, 0.5, 3, 3, .gated = true},
    {"overflow", 0.1, 1, 3, 3, .begins = true},
    {"infinity", 0.1, -16, 5, 4, .odd = INFINITY},
    {"NaN", 0.1, -1, 5, 4, .begins = true, .odd = NAN},
    {"in place", 0.1, -16, 7, 16, .in_place = true},
};

typedef struct room {
    float x[LENGTH * MOST_CHANNELS], delta[LENGTH * MOST_CHANNELS], z[LENGTH * MOST_CHANNELS];
    float A[MOST_CHANNELS * MOST_STATES], h_init[2 * MOST_CHANNELS * MOST_STATES];
    float B[LENGTH * MOST_STATES], C[LENGTH * MOST_STATES];
    float y[2][LENGTH * MOST_CHANNELS], h_final[2][2 * MOST_CHANNELS * MOST_STATES];
} room;

static void fill(float *to, int64_t count, rng *r, double low, double high)
{
    for (int64_t i = 0; i < count; i++) to[i] = (float)(low + (high - low) * rng_unit(r));
}

static void draw(room *m, const kind *k, rng *r)
{
    const int64_t numbers = LENGTH * k->channels, entries = LENGTH * k->states, states = k->channels * k->states;
    fill(m->x, numbers, r, -1, 1);
    fill(m->delta, numbers, r, 0, k->delta);
    fill(m->z, numbers, r, -3, 3);
    fill(m->A, states, r, k->A / 8, k->A);
    fill(m->B, entries, r, -1, 1);
    fill(m->C, entries, r, -1, 1);
    fill(m->h_init, 2 * states, r, -9, 9);
    if (k->odd != 0) m->x[numbers / 3] = (float)k->odd;
}

static rill_status run(rill_context *context, room *m, const kind *k, int turn)
{
    int64_t offsets[] = {0, LENGTH - BEHIND, LENGTH};
    const int64_t sequences = k->packed ? 2 : 1;
    const rill_tensor x = rill_tensor_3d(m->x, RILL_F32, 1, LENGTH, k->channels);
    rill_selective_scan_args args = {
        .x = x,
        .delta = rill_tensor_3d(m->delta, RILL_F32, 1, LENGTH, k->channels),
        .A = rill_tensor_2d(m->A, RILL_F32, k->channels, k->states),
        .B = rill_tensor_4d(m->B, RILL_F32, 1, LENGTH, 1, k->states),
        .C = rill_tensor_4d(m->C, RILL_F32, 1, LENGTH, 1, k->states),
        .y = rill_tensor_3d(m->y[turn], RILL_F32, 1, LENGTH, k->channels),
        .h_final = rill_tensor_3d(m->h_final[turn], RILL_F32, sequences, k->channels, k->states),
        .reverse = k->reverse,
    };
    if (k->gated) args.z = rill_tensor_3d(m->z, RILL_F32, 1, LENGTH, k->channels);
    if (k->begins) args.h_init = rill_tensor_3d(m->h_init, RILL_F32, 1, k->channels, k->states);
    if (k->packed) args.offsets = rill_tensor_1d(offsets, RILL_I64, 3);
    if (k->in_place) {
        memcpy(m->y[turn], m->x, (size_t)(LENGTH * k->channels) * sizeof *m->x);
        args.x = args.y;
    }
    return rill_selective_scan(context, &args);
}

static bool same(const room *m, const kind *k)
{
    const int64_t numbers = LENGTH * k->channels, states = (k->packed ? 2 : 1) * k->channels * k->states;
    for (int64_t i = 0; i < numbers; i++) {
        if (memcmp(&m->y[0][i], &m->y[1][i], sizeof(float)) == 0) continue;
        printf("y differs at step %lld of channel %lld: %.9g, %.9g\n", (long long)(i / k->channels),
               (long long)(i % k->channels), (double)m->y[0][i], (double)m->y[1][i]);
        return false;
    }
    if (memcmp(m->h_final[0], m->h_final[1], (size_t)states * sizeof(float)) == 0) return true;
    printf("h_final differs\n");
    return false;
}

static bool check(const venue *where, room *m, const kind *k, int threads)
{
    rill_context *one = venue_open(where, 1, false), *more = venue_open(where, threads, threads % 2);
    bool good = run(one, m, k, 0) == RILL_OK && run(more, m, k, 1) == RILL_OK && same(m, k);
    if (!good) printf("FAILED on %s: %s, %d threads\n", where->name, k->name, threads);
    rill_context_destroy(one);
    rill_context_destroy(more);
    return good;
}

int main(int count, char **words)
{
    static const int threads[] = {2, 3, 16};
    const law_words given = law_words_read(count, words, 21);
    room *m = malloc(sizeof *m);
    int failed = 0, tested = 0;
    for (const venue *where = venue_table; where->name && m; where++) {
        if (where->backend != RILL_BACKEND_CPU || !venue_selected(where, given.only)) continue;
        rill_context *probe = venue_open(where, 1, false);
        rill_context_destroy(probe);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0] && probe; k++) {
            rng r = rng_make(given.seed, k);
            draw(m, &kinds[k], &r);
            for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++, tested++)
                failed += !check(where, m, &kinds[k], threads[i]);
        }
    }
    free(m);
    printf("%d runs, %d failed\n", tested, failed);
    return tested == 0 ? 77 : failed != 0;
}
