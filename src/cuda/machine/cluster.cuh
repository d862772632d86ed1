/* Blocks of a cluster, which run at the same time, and their ways into each other's shared memory. */
#ifndef RL_CUDA_MACHINE_CLUSTER_CUH
#define RL_CUDA_MACHINE_CLUSTER_CUH

#include <machine/bulk.cuh>

__device__ inline int cluster_rank()
{
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ inline int cluster_blocks()
{
    int blocks;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

/* All threads of all blocks meet; what they wrote to shared memory before is there behind it. */
__device__ inline void cluster_meet()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* What lies in a block's shared memory where `own` lies in the caller's. */
struct MateAddress {
    uint32_t at;
};
__device__ inline MateAddress mate_address(const void *own, int rank)
{
    MateAddress mate;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mate.at) : "r"(shared_address(own)), "r"(rank));
    return mate;
}

__device__ inline float mate_load(MateAddress from, float)
{
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(from.at) : "memory");
    return value;
}
__device__ inline double mate_load(MateAddress from, double)
{
    double value;
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(from.at) : "memory");
    return value;
}

/*
 * Sends a number, or four aligned to 16 bytes, `offset` bytes behind `to`; `barrier`, of the same block, counts the
 * bytes as those of a copy.
 */
__device__ inline void mate_send(MateAddress to, int offset, float4 value, MateAddress barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     to.at + offset),
                 "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier.at)
                 : "memory");
}
__device__ inline void mate_send(MateAddress to, int value, MateAddress barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(to.at), "r"(value),
                 "r"(barrier.at)
                 : "memory");
}

/* The thread's bulk stores to global memory are done, and there for the other blocks when they hear of it. */
__device__ inline void stores_publish()
{
    asm volatile("cp.async.bulk.wait_group 0;\n\tfence.proxy.async.global;\n\tfence.acq_rel.gpu;" ::: "memory");
}

#endif
