/*
 * The two backends of plain loops.  `reference` accumulates with twice the precision that fast backends do, and may
 * store in f64, so its result is the judge; `loop` accumulates as they do, so its error is the yardstick of rounding.
 */
#include "../context.h"
#include "../host.h"

/*
 * An operator's three compilations, and its functions in the two tables; `leader` is the tensor whose type says what
 * the accumulation type is.
 */
#define OPERATOR(name, leader)                                                                                       \
    rill_status rl_reference_##name##_f32(rill_context *context, const rl_##name##_problem *problem);                \
    rill_status rl_reference_##name##_f64(rill_context *context, const rl_##name##_problem *problem);                \
    rill_status rl_reference_##name##_wide(rill_context *context, const rl_##name##_problem *problem);               \
    static rill_status reference_##name(rill_context *context, const rl_##name##_problem *problem)                   \
    {                                                                                                                \
        return is_double(problem->leader.dtype) ? rl_reference_##name##_wide(context, problem)                       \
                                                : rl_reference_##name##_f64(context, problem);                       \
    }                                                                                                                \
    static rill_status loop_##name(rill_context *context, const rl_##name##_problem *problem)                        \
    {                                                                                                                \
        return is_double(problem->leader.dtype) ? rl_reference_##name##_f64(context, problem)                        \
                                                : rl_reference_##name##_f32(context, problem);                       \
    }

static bool is_double(rill_dtype dtype)
{
    return dtype == RILL_F64 || dtype == RILL_C128;
}

OPERATOR(scan, a)
OPERATOR(scan_backward, a)
OPERATOR(selective_scan, x)
OPERATOR(selective_scan_backward, x)
OPERATOR(selective_layer, x)
OPERATOR(selective_layer_backward, x)
OPERATOR(linear_attention, q)
OPERATOR(linear_attention_backward, q)

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
    .scan = reference_scan,
    .scan_backward = reference_scan_backward,
    .selective_scan = reference_selective_scan,
    .selective_scan_backward = reference_selective_scan_backward,
    .selective_layer = reference_selective_layer,
    .selective_layer_backward = reference_selective_layer_backward,
    .linear_attention = reference_linear_attention,
    .linear_attention_backward = reference_linear_attention_backward,
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
    .scan = loop_scan,
    .scan_backward = loop_scan_backward,
    .selective_scan = loop_selective_scan,
    .selective_scan_backward = loop_selective_scan_backward,
    .selective_layer = loop_selective_layer,
    .selective_layer_backward = loop_selective_layer_backward,
    .linear_attention = loop_linear_attention,
    .linear_attention_backward = loop_linear_attention_backward,
};
