/* Why something failed, in words: filled by what fails, printed once by the command. */
#ifndef TOOLS_FAILURE_H
#define TOOLS_FAILURE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct failure {
    char text[512];
} failure;

/* Writes the text, with control characters replaced (names come from files), and returns false. */
bool failure_set(failure *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif

#endif
