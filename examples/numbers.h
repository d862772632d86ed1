/* Numbers, one or more a line, from a file or standard input into memory, and out again. */
#ifndef EXAMPLES_NUMBERS_H
#define EXAMPLES_NUMBERS_H

#include <stdio.h>
#include <stdlib.h>

typedef struct numbers {
    double *value;
    size_t count;
} numbers;

/* path NULL: standard input.  Ends the program with a message on a file that cannot be read or holds other words. */
static inline numbers numbers_read(const char *path)
{
    numbers all = {NULL, 0};
    size_t room = 0;
    double value;
    FILE *file = path ? fopen(path, "r") : stdin;
    int found = file ? 1 : 0;
    while (file && (found = fscanf(file, "%lf", &value)) == 1) {
        if (all.count == room) {
            room = room ? 2 * room : 1024;
            double *larger = realloc(all.value, room * sizeof *larger);
            if (!larger) break;
            all.value = larger;
        }
        all.value[all.count++] = value;
    }
    if (found != EOF || ferror(file)) {
        fprintf(stderr, "%s: cannot be read, or is not all numbers\n", path ? path : "standard input");
        exit(1);
    }
    if (path) fclose(file);
    return all;
}

/* Whether all that was printed has arrived: a full disk may tell at the very end. */
static inline int output_arrived(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return 1;
    fprintf(stderr, "standard output cannot be written\n");
    return 0;
}

/* One number a line to standard output; answers whether all of them got there. */
static inline int numbers_write(const double *value, size_t count)
{
    for (size_t t = 0; t < count; t++) printf("%.17g\n", value[t]);
    return output_arrived();
}

/* A number on the command line. */
static inline double number_argument(const char *text, const char *name)
{
    char *end;
    double value = strtod(text, &end);
    if (end != text && *end == '\0') return value;
    fprintf(stderr, "%s: '%s' is not a number\n", name, text);
    exit(1);
}

#endif
