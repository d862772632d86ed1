/*
 * Guarded tensors.  A buffer holds one view inside memory filled with NaNs of a payload that no computation makes:
 * before it, behind it, and in every gap between its elements.  After a call the guard must have kept its bits, and
 * each element of an output must have lost them.
 */
#ifndef TEST_BUFFER_H
#define TEST_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rill/rill.h>

/* How a view lies in memory. */
typedef struct layout {
    int order[RILL_MAX_RANK];      /* axes as they lie in memory, slowest first */
    int64_t pad[RILL_MAX_RANK];    /* unused elements behind each run of an axis */
    int64_t step;                  /* the stride of the fastest axis, at least 1 */
    int64_t lead;                  /* extra elements before the view: shifts its alignment */
    int64_t align;                 /* if not 0, bytes of which the first element's address is a multiple */
    bool reversed[RILL_MAX_RANK];  /* negative strides */
    bool broadcast[RILL_MAX_RANK]; /* stride 0: one element stands for all */
} layout;

layout layout_contiguous(void);

typedef struct buffer {
    char *memory;     /* host: guard, view, guard */
    char *before;     /* what memory held when the call began */
    int64_t elements; /* of memory */
    int64_t shift;    /* bytes by which memory begins off its elements' size, which c128 may */
    int64_t origin;   /* place of the view's element 0, 0, ... in memory */
    rill_tensor view; /* on the host */
    void *device;     /* a copy of memory on the device, where asked for */
} buffer;

/* All poison. */
buffer buffer_make(rill_dtype dtype, int rank, const int64_t *shape, const layout *layout);
void buffer_free(buffer *b);

/* Remembers what memory holds. */
void buffer_remember(buffer *b);

/* Memory is as remembered, all of it.  Returns the first element changed, else -1. */
int64_t buffer_changed(const buffer *b);

/* As above, but for the elements of the view.  Places are counted in elements from the view's first. */
int64_t buffer_guard_changed(const buffer *b);

/* An element of the view that still holds poison: its index, and true. */
bool buffer_unwritten(const buffer *b, int64_t *index);

/* The same memory on the context's device, guard and all, and back.  The view there is returned. */
rill_status buffer_to_device(rill_context *context, buffer *b, rill_tensor *view);
rill_status buffer_from_device(rill_context *context, buffer *b);

#endif
