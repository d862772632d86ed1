/* Shapes of linear attention that are hard: cut in time, packed, crowds, sizes of heads, views, batches, threads. */
#include "hard_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strided.h"

/*
 * A call in pieces: forward, keeping the state before each piece; then the gradients, last piece first.  The states
 * between lie in carry and carry_back, and the finals where the whole call has them.
 */
static void run_in_pieces(const attention *whole, int64_t length, int64_t piece)
{
    int64_t pieces = (length + piece - 1) / piece;
    rill_tensor *entering = malloc((size_t)(pieces + 1) * sizeof *entering);
    rill_tensor back[2];
    assert_non_null(entering);
    for (int64_t p = 0; p <= pieces; p++)
        entering[p] = view_alloc_like(&whole->forward.S_init, whole->forward.S_init.dtype);
    for (int k = 0; k < 2; k++) back[k] = view_alloc_like(&entering[0], entering[0].dtype);
    view_copy(&entering[0], &whole->forward.S_init);
    for (int64_t p = 0; p < pieces; p++) {
        attention part = *whole;
        part.forward.S_init = part.forward.S_final = entering[p + 1]; /* in place */
        view_copy(&entering[p + 1], &entering[p]);
        narrow(&part, p * piece, p == pieces - 1 ? length - p * piece : piece);
        run(&part.forward);
    }
    view_copy(&whole->forward.S_final, &entering[pieces]);
    view_copy(&back[pieces % 2], &whole->backward.dS_final);
    for (int64_t p = pieces - 1; p >= 0; p--) {
        attention part = *whole;
        part.forward.S_init = entering[p];
        part.backward.dS_final = back[(p + 1) % 2], part.backward.dS_init = back[p % 2];
        narrow(&part, p * piece, p == pieces - 1 ? length - p * piece : piece);
        run_back(&part.backward);
    }
    view_copy(&whole->backward.dS_init, &back[0]);
    for (int64_t p = 0; p <= pieces; p++) free(entering[p].data);
    free(back[0].data), free(back[1].data), free(entering);
}

/* Row 4: T = 200 cut in many ways. */
static void in_pieces(void **unused)
{
    static const int64_t cuts[] = {1, 5, 63, 64, 65, 199};
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16};
    (void)unused;
    for (int i = 0; i < 18; i++) {
        rill_dtype dtype = types[i / 6];
        attention whole = attention_make(dtype, (attention_sizes){2, 200, 1, 2, 24, 16, 0});
        attention parts = attention_make(dtype, (attention_sizes){2, 200, 1, 2, 24, 16, 0});
        rill_tensor *one[ATTENTION_OUTPUTS], *other[ATTENTION_OUTPUTS];
        run(&whole.forward);
        run_back(&whole.backward);
        run_in_pieces(&parts, 200, cuts[i % 6]);
        list_outputs(&whole, one);
        list_outputs(&parts, other);
        double tolerance = dtype == RILL_F64 ? 1e-12 : dtype == RILL_F32 ? 1e-5 : 8e-3;
        for (int k = 0; k < ATTENTION_OUTPUTS; k++)
            if (!views_near(other[k], one[k], tolerance)) fail_msg("output %d in pieces of %d", k, (int)cuts[i % 6]);
        attention_free(&whole);
        attention_free(&parts);
    }
}

/* Row 5: packed sequences, some empty. */
static void packed(void **unused)
{
    static const int64_t offsets[] = {0, 0, 1, 66, 66, 130};
    (void)unused;
    for (int i = 0; i < 8; i++) {
        attention made = attention_make(wide_types[i % 2], (attention_sizes){1, 130, 2, 4, 24, 16, 5});
        made.forward.offsets = rill_tensor_1d(offsets, RILL_I64, 6);
        made.forward.reverse = i / 2 % 2;
        if (i / 4) made.forward.S_init = (rill_tensor){0};
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "packed sequences"));
        for (int64_t s = 0; s < 4; s += 3) {
            rill_tensor out = view_narrow(made.forward.S_final, 0, s, 1), zero = view_alloc_like(&out, out.dtype);
            rill_tensor in = i / 4 ? zero : view_narrow(made.forward.S_init, 0, s, 1);
            assert_true(view_same(&out, &in, NULL));
            free(zero.data);
            if (i / 4) continue;
            rill_tensor back = view_narrow(made.backward.dS_init, 0, s, 1);
            rill_tensor from = view_narrow(made.backward.dS_final, 0, s, 1);
            assert_true(view_same(&back, &from, NULL));
        }
        attention_free(&made);
    }
}

