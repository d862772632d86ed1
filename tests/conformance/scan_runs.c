/*
 * Steps are counted in the order in which the recurrence runs.  Forward, step k of the row is step k of the sequence.
 * Backward, the gradient of h walks the other way, so step k of the row is the sequence's step L-1-k: dh there is the
 * row's b, the decay one step later is its a, and dh_final is what its first decay leaves of its initial state.  With
 * all h = 1, da and db are then both the row's states, and dh_init is the last of them times the first decay, .5.
 */
#include "scan_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "strided.h"

/* A state after some step: by the loop in long double, in the accumulation type, and both as an output stores them.
 */
typedef struct state {
    long double right;
    double loop, right_stored, loop_stored;
} state;

/* One channel: a and b as they are stored, and what the plain loop makes of them. */
typedef struct column {
    const scan_row *row;
    rill_tensor a, b; /* contiguous, of the way's type */
    state *states;
    double entry; /* the state before the first step */
} column;

static rill_dtype accumulation(rill_dtype dtype)
{
    return op_default_type(OP_STATE, dtype);
}

static bool is_wide(rill_dtype dtype)
{
    return dtype == RILL_F64 || dtype == RILL_C128;
}

/* A value as it is stored. */
static double stored(const rill_tensor *like, double value)
{
    double memory[2] = {0};
    int64_t index[RILL_MAX_RANK] = {0};
    rill_tensor one = rill_tensor_view(RILL_HOST, memory, like->dtype, 0, NULL, NULL);
    view_store(&one, index, value);
    return view_load(&one, index);
}

static void compute_column(column *c, int64_t length, bool wide)
{
    long double right = c->entry;
    double loop64 = c->entry;
    float loop32 = (float)c->entry;
    bool has_state = c->row->has_init;
    for (int64_t k = 0; k < length; k++) {
        double a = view_load(&c->a, &k), b = view_load(&c->b, &k);
        if (!has_state || a == 0) {
            right = loop64 = b;
            loop32 = (float)b;
        } else {
            right = right * a + b;
            loop64 = loop64 * a + b;
            loop32 = loop32 * (float)a;
            loop32 = loop32 + (float)b;
        }
        has_state = true;
        double loop = wide ? loop64 : (double)loop32;
        c->states[k] = (state){right, loop, stored(&c->a, (double)right), stored(&c->a, loop)};
    }
}

static column make_column(const scan_row *row, const scan_way *way)
{
    int64_t length = way->length;
    column c = {.row = row, .entry = row->has_init ? row->init : 0};
    c.a = view_alloc(way->dtype, 1, &length);
    c.b = view_alloc(way->dtype, 1, &length);
    c.states = malloc((size_t)(length + 1) * sizeof *c.states);
    if (!c.states) abort();
    for (int64_t k = 0; k < length; k++) {
        double a, b;
        row->step(k, length, is_wide(way->dtype), &a, &b);
        view_store(&c.a, &k, a);
        view_store(&c.b, &k, b);
    }
    compute_column(&c, length, is_wide(way->dtype));
    return c;
}

static void free_column(column *c)
{
    free(c->a.data);
    free(c->b.data);
    free(c->states);
}

/* [1, length, channels] in the way's layout. */
static rill_tensor by_time(const scan_way *way)
{
    rill_tensor made = view_alloc(way->dtype, 3, (int64_t[]){1, way->length, way->channels});
    if (way->time_last) made.stride[1] = 1, made.stride[2] = way->length;
    return made;
}

/* Channel d by steps of the row, as a view of one axis. */
static rill_tensor channel_view(const scan_way *way, const rill_tensor *tensor, int64_t d)
{
    bool backwards = way->reverse != way->backward;
    int64_t stride = tensor->stride[1], first = backwards ? (way->length - 1) * stride : 0;
    rill_tensor view = rill_tensor_view(RILL_HOST, tensor->data, tensor->dtype, 1, &way->length, &stride);
    view.data = (char *)tensor->data + (first + d * tensor->stride[2]) * (int64_t)rill_dtype_size(tensor->dtype);
    view.stride[0] = backwards ? -stride : stride;
    return view;
}

/* A part [begin, begin + count) of the row's steps. */
static rill_tensor piece_of(const scan_way *way, rill_tensor tensor, int64_t begin, int64_t count)
{
    return view_narrow(tensor, 1, way->reverse != way->backward ? way->length - begin - count : begin, count);
}

