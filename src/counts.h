/* Arithmetic of sizes and counts. */
#ifndef RL_COUNTS_H
#define RL_COUNTS_H

#include <stdint.h>

static inline int64_t rl_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t rl_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* How many of `unit` hold `count`, which is not negative. */
static inline int64_t rl_quotient_up(int64_t count, int64_t unit)
{
    return count / unit + (count % unit != 0);
}

#endif
