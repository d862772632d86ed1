/* src/cuda/machine/early.cuh for the emulator, where a kernel begins once all earlier work is done. */
#ifndef RL_CUDA_MACHINE_EARLY_CUH
#define RL_CUDA_MACHINE_EARLY_CUH

inline void await_earlier()
{
}

inline void let_later_start()
{
}

#endif
