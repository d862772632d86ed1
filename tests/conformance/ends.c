/*
 * Where a long channel ends: lengths beside every multiple of the tiles in which backends take it, each with its
 * last tile full, nearly empty, and in between; and a NaN decay in place, where nothing may be walked twice.
 *
 *     ends [--only TARGET]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"
#include "strided.h"
#include "venues.h"
#include "words.h"

enum { FIRST = 4096, LAST = 10752, UNIT = 512 };

/* a = .5 but for a NaN at `special` (-1: none), with a reset 100 steps on; b = t mod 7. */
static void fill(const rill_tensor *a, const rill_tensor *b, int64_t special)
{
    for (int64_t t = 0; t < a->shape[1]; t++) {
        int64_t at[RILL_MAX_RANK] = {0, t, 0};
        view_store(a, at, t == special ? NAN : special >= 0 && t == special + 100 ? 0 : 0.5);
        view_store(b, at, (double)(t % 7));
    }
}

static bool agrees(const rill_tensor *h, const rill_tensor *right)
{
    double tolerance = 2 * measure_tolerance(h->dtype, false);
    for (int64_t t = 0; t < h->shape[1]; t++) {
        int64_t at[RILL_MAX_RANK] = {0, t, 0};
        double found = view_load(h, at), expected = view_load(right, at);
        if (isnan(found) && isnan(expected)) continue;
        if (fabs(found - expected) <= tolerance * fabs(expected)) continue;
        printf("%s, length %lld, step %lld: found %.9g, expected %.9g\n", rill_dtype_name(h->dtype),
               (long long)h->shape[1], (long long)t, found, expected);
        return false;
    }
    return true;
}

static bool check(rill_context *context, rill_context *loop, rill_dtype dtype, int64_t length, int64_t special)
{
    const int64_t shape[] = {1, length, 1};
    rill_tensor a = view_alloc(dtype, 3, shape), b = view_alloc(dtype, 3, shape);
    rill_tensor h = view_alloc(dtype, 3, shape), right = view_alloc(dtype, 3, shape);
    fill(&a, &b, special);
    bool good = rill_scan(loop, &(rill_scan_args){.a = a, .b = b, .h = right}) == RILL_OK &&
                rill_scan(context, &(rill_scan_args){.a = a, .b = b, .h = h}) == RILL_OK && agrees(&h, &right);
    good = good && rill_scan(context, &(rill_scan_args){.a = a, .b = b, .h = b}) == RILL_OK && agrees(&b, &right);
    rill_tensor *all[] = {&a, &b, &h, &right};
    for (int i = 0; i < 4; i++) free(all[i]->data);
    return good;
}

static int check_type(rill_context *context, rill_context *loop, rill_dtype dtype)
{
    static const int64_t beyond[] = {-1, 0, 1, 3, 8, 16, 17};
    int failed = 0;
    for (int64_t tiles = FIRST; tiles <= LAST; tiles += UNIT)
        for (int i = 0; i < 7; i++) failed += !check(context, loop, dtype, tiles + beyond[i], -1);
    for (int64_t special = 5; special < 4000; special += 1331)
        failed += !check(context, loop, dtype, FIRST + 1, special);
    return failed;
}

static int check_venue(const venue *t, rill_context *loop)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F16};
    static const int threads[] = {1, 4};
    int failed = 0;
    for (int n = 0; n < 2; n++)
        for (int reproducible = 0; reproducible < 2; reproducible++) {
            rill_context *context = venue_open(t, threads[n], reproducible);
            for (int i = 0; i < 4; i++) failed += check_type(context, loop, types[i]);
            rill_context_destroy(context);
        }
    printf("%s: %d failed\n", t->name, failed);
    return failed;
}

int main(int count, char **words)
{
    law_words given = law_words_read(count, words, 0);
    int failed = 0, tested = 0;
    rill_context *loop = context_open(RILL_BACKEND_LOOP);
    for (const venue *t = venue_table; t->name; t++) {
        rill_context *probe = venue_selected(t, given.only) && !t->device_tensors ? venue_open(t, 1, false) : NULL;
        rill_context_destroy(probe);
        if (!probe) continue;
        failed += check_venue(t, loop);
        tested++;
    }
    rill_context_destroy(loop);
    return tested == 0 ? 77 : failed != 0;
}
