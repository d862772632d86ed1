/* src/cuda/machine/numbers.cuh for the emulator; in the order of emulator::Format. */
#ifndef RL_CUDA_MACHINE_NUMBERS_CUH
#define RL_CUDA_MACHINE_NUMBERS_CUH

enum Number { BF16, F16, TF32 };

#endif
