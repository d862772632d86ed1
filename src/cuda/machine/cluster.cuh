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

/* Aligned to 16 bytes; `offset` counts bytes. */
__device__ inline void mate_store(MateAddress to, int offset, float4 value)
{
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to.at + offset), "f"(value.x),
                 "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}
__device__ inline void mate_store(MateAddress to, int value)
{
    asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(to.at), "r"(value) : "memory");
}

/* Arrives at a barrier there, behind all that the thread, and those that it has met, wrote; who waits so sees it. */
__device__ inline void mate_arrive(MateAddress barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier.at) : "memory");
}
__device__ inline void barrier_wait_mates(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred over;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n\t"
                 "@!over bra again;\n\t"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

#endif
