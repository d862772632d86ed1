/*
 * The context's workspace: memory of the backend that only grows.  A call begins with rl_workspace_reset and then
 * takes blocks in a fixed order; blocks stay valid until the next call's reset.  Memory is handed out from a list of
 * slabs, first fit, forward only, so a call that takes the same sizes as an earlier one allocates nothing, and slabs
 * live until the context dies (captured graphs use them).
 */
#ifndef RL_WORKSPACE_H
#define RL_WORKSPACE_H

#include <stddef.h>

#include <rill/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rl_slab rl_slab;

typedef struct rl_workspace {
    rl_slab *first;   /* in order of making, which is the order of use */
    rl_slab *current; /* the slab being handed out */
    size_t used;      /* bytes handed out of it */
    size_t total;     /* bytes of all slabs */
} rl_workspace;

/* Forgets what earlier calls took.  The front calls it once a call. */
void rl_workspace_reset(rill_context *context);

/* A block of at least `bytes`, aligned to 256 bytes, uninitialised.  bytes 0 gives NULL. */
rill_status rl_workspace_take(rill_context *context, size_t bytes, void **block);

/*
 * A place to go back to within a call: what is taken after it is handed out again, to work of the call that follows
 * in order what has used it before.
 */
typedef struct rl_workspace_place {
    rl_slab *slab;
    size_t used;
} rl_workspace_place;

rl_workspace_place rl_workspace_here(const rill_context *context);
void rl_workspace_back_to(rill_context *context, rl_workspace_place place);

/* Gives all slabs back. */
void rl_workspace_release(rill_context *context);

#ifdef __cplusplus
}
#endif

#endif
