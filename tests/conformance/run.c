#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "strided.h"

double case_tolerance(const test_case *c, int output)
{
    op_kind kind = c->op->tensors[output].kind;
    bool gradient = kind == OP_GRADIENT || kind == OP_STATE_GRADIENT || op_is_backward(c->op);
    return measure_tolerance(c->activations, gradient);
}

judges judges_open(void)
{
    return (judges){context_open(RILL_BACKEND_REFERENCE), context_open(RILL_BACKEND_LOOP)};
}

void judges_close(judges *j)
{
    rill_context_destroy(j->reference);
    rill_context_destroy(j->loop);
}

static void free_all(rill_tensor *tensors)
{
    for (int i = 0; i < OP_MAX_TENSORS; i++) free(tensors[i].data);
    memset(tensors, 0, OP_MAX_TENSORS * sizeof *tensors);
}

void judged_free(judged *result)
{
    free_all(result->input);
    free_all(result->ref);
    free_all(result->loop);
}

bool run_plain(rill_context *context, const test_case *c, const rill_tensor *input, bool wide, rill_tensor *output)
{
    args_room args = {0};
    for (int i = 0; i < c->op->tensor_count; i++) {
        const op_tensor *t = &c->op->tensors[i];
        if (!c->tensors[i].given) continue;
        if (op_is_output(t)) {
            output[i] =
                view_alloc(wide ? op_wide_type(c->activations) : c->tensors[i].dtype, t->rank, c->tensors[i].shape);
            view_fill(&output[i], 12345);
        }
        *op_args_tensor(t, &args) = op_is_output(t) ? output[i] : input[i];
    }
    case_set_options(c, &args);
    if (c->op->run(context, &args) == RILL_OK) return true;
    printf("the judge refuses: %s\n", rill_last_error(context));
    return false;
}

bool judge_case(const judges *j, const test_case *c, judged *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < c->op->tensor_count; i++)
        if (c->tensors[i].given && !op_is_output(&c->op->tensors[i])) out->input[i] = case_values(c, i);
    return run_plain(j->reference, c, out->input, true, out->ref) &&
           run_plain(j->loop, c, out->input, false, out->loop);
}

/* A case's tensors on a target. */
typedef struct placed {
    const test_case *c;
    rill_context *context;
    buffer buffers[OP_MAX_TENSORS]; /* of an alias: none */
    args_room args;
} placed;

static void place_tensors(placed *p, const judged *right)
{
    for (int i = 0; i < p->c->op->tensor_count; i++) {
        const case_tensor *t = &p->c->tensors[i];
        if (!t->given || t->alias >= 0) continue;
        p->buffers[i] = buffer_make(t->dtype, p->c->op->tensors[i].rank, t->shape, &t->how);
        if (right->input[i].data) view_copy(&p->buffers[i].view, &right->input[i]);
        buffer_remember(&p->buffers[i]);
    }
}

/* Fills the args struct; on the device, with copies of the buffers there. */
static rill_status fill_args(placed *p, bool on_device)
{
    const op *row = p->c->op;
    for (int i = 0; i < row->tensor_count; i++) {
        rill_tensor *to = op_args_tensor(&row->tensors[i], &p->args);
        if (!p->c->tensors[i].given || p->c->tensors[i].alias >= 0) continue;
        *to = p->buffers[i].view;
        if (!on_device) continue;
        rill_status status = buffer_to_device(p->context, &p->buffers[i], to);
        if (status != RILL_OK) return status;
    }
    for (int i = 0; i < row->tensor_count; i++)
        if (p->c->tensors[i].given && p->c->tensors[i].alias >= 0)
            *op_args_tensor(&row->tensors[i], &p->args) =
                *op_args_tensor(&row->tensors[p->c->tensors[i].alias], &p->args);
    case_set_options(p->c, &p->args);
    return RILL_OK;
}

static bool run_placed(placed *p, bool on_device)
{
    rill_status status = fill_args(p, on_device);
    if (status == RILL_OK) status = p->c->op->run(p->context, &p->args);
    if (status == RILL_OK) status = rill_synchronize(p->context);
    for (int i = 0; i < OP_MAX_TENSORS && on_device; i++) {
        if (!p->buffers[i].device) continue;
        rill_status back = buffer_from_device(p->context, &p->buffers[i]);
        if (status == RILL_OK) status = back;
    }
    if (status == RILL_OK) return true;
    printf("%s: %s\n", rill_status_name(status), rill_last_error(p->context));
    return false;
}

