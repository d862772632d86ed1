#include <stdlib.h>

#include "context.h"

enum { ALIGNMENT = 256 };

struct rl_slab {
    rl_slab *next;
    void *memory;
    size_t size;
};

void rl_workspace_reset(rill_context *context)
{
    context->workspace.current = context->workspace.first;
    context->workspace.used = 0;
}

/* Appends a slab twice as large as all before it, so that their number stays small while a caller's shapes grow. */
static rill_status add_slab(rill_context *context, size_t bytes)
{
    rl_workspace *workspace = &context->workspace;
    size_t size = bytes > workspace->total ? bytes : workspace->total;
    rl_slab *slab = malloc(sizeof *slab), **end = &workspace->first;
    if (!slab) return rl_fail(context, RILL_OUT_OF_MEMORY, "workspace: no host memory for its list");
    rill_status status = context->backend->alloc(context, size, &slab->memory);
    if (status == RILL_OUT_OF_MEMORY && size > bytes) { /* then just what is needed */
        size = bytes;
        status = context->backend->alloc(context, size, &slab->memory);
    }
    if (status != RILL_OK) {
        free(slab);
        return status;
    }
    while (*end) end = &(*end)->next;
    slab->next = NULL;
    slab->size = size;
    *end = slab;
    workspace->total += size;
    workspace->current = slab;
    workspace->used = 0;
    return RILL_OK;
}

rill_status rl_workspace_take(rill_context *context, size_t bytes, void **block)
{
    rl_workspace *workspace = &context->workspace;
    *block = NULL;
    if (bytes == 0) return RILL_OK;
    if (bytes > SIZE_MAX / 4) return rl_fail(context, RILL_OUT_OF_MEMORY, "workspace: %zu bytes are too many", bytes);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    while (workspace->current && workspace->current->size - workspace->used < bytes) {
        workspace->current = workspace->current->next;
        workspace->used = 0;
    }
    if (!workspace->current) {
        rill_status status = add_slab(context, bytes);
        if (status != RILL_OK) return status;
    }
    *block = (char *)workspace->current->memory + workspace->used;
    workspace->used += bytes;
    return RILL_OK;
}

rl_workspace_place rl_workspace_here(const rill_context *context)
{
    return (rl_workspace_place){context->workspace.current, context->workspace.used};
}

void rl_workspace_back_to(rill_context *context, rl_workspace_place place)
{
    if (!place.slab) { /* nothing had been taken, or all of it was full */
        if (!context->workspace.current) rl_workspace_reset(context);
        return;
    }
    context->workspace.current = place.slab;
    context->workspace.used = place.used;
}

void rl_workspace_release(rill_context *context)
{
    rl_slab *slab = context->workspace.first;
    while (slab) {
        rl_slab *next = slab->next;
        context->backend->free(context, slab->memory);
        free(slab);
        slab = next;
    }
    context->workspace = (rl_workspace){0};
}
