/* Which instruction set's loops this machine runs. */
#include "rates.h"

#include <stddef.h>
#include <string.h>

#define DECLARE(isa)                                                                                                 \
    rate_loop bench_exponentials_##isa, bench_state_steps_##isa, bench_multiply_adds_##isa;                          \
    triad_loop bench_triad_loop_##isa, bench_streaming_triad_loop_##isa;                                             \
    void yardstick_selective_scan_##isa(const yardstick_scan *problem);                                              \
    void yardstick_functions_##isa(const yardstick_scan *problem);                                                   \
    void yardstick_linear_attention_##isa(const yardstick_attention *problem);

#define ROW(name)                                                                                                    \
    {                                                                                                                \
        .isa = #name, .exponentials = bench_exponentials_##name, .state_steps = bench_state_steps_##name,            \
        .multiply_adds = bench_multiply_adds_##name, .triad = bench_triad_loop_##name,                               \
        .streaming_triad = bench_streaming_triad_loop_##name, .selective_scan = yardstick_selective_scan_##name,     \
        .functions = yardstick_functions_##name, .linear_attention = yardstick_linear_attention_##name               \
    }

DECLARE(baseline)
static const bench_rates baseline = ROW(baseline);

#ifdef BENCH_X86
DECLARE(avx2)
DECLARE(avx512)
static const bench_rates avx2 = ROW(avx2), avx512 = ROW(avx512);
#endif

const bench_rates *bench_rates_here(void)
{
#ifdef BENCH_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2;
#endif
    return &baseline;
}

const bench_rates *bench_rates_of(const char *isa)
{
    const bench_rates *const all[] = {
#ifdef BENCH_X86
        &avx2,
        &avx512,
#endif
        &baseline,
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i]->isa, isa) == 0) return all[i];
    return bench_rates_here();
}
