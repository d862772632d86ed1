#include "solution.h"

#include <stdlib.h>
#include <string.h>

/* Opens the call and runs it; closed again on an error. */
static bool compute(call *made, const solution *of, const op *row, const void *args, rill_context *context,
                    failure *why)
{
    const casefile *from = of->from;
    if (!call_open(made, row, args, &from->sizes, from->activations, of->wide, why)) return false;
    if (call_run(made, context, why)) return true;
    call_close(made);
    return false;
}

bool solution_open(solution *made, const casefile *from, rill_context *context, bool wide, failure *why)
{
    *made = (solution){.from = from, .wide = wide};
    return compute(&made->forward, made, from->operation, from->args, context, why);
}

bool solution_add_gradients(solution *made, rill_context *context, failure *why)
{
    const op *forward = made->from->operation, *row = forward->backward;
    if (!made->from->gradient_args) return true;
    void *args = malloc(row->args_size);
    if (!args) return failure_set(why, "out of memory");
    memcpy(args, made->from->gradient_args, row->args_size);
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *output = op_tensor_find(forward, row->tensors[i].name);
        if (output && op_is_output(output))
            *op_args_tensor(&row->tensors[i], args) = *op_args_tensor(output, made->forward.args);
    }
    bool good = compute(&made->backward, made, row, args, context, why);
    free(args);
    return good;
}

void solution_close(solution *made)
{
    call_close(&made->forward);
    call_close(&made->backward);
}

static int list_call(const solution *made, const call *of, bool gradient, outcome *list)
{
    int count = 0;
    for (int i = 0; of->args && i < of->operation->tensor_count; i++) {
        const op_tensor *tensor = &of->operation->tensors[i];
        if (!op_is_output(tensor) || !op_args_given(of->operation, tensor->name, of->args)) continue;
        const stored_tensor *input =
            of == &made->backward ? safetensors_find(&made->from->file, tensor->name + 1) : NULL;
        list[count++] = (outcome){tensor, op_args_tensor(tensor, of->args), input ? &input->view : NULL, gradient};
    }
    return count;
}

int solution_list(const solution *made, outcome list[SOLUTION_MAX_OUTCOMES])
{
    int count = list_call(made, &made->forward, op_is_backward(made->from->operation), list);
    return count + list_call(made, &made->backward, true, list + count);
}
