/*
 * The floor: no call can be faster than moving each of its tensors once, nor than its exponentials (each with the
 * four multiply-adds of its state step), nor than the products of its projections, at the rates measured in this run.
 */
#include <string.h>

#include "bench.h"

static double product(const bench_problem *problem, const char *const *axes)
{
    double total = 1.0;
    for (int axis = 0; axis < RILL_MAX_RANK && axes[axis]; axis++)
        total *= (double)op_size(&problem->sizes, axes[axis]);
    return total;
}

static double tensor_bytes(const bench_problem *problem, const op_tensor *tensor)
{
    return product(problem, tensor->axes) * (double)rill_dtype_size(op_default_type(tensor->kind, problem->dtype));
}

static double product_rate(const bench_ceilings *ceilings, rill_dtype dtype)
{
    switch (dtype) {
    case RILL_F64:
        return ceilings->flops_f64;
    case RILL_BF16:
        return ceilings->flops_bf16;
    case RILL_F16:
        return ceilings->flops_f16;
    case RILL_F32:
    case RILL_ABSENT:
    case RILL_C64:
    case RILL_C128:
    case RILL_I64:
        break;
    }
    return ceilings->flops_f32;
}

static void raise_floor(bench_floor *floor, double amount, double rate, const char *by)
{
    double seconds = rate > 0.0 ? amount / rate : 0.0;
    if (seconds <= floor->seconds) return;
    floor->seconds = seconds;
    floor->by = by;
}

bench_floor bench_find_floor(const bench_problem *problem, const bench_ceilings *ceilings)
{
    const op *row = problem->operation;
    bench_floor floor = {.by = "-"};
    for (int i = 0; i < row->tensor_count; i++)
        if (problem->given[i]) floor.bytes += tensor_bytes(problem, &row->tensors[i]);
    for (int i = 0; i < row->cost_count; i++) {
        const op_cost *cost = &row->costs[i];
        const op_tensor *needs = cost->needs ? op_tensor_find(row, cost->needs) : NULL;
        if (needs && !problem->given[needs - row->tensors]) continue;
        double amount = cost->factor * product(problem, cost->axes);
        *(cost->kind == OP_STATE_STEPS ? &floor.state_steps : &floor.flops) += amount;
    }
    raise_floor(&floor, floor.bytes, ceilings->bytes, "bytes");
    if (problem->dtype != RILL_F64) raise_floor(&floor, floor.state_steps, ceilings->state_steps, "state steps");
    raise_floor(&floor, floor.flops, product_rate(ceilings, problem->dtype), "products");
    return floor;
}
