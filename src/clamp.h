/* The clamp of a step size, which the selective operators share. */
#ifndef RL_CLAMP_H
#define RL_CLAMP_H

#include <rill/context.h>

/* Checks the limits, and resolves them to -inf and +inf where no clamp acts. */
rill_status rl_check_clamp(rill_context *context, double delta_min, double delta_max, double *low, double *high);

#endif
