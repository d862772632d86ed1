#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

law_words law_words_read(int count, char **words, uint64_t seed)
{
    law_words read = {.seed = seed};
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--seed") == 0) read.seed = strtoull(words[i + 1], NULL, 10);
        if (strcmp(words[i], "--only") == 0) read.only = words[i + 1];
    }
    printf("seed %llu\n", (unsigned long long)read.seed);
    return read;
}
