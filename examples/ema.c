/*
 * The exponential moving average of a file of numbers,
 *
 *     s_1 = x_1,   s_t = (1 - alpha) s_{t-1} + alpha x_t,
 *
 * is a scan whose decay is one constant: a tensor with strides of 0.  Usage: ema ALPHA [FILE]
 */
#include <rill/rill.h>

#include "numbers.h"

int main(int count, char **words)
{
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: ema ALPHA [FILE]\n");
        return 1;
    }
    double alpha = number_argument(words[1], "ALPHA"), decay = 1 - alpha;
    numbers x = numbers_read(count > 2 ? words[2] : NULL);
    int64_t length = (int64_t)x.count;

    /* The first step has no state before it: it is its input, and its decay is not read. */
    for (size_t t = 1; t < x.count; t++) x.value[t] *= alpha;

    rill_scan_args scan = {
        .a = rill_tensor_view(RILL_HOST, &decay, RILL_F64, 3, (int64_t[]){1, length, 1}, (int64_t[]){0, 0, 0}),
        .b = rill_tensor_3d(x.value, RILL_F64, 1, length, 1),
        .h = rill_tensor_3d(x.value, RILL_F64, 1, length, 1), /* in place */
    };
    rill_context *context;
    rill_status status = rill_context_create(NULL, &context);
    if (status == RILL_OK) status = rill_scan(context, &scan);
    if (status != RILL_OK) fprintf(stderr, "ema: %s\n", rill_last_error(context));
    int good = status == RILL_OK && numbers_write(x.value, x.count);
    rill_context_destroy(context);
    free(x.value);
    return !good;
}
