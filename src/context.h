/* What a context holds.  Front and backends share it; state belongs to the backend. */
#ifndef RL_CONTEXT_H
#define RL_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend.h"
#include "error.h"
#include "workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rill_context {
    const rl_backend *backend;
    rill_options options; /* as given; threads resolved (>= 1), backend resolved */
    void *state;          /* the backend's own */
    rl_workspace workspace;
    char message[RL_MESSAGE_SIZE];
};

#ifdef __cplusplus
}
#endif

#endif
