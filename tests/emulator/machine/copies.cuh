/*
 * src/cuda/machine/copies.cuh for the emulator: a copy is done when it is waited for, so that who does not wait finds
 * what was there before.
 */
#ifndef RL_CUDA_MACHINE_COPIES_CUH
#define RL_CUDA_MACHINE_COPIES_CUH

#include "transfers.h"

template <typename T> inline void copy_async(void *to, const T *from, bool given)
{
    emulator::copy_later(to, from, given ? (int)sizeof(T) : 0, (int)sizeof(T), sizeof(T) == 16 ? 8 : sizeof(T));
}

inline void copy_async_16(void *to, const void *from, int bytes)
{
    emulator::copy_later(to, from, bytes, 16, 16);
}
inline void copy_async_16_passing(void *to, const void *from, int bytes)
{
    copy_async_16(to, from, bytes);
}
inline void close_copies()
{
    emulator::self->copy_groups++;
}
template <int open> inline void wait_copies()
{
    emulator::wait_for_copies(open);
}

template <typename N> inline void copy_number(N *to, const N *from)
{
    emulator::copy_later(to, from, (int)sizeof(N), (int)sizeof(N), sizeof(N));
}

inline void await_copies()
{
    close_copies();
    emulator::wait_for_copies(0);
}

inline void fetch_ahead(const void *)
{
}

#endif
