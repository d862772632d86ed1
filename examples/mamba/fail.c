#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void fail(const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    fputs("mamba-lm: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void flush_output(void)
{
    if (fflush(stdout) != 0 || ferror(stdout)) fail("the output cannot be written");
}

void *take(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) fail("out of memory: %zu times %zu bytes", count, size);
    return memory;
}
