#include "agree.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "measure.h"
#include "strided.h"

/* How far apart two tensors are, and with none the one's norm; scaled so that squares stay in range. */
static double distance(const rill_tensor *tensor, const rill_tensor *from)
{
    const double scale = 0x1p-64;
    rill_tensor parts = view_parts(*tensor), others = from ? view_parts(*from) : parts;
    int64_t index[RILL_MAX_RANK] = {0};
    double sum = 0;
    do {
        double off = (view_load(&parts, index) - (from ? view_load(&others, index) : 0)) * scale;
        sum += off * off;
    } while (view_next(&parts, index));
    return sqrt(sum) / scale;
}

bool slice_agrees(const rill_tensor *out, const rill_tensor *ref, const rill_tensor *loop, bool is_gradient)
{
    return distance(out, ref) <=
           measure_tolerance(out->dtype, is_gradient) * distance(ref, NULL) + 3 * distance(loop, ref);
}