typedef struct run {
    const scan_way *way;
    const column *columns; /* the hard one, the plain one */
    rill_tensor a, b, ones, one_state, entry, exit, out[2];
} run;

static const column *column_of(const run *r, int64_t d)
{
    return &r->columns[d % 2];
}

static run make_run(const scan_way *way, const column *columns)
{
    run r = {.way = way, .columns = columns};
    int64_t states[2] = {1, way->channels};
    r.a = by_time(way), r.b = by_time(way), r.ones = by_time(way), r.out[0] = by_time(way), r.out[1] = by_time(way);
    r.entry = view_alloc(accumulation(way->dtype), 2, states);
    r.exit = view_alloc(accumulation(way->dtype), 2, states);
    r.one_state = view_alloc(accumulation(way->dtype), 2, states);
    view_fill(&r.ones, 1);
    view_fill(&r.one_state, 1);
    view_fill(&r.out[0], -12345);
    view_fill(&r.out[1], -12345);
    for (int64_t d = 0; d < way->channels; d++) {
        const column *c = column_of(&r, d);
        rill_tensor a = channel_view(way, &r.a, d), b = channel_view(way, &r.b, d);
        double decay = view_load(&c->a, (int64_t[]){0}), entry = c->entry;
        if (way->backward) {
            entry = decay == 0 ? 0 : entry * decay;
            view_store(&a, (int64_t[]){way->length - 1}, 0.5);
        }
        if (way->backward && way->length > 1) {
            rill_tensor later = view_narrow(c->a, 0, 1, way->length - 1), to = view_narrow(a, 0, 0, way->length - 1);
            view_copy(&to, &later);
        }
        if (!way->backward) view_copy(&a, &c->a);
        view_copy(&b, &c->b);
        view_store(&r.entry, (int64_t[]){0, d}, entry);
    }
    return r;
}

static void free_run(run *r)
{
    rill_tensor *all[] = {&r->a, &r->b, &r->ones, &r->one_state, &r->entry, &r->exit, &r->out[0], &r->out[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]->data);
}

/* One call on part of the row's steps; the state goes on in entry. */
static rill_status run_forward(rill_context *context, run *r, int64_t begin, int64_t count, bool has_entry)
{
    rill_scan_args args = {.reverse = r->way->reverse};
    args.a = piece_of(r->way, r->a, begin, count);
    args.b = piece_of(r->way, r->b, begin, count);
    args.h = r->way->in_place ? args.b : piece_of(r->way, r->out[0], begin, count);
    if (has_entry) args.h_init = r->entry;
    args.h_final = r->entry;
    return rill_scan(context, &args);
}

static rill_status run_backward(rill_context *context, run *r, int64_t begin, int64_t count, bool has_entry)
{
    rill_scan_backward_args args = {.reverse = r->way->reverse, .h_init = r->one_state, .dh_init = r->exit};
    args.a = piece_of(r->way, r->a, begin, count);
    args.dh = piece_of(r->way, r->b, begin, count);
    args.h = piece_of(r->way, r->ones, begin, count);
    args.db = piece_of(r->way, r->out[0], begin, count);
    args.da = piece_of(r->way, r->out[1], begin, count);
    if (has_entry) args.dh_final = r->entry;
    rill_status status = rill_scan_backward(context, &args);
    rill_tensor swap = r->entry;
    r->entry = r->exit;
    r->exit = swap;
    return status;
}

static double limit_of(rill_dtype dtype)
{
    return dtype == RILL_BF16 ? 0x1.ffp127 : is_wide(dtype) ? INFINITY : 0x1.ffffffp127;
}

static bool same_special(double out, double right)
{
    return isnan(right) ? isnan(out) : out == right;
}

static bool wrong(const run *r, const char *name, int64_t d, int64_t k, double out, double right)
{
    const scan_way *way = r->way;
    printf("%s, %s, channel %lld of %lld, step %lld of %lld: %s is %.9g, expected %.9g\n", column_of(r, d)->row->name,
           rill_dtype_name(way->dtype), (long long)d, (long long)way->channels, (long long)k, (long long)way->length,
           name, out, right);
    return false;
}

