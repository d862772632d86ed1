/*
 * Discounted returns of a stream of episodes, as reinforcement learning needs them,
 *
 *     G_t = r_t + gamma G_{t+1},   with nothing beyond an episode's last step,
 *
 * is a scan that runs in reverse over packed sequences.  Each line of the input is a reward and a 1 where the episode
 * ends with it, else 0; what follows the last end is an episode cut short.  Usage: returns GAMMA [FILE]
 */
#include <rill/rill.h>

#include "numbers.h"

int main(int count, char **words)
{
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: returns GAMMA [FILE]\n");
        return 1;
    }
    double gamma = number_argument(words[1], "GAMMA");
    numbers lines = numbers_read(count > 2 ? words[2] : NULL);
    int64_t length = (int64_t)(lines.count / 2), episodes = 0;
    if (lines.count % 2 != 0) {
        fprintf(stderr, "returns: %zu numbers, expected a reward and a 0 or 1 on each line\n", lines.count);
        return 1;
    }
    double *reward = malloc((lines.count / 2 + 1) * sizeof *reward);
    int64_t *offsets = malloc((lines.count / 2 + 2) * sizeof *offsets);
    if (!reward || !offsets) return 1;

    offsets[0] = 0;
    for (int64_t t = 0; t < length; t++) {
        const double end = lines.value[2 * t + 1];
        if (end != 0 && end != 1) {
            fprintf(stderr, "returns: line %lld: the second number is %g, expected 0 or 1\n", (long long)t + 1, end);
            return 1;
        }
        reward[t] = lines.value[2 * t];
        if (end == 1 || t + 1 == length) offsets[++episodes] = t + 1;
    }
    rill_scan_args scan = {
        .a = rill_tensor_view(RILL_HOST, &gamma, RILL_F64, 3, (int64_t[]){1, length, 1}, (int64_t[]){0, 0, 0}),
        .b = rill_tensor_3d(reward, RILL_F64, 1, length, 1),
        .h = rill_tensor_3d(reward, RILL_F64, 1, length, 1),
        .offsets = rill_tensor_1d(offsets, RILL_I64, episodes + 1),
        .reverse = true,
    };
    rill_context *context;
    rill_status status = rill_context_create(NULL, &context);
    if (status == RILL_OK) status = rill_scan(context, &scan);
    if (status != RILL_OK) fprintf(stderr, "returns: %s\n", rill_last_error(context));
    int good = status == RILL_OK && numbers_write(reward, (size_t)length);
    rill_context_destroy(context);
    free(reward);
    free(offsets);
    free(lines.value);
    return !good;
}
