/* The selective layer's gradients behind the scan's, where products are little work: all of them in one launch. */
#include "product_little.h"
#include "selective_layer_back.h"

/* Of which some may be absent, but not their lines. */
static rl_little_matrix below_each_other(const rill_tensor *tensors, const int64_t *lines, int count)
{
    rl_little_matrix matrix = rl_little_below_each_other(tensors, count);
    for (int k = 0; k < count; k++) matrix.piece[k].lines = (int32_t)lines[k];
    return matrix;
}

/* With a low rank: the gradients of what is between its two products, and of the second one's weight. */
static rill_status low_back(const rl_layer_gradients *l, const rl_layer_slab *slab)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const rl_layer_projections *of = &l->projections;
    const rl_layer_projected values = rl_layer_projections_views(of, slab, of->first, of->delta);
    const rl_layer_projected gradients = rl_layer_projections_views(of, slab, l->g, l->ddelta);
    const int64_t rows = slab->batch * slab->steps;
    const rl_little_product low = {.a = rl_little_over_time(&gradients.delta),
                                   .b = rl_little_below_each_other(&p->W_delta, 1),
                                   .b_turned = true,
                                   .out = rl_little_over_time(&gradients.low),
                                   .rows = rows,
                                   .columns = p->rank,
                                   .inner = p->channels};
    const rl_little_product weight = {.a = rl_little_over_time(&gradients.delta),
                                      .a_turned = true,
                                      .b = rl_little_over_time(&values.low),
                                      .b_turned = true,
                                      .out = rl_little_below_each_other(&p->dW_delta, 1),
                                      .rows = p->channels,
                                      .columns = p->rank,
                                      .inner = rows};
    rl_little little = {0};
    if (p->dx.data || l->weighs) rl_little_add(&little, &low);
    if (p->dW_delta.data) rl_little_add(&little, &weight);
    return rl_cuda_little(l->context, &little, of->accumulated == RILL_F64,
                          "selective_layer_backward: launch of the low rank's products");
}

static void add_products(const rl_layer_gradients *l, const rl_layer_slab *slab, rl_little *little)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const rl_layer_projections *of = &l->projections;
    const rill_tensor weights[] = {of->low_rank ? p->W_delta_down : p->W_delta, p->W_B, p->W_C};
    const rill_tensor targets[] = {of->low_rank ? p->dW_delta_down : p->dW_delta, p->dW_B, p->dW_C};
    const int64_t lines[] = {of->delta_columns, p->states, p->states}, rows = slab->batch * slab->steps;
    const rill_tensor g = rl_layer_projections_rows(of, slab, l->g, 0, of->first_row, of->columns);
    const rill_tensor own = rl_layer_own_dx(l, slab), dx = rl_layer_part(&p->dx, slab);
    const rill_tensor x = rl_layer_part(&p->x, slab);
    rl_little_matrix gradients = rl_little_over_time(&g);
    if (l->left.BC)
        gradients.parts = (rl_little_parts){.data = l->left.BC,
                                            .stride = rows * 2 * p->states,
                                            .first = (int32_t)of->delta_columns,
                                            .count = (int32_t)l->left.inputs,
                                            .line = 2 * (int32_t)p->states};
    const rl_little_product inputs = {.a = gradients,
                                      .b = below_each_other(weights, lines, 3),
                                      .b_turned = true,
                                      .add = rl_little_over_time(&own),
                                      .out = rl_little_over_time(&dx),
                                      .rows = rows,
                                      .columns = p->channels,
                                      .inner = of->columns};
    const rl_little_product sums = {.a = gradients,
                                    .a_turned = true,
                                    .b = rl_little_over_time(&x),
                                    .b_turned = true,
                                    .out = below_each_other(targets, lines, 3),
                                    .rows = of->columns,
                                    .columns = p->channels,
                                    .inner = rows};
    if (p->dx.data) rl_little_add(little, &inputs);
    if (l->weighs) rl_little_add(little, &sums);
}

/* `parts`: where the scan has left the sum over sequences. */
static void add_parameter(const rl_layer_gradients *l, rl_little *little, const rill_tensor *to, int64_t first,
                          const void *parts, const void *factor)
{
    const rill_tensor from =
        parts ? rl_layer_parameter(l, to, (void *)parts, 0) : rl_layer_parameter(l, to, l->parameters, first);
    const int64_t lanes = to->rank == 2 ? to->shape[1] : 1;
    const rl_selective_layer_backward_problem *p = l->problem;
    const rl_little_move move = {.to = rl_little_piece_of(to),
                                 .from = rl_little_piece_of(&from),
                                 .factor = factor,
                                 .lanes = lanes,
                                 .part = p->channels * lanes,
                                 .more = parts ? (int32_t)p->sequences - 1 : 0};
    if (to->data) rl_little_add_move(little, &move);
}

rill_status rl_layer_little_back(const rl_layer_gradients *l, const rl_layer_slab *slab)
{
    const rl_selective_layer_backward_problem *p = l->problem;
    const int64_t matrix = p->channels * p->states;
    rl_little little = {.eager = l->left.A && !l->projections.low_rank};
    rill_status status = l->projects && l->projections.low_rank ? low_back(l, slab) : RILL_OK;
    if (l->projects) add_products(l, slab, &little);
    add_parameter(l, &little, &p->dA_log, 0, l->left.A, l->projections.A);
    add_parameter(l, &little, &p->dD, matrix, l->left.D, NULL);
    add_parameter(l, &little, &p->db_delta, matrix + p->channels, l->left.bias, NULL);
    return status == RILL_OK ? rl_cuda_little(l->context, &little, l->projections.accumulated == RILL_F64,
                                              "selective_layer_backward: launch of the last products")
                             : status;
}
