/* Room for numbers of the reference. */
#ifndef RL_REFERENCE_ROOM_H
#define RL_REFERENCE_ROOM_H

#include "../context.h"
#include "number.h"

/* A block of a b numbers. */
static inline rill_status take(rill_context *context, int64_t a, int64_t b, real **block)
{
    void *memory = NULL;
    int64_t bytes;
    if (__builtin_mul_overflow(a, b, &bytes) || __builtin_mul_overflow(bytes, (int64_t)sizeof(real), &bytes))
        return rl_fail(context, RILL_OUT_OF_MEMORY, "memory: the states of a call take more than 2^63 bytes");
    rill_status status = rl_workspace_take(context, (size_t)bytes, &memory);
    *block = memory;
    return status;
}

#endif