/* Row 6: 70000 sequences of one step, in a packed row and in a batch. */
static void crowds(void **unused)
{
    enum { CROWD = 70000 };
    int64_t *offsets = malloc((CROWD + 1) * sizeof *offsets);
    (void)unused;
    assert_non_null(offsets);
    for (int64_t s = 0; s <= CROWD; s++) offsets[s] = s;
    for (int i = 0; i < 4; i++) {
        bool in_a_row = i % 2;
        attention_sizes sizes = {in_a_row ? 1 : CROWD, in_a_row ? CROWD : 1, 1, 1, 3, 2, CROWD};
        attention made = attention_make(RILL_F32, sizes);
        rill_linear_attention_args *a = &made.forward;
        if (in_a_row) a->offsets = rill_tensor_1d(offsets, RILL_I64, CROWD + 1);
        if (i / 2) a->S_init = (rill_tensor){0};
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "a crowd of sequences"));
        for (int64_t s = 0; s < CROWD && i / 2; s += 137) {
            int64_t at[] = {in_a_row ? 0 : s, in_a_row ? s : 0, 0, 0};
            double product = 0, magnitude = 0, value = view_load(&a->v, at) * view_load(&a->beta, at);
            for (at[3] = 0; at[3] < 3; at[3]++) {
                product += view_load(&a->q, at) * view_load(&a->k, at);
                magnitude += fabs(view_load(&a->q, at) * view_load(&a->k, at));
            }
            at[3] = 0;
            assert_true(fabs(view_load(&a->y, at) - product * value) <= 2e-6 * magnitude * fabs(value));
        }
        attention_free(&made);
    }
    free(offsets);
}

/* Row 8: every kind of size of keys and values. */
static void head_sizes(void **unused)
{
    static const int64_t sizes[][2] = {{1, 1},    {8, 8},   {24, 24}, {48, 64},  {60, 100},
                                       {128, 64}, {257, 3}, {3, 257}, {256, 512}};
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16, RILL_F16};
    (void)unused;
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 4; k++) {
            int64_t length = sizes[i][0] * sizes[i][1] > 10000 ? 40 : 130;
            attention made =
                attention_make(types[k], (attention_sizes){1, length, 1, 2, sizes[i][0], sizes[i][1], 0});
            char what[64];
            snprintf(what, sizeof what, "keys %d, values %d", (int)sizes[i][0], (int)sizes[i][1]);
            assert_true(attention_agrees(context, &made, what));
            attention_free(&made);
        }
}

/* Row 10: q, k, v in one packed tensor [B, T, 3, H, D], and an upstream gradient of one number. */
static void packed_views(void **unused)
{
    static const rill_dtype types[] = {RILL_F32, RILL_F64, RILL_BF16};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        attention plain = attention_make(types[i], (attention_sizes){2, 130, 3, 3, 24, 24, 0});
        attention views = attention_make(types[i], (attention_sizes){2, 130, 3, 3, 24, 24, 0});
        rill_tensor all = view_alloc(types[i], 5, (int64_t[]){2, 130, 3, 3, 24});
        rill_tensor *const parts[] = {&views.forward.q, &views.forward.k, &views.forward.v};
        for (int k = 0; k < 3; k++) {
            rill_tensor part = view_narrow(all, 2, k, 1), from = *parts[k];
            part = rill_tensor_view(RILL_HOST, part.data, part.dtype, 4, from.shape,
                                    (int64_t[]){all.stride[0], all.stride[1], all.stride[3], all.stride[4]});
            view_copy(&part, &from);
            *parts[k] = part;
        }
        view_fill(&plain.backward.dy, 0.75), view_fill(&views.backward.dy, 0.75);
        memset(views.backward.dy.stride, 0, sizeof views.backward.dy.stride);
        attention_share(&views);
        assert_true(call_agrees(context, op_find("linear_attention"), &views.forward, &plain.forward));
        assert_true(call_agrees(context, op_find("linear_attention_backward"), &views.backward, &plain.backward));
        free(all.data);
        attention_free(&plain);
        attention_free(&views);
    }
}

