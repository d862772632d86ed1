#include "clamp.h"

#include <math.h>

#include "context.h"

rill_status rl_check_clamp(rill_context *context, double delta_min, double delta_max, double *low, double *high)
{
    bool acts = delta_min != 0 || delta_max != 0;
    if (isnan(delta_min)) return rl_fail(context, RILL_INVALID_OPTION, "delta_min: found nan, expected a number");
    if (isnan(delta_max)) return rl_fail(context, RILL_INVALID_OPTION, "delta_max: found nan, expected a number");
    *low = acts ? delta_min : -INFINITY;
    *high = acts && delta_max != 0 ? delta_max : INFINITY;
    if (*low > *high)
        return rl_fail(context, RILL_INVALID_OPTION, "delta_max: found %g, expected at least %g (delta_min)",
                       delta_max, delta_min);
    return RILL_OK;
}
