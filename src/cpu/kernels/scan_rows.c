/*
 * Rows of channels that lie side by side, straight from tensor to tensor: one pass, in the order of memory, the state
 * in the first-level cache.  What is left of a row after whole vectors is one more vector that ends with the row; it
 * is read before the others write, so that an output over the input does no harm.
 */
#include "scan.h"
#include "scan_columns.h"
#include "scan_step.h"
#include "table.h"

/* What the compiler must know to make one copy of the loops. */
typedef struct row_kind {
    rill_dtype dtype;
    bool is_complex, a_is_shared, past_cache;
} row_kind;

#if RL_REAL_BITS == 32
#define WHOLE_DTYPE RILL_F32
#else
#define WHOLE_DTYPE RILL_F64
#endif

/* past_cache: the place is aligned, as the caller has seen to but for a row's last vector. */
RL_INLINE void put(char *to, vreal value, row_kind kind, bool past_cache)
{
    if (past_cache)
        stream_elements(to, value, kind.dtype);
    else
        store_elements(to, value, kind.dtype);
}

RL_INLINE vreal decay_at(const char *row, int64_t at, row_kind kind)
{
    if (!kind.a_is_shared) return load_elements(row + at, kind.dtype);
    if (!kind.is_complex) return splat(load_element(row, kind.dtype));
    vreal pair = splat(((const real *)row)[0]);
    for (int lane = 1; lane < LANES; lane += 2) pair[lane] = ((const real *)row)[1];
    return pair;
}

typedef struct place {
    const char *a, *input, *before;
    char *out, *da;
} place;

/* A row's whole vectors in the order in which memory is walked. */
typedef struct order {
    int64_t first, step;
} order;

RL_INLINE order order_of(const rl_scan_rows *r)
{
    if (r->input_step >= 0) return (order){0, LANES};
    return (order){(r->lanes / LANES - 1) * LANES, -LANES};
}

RL_INLINE void forward_row(place p, real *state, int64_t lanes, order o, row_kind kind)
{
    const int64_t size = element_size(kind.dtype), last = lanes - LANES;
    const bool whole = lanes % LANES == 0;
    vreal end = {0};
    if (!whole)
        end = step_forward(decay_at(p.a, last * size, kind), load_elements(p.input + last * size, kind.dtype),
                           load_any(state + last), kind.is_complex);
    for (int64_t n = 0, i = o.first; n < lanes / LANES; n++, i += o.step) {
        vreal h = step_forward(decay_at(p.a, i * size, kind), load_elements(p.input + i * size, kind.dtype),
                               load_any(state + i), kind.is_complex);
        store_any(state + i, h);
        put(p.out + i * size, h, kind, kind.past_cache);
    }
    if (whole) return;
    store_any(state + last, end);
    put(p.out + last * size, end, kind, false);
}

RL_INLINE vreal back_vector(place p, real *state, int64_t i, row_kind kind, bool past_cache, vreal u)
{
    const int64_t at = i * element_size(kind.dtype);
    vreal a = decay_at(p.a, at, kind), g = load_elements(p.input + at, kind.dtype) + u;
    if (p.out) put(p.out + at, g, kind, past_cache);
    if (p.da)
        put(p.da + at, decay_gradient(a, load_elements(p.before + at, kind.dtype), g, kind.is_complex), kind,
            past_cache);
    u = step_back(a, g, kind.is_complex);
    store_any(state + i, u);
    return u;
}

RL_INLINE void back_row(place p, real *state, int64_t lanes, order o, row_kind kind)
{
    const int64_t last = lanes - LANES;
    vreal end = load_any(state + last);
    for (int64_t n = 0, i = o.first; n < lanes / LANES; n++, i += o.step)
        back_vector(p, state, i, kind, kind.past_cache, load_any(state + i));
    if (lanes % LANES != 0) back_vector(p, state, last, kind, false, end);
}

RL_INLINE void walk_kind(const rl_scan_rows *r, row_kind kind)
{
    const int64_t size = element_size(kind.dtype);
    place p = {.a = r->a, .input = r->input, .before = r->before, .out = r->out, .da = r->da};
    real *state = r->state;
    const order o = order_of(r);
    for (int64_t t = 0; t < r->rows; t++) {
        if (r->rule.back)
            back_row(p, state, r->lanes, o, kind);
        else
            forward_row(p, state, r->lanes, o, kind);
        p.a += r->a_step * size;
        p.input += r->input_step * size;
        if (p.before) p.before += r->before_step * size;
        if (p.out) p.out += r->out_step * size;
        if (p.da) p.da += r->da_step * size;
    }
}

RL_INLINE void walk_dtype(const rl_scan_rows *r, rill_dtype dtype, bool is_complex)
{
    const bool past_cache = r->past_cache;
    if (r->a_is_shared && past_cache)
        walk_kind(r, (row_kind){dtype, is_complex, true, true});
    else if (r->a_is_shared)
        walk_kind(r, (row_kind){dtype, is_complex, true, false});
    else if (past_cache)
        walk_kind(r, (row_kind){dtype, is_complex, false, true});
    else
        walk_kind(r, (row_kind){dtype, is_complex, false, false});
}

void RL_NAME(rl_scan_walk_rows)(const rl_scan_rows *r)
{
    if (r->rule.is_complex) walk_dtype(r, WHOLE_DTYPE, true);
#if RL_REAL_BITS == 32
    else if (r->dtype == RILL_BF16)
        walk_dtype(r, RILL_BF16, false);
    else if (r->dtype == RILL_F16)
        walk_dtype(r, RILL_F16, false);
#endif
    else
        walk_dtype(r, WHOLE_DTYPE, false);
}
