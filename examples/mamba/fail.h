/* How the example ends when something is wrong. */
#ifndef MAMBA_FAIL_H
#define MAMBA_FAIL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prints "mamba-lm: " and the message, and ends the program. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Whatever was printed has arrived, or the end. */
void flush_output(void);

/* Memory of zeros, or the end. */
void *take(size_t count, size_t size);

#ifdef __cplusplus
}
#endif

#endif
