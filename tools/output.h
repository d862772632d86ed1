/*
 * A file that a command writes last: opened before the work, so that a place that cannot be written is told before
 * it, and changed only by the write.
 */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "failure.h"

typedef struct output {
    const char *path;
    FILE *file;
    bool discard; /* if the command fails: it was not there before, or holds part of a result */
} output;

/* Opens or creates the file and leaves what it holds. */
bool output_open(output *made, const char *path, failure *why);

/* Whether a path names the same file, under whatever name. */
bool output_is(const output *made, const char *path);

/* Empties it: what follows is its new contents. */
bool output_begin(output *made, failure *why);

/* Closes it and answers whether all is good and written; otherwise a regular file of ours goes again. */
bool output_close(output *made, bool good, failure *why);

#endif
