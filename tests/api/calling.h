/* Valid calls of every operator, to be broken one argument at a time, and the check that breaking one is refused. */
#ifndef API_CALLING_H
#define API_CALLING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <rill/rill.h>

#include "operators.h"

/* An args struct of any operator, with every tensor given. */
typedef union any_args {
    long double align;
    char bytes[8192];
} any_args;

typedef struct valid_call {
    const op *row;
    any_args args;
    op_sizes sizes;
    void *memory[OP_MAX_TENSORS];
} valid_call;

/* packed: one row with two sequences given by offsets; else a batch of two without offsets. */
valid_call call_valid(const op *row, rill_dtype activations, bool packed);
void call_done(valid_call *made);

rill_tensor *call_tensor(valid_call *made, const char *name);

/* Runs args and wants this status and this exact message, nothing on stdout or stderr, and a usable context after. */
void assert_refused(rill_context *context, const valid_call *valid, const any_args *args, rill_status status,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Runs args and wants success, and nothing printed. */
void assert_accepted(rill_context *context, const op *row, const any_args *args);

/* Runs tests with a context of each backend of the host, two threads, in *context; returns the exit status. */
int run_on_host_backends(rill_context **context, int (*run)(const char *backend));

/* What the process prints between the two goes to a file; the second returns how much it was. */
void quiet_begin(void);
long quiet_end(void);

/* "[batch, length, channels]" */
const char *axes_text(const op_tensor *tensor, char *text, size_t size);

#endif
