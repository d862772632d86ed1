#include "sample.h"

#include <math.h>

/* SplitMix64: a number in [0, 1) of a counter. */
static double uniform(uint64_t counter)
{
    uint64_t x = counter * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

static int64_t likeliest(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t k = 1; k < vocab; k++)
        if (logits[k] > logits[best]) best = k;
    return best;
}

int64_t sample(const float *logits, int64_t vocab, double temperature, uint64_t seed, int64_t text, int64_t step,
               double *room)
{
    const int64_t best = likeliest(logits, vocab);
    if (!(temperature > 0)) return best;
    double sum = 0;
    for (int64_t k = 0; k < vocab; k++) sum += room[k] = exp((logits[k] - logits[best]) / temperature);
    double left = uniform((seed << 40 ^ (uint64_t)text << 32) + (uint64_t)step + 1) * sum;
    for (int64_t k = 0; k < vocab; k++)
        if ((left -= room[k]) < 0) return k;
    return best;
}
