/* Moves strided views on the device, converting as told: the small change of copies and of the layer. */
#ifndef RL_CUDA_GATHER_H
#define RL_CUDA_GATHER_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RL_GATHER_JOBS = 9 };

/* destination and source have one shape.  Equal types are moved bit for bit; others go through double. */
typedef struct rl_gather_job {
    rill_tensor destination, source;
    bool decay;         /* store -exp(value), rounded once: A from A_log */
    const void *factor; /* store value times the number at its place here, and 0 where that is infinite: A, which lies
                           as `source` does */
} rl_gather_job;

/* All jobs in one launch on the context's stream. */
rill_status rl_cuda_gather(rill_context *context, const rl_gather_job *jobs, int count);

/* Any kernel of this build, to ask whether the device can run it. */
const void *rl_cuda_gather_kernel(void);

#ifdef __cplusplus
}
#endif

#endif
