/* The two words that every program of laws takes: a seed, which it prints, and the one backend to test. */
#ifndef TESTS_WORDS_H
#define TESTS_WORDS_H

#include <stdint.h>

typedef struct law_words {
    uint64_t seed;
    const char *only; /* NULL: every backend */
} law_words;

/* --seed N and --only BACKEND; prints the seed. */
law_words law_words_read(int count, char **words, uint64_t seed);

#endif
