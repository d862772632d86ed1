/* src/cuda/machine/bulk_heads.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_BULK_HEADS_CUH
#define RL_CUDA_MACHINE_BULK_HEADS_CUH

#include <machine/bulk.cuh>

struct HeadTileAt {
    int lane, step, head, row;
};

inline void tile_load(void *to, const CUtensorMap &map, HeadTileAt at, uint64_t *barrier)
{
    const int place[] = {at.lane, at.step, at.head, at.row};
    emulator::load_tile(to, map, place, 4, barrier);
}
inline void tile_bring_near(const CUtensorMap &, HeadTileAt)
{
}
inline void tile_store(const CUtensorMap &map, HeadTileAt at, const void *from)
{
    const int place[] = {at.lane, at.step, at.head, at.row};
    emulator::store_tile(map, place, 4, from);
}

#endif
