/* The memory hooks of every backend that computes on the host. */
#ifndef RL_HOST_H
#define RL_HOST_H

#include <rill/context.h>

rill_status rl_host_alloc(rill_context *context, size_t bytes, void **memory);
void rl_host_free(rill_context *context, void *memory);
rill_status rl_host_copy(rill_context *context, const rill_tensor *destination, const rill_tensor *source);
rill_status rl_host_synchronize(rill_context *context);

#endif
