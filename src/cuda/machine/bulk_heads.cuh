/* Hopper's bulk copy of a tile of a tensor by time with heads: some steps of one head. */
#ifndef RL_CUDA_MACHINE_BULK_HEADS_CUH
#define RL_CUDA_MACHINE_BULK_HEADS_CUH

#include <machine/bulk.cuh>

struct HeadTileAt {
    int lane, step, head, row;
};

/* Lanes are the innermost axis.  Coordinates may lie outside of the tensor: what is not there becomes 0. */
__device__ inline void tile_load(void *to, const CUtensorMap &map, HeadTileAt at, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%4, %5}], [%6];" ::"r"(shared_address(to)),
                 "l"(&map), "r"(at.lane), "r"(at.step), "r"(at.head), "r"(at.row), "r"(shared_address(barrier))
                 : "memory");
}

/* Brings what a load of the tile will read into the second-level cache. */
__device__ inline void tile_bring_near(const CUtensorMap &map, HeadTileAt at)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(at.lane),
                 "r"(at.step), "r"(at.head), "r"(at.row)
                 : "memory");
}

/* What lies outside is not stored. */
__device__ inline void tile_store(const CUtensorMap &map, HeadTileAt at, const void *from)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
                 "r"(at.lane), "r"(at.step), "r"(at.head), "r"(at.row), "r"(shared_address(from))
                 : "memory");
}

#endif
