/* Builds without CUDA. */
#include "device.h"

bool bench_device_open(rill_context *context, bench_device **device, failure *why)
{
    (void)context;
    *device = NULL;
    return failure_set(why, "built without CUDA");
}

void bench_device_close(bench_device *device)
{
    (void)device;
}

bool bench_device_ceilings(bench_device *device, bool quick, bench_ceilings *ceilings, failure *why)
{
    (void)device, (void)quick, (void)ceilings;
    return failure_set(why, "built without CUDA");
}

bool bench_device_time(bench_device *device, bench_mode mode, bool quick, const bench_work *work, bench_sample *time,
                       failure *why)
{
    (void)device, (void)mode, (void)quick, (void)work, (void)time;
    return failure_set(why, "built without CUDA");
}
