#include "signature.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "overlap.h"
#include "view.h"

/* One check of one call. */
typedef struct check {
    rill_context *context;
    const rl_signature *signature;
    const void *args;
    int64_t size[RL_MAX_SIZES];
    const rl_argument *binder[RL_MAX_SIZES]; /* NULL while unbound */
} check;

static const rill_tensor *tensor_of(const check *c, const rl_argument *argument)
{
    return (const rill_tensor *)((const char *)c->args + argument->in);
}

static bool is_output(const rl_argument *argument)
{
    return argument->role == RL_OUTPUT || argument->role == RL_OPTIONAL_OUTPUT;
}

static bool is_given(const check *c, const rl_argument *argument)
{
    return tensor_of(c, argument)->dtype != RILL_ABSENT;
}

static const rl_argument *find(const check *c, const char *name)
{
    for (int k = 0; k < c->signature->argument_count; k++)
        if (strcmp(c->signature->arguments[k].name, name) == 0) return &c->signature->arguments[k];
    return NULL;
}

static bool is_named_given(const check *c, const char *name)
{
    const rl_argument *argument = find(c, name);
    return argument && is_given(c, argument);
}

/* The size that stands for `size`: itself, or what it falls back to while the argument that binds it is not given. */
static int resolve(const check *c, int size)
{
    const rl_size *sizes = c->signature->sizes;
    while (sizes[size].fallback != size && !is_named_given(c, sizes[size].unless)) size = sizes[size].fallback;
    return size;
}

/* Writes "[batch, length, channels]". */
static const char *axes_text(const check *c, const rl_argument *argument, char *text, int size)
{
    int used = snprintf(text, (size_t)size, "[");
    for (int axis = 0; axis < argument->rank && used < size; axis++)
        used += snprintf(text + used, (size_t)(size - used), "%s%s%s", axis ? ", " : "",
                         c->signature->sizes[argument->axis[axis]].name, argument->kind == RL_OFFSETS ? " + 1" : "");
    if (used < size) snprintf(text + used, (size_t)(size - used), "]");
    return text;
}

static rill_status check_presence(const check *c, const rl_argument *argument)
{
    const rill_tensor *tensor = tensor_of(c, argument);
    char text[128];
    if (tensor->dtype != RILL_ABSENT) return RILL_OK;
    if (tensor->data)
        return rl_fail(c->context, RILL_INVALID_DTYPE, "%s: dtype is absent but data is given, expected a dtype",
                       argument->name);
    if (argument->role == RL_OPTIONAL_INPUT || argument->role == RL_OPTIONAL_OUTPUT) return RILL_OK;
    return rl_fail(c->context, RILL_INVALID_NULL, "%s: not given, expected a tensor %s", argument->name,
                   axes_text(c, argument, text, sizeof text));
}

static bool is_half(rill_dtype dtype)
{
    return dtype == RILL_BF16 || dtype == RILL_F16;
}

static bool is_complex(rill_dtype dtype)
{
    return dtype == RILL_C64 || dtype == RILL_C128;
}

/* What activations of this type accumulate in. */
static rill_dtype accumulation(rill_dtype lead)
{
    return lead == RILL_F64 || is_complex(lead) ? lead : RILL_F32;
}

/* The one or two types that a kind may have beside the leader's; where it is one, both are the same. */
static void list_types(rl_kind kind, rill_dtype lead, rill_dtype types[2])
{
    types[0] = types[1] = lead;
    switch (kind) {
    case RL_ACTIVATION:
    case RL_RESULT:
        break;
    case RL_GRADIENT:
        if (!is_complex(lead)) types[1] = RILL_F32;
        break;
    case RL_RESULT_F32:
    case RL_WEIGHT:
    case RL_GATE:
        if (is_half(lead)) types[1] = RILL_F32;
        break;
    case RL_PARAMETER:
        types[0] = types[1] = accumulation(lead);
        break;
    case RL_PARAMETER_GRADIENT:
        types[0] = types[1] = accumulation(lead);
        if (lead == RILL_F64) types[1] = RILL_F32;
        break;
    case RL_STATE:
        types[0] = accumulation(lead);
        break;
    case RL_STATE_GRADIENT: /* the accumulation type of all but f64 is f32 already */
        types[0] = accumulation(lead);
        if (lead == RILL_F64) types[1] = RILL_F32;
        break;
    case RL_OFFSETS:
        types[0] = types[1] = RILL_I64;
        break;
    }
}

