/* The cpu backend's table. */
#include <stdio.h>
#include <stdlib.h>

#include "../host.h"
#include "cpu.h"
#include "gemm.h"

static rill_status open_cpu(rill_context *context)
{
    rill_isa isa = context->options.isa == RILL_ISA_AUTO ? rl_isa_best() : context->options.isa;
    if (!rl_isa_usable(isa))
        return rl_fail(context, RILL_UNSUPPORTED, "isa: this machine or build lacks %s; its widest is %s",
                       rl_isa_name(isa), rl_isa_name(rl_isa_best()));
    rl_cpu *cpu = malloc(sizeof *cpu);
    if (!cpu) return rl_fail(context, RILL_OUT_OF_MEMORY, "no memory for the cpu backend's state");
    cpu->isa = isa;
    rl_gemm_describe(cpu->blas, sizeof cpu->blas);
    context->state = cpu;
    return RILL_OK;
}

static void close_cpu(rill_context *context)
{
    free(context->state);
    context->state = NULL;
}

static void describe(const rill_context *context, rill_info *info)
{
    const rl_cpu *cpu = context->state;
    info->threads = context->options.threads;
    info->isa = rl_isa_name(cpu->isa);
    info->blas = cpu->blas;
}

const rl_backend rl_backend_cpu = {
    .name = "cpu",
    .id = RILL_BACKEND_CPU,
    .memory = RILL_HOST,
    .open = open_cpu,
    .close = close_cpu,
    .describe = describe,
    .alloc = rl_host_alloc,
    .free = rl_host_free,
    .copy = rl_host_copy,
    .synchronize = rl_host_synchronize,
    .scan = rl_cpu_scan,
    .scan_backward = rl_cpu_scan_backward,
    .selective_scan = rl_cpu_selective_scan,
    .selective_scan_backward = rl_cpu_selective_scan_backward,
    .selective_layer = rl_cpu_selective_layer,
    .selective_layer_backward = rl_cpu_selective_layer_backward,
    .linear_attention = rl_cpu_linear_attention,
    .linear_attention_backward = rl_cpu_linear_attention_backward,
};
