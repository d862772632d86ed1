/* Linear attention in sizes that fill chunks and tiles, of 16-bit data and of float32: gates, states and numbers that
 * leave them. */
#include "hard_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hard.h"
#include "rng.h"
#include "strided.h"

/* Every step's gate of a tensor [batch, length, heads], as a logarithm drawn between two. */
static void draw_log_gates(attention *made, double least, double most)
{
    const rill_tensor *gate = &made->forward.gate;
    rng r = rng_make(23, 1);
    int64_t index[RILL_MAX_RANK] = {0};
    do view_store(gate, index, least + (most - least) * rng_unit(&r));
    while (view_next(gate, index));
    made->forward.gate_is_log = true;
}

static void agree(attention *made, const char *what)
{
    attention_share(made);
    assert_true(attention_agrees(context, made, what));
    attention_free(made);
}

/* Sizes on all sides of tiles of 64, time that is cut into parts, heads that share queries, and many of them. */
static void sizes(void **unused)
{
    static const attention_sizes all[] = {
        {1, 200, 1, 2, 64, 64, 0},  {2, 130, 1, 2, 128, 128, 0}, {1, 193, 2, 4, 64, 128, 0},
        {1, 130, 1, 1, 128, 40, 0}, {1, 128, 1, 1, 16, 200, 0},  {1, 640, 1, 1, 64, 64, 0},
        {1, 530, 1, 2, 72, 64, 0},  {1, 63, 1, 1, 64, 64, 0},    {2, 577, 2, 4, 48, 64, 0},
        {1, 1030, 1, 1, 60, 24, 0}, {1, 513, 9, 18, 24, 40, 0},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int k = 0; k < 4; k++) {
            attention made = attention_make(k / 2 ? RILL_F32 : RILL_BF16, all[i]);
            char what[64];
            made.forward.scale = 0.125;
            if (k % 2) draw_log_gates(&made, -0.1, 0), made.forward.reverse = i % 2;
            if (k % 2) made.forward.S_init = made.forward.beta = (rill_tensor){0};
            snprintf(what, sizeof what, "sizes %d, logarithms %d, float32 %d", (int)i, k % 2, k / 2);
            agree(&made, what);
        }
}

/* Decays that vanish within a chunk, and that do not even within many. */
static void decays(void **unused)
{
    static const double least[] = {-1e-5, -3, -30, -1e6, -200};
    (void)unused;
    for (int i = 0; i < 20; i++) {
        attention made = attention_make(i / 10 ? RILL_F32 : RILL_BF16, (attention_sizes){1, 300, 1, 2, 64, 48, 0});
        draw_log_gates(&made, least[i / 2 % 5], 0);
        made.forward.reverse = i % 2;
        agree(&made, "decays");
    }
}

/* Gates that are no decays: negative, above 1, 0, infinite. */
static void factors(void **unused)
{
    static const double gates[] = {-0.5, 2, 0, 1.5, -1, INFINITY, NAN, 0x1p-70, 1e-39};
    (void)unused;
    for (int i = 0; i < 36; i++) {
        attention made = attention_make(i / 18 ? RILL_F32 : RILL_BF16, (attention_sizes){1, 200, 1, 1, 64, 48, 0});
        set_gate(&made, 90, gates[i / 2 % 9]);
        if (i / 2 % 9 == 1) set_gate(&made, 91, 0.25);
        made.forward.reverse = i % 2;
        agree(&made, "factors");
    }
}

/* What is not finite goes where the loop takes it, and not past a reset, whatever chunk it is in. */
static void not_finite(void **unused)
{
    static const double numbers[] = {INFINITY, -INFINITY, NAN};
    (void)unused;
    for (int i = 0; i < 48; i++) {
        const int64_t at = i % 2 ? 70 : 10, values = i / 24 ? 60 : 72;
        attention made =
            attention_make(i / 24 ? RILL_F32 : RILL_BF16, (attention_sizes){1, 300, 1, 2, 64, values, 0});
        rill_tensor *const tensors[] = {&made.forward.q, &made.forward.k, &made.forward.v, &made.backward.dy};
        rill_tensor *into = tensors[i / 2 % 4];
        if (i / 12 % 2) draw_log_gates(&made, -0.2, 0);
        set_gate(&made, 150, i / 12 % 2 ? -INFINITY : 0);
        view_store(into, (int64_t[]){0, at, into->shape[2] - 1, 5}, numbers[i / 8 % 3]);
        agree(&made, "numbers that are not finite");
    }
}

/* Numbers near both ends of the range. */
static void large_numbers(void **unused)
{
    static const double numbers[] = {1e18, 1e30, 1e-38};
    (void)unused;
    for (int i = 0; i < 24; i++) {
        attention made = attention_make(i / 12 ? RILL_F32 : RILL_BF16, (attention_sizes){1, 200, 1, 1, 64, 64, 0});
        rill_tensor *const tensors[] = {&made.forward.q, &made.forward.k, &made.forward.v, &made.backward.dy};
        view_store(tensors[i % 4], (int64_t[]){0, 80, 0, 5}, numbers[i / 4 % 3]);
        if (i % 2) set_gate(&made, 130, 0);
        agree(&made, "large numbers");
    }
}

