#ifndef MAMBA_SAMPLE_H
#define MAMBA_SAMPLE_H

#include <stdint.h>

/*
 * A token drawn from softmax(logits / temperature), by a random number that depends on the seed, the text and the
 * step alone; the likeliest one at temperature 0.  `room` has `vocab` elements.
 */
int64_t sample(const float *logits, int64_t vocab, double temperature, uint64_t seed, int64_t text, int64_t step,
               double *room);

#endif
