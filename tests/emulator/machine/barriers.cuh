/* src/cuda/machine/barriers.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_BARRIERS_CUH
#define RL_CUDA_MACHINE_BARRIERS_CUH

template <int barrier> inline void barrier_meet(int threads)
{
    emulator::meet_at_barrier("bar.sync", barrier, threads, false);
}

template <int barrier, int threads> inline void barrier_meet()
{
    barrier_meet<barrier>(threads);
}

template <int barrier, int threads> inline bool barrier_meet_any(bool value)
{
    return emulator::meet_at_barrier("bar.red", barrier, threads, value) > 0;
}

#endif
