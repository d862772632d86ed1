/* Status and last message. */
#ifndef RL_ERROR_H
#define RL_ERROR_H

#include <rill/context.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RL_MESSAGE_SIZE = 256 };

/* Writes the context's last message and returns status, so that a check reads `return rl_fail(...)`. */
rill_status rl_fail(rill_context *context, rill_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif

#endif