/* A large number that fades by more than a float holds, and is still all that there is. */
static void faded(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        const bool reverse = i % 2;
        attention made = attention_make(i / 2 ? RILL_F32 : RILL_BF16, (attention_sizes){1, 128, 1, 1, 64, 64, 0});
        rill_tensor k = made.forward.k, v = made.forward.v, q = made.forward.q;
        const int64_t from = reverse ? 70 : 3;
        rill_tensor k_row = view_narrow(k, 1, from, 1), v_row = view_narrow(v, 1, from, 1);
        view_fill(&q, 0), view_fill(&k, 0), view_fill(&v, 0), view_fill(&k_row, 0x1p60), view_fill(&v_row, 0x1p60);
        rill_tensor q_row = view_narrow(q, 1, reverse ? 65 : 8, 1);
        view_fill(&q_row, 1);
        view_fill(&made.forward.gate, 1), view_fill(&made.forward.beta, 1);
        for (int64_t t = 0; t < 3; t++) set_gate(&made, reverse ? 69 - t : 4 + t, 0x1p-63);
        made.forward.S_init = (rill_tensor){0};
        made.forward.reverse = reverse;
        agree(&made, "a number that fades");
    }
}

/* Packed sequences beside others that are not finite; a state that is handed on in place; y and gradients wider. */
static void packed_and_wide(void **unused)
{
    static const int64_t offsets[] = {0, 70, 70, 71, 199, 330};
    (void)unused;
    for (int i = 0; i < 8; i++) {
        attention made = attention_make(RILL_BF16, (attention_sizes){1, 330, 1, 2, 64, 64, 5});
        rill_tensor y = view_alloc(RILL_F32, 4, made.forward.y.shape),
                    dk = view_alloc(RILL_F32, 4, made.forward.k.shape);
        made.forward.offsets = rill_tensor_1d(offsets, RILL_I64, 6);
        view_store(&made.forward.v, (int64_t[]){0, 72, 1, 3}, NAN);
        if (i % 2) made.forward.y = y, made.backward.dk = dk;
        made.forward.reverse = i / 2 % 2;
        if (i / 4) made.forward.S_init = (rill_tensor){0};
        attention_share(&made);
        assert_true(attention_agrees(context, &made, "packed sequences"));
        free(y.data), free(dk.data);
        attention_free(&made);
    }
}

/* A long sequence of one head, cut in time: a plain one, one with a reset, growth or NaN in each of its parts. */
static void long_sequences(void **unused)
{
    static const double gates[] = {0.5, 0, 4, NAN};
    (void)unused;
    for (int i = 0; i < 16; i++) {
        const int kind = i / 2 % 4;
        attention made = attention_make(i / 8 ? RILL_F32 : RILL_BF16, (attention_sizes){1, 1100, 1, 1, 16, 16, 0});
        view_fill(&made.forward.gate, 0.999);
        for (int64_t t = 30 + 100 * kind; t < 1100; t += kind < 2 ? 300 : 5000) set_gate(&made, t, gates[kind]);
        if (i % 2) made.forward.S_final = made.forward.S_init;
        attention_share(&made);
        if (i % 2) /* the judge must not see the state that is overwritten */
            run(&made.forward);
        else
            assert_true(attention_agrees(context, &made, "a long sequence"));
        attention_free(&made);
    }
}

/* So many heads that blocks go through one each: with a reset, and what is not finite, faded or large in some. */
static void many_heads(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        attention made = attention_make(RILL_F32, (attention_sizes){1, 70 + 60 * i, 17, 34, 48, i ? 32 : 64, 0});
        if (i) draw_log_gates(&made, -3, 0);
        set_gate(&made, 66, i ? -INFINITY : 0);
        view_store(&made.forward.k, (int64_t[]){0, 20, 3, 5}, NAN);
        view_store(&made.forward.v, (int64_t[]){0, 30, 11, 7}, 1e30);
        view_store(&made.forward.q, (int64_t[]){0, 65, 9, 40}, INFINITY);
        view_store(&made.backward.dy, (int64_t[]){0, 64, 25, 1}, -INFINITY);
        agree(&made, "many heads");
    }
}

/* Wide heads, cut in time: all kinds of gates, states or none, and what leaves the products. */
static void wide_heads(void **unused)
{
    static const attention_sizes all[] = {{2, 577, 2, 2, 72, 120, 0}, {1, 640, 3, 3, 128, 128, 0}};
    static const double least[] = {-0.1, -1e-5, -3, -1e6};
    const bool all_kinds = is_on_gpu(context);
    (void)unused;
    for (int i = all_kinds ? 0 : 8; i < (all_kinds ? 16 : 12); i++) {
        attention made = attention_make(RILL_BF16, all[i % 2]);
        made.forward.scale = 0.125;
        draw_log_gates(&made, least[i / 2 % 4], 0);
        for (int64_t t = 130; t < 577 && i / 8; t += 200) set_gate(&made, t, -INFINITY);
        if (i == 8) set_gate(&made, 300, 1);
        if (i == 9) view_store(&made.forward.v, (int64_t[]){0, 200, 1, 5}, NAN);
        if (i == 11) view_store(&made.backward.dy, (int64_t[]){0, 300, 0, 5}, 0x1p40);
        if (i % 4 == 3) made.forward.S_init = made.forward.beta = (rill_tensor){0};
        made.backward.dS_init = (rill_tensor){0};
        char what[32];
        snprintf(what, sizeof what, "wide heads %d", i);
        agree(&made, what);
    }
}

int run_chunk_tests(const char *name)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes),           cmocka_unit_test(decays),
                                       cmocka_unit_test(factors),         cmocka_unit_test(not_finite),
                                       cmocka_unit_test(large_numbers),   cmocka_unit_test(faded),
                                       cmocka_unit_test(packed_and_wide), cmocka_unit_test(long_sequences),
                                       cmocka_unit_test(many_heads),      cmocka_unit_test(wide_heads)};
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
