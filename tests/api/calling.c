#include "calling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sizes that differ from each other, so that a message can only mean one of them. */
static op_sizes valid_sizes(bool packed)
{
    op_sizes sizes = {0};
    op_size_set(&sizes, "batch", packed ? 1 : 2);
    op_size_set(&sizes, "sequences", 2);
    op_size_set(&sizes, "length", 3);
    op_size_set(&sizes, "channels", 4);
    op_size_set(&sizes, "states", 5);
    op_size_set(&sizes, "groups", 2);
    op_size_set(&sizes, "rank", 6);
    op_size_set(&sizes, "heads", 4);
    op_size_set(&sizes, "query_heads", 2);
    op_size_set(&sizes, "keys", 5);
    op_size_set(&sizes, "values", 7);
    return sizes;
}

valid_call call_valid(const op *row, rill_dtype activations, bool packed)
{
    static const int64_t offsets[] = {0, 1, 3};
    valid_call made = {.row = row, .sizes = valid_sizes(packed)};
    for (int i = 0; i < row->tensor_count; i++) {
        const op_tensor *t = &row->tensors[i];
        int64_t shape[RILL_MAX_RANK], count = 1;
        if (t->kind == OP_OFFSETS && !packed) continue;
        for (int k = 0; k < t->rank; k++) count *= shape[k] = op_size(&made.sizes, t->axes[k]);
        made.memory[i] = calloc((size_t)count + 512, 16); /* room for a view of any other tensor */
        if (!made.memory[i]) abort();
        if (t->kind == OP_OFFSETS) memcpy(made.memory[i], offsets, sizeof offsets);
        *op_args_tensor(t, &made.args) =
            rill_tensor_view(RILL_HOST, made.memory[i], op_default_type(t->kind, activations), t->rank, shape, NULL);
    }
    return made;
}

void call_done(valid_call *made)
{
    for (int i = 0; i < OP_MAX_TENSORS; i++) free(made->memory[i]);
    *made = (valid_call){0};
}

rill_tensor *call_tensor(valid_call *made, const char *name)
{
    return op_args_tensor(op_tensor_find(made->row, name), &made->args);
}

static int kept_out = -1, kept_err = -1;
static FILE *caught;

void quiet_begin(void)
{
    fflush(NULL);
    caught = tmpfile();
    if (!caught) abort();
    kept_out = dup(1);
    kept_err = dup(2);
    dup2(fileno(caught), 1);
    dup2(fileno(caught), 2);
}

long quiet_end(void)
{
    fflush(NULL);
    dup2(kept_out, 1);
    dup2(kept_err, 2);
    close(kept_out);
    close(kept_err);
    fseek(caught, 0, SEEK_END);
    long printed = ftell(caught);
    fclose(caught);
    return printed;
}

static rill_status run_quietly(rill_context *context, const op *row, const any_args *args)
{
    quiet_begin();
    rill_status status = row->run(context, args);
    long printed = quiet_end();
    if (printed != 0) fail_msg("%s printed %ld bytes", row->name, printed);
    return status;
}

void assert_accepted(rill_context *context, const op *row, const any_args *args)
{
    rill_status status = run_quietly(context, row, args);
    if (status != RILL_OK) fail_msg("%s: %s: %s", row->name, rill_status_name(status), rill_last_error(context));
}

void assert_refused(rill_context *context, const valid_call *valid, const any_args *args, rill_status status,
                    const char *format, ...)
{
    char message[512];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    rill_status found = run_quietly(context, valid->row, args);
    if (found != status || strcmp(rill_last_error(context), message) != 0)
        fail_msg("%s: found    %s: %s\n         expected %s: %s", valid->row->name, rill_status_name(found),
                 rill_last_error(context), rill_status_name(status), message);
    assert_accepted(context, valid->row, &valid->args);
}

const char *axes_text(const op_tensor *tensor, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int k = 0; k < tensor->rank; k++) {
        const char *axis = strcmp(tensor->axes[k], "sequences+1") == 0 ? "sequences + 1" : tensor->axes[k];
        used += (size_t)snprintf(text + used, size - used, "%s%s", k ? ", " : "", axis);
    }
    snprintf(text + used, size - used, "]");
    return text;
}

int run_on_host_backends(rill_context **context, int (*run)(const char *backend))
{
    static const struct {
        rill_backend backend;
        const char *name;
    } backends[] = {{RILL_BACKEND_CPU, "cpu"}, {RILL_BACKEND_REFERENCE, "reference"}, {RILL_BACKEND_LOOP, "loop"}};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        if (rill_context_create(&(rill_options){.backend = backends[i].backend, .threads = 2}, context) != RILL_OK) {
            fprintf(stderr, "%s: %s\n", backends[i].name, rill_last_error(NULL));
            return 1;
        }
        failed += run(backends[i].name);
        rill_context_destroy(*context);
    }
    return failed != 0;
}
