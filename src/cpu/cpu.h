/* What a cpu context is made of. */
#ifndef RL_CPU_H
#define RL_CPU_H

#include "../context.h"
#include "isa.h"

enum { RL_BLAS_NAME_SIZE = 160 };

typedef struct rl_cpu {
    rill_isa isa;
    char blas[RL_BLAS_NAME_SIZE];
} rl_cpu;

rill_status rl_cpu_scan(rill_context *context, const rl_scan_problem *problem);
rill_status rl_cpu_scan_backward(rill_context *context, const rl_scan_backward_problem *problem);
rill_status rl_cpu_selective_scan(rill_context *context, const rl_selective_scan_problem *problem);
rill_status rl_cpu_selective_scan_backward(rill_context *context, const rl_selective_scan_backward_problem *problem);
rill_status rl_cpu_selective_layer(rill_context *context, const rl_selective_layer_problem *problem);
rill_status rl_cpu_selective_layer_backward(rill_context *context,
                                            const rl_selective_layer_backward_problem *problem);
rill_status rl_cpu_linear_attention(rill_context *context, const rl_linear_attention_problem *problem);
rill_status rl_cpu_linear_attention_backward(rill_context *context,
                                             const rl_linear_attention_backward_problem *problem);

static inline const rl_kernels *rl_cpu_kernels(const rill_context *context, rill_dtype activations)
{
    return rl_isa_kernels(((const rl_cpu *)context->state)->isa, activations == RILL_F64);
}

#endif
