/*
 * A first-order filter over a file of numbers, from rest,
 *
 *     y_t = b0 x_t + b1 x_{t-1} - a1 y_{t-1},
 *
 * in pieces of any length, as for a stream: each piece hands its last y and x to the next.
 * Usage: filter B0 B1 A1 [FILE]
 */
#include <rill/rill.h>

#include "numbers.h"

enum { PIECE = 1000 };

typedef struct filter {
    double b0, b1, a1;
    double last_x, last_y; /* of the piece before */
} filter;

/* x becomes y. */
static rill_status run(rill_context *context, filter *f, double *x, int64_t length)
{
    double decay = -f->a1;
    for (int64_t t = 0; t < length; t++) {
        double input = f->b0 * x[t] + f->b1 * f->last_x;
        f->last_x = x[t];
        x[t] = input;
    }
    rill_scan_args scan = {
        .a = rill_tensor_view(RILL_HOST, &decay, RILL_F64, 3, (int64_t[]){1, length, 1}, (int64_t[]){0, 0, 0}),
        .b = rill_tensor_3d(x, RILL_F64, 1, length, 1),
        .h = rill_tensor_3d(x, RILL_F64, 1, length, 1),
        .h_init = rill_tensor_2d(&f->last_y, RILL_F64, 1, 1),
        .h_final = rill_tensor_2d(&f->last_y, RILL_F64, 1, 1),
    };
    return rill_scan(context, &scan);
}

int main(int count, char **words)
{
    if (count < 4 || count > 5) {
        fprintf(stderr, "usage: filter B0 B1 A1 [FILE]\n");
        return 1;
    }
    filter f = {.b0 = number_argument(words[1], "B0"),
                .b1 = number_argument(words[2], "B1"),
                .a1 = number_argument(words[3], "A1")};
    numbers x = numbers_read(count > 4 ? words[4] : NULL);
    rill_context *context;
    rill_status status = rill_context_create(NULL, &context);
    for (size_t t = 0; t < x.count && status == RILL_OK; t += PIECE)
        status = run(context, &f, x.value + t, (int64_t)(x.count - t < PIECE ? x.count - t : PIECE));
    if (status != RILL_OK) fprintf(stderr, "filter: %s\n", rill_last_error(context));
    int good = status == RILL_OK && numbers_write(x.value, x.count);
    rill_context_destroy(context);
    free(x.value);
    return !good;
}
