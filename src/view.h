/* Checks that hold for any view, whatever it is for. */
#ifndef RL_VIEW_H
#define RL_VIEW_H

#include <stdbool.h>

#include <rill/context.h>

enum { RL_NAME_SIZE = 16 };

/* Writes "[2, 3, 4]". */
const char *rl_shape_text(const rill_tensor *tensor, char *text, int size);

/* The name, or the number of a value outside the enumeration, for which text is the room. */
const char *rl_dtype_text(rill_dtype dtype, char text[RL_NAME_SIZE]);
const char *rl_device_text(rill_device device, char text[RL_NAME_SIZE]);

bool rl_view_is_empty(const rill_tensor *tensor);

/*
 * Whether a tensor whose type is known to be good is sound: rank, sizes, element count, strides within the address
 * space, data there and aligned.  `name` is how messages call it.
 */
rill_status rl_check_view(rill_context *context, const char *name, const rill_tensor *tensor);

#endif