static bool may_be_wide(rl_kind kind)
{
    return kind == RL_RESULT || kind == RL_RESULT_F32 || kind == RL_GRADIENT || kind == RL_PARAMETER_GRADIENT ||
           kind == RL_STATE || kind == RL_STATE_GRADIENT;
}

static rill_status check_leader(const check *c, const rl_argument *leader)
{
    rill_dtype found = tensor_of(c, leader)->dtype;
    char text[RL_NAME_SIZE];
    if (found == RILL_F64 || found == RILL_F32 || is_half(found)) return RILL_OK;
    if (c->signature->takes_complex && is_complex(found)) return RILL_OK;
    return rl_fail(c->context, RILL_INVALID_DTYPE, "%s: dtype is %s, expected %s", leader->name,
                   rl_dtype_text(found, text),
                   c->signature->takes_complex ? "f64, f32, bf16, f16, c64 or c128" : "f64, f32, bf16 or f16");
}

/* The types that an argument may have, each once; how many. */
static int list_all_types(const check *c, rl_kind kind, rill_dtype lead, rill_dtype types[3])
{
    const rill_dtype wide = is_complex(lead) ? RILL_C128 : RILL_F64;
    list_types(kind, lead, types);
    int count = types[0] == types[1] ? 1 : 2;
    if (!c->context->backend->wide_outputs || !may_be_wide(kind) || types[0] == wide || types[1] == wide)
        return count;
    types[count] = wide;
    return count + 1;
}

static rill_status check_dtype(const check *c, const rl_argument *argument)
{
    const rl_argument *leader = &c->signature->arguments[0];
    rill_dtype found = tensor_of(c, argument)->dtype, lead = tensor_of(c, leader)->dtype, types[3];
    char text[RL_NAME_SIZE];
    if (argument == leader) return check_leader(c, leader);
    const int count = list_all_types(c, argument->kind, lead, types);
    for (int k = 0; k < count; k++)
        if (found == types[k]) return RILL_OK;
    if (argument->kind == RL_OFFSETS)
        return rl_fail(c->context, RILL_INVALID_DTYPE, "%s: dtype is %s, expected i64", argument->name,
                       rl_dtype_text(found, text));
    return rl_fail(c->context, RILL_INVALID_DTYPE, "%s: dtype is %s, expected %s%s%s%s%s (%s is %s)", argument->name,
                   rl_dtype_text(found, text), rill_dtype_name(types[0]), count > 1 ? " or " : "",
                   count > 1 ? rill_dtype_name(types[1]) : "", count > 2 ? " or " : "",
                   count > 2 ? rill_dtype_name(types[2]) : "", leader->name, rill_dtype_name(lead));
}

static rill_status check_device(const check *c, const rl_argument *argument)
{
    const rl_argument *leader = &c->signature->arguments[0];
    rill_device found = tensor_of(c, argument)->device, lead = tensor_of(c, leader)->device;
    const rl_backend *backend = c->context->backend;
    char text[RL_NAME_SIZE], lead_text[RL_NAME_SIZE];
    if (found != RILL_HOST && found != backend->memory)
        return rl_fail(c->context, RILL_INVALID_DEVICE, "%s: device is %s, expected host%s (the context is %s)",
                       argument->name, rl_device_text(found, text), backend->memory == RILL_CUDA ? " or cuda" : "",
                       backend->name);
    if (found != lead)
        return rl_fail(c->context, RILL_INVALID_DEVICE, "%s: device is %s, expected %s (device of %s)",
                       argument->name, rl_device_text(found, text), rl_device_text(lead, lead_text), leader->name);
    return RILL_OK;
}