static void print_index(const int64_t *index, int rank)
{
    for (int axis = 0; axis < rank; axis++) printf("%s%" PRId64, axis ? ", " : "[", index[axis]);
    printf("]");
}

/* The input whose memory an output was allowed to overwrite. */
static bool overwritten(const test_case *c, int input)
{
    for (int i = 0; i < c->op->tensor_count; i++)
        if (c->tensors[i].given && c->tensors[i].alias == input) return true;
    return false;
}

static bool check_memory(const placed *p)
{
    bool good = true;
    for (int i = 0; i < p->c->op->tensor_count; i++) {
        const op_tensor *t = &p->c->op->tensors[i];
        const buffer *b = &p->buffers[i];
        int64_t index[RILL_MAX_RANK];
        if (!b->memory) continue;
        bool writable = op_is_output(t) || overwritten(p->c, i);
        int64_t where = writable ? buffer_guard_changed(b) : buffer_changed(b);
        if (where >= 0)
            printf("%s: %s was written, element %" PRId64 " of its memory (its first is %" PRId64 ")\n", t->name,
                   writable ? "memory outside" : "the input", where, b->origin);
        good = good && where < 0;
        if (!op_is_output(t) || !buffer_unwritten(b, index)) continue;
        printf("%s: element ", t->name);
        print_index(index, t->rank);
        printf(" was not written\n");
        good = false;
    }
    return good;
}

static void print_miss(const op_tensor *t, const measure *m, const rill_tensor *out, const judged *right, int i)
{
    printf("%s: error over bound %.3g in slice ", t->name, m->worst);
    print_index(m->worst_index, t->rank);
    printf(", %" PRId64 " of %" PRId64 " slices fail, %" PRId64 " special values differ, relative error %.3g\n",
           m->failed, m->slices, m->special_mismatches, m->relative_error);
    printf("  its first element: out %.9g ref %.9g loop %.9g\n", measure_load(out, m->worst_index),
           measure_load(&right->ref[i], m->worst_index), measure_load(&right->loop[i], m->worst_index));
}

static bool check_results(const placed *p, const judged *right)
{
    const test_case *c = p->c;
    bool good = true;
    for (int i = 0; i < c->op->tensor_count; i++) {
        const case_tensor *t = &c->tensors[i];
        if (!t->given || !op_is_output(&c->op->tensors[i])) continue;
        const rill_tensor *out = &p->buffers[t->alias >= 0 ? t->alias : i].view;
        measure_against against = {&right->ref[i], &right->ref[i], &right->loop[i]};
        measure m = measure_compare(&c->op->tensors[i], out, &against, c->packed ? c->offsets : NULL,
                                    op_size(&c->sizes, "sequences"), case_tolerance(c, i));
        if (!m.passed) print_miss(&c->op->tensors[i], &m, out, right, i);
        good = good && m.passed;
    }
    return good;
}

bool check_case(rill_context *context, const venue *on, const test_case *c, const judged *right)
{
    placed p = {.c = c, .context = context};
    place_tensors(&p, right);
    bool good = run_placed(&p, on->device_tensors);
    if (good) {
        bool memory = check_memory(&p), results = check_results(&p, right);
        good = memory && results;
    }
    for (int i = 0; i < OP_MAX_TENSORS; i++)
        if (p.buffers[i].memory) buffer_free(&p.buffers[i]);
    return good;
}

bool check_everywhere(const judges *j, const char *only, const test_case *c, int *tested)
{
    judged right;
    bool good = judge_case(j, c, &right);
    for (const venue *t = venue_table; t->name && good; t++) {
        rill_context *context = venue_selected(t, only) ? venue_open(t, c->threads, c->reproducible) : NULL;
        if (!context) continue;
        ++*tested;
        good = check_case(context, t, c, &right);
        rill_context_destroy(context);
        if (good) continue;
        printf("FAILED on %s: ", t->name);
        case_print(c);
    }
    judged_free(&right);
    return good;
}
