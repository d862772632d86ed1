/* How a drawn case's tensors lie in memory. */
#ifndef CONFORMANCE_DRAW_LAYOUT_H
#define CONFORMANCE_DRAW_LAYOUT_H

#include "draw.h"

/* A tensor by itself. */
layout draw_layout(rng *r, const case_tensor *t, int rank, bool may_broadcast);

/* All tensors over time: in one order of axes, aligned or not, or each its own. */
void draw_arrangement(rng *r, test_case *c, const draw_limits *limits);

/* Decays that are one for all, one a channel or head, one a step, or one a sequence; and those that are not read. */
void draw_decays(rng *r, test_case *c, const draw_limits *limits);

#endif
