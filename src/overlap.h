/* Whether views share a byte, decided exactly. */
#ifndef RL_OVERLAP_H
#define RL_OVERLAP_H

#include <stdbool.h>

#include <rill/tensor.h>

/*
 * Views must be sound: sizes >= 0, a known type, all offsets within the address space.  A view without elements
 * overlaps nothing.  Interleaved views that share no byte do not overlap.  Where the search for a shared byte grows
 * beyond a fixed budget (strides without any order), the answer is true.
 */
bool rl_overlap(const rill_tensor *first, const rill_tensor *second);

/* Whether two elements of one view share a byte. */
bool rl_overlaps_itself(const rill_tensor *tensor);

/* Whether the two are the very same view; strides of axes with one element do not count. */
bool rl_same_view(const rill_tensor *first, const rill_tensor *second);

#endif
