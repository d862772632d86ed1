/*
 * scan by plain loops, forward and backward: one channel of one sequence at a time, one step after the other.  Real
 * numbers are complex ones whose imaginary part is never touched.
 */
#include "../context.h"
#include "number.h"

rill_status RL_NAME(rl_reference_scan)(rill_context *context, const rl_scan_problem *problem);
rill_status RL_NAME(rl_reference_scan_backward)(rill_context *context, const rl_scan_backward_problem *problem);

typedef struct pair {
    real re, im;
} pair;

static bool is_complex(const rill_tensor *tensor)
{
    return tensor->dtype == RILL_C64 || tensor->dtype == RILL_C128;
}

static pair load_pair(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2)
{
    const char *from = element(tensor, i0, i1, i2, 0);
    if (tensor->dtype == RILL_C64) return (pair){(real)((const float *)from)[0], (real)((const float *)from)[1]};
    if (tensor->dtype == RILL_C128) return (pair){(real)((const double *)from)[0], (real)((const double *)from)[1]};
    return (pair){load(tensor, i0, i1, i2, 0), 0};
}

static void store_pair(const rill_tensor *tensor, int64_t i0, int64_t i1, int64_t i2, pair value)
{
    char *to = element(tensor, i0, i1, i2, 0);
    if (tensor->dtype == RILL_C64) {
        ((float *)to)[0] = (float)value.re;
        ((float *)to)[1] = (float)value.im;
    } else if (tensor->dtype == RILL_C128) {
        ((double *)to)[0] = (double)value.re;
        ((double *)to)[1] = (double)value.im;
    } else {
        store(tensor, i0, i1, i2, 0, value.re);
    }
}

static pair add(pair x, pair y)
{
    return (pair){x.re + y.re, x.im + y.im};
}

static pair multiply(pair x, pair y, bool complex_numbers)
{
    if (!complex_numbers) return (pair){x.re * y.re, 0};
    return (pair){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

static pair conjugate(pair x)
{
    return (pair){x.re, -x.im};
}

static bool is_zero(pair x)
{
    return x.re == 0 && x.im == 0;
}

static bool is_finite(pair x)
{
    return isfinite(x.re) && isfinite(x.im);
}

/* a h, where a decay of 0 drops h, whatever it is. */
static pair decayed(pair a, pair h, bool complex_numbers)
{
    return is_zero(a) ? (pair){0, 0} : multiply(a, h, complex_numbers);
}

/* What enters an empty sequence leaves it, bit for bit where the types are the same. */
static void pass_on(const rill_tensor *to, const rill_tensor *from, int64_t sequence, int64_t d)
{
    if (from->data && from->dtype == to->dtype)
        memmove(element(to, sequence, d, 0, 0), element(from, sequence, d, 0, 0), rill_dtype_size(to->dtype));
    else
        store_pair(to, sequence, d, 0, from->data ? load_pair(from, sequence, d, 0) : (pair){0, 0});
}

static void run_channel(const rl_scan_problem *p, int64_t sequence, int64_t d)
{
    span s = sequence_span(&p->offsets, sequence, p->length);
    bool complex_numbers = is_complex(&p->a), has_state = p->h_init.data != NULL;
    pair h = has_state ? load_pair(&p->h_init, sequence, d, 0) : (pair){0, 0};
    for (int64_t i = 0; i < s.end - s.begin; i++) {
        int64_t t = step_at(s, i, p->reverse);
        pair b = load_pair(&p->b, s.row, t, d);
        if (has_state) {
            pair a = load_pair(&p->a, s.row, t, d);
            h = is_zero(a) ? b : add(multiply(a, h, complex_numbers), b);
        } else {
            h = b;
        }
        has_state = true;
        store_pair(&p->h, s.row, t, d, h);
    }
    if (!p->h_final.data) return;
    if (s.begin == s.end)
        pass_on(&p->h_final, &p->h_init, sequence, d);
    else
        store_pair(&p->h_final, sequence, d, 0, h);
}

rill_status RL_NAME(rl_reference_scan)(rill_context *context, const rl_scan_problem *problem)
{
    (void)context;
    for (int64_t sequence = 0; sequence < problem->sequences; sequence++)
        for (int64_t d = 0; d < problem->channels; d++) run_channel(problem, sequence, d);
    return RILL_OK;
}

/* The gradient of a decay: g conj(h_{t-1}), but 0 where the decay is 0 and what it drops is not finite. */
static pair decay_gradient(pair a, pair before, pair g, bool complex_numbers)
{
    if (is_zero(a) && !is_finite(before)) return (pair){0, 0};
    return multiply(g, conjugate(before), complex_numbers);
}

static void run_channel_back(const rl_scan_backward_problem *p, int64_t sequence, int64_t d)
{
    span s = sequence_span(&p->offsets, sequence, p->length);
    bool complex_numbers = is_complex(&p->a);
    pair later =
        p->dh_final.data ? load_pair(&p->dh_final, sequence, d, 0) : (pair){0, 0}; /* conj(a) g of the next */
    for (int64_t i = s.end - s.begin - 1; i >= 0; i--) {
        int64_t t = step_at(s, i, p->reverse);
        bool has_state = i > 0 || p->h_init.data;
        pair a = has_state ? load_pair(&p->a, s.row, t, d) : (pair){0, 0}, g = later;
        if (p->dh.data) g = add(load_pair(&p->dh, s.row, t, d), later);
        if (p->db.data) store_pair(&p->db, s.row, t, d, g);
        if (p->da.data) {
            pair before = i > 0       ? load_pair(&p->h, s.row, step_at(s, i - 1, p->reverse), d)
                          : has_state ? load_pair(&p->h_init, sequence, d, 0)
                                      : (pair){0, 0};
            store_pair(&p->da, s.row, t, d, has_state ? decay_gradient(a, before, g, complex_numbers) : before);
        }
        later = decayed(conjugate(a), g, complex_numbers);
    }
    if (!p->dh_init.data) return;
    if (s.begin == s.end)
        pass_on(&p->dh_init, &p->dh_final, sequence, d);
    else
        store_pair(&p->dh_init, sequence, d, 0, later);
}

rill_status RL_NAME(rl_reference_scan_backward)(rill_context *context, const rl_scan_backward_problem *problem)
{
    (void)context;
    for (int64_t sequence = 0; sequence < problem->sequences; sequence++)
        for (int64_t d = 0; d < problem->channels; d++) run_channel_back(problem, sequence, d);
    return RILL_OK;
}
