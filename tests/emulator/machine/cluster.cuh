/* src/cuda/machine/cluster.cuh for the emulator. */
#ifndef RL_CUDA_MACHINE_CLUSTER_CUH
#define RL_CUDA_MACHINE_CLUSTER_CUH

#include <machine/bulk.cuh>

#include "cluster.h"

inline int cluster_rank()
{
    return emulator::cluster_rank();
}
inline int cluster_blocks()
{
    return emulator::cluster_blocks();
}
inline void cluster_meet()
{
    emulator::meet_in_cluster();
}

struct MateAddress {
    int rank;
    size_t offset; /* in the block's shared memory */

    char *at() const
    {
        return emulator::shared_of(rank) + offset;
    }
};
inline MateAddress mate_address(const void *own, int rank)
{
    return {rank, (size_t)((const char *)own - emulator::self->block->shared)};
}
inline void mate_store(MateAddress to, int offset, float4 value)
{
    *(float4 *)(to.at() + offset) = value;
}
inline void mate_store(MateAddress to, int value)
{
    *(int *)to.at() = value;
}
inline void mate_arrive(MateAddress barrier)
{
    emulator::arrive_at(barrier.rank, (uint64_t *)barrier.at());
}
inline void barrier_wait_mates(uint64_t *barrier, uint32_t parity)
{
    emulator::barrier_wait(barrier, parity);
}

#endif
