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
inline void barrier_meet_numbered(int barrier, int threads)
{
    emulator::meet_at_barrier("bar.sync", barrier, threads, false);
}
inline bool barrier_meet_any_numbered(int barrier, int threads, bool value)
{
    return emulator::meet_at_barrier("bar.red", barrier, threads, value) > 0;
}

template <int barrier, int threads> inline bool barrier_meet_any(bool value)
{
    return emulator::meet_at_barrier("bar.red", barrier, threads, value) > 0;
}

#endif
