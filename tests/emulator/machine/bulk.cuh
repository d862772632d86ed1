/* src/cuda/machine/bulk.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_BULK_CUH
#define RL_CUDA_MACHINE_BULK_CUH

#include <cuda.h>
#include <stdint.h>

#include "transfers.h"

inline void barrier_init(uint64_t *barrier, int arrivals)
{
    emulator::barrier_init(barrier, arrivals);
}
inline void barrier_publish()
{
}
inline void barrier_arrive(uint64_t *barrier)
{
    emulator::barrier_arrive(barrier, 0);
}
inline void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    emulator::barrier_arrive(barrier, bytes);
}
inline void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    emulator::barrier_wait(barrier, parity);
}

struct TileAt {
    int inner, middle, row;
};

inline void tile_load(void *to, const CUtensorMap &map, TileAt at, uint64_t *barrier)
{
    const int place[] = {at.inner, at.middle, at.row};
    emulator::load_tile(to, map, place, 3, barrier);
}
inline void tile_load_lasting(void *to, const CUtensorMap &map, TileAt at, uint64_t *barrier)
{
    tile_load(to, map, at, barrier);
}
inline void tile_store(const CUtensorMap &map, TileAt at, const void *from)
{
    const int place[] = {at.inner, at.middle, at.row};
    emulator::store_tile(map, place, 3, from);
}
inline void bytes_load(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    emulator::load_bytes(to, from, bytes, barrier);
}
inline void bytes_prefetch(const void *, uint32_t)
{
}
inline void bytes_store(void *to, const void *from, uint32_t bytes)
{
    emulator::store_bytes(to, from, bytes);
}
inline void tile_prefetch(const CUtensorMap &)
{
}

inline void stores_commit()
{
    emulator::self->store_groups++;
}
template <int later> inline void stores_wait()
{
    emulator::wait_for_stores(later);
}
inline void shared_publish()
{
}

#endif