static rill_status check_rank(const check *c, const rl_argument *argument)
{
    char text[128];
    if (tensor_of(c, argument)->rank == argument->rank) return RILL_OK;
    return rl_fail(c->context, RILL_INVALID_SHAPE, "%s: rank is %d, expected %d %s", argument->name,
                   tensor_of(c, argument)->rank, argument->rank, axes_text(c, argument, text, sizeof text));
}

/* Offsets bind the sequences by their length less one. */
static rill_status bind_offsets(check *c, const rl_argument *argument)
{
    int64_t entries = tensor_of(c, argument)->shape[0];
    if (entries < 1)
        return rl_fail(c->context, RILL_INVALID_SHAPE, "%s: axis 0 is %" PRId64 ", expected at least 1",
                       argument->name, entries);
    if (c->size[RL_BATCH] != 1)
        return rl_fail(c->context, RILL_INVALID_SHAPE, "%s: axis 0 is %" PRId64 ", expected 1 (%s is given)",
                       c->binder[RL_BATCH]->name, c->size[RL_BATCH], argument->name);
    c->size[RL_SEQUENCES] = entries - 1;
    c->binder[RL_SEQUENCES] = argument;
    return RILL_OK;
}

static rill_status check_axes(check *c, const rl_argument *argument)
{
    const rill_tensor *tensor = tensor_of(c, argument);
    if (argument->kind == RL_OFFSETS) return bind_offsets(c, argument);
    for (int axis = 0; axis < argument->rank; axis++) {
        int size = resolve(c, argument->axis[axis]);
        if (!c->binder[size]) {
            c->size[size] = tensor->shape[axis];
            c->binder[size] = argument;
        } else if (tensor->shape[axis] != c->size[size]) {
            return rl_fail(c->context, RILL_INVALID_SHAPE,
                           "%s: axis %d is %" PRId64 ", expected %" PRId64 " (%s of %s)", argument->name, axis,
                           tensor->shape[axis], c->size[size], c->signature->sizes[size].name, c->binder[size]->name);
        }
    }
    return RILL_OK;
}

static rill_status check_argument(check *c, const rl_argument *argument)
{
    rill_status status = check_dtype(c, argument);
    if (status == RILL_OK) status = check_device(c, argument);
    if (status == RILL_OK) status = check_rank(c, argument);
    if (status == RILL_OK) status = rl_check_view(c->context, argument->name, tensor_of(c, argument));
    if (status == RILL_OK) status = check_axes(c, argument);
    return status;
}

/* An output against itself, and against every other tensor, of other outputs only those before it. */
static rill_status check_output_overlap(const check *c, int index)
{
    const rl_argument *output = &c->signature->arguments[index];
    const rill_tensor *view = tensor_of(c, output);
    if (rl_overlaps_itself(view))
        return rl_fail(c->context, RILL_INVALID_OVERLAP,
                       "%s: overlaps itself, found strides that meet, expected distinct elements", output->name);
    for (int k = 0; k < c->signature->argument_count; k++) {
        const rl_argument *other = &c->signature->arguments[k];
        if (k == index || !is_given(c, other) || (is_output(other) && k > index)) continue;
        bool may_alias = output->alias && strcmp(output->alias, other->name) == 0;
        if (may_alias && rl_same_view(view, tensor_of(c, other))) continue;
        if (rl_overlap(view, tensor_of(c, other)))
            return rl_fail(c->context, RILL_INVALID_OVERLAP, "%s: overlaps %s, expected disjoint memory%s",
                           output->name, other->name, may_alias ? " or the same view" : "");
    }
    return RILL_OK;
}

