/*
 * The two backends of plain loops.  `reference` accumulates with twice the precision that fast backends do, and may
 * store in f64, so its result is the judge; `loop` accumulates as they do, so its error is the yardstick of rounding.
 */
#include "../context.h"
#include "../host.h"

#define DECLARE(name, tag)                                                                                           \
    rill_status rl_reference_##name##_##tag(rill_context *context, const rl_##name##_problem *problem)

DECLARE(selective_scan, f32);
DECLARE(selective_scan, f64);
DECLARE(selective_scan, wide);
DECLARE(selective_layer, f32);
DECLARE(selective_layer, f64);
DECLARE(selective_layer, wide);

static rill_status reference_selective_scan(rill_context *context, const rl_selective_scan_problem *problem)
{
    return problem->x.dtype == RILL_F64 ? rl_reference_selective_scan_wide(context, problem)
                                        : rl_reference_selective_scan_f64(context, problem);
}

static rill_status reference_selective_layer(rill_context *context, const rl_selective_layer_problem *problem)
{
    return problem->x.dtype == RILL_F64 ? rl_reference_selective_layer_wide(context, problem)
                                        : rl_reference_selective_layer_f64(context, problem);
}

static rill_status loop_selective_scan(rill_context *context, const rl_selective_scan_problem *problem)
{
    return problem->x.dtype == RILL_F64 ? rl_reference_selective_scan_f64(context, problem)
                                        : rl_reference_selective_scan_f32(context, problem);
}

static rill_status loop_selective_layer(rill_context *context, const rl_selective_layer_problem *problem)
{
    return problem->x.dtype == RILL_F64 ? rl_reference_selective_layer_f64(context, problem)
                                        : rl_reference_selective_layer_f32(context, problem);
}

static rill_status open_nothing(rill_context *context)
{
    (void)context;
    return RILL_OK;
}

static void close_nothing(rill_context *context)
{
    (void)context;
}

static void describe(const rill_context *context, rill_info *info)
{
    (void)context;
    info->threads = 1;
}

const rl_backend rl_backend_reference = {
    .name = "reference",
    .id = RILL_BACKEND_REFERENCE,
    .memory = RILL_HOST,
    .wide_outputs = true,
    .open = open_nothing,
    .close = close_nothing,
    .describe = describe,
    .alloc = rl_host_alloc,
    .free = rl_host_free,
    .copy = rl_host_copy,
    .synchronize = rl_host_synchronize,
    .selective_scan = reference_selective_scan,
    .selective_layer = reference_selective_layer,
};

const rl_backend rl_backend_loop = {
    .name = "loop",
    .id = RILL_BACKEND_LOOP,
    .memory = RILL_HOST,
    .open = open_nothing,
    .close = close_nothing,
    .describe = describe,
    .alloc = rl_host_alloc,
    .free = rl_host_free,
    .copy = rl_host_copy,
    .synchronize = rl_host_synchronize,
    .selective_scan = loop_selective_scan,
    .selective_layer = loop_selective_layer,
};
