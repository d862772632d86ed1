/* The GPU's side of rill bench: its ceilings, and times by events on the context's stream. */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

#include "bench.h"
#include "timing.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_device bench_device;

/* Gives a cuda context a stream of the bench's own. */
bool bench_device_open(rill_context *context, bench_device **device, failure *why);
void bench_device_close(bench_device *device);

bool bench_device_ceilings(bench_device *device, bool quick, bench_ceilings *ceilings, failure *why);

/*
 * BENCH_ONE_CALL: events round each call, the caches emptied before by reading 256 MB, which leaves clean lines.
 * BENCH_GRAPH, BENCH_DECODE: per call of a graph that holds many.  BENCH_EAGER is for the host's clock.
 */
bool bench_device_time(bench_device *device, bench_mode mode, bool quick, const bench_work *work, bench_sample *time,
                       failure *why);

#ifdef __cplusplus
}
#endif

#endif