/* Host offsets must be ordered and span the length. */
static rill_status check_offsets(const check *c, const rl_argument *argument)
{
    const rill_tensor *offsets = tensor_of(c, argument);
    int64_t before = 0, last = c->size[RL_SEQUENCES];
    if (offsets->device != RILL_HOST) return RILL_OK;
    for (int64_t s = 0; s <= last; s++) {
        int64_t value = ((const int64_t *)offsets->data)[s * offsets->stride[0]];
        if (s == 0 && value != 0)
            return rl_fail(c->context, RILL_INVALID_OFFSETS, "%s: element 0 is %" PRId64 ", expected 0",
                           argument->name, value);
        if (value < before)
            return rl_fail(c->context, RILL_INVALID_OFFSETS,
                           "%s: element %" PRId64 " is %" PRId64 ", expected at least %" PRId64 " (the one before)",
                           argument->name, s, value, before);
        before = value;
    }
    if (before != c->size[RL_LENGTH])
        return rl_fail(c->context, RILL_INVALID_OFFSETS,
                       "%s: element %" PRId64 " is %" PRId64 ", expected %" PRId64 " (length of %s)", argument->name,
                       last, before, c->size[RL_LENGTH], c->binder[RL_LENGTH]->name);
    return RILL_OK;
}

/* The gradient dX of an input X is there only with X. */
static rill_status check_gradient(const check *c, const rl_argument *output)
{
    const rl_argument *input = output->name[0] == 'd' ? find(c, output->name + 1) : NULL;
    char text[128];
    if (!input || is_given(c, input)) return RILL_OK;
    return rl_fail(c->context, RILL_INVALID_NULL, "%s: not given, expected a tensor %s (%s is given)", input->name,
                   axes_text(c, input, text, sizeof text), output->name);
}

static rill_status check_reserved(const check *c)
{
    const uint64_t *reserved = (const uint64_t *)((const char *)c->args + c->signature->reserved);
    for (int k = 0; k < RL_RESERVED; k++)
        if (reserved[k] != 0)
            return rl_fail(c->context, RILL_INVALID_OPTION, "reserved: element %d is %" PRIu64 ", expected 0", k,
                           reserved[k]);
    return RILL_OK;
}

static void fill_problem(const check *c, void *problem)
{
    for (int k = 0; k < c->signature->argument_count; k++) {
        const rl_argument *argument = &c->signature->arguments[k];
        rill_tensor *tensor = (rill_tensor *)((char *)problem + argument->out);
        *tensor = *tensor_of(c, argument);
        if (rl_view_is_empty(tensor)) tensor->data = NULL;
        for (int axis = 0; axis < tensor->rank; axis++)
            if (tensor->shape[axis] == 1) tensor->stride[axis] = 0; /* never used: keep it harmless */
    }
    for (int k = 0; k < c->signature->size_count; k++)
        *(int64_t *)((char *)problem + c->signature->sizes[k].out) = c->size[resolve(c, k)];
}

rill_status rl_check(rill_context *context, const rl_signature *signature, const void *args, void *problem)
{
    check c = {.context = context, .signature = signature, .args = args};
    const rl_argument *arguments = signature->arguments;
    rill_status status = RILL_OK;
    if (!args) return rl_fail(context, RILL_INVALID_NULL, "args: NULL, expected rill_%s_args", signature->name);
    for (int k = 0; k < signature->argument_count && status == RILL_OK; k++)
        status = check_presence(&c, &arguments[k]);
    for (int k = 0; k < signature->argument_count && status == RILL_OK; k++)
        if (is_given(&c, &arguments[k])) status = check_argument(&c, &arguments[k]);
    for (int k = 0; k < signature->argument_count && status == RILL_OK; k++)
        if (is_given(&c, &arguments[k]) && is_output(&arguments[k])) status = check_output_overlap(&c, k);
    for (int k = 0; k < signature->argument_count && status == RILL_OK; k++)
        if (is_given(&c, &arguments[k]) && arguments[k].kind == RL_OFFSETS) status = check_offsets(&c, &arguments[k]);
    for (int k = 0; k < signature->argument_count && status == RILL_OK; k++)
        if (is_given(&c, &arguments[k]) && is_output(&arguments[k])) status = check_gradient(&c, &arguments[k]);
    if (status == RILL_OK) status = check_reserved(&c);
    if (status == RILL_OK) fill_problem(&c, problem);
    return status;
}
