/* Numbers that the units of products take.  Of tf32, a float's low 13 bits are not looked at. */
#ifndef RL_CUDA_MACHINE_NUMBERS_CUH
#define RL_CUDA_MACHINE_NUMBERS_CUH

enum Number { BF16, F16, TF32 };

#endif
