/* A small random generator (splitmix64): the same seed gives the same cases on every machine. */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A generator of its own for part `index` of what `seed` names. */
static inline rng rng_make(uint64_t seed, uint64_t index)
{
    return (rng){rng_mix(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) ^ rng_mix(index + 0x9e3779b97f4a7c15u)};
}

static inline uint64_t rng_next(rng *r)
{
    return rng_mix(r->state += 0x9e3779b97f4a7c15u);
}

/* In [0, count). */
static inline int64_t rng_below(rng *r, int64_t count)
{
    return (int64_t)(rng_next(r) % (uint64_t)count);
}

/* In [0, 1). */
static inline double rng_unit(rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

static inline bool rng_chance(rng *r, double probability)
{
    return rng_unit(r) < probability;
}

/* Near enough to a normal distribution, within [-6, 6], and made of additions only: no libm, the same bits anywhere.
 */
static inline double rng_normal(rng *r)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += rng_unit(r);
    return sum;
}

#endif
