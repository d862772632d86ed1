/* Which operators a backend has: one that lacks an operator answers RILL_UNSUPPORTED to every call of it. */
#ifndef TOOLS_AVAILABLE_H
#define TOOLS_AVAILABLE_H

#include <stdbool.h>

#include <rill/rill.h>

#include "operators.h"

/* Asked by a call of one element in every tensor, so that what a backend refuses of larger ones does not count. */
bool op_available(const op *row, rill_context *context);

#endif
