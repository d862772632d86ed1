#include "compute.h"

#include <stdlib.h>
#include <time.h>

#include "fail.h"

void check(const compute *on, rill_status status)
{
    if (status != RILL_OK) fail("%s", rill_last_error(on->rill));
}

static void copy(compute *on, void *to, rill_device to_device, const void *from, rill_device from_device,
                 rill_dtype dtype, int64_t count)
{
    const rill_tensor target = rill_tensor_1d_on(to_device, to, dtype, count);
    const rill_tensor source = rill_tensor_1d_on(from_device, from, dtype, count);
    check(on, rill_copy(on->rill, &target, &source));
}

void memory_put(compute *on, void *to, const void *from_host, rill_dtype dtype, int64_t count)
{
    copy(on, to, on->device, from_host, RILL_HOST, dtype, count);
}

void memory_get(compute *on, void *to_host, const void *from, rill_dtype dtype, int64_t count)
{
    copy(on, to_host, RILL_HOST, from, on->device, dtype, count);
}

void *memory_take(compute *on, size_t bytes)
{
    const int64_t words = (int64_t)((bytes + 3) / 4);
    void *memory;
    check(on, rill_alloc(on->rill, (size_t)words * 4, &memory));
    const float zero = 0; /* repeated along the axis */
    const rill_tensor target = rill_tensor_1d_on(on->device, memory, RILL_F32, words);
    const rill_tensor source = rill_tensor_view(RILL_HOST, &zero, RILL_F32, 1, &words, (int64_t[]){0});
    check(on, rill_copy(on->rill, &target, &source));
    on->allocated += (size_t)words * 4;
    return memory;
}

double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
