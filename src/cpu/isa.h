/* The instruction sets of this build and of this machine. */
#ifndef RL_CPU_ISA_H
#define RL_CPU_ISA_H

#include <stdbool.h>

#include <rill/context.h>

#include "kernels/kernels.h"

/* "baseline", "avx2", "avx512"; "" for others. */
const char *rl_isa_name(rill_isa isa);

/* Whether this build has the kernels and this machine the instructions. */
bool rl_isa_usable(rill_isa isa);

/* The widest that is usable. */
rill_isa rl_isa_best(void);

/* The kernels of a usable instruction set that accumulate in f64, or else in f32. */
const rl_kernels *rl_isa_kernels(rill_isa isa, bool f64);

#endif