/* Values of one channel against the right ones by SPEC's bound over all of them; or exactly. */
static bool check_values(const run *r, const char *name, const rill_tensor *out, int64_t d, const state *right)
{
    long double error = 0, size = 0, rounding = 0, worst = -1;
    int64_t count = out->shape[0], at = 0;
    double tolerance = measure_tolerance(r->way->dtype, r->way->backward), limit = limit_of(out->dtype);
    bool exact = column_of(r, d)->row->exact;
    for (int64_t k = 0; k < count; k++) {
        const state *s = &right[k];
        double found = view_load(out, &k);
        if (exact || !(fabsl(s->right) < limit) || !isfinite(found)) {
            if (!same_special(found, s->right_stored)) return wrong(r, name, d, k, found, s->right_stored);
            continue;
        }
        long double off = fabsl(found - s->right), lost = s->loop_stored - s->right;
        error += off * off, size += s->right * s->right, rounding += lost * lost;
        if (off > worst) worst = off, at = k;
    }
    if (sqrtl(error) <= tolerance * sqrtl(size) + 3 * sqrtl(rounding)) return true;
    printf("error %.3g, size %.3g, the loop's %.3g; worst: ", (double)sqrtl(error), (double)sqrtl(size),
           (double)sqrtl(rounding));
    return wrong(r, name, d, at, view_load(out, &at), right[at].right_stored);
}

static bool check_imaginary(const run *r, const char *name, const rill_tensor *out, int64_t d)
{
    if (!op_type_is_complex(out->dtype)) return true;
    rill_tensor parts = view_parts(*out);
    for (int64_t k = 0; k < out->shape[0]; k++) {
        double imaginary = view_load(&parts, (int64_t[]){k, 1});
        if (imaginary != 0) return wrong(r, name, d, k, imaginary, 0);
    }
    return true;
}

static bool check_channel(const run *r, int64_t d)
{
    static const char *const names[2][3] = {{"h", NULL, "h_final"}, {"db", "da", "dh_init"}};
    const char *const *name = names[r->way->backward];
    const state *right = column_of(r, d)->states;
    for (int i = 0; i < (r->way->backward ? 2 : 1); i++) {
        rill_tensor out = channel_view(r->way, &r->out[i], d);
        if (!check_values(r, name[i], &out, d, right) || !check_imaginary(r, name[i], &out, d)) return false;
    }
    rill_tensor exit = view_narrow(r->entry, 1, d, 1);
    exit = rill_tensor_view(RILL_HOST, exit.data, exit.dtype, 1, (int64_t[]){1}, NULL);
    state last = right[r->way->length - 1];
    if (r->way->backward) last.right /= 2, last.loop /= 2;
    last.right_stored = stored(&exit, (double)last.right);
    last.loop_stored = stored(&exit, last.loop);
    return check_values(r, name[2], &exit, d, &last) && check_imaginary(r, name[2], &exit, d);
}

static bool run_all(rill_context *context, run *r)
{
    const scan_way *way = r->way;
    int64_t size = way->piece ? way->piece : way->length;
    for (int64_t begin = 0; begin < way->length; begin += size) {
        int64_t count = begin + size < way->length ? size : way->length - begin;
        bool has_entry = begin > 0 || r->columns[0].row->has_init;
        rill_status status = way->backward ? run_backward(context, r, begin, count, has_entry)
                                           : run_forward(context, r, begin, count, has_entry);
        if (status == RILL_OK) continue;
        printf("%s: %s: %s\n", r->columns[0].row->name, rill_status_name(status), rill_last_error(context));
        return false;
    }
    if (way->in_place && !way->backward) view_copy(&r->out[0], &r->b);
    for (int64_t d = 0; d < way->channels; d++)
        if (!check_channel(r, d)) return false;
    return true;
}

bool scan_way_run(rill_context *context, const scan_row *row, const scan_way *way)
{
    scan_row beside = scan_row_plain;
    beside.has_init = row->has_init;
    column columns[2] = {make_column(row, way), make_column(&beside, way)};
    run r = make_run(way, columns);
    bool good = run_all(context, &r);
    if (!good)
        printf("  in: %s%s, %s, pieces of %lld\n", way->backward ? "backward" : "forward",
               way->reverse    ? " reversed"
               : way->in_place ? " in place"
                               : "",
               way->time_last ? "time last" : "channels last", (long long)(way->piece ? way->piece : way->length));
    free_run(&r);
    free_column(&columns[0]);
    free_column(&columns[1]);
    return good;
}
