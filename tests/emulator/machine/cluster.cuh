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
template <typename T> T mate_load(MateAddress from, T)
{
    return *(const T *)from.at();
}
inline void mate_send(MateAddress to, int offset, float4 value, MateAddress barrier)
{
    *(float4 *)(to.at() + offset) = value;
    emulator::arrive_at(barrier.rank, (uint64_t *)barrier.at(), sizeof value);
}
inline void mate_send(MateAddress to, int value, MateAddress barrier)
{
    *(int *)to.at() = value;
    emulator::arrive_at(barrier.rank, (uint64_t *)barrier.at(), sizeof value);
}

inline void stores_publish()
{
    emulator::wait_for_stores(0);
    __threadfence();
}

#endif