/* Runs both directions in a context of their own. */
static void run_apart(const attention *made, int threads)
{
    rill_context *kept = context;
    context = venue_open(where, threads, true);
    run(&made->forward);
    run_back(&made->backward);
    rill_context_destroy(context);
    context = kept;
}

static void assert_same_outputs(attention *one, attention *other)
{
    rill_tensor *left[ATTENTION_OUTPUTS], *right[ATTENTION_OUTPUTS];
    list_outputs(one, left);
    list_outputs(other, right);
    for (int k = 0; k < ATTENTION_OUTPUTS; k++)
        if (!view_same(left[k], right[k], NULL)) fail_msg("output %d has other bits", k);
}

/* Row 11: `reproducible`: one sequence alone, and inside a batch of 33. */
static void alone_and_in_a_batch(void **unused)
{
    (void)unused;
    for (int wide = 0; wide < 2; wide++) {
        attention many = attention_make(wide_types[wide], (attention_sizes){33, 150, 1, 2, 24, 16, 0});
        attention one = attention_make(wide_types[wide], (attention_sizes){1, 150, 1, 2, 24, 16, 0}), part = many;
        rill_linear_attention_args *a = &part.forward, *to = &one.forward;
        rill_tensor *const from[] = {&a->q,
                                     &a->k,
                                     &a->v,
                                     &a->gate,
                                     &a->beta,
                                     &a->S_init,
                                     &a->y,
                                     &a->S_final,
                                     &part.backward.dy,
                                     &part.backward.dS_final,
                                     &part.backward.dq,
                                     &part.backward.dk,
                                     &part.backward.dv,
                                     &part.backward.dgate,
                                     &part.backward.dbeta,
                                     &part.backward.dS_init};
        const rill_tensor *const into[] = {&to->q,    &to->k,      &to->v,           &to->gate,
                                           &to->beta, &to->S_init, &one.backward.dy, &one.backward.dS_final};
        for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) *from[i] = view_narrow(*from[i], 0, 17, 1);
        for (int i = 0; i < 8; i++) view_copy(into[i], from[i < 6 ? i : i + 2]);
        run_apart(&many, 2);
        run_apart(&one, 2);
        assert_same_outputs(&part, &one);
        attention_free(&many);
        attention_free(&one);
    }
}

/* Row 12: more threads than heads; heads shared in parts and in chunks, with whole blocks of keys and without. */
static void many_threads(void **unused)
{
    static const attention_sizes sizes[] = {
        {1, 300, 1, 1, 24, 24, 0}, {1, 300, 1, 1, 100, 68, 0}, {1, 200, 3, 3, 68, 100, 0}, {1, 200, 2, 4, 36, 60, 0}};
    static const int threads[] = {2, 5, 64};
    (void)unused;
    for (int wide = 0; wide < 2; wide++)
        for (int i = 0; i < 4; i++) {
            attention one = attention_make(wide_types[wide], sizes[i]);
            run_apart(&one, 1);
            for (int k = 0; k < 3; k++) {
                attention other = attention_make(wide_types[wide], sizes[i]);
                run_apart(&other, threads[k]);
                assert_same_outputs(&one, &other);
                attention_free(&other);
            }
            attention_free(&one);
        }
}

int run_shape_tests(const char *name)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_pieces),    cmocka_unit_test(packed),
                                       cmocka_unit_test(crowds),       cmocka_unit_test(head_sizes),
                                       cmocka_unit_test(packed_views), cmocka_unit_test(alone_and_in_a_batch),
                                       cmocka_unit_test(many_threads)};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
