/*
 * Gradients of problems that fill a GPU: enough sequences and blocks of channels that time is not cut, and tensors of
 * which a row is whole.  A NaN in one channel leaves the bits of all others.
 */
#include "hard_selective_back.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_calls.h"
#include "rng.h"
#include "strided.h"

static void fill_random(const rill_tensor *tensor, rng *r, double center, double spread)
{
    int64_t index[RILL_MAX_RANK] = {0};
    do view_store(tensor, index, center + spread * (2 * rng_unit(r) - 1));
    while (view_next(tensor, index));
}

static rill_tensor vector_like(const rill_tensor *A)
{
    rill_tensor vector = view_alloc_like(A, A->dtype);
    vector.rank = 1;
    vector.stride[0] = 1;
    return vector;
}

/* As models have it: softplus, a bias, a skip. */
static hard_back make(rill_dtype dtype, hard_sizes sizes, bool states)
{
    rng r = rng_make(31, 2);
    hard_back back = hard_back_make(dtype, sizes);
    rill_selective_scan_backward_args *a = &back.args;
    a->delta_bias = vector_like(&a->A), a->ddelta_bias = vector_like(&a->A);
    a->D = vector_like(&a->A), a->dD = vector_like(&a->A);
    a->delta_softplus = true;
    if (states) a->dh_final = view_alloc_like(&a->h_init, a->h_init.dtype);
    if (!states) free(a->h_init.data), free(a->dh_init.data), a->h_init = a->dh_init = (rill_tensor){0};
    const rill_tensor *const by_time[] = {&a->x, &a->B, &a->C, &a->dy};
    for (int i = 0; i < 4; i++) fill_random(by_time[i], &r, 0.2, 1);
    fill_random(&a->delta, &r, -1, 2);
    fill_random(&a->A, &r, -2, 1.9);
    fill_random(&a->D, &r, 0, 1);
    fill_random(&a->delta_bias, &r, 0, 0.5);
    if (states) fill_random(&a->h_init, &r, 0, 1), fill_random(&a->dh_final, &r, 0, 1);
    return back;
}

static void free_all(hard_back *back)
{
    rill_selective_scan_backward_args *a = &back->args;
    free(a->delta_bias.data), free(a->ddelta_bias.data), free(a->D.data), free(a->dD.data), free(a->dh_final.data);
    hard_back_free(back);
}

static int64_t full_batch(int64_t sequences)
{
    return is_on_gpu(context) ? sequences : 4;
}

static void check_full(rill_dtype dtype, hard_sizes sizes, bool states, bool reverse)
{
    sizes.batch = full_batch(sizes.batch);
    hard_back back = make(dtype, sizes, states);
    back.args.reverse = reverse;
    assert_true(call_agrees(context, op_find("selective_scan_backward"), &back.args, NULL));
    free_all(&back);
}

static void full(void **unused)
{
    (void)unused;
    check_full(RILL_F32, (hard_sizes){100, 50, 256, 16, 1}, true, false);
    check_full(RILL_F32, (hard_sizes){134, 33, 192, 4, 1}, false, true);
    check_full(RILL_BF16, (hard_sizes){45, 64, 576, 12, 1}, true, true);
    check_full(RILL_BF16, (hard_sizes){60, 48, 440, 16, 1}, false, false);
}

/* A step size of NaN; one too large for the usual softplus; a channel that grows. */
static void one_channel(void **unused)
{
    (void)unused;
    const hard_sizes sizes = {full_batch(100), 50, 256, 16, 1};
    hard_back back = make(RILL_F32, sizes, false);
    rill_selective_scan_backward_args *a = &back.args;
    rill_tensor *const outputs[] = {&a->dx, &a->ddelta, &a->dD, &a->ddelta_bias, &a->dA};
    for (int turn = 0; turn < 3; turn++) {
        hard_back bent = make(RILL_F32, sizes, false);
        rill_selective_scan_backward_args *b = &bent.args;
        rill_tensor *const others[] = {&b->dx, &b->ddelta, &b->dD, &b->ddelta_bias, &b->dA};
        if (turn < 2) set3(&b->delta, 3, 21, 70, turn ? 90 : NAN);
        if (turn == 2) set3(&b->A, 70, 3, 0, 0.01);
        run_back(&back);
        run_back(&bent);
        for (int i = 0; i < 5; i++) {
            const int axis = i < 2 ? 2 : 0;
            int64_t index[RILL_MAX_RANK] = {0};
            do {
                const double one = view_load(outputs[i], index), other = view_load(others[i], index);
                if (index[axis] != 70) assert_memory_equal(&one, &other, sizeof one);
            } while (view_next(outputs[i], index));
        }
        free_all(&bent);
    }
    free_all(&back);
}

int run_walk_tests(const char *name)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(full), cmocka_unit_test(one_channel)};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
