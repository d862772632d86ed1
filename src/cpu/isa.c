#include "isa.h"

#include <stddef.h>

extern const rl_kernels rl_kernels_baseline_f32, rl_kernels_baseline_f64;
#if defined(__x86_64__)
extern const rl_kernels rl_kernels_avx2_f32, rl_kernels_avx2_f64;
extern const rl_kernels rl_kernels_avx512_f32, rl_kernels_avx512_f64;
#endif

const char *rl_isa_name(rill_isa isa)
{
    switch (isa) {
    case RILL_ISA_BASELINE:
        return "baseline";
    case RILL_ISA_AVX2:
        return "avx2";
    case RILL_ISA_AVX512:
        return "avx512";
    default:
        return "";
    }
}

bool rl_isa_usable(rill_isa isa)
{
    switch (isa) {
    case RILL_ISA_BASELINE:
        return true;
#if defined(__x86_64__)
    case RILL_ISA_AVX2: /* every machine with AVX2 and FMA has F16C, which older compilers cannot ask for */
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case RILL_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("fma");
#endif
    default:
        return false;
    }
}

rill_isa rl_isa_best(void)
{
    rill_isa isa = RILL_ISA_AVX512;
    while (!rl_isa_usable(isa)) isa--;
    return isa;
}

const rl_kernels *rl_isa_kernels(rill_isa isa, bool f64)
{
    switch (isa) {
#if defined(__x86_64__)
    case RILL_ISA_AVX2:
        return f64 ? &rl_kernels_avx2_f64 : &rl_kernels_avx2_f32;
    case RILL_ISA_AVX512:
        return f64 ? &rl_kernels_avx512_f64 : &rl_kernels_avx512_f32;
#endif
    default:
        return f64 ? &rl_kernels_baseline_f64 : &rl_kernels_baseline_f32;
    }
}
