#include "verify.h"

static const double reference_tolerance = 1e-13;

static bool run_on(call *made, const casefile *from, rill_backend backend, bool wide, failure *why)
{
    rill_context *context;
    if (!call_open(made, from->operation, from->args, &from->sizes, from->activations, wide, why)) return false;
    rill_status status = rill_context_create(&(rill_options){.backend = backend}, &context);
    bool good = status == RILL_OK ? call_run(made, context, why) : failure_set(why, "%s", rill_last_error(NULL));
    if (status == RILL_OK) rill_context_destroy(context);
    if (!good) call_close(made);
    return good;
}

bool judge_open(judge *made, const casefile *from, failure *why)
{
    *made = (judge){.from = from};
    if (!run_on(&made->ref, from, RILL_BACKEND_REFERENCE, true, why)) return false;
    if (run_on(&made->loop, from, RILL_BACKEND_LOOP, false, why)) return true;
    call_close(&made->ref);
    return false;
}

void judge_close(judge *made)
{
    call_close(&made->ref);
    call_close(&made->loop);
}

/* Offsets lie on the host here and the operator has checked them. */
static const int64_t *host_offsets(const casefile *from)
{
    const op_tensor *tensor = op_tensor_find(from->operation, "offsets");
    const rill_tensor *view = tensor ? op_args_tensor(tensor, from->args) : NULL;
    return view && view->dtype == RILL_I64 ? view->data : NULL;
}

measure judge_output(const judge *made, const op_tensor *tensor, const rill_tensor *out)
{
    const casefile *from = made->from;
    const rill_tensor *expected = casefile_expected(from, tensor->name);
    measure_against against = {.ref = op_args_tensor(tensor, made->ref.args),
                               .loop = op_args_tensor(tensor, made->loop.args)};
    against.right = expected ? expected : against.ref;
    return measure_compare(tensor, out, &against, host_offsets(from), op_size(&from->sizes, "sequences"),
                           measure_tolerance(from->activations, false));
}

measure judge_reference(const judge *made, const op_tensor *tensor, bool *known)
{
    const casefile *from = made->from;
    const rill_tensor *expected = casefile_expected(from, tensor->name);
    *known = expected != NULL;
    if (!expected) return (measure){.passed = true};
    return measure_compare(tensor, op_args_tensor(tensor, made->ref.args), &(measure_against){.right = expected},
                           host_offsets(from), op_size(&from->sizes, "sequences"), reference_tolerance);
}
