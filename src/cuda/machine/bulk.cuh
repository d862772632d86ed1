/* Hopper's bulk copies of tiles between tensors and shared memory, and the barriers that they complete on. */
#ifndef RL_CUDA_MACHINE_BULK_CUH
#define RL_CUDA_MACHINE_BULK_CUH

#include <cuda.h>
#include <stdint.h>

__device__ inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

__device__ inline void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* Makes new barriers known to the copy engine. */
__device__ inline void barrier_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and announces bytes that copies will bring. */
__device__ inline void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Waits for the end of the phase of this parity. */
__device__ inline void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred over;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t"
                 "@!over bra again;\n\t"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

struct TileAt {
    int inner, middle, row;
};

/* Coordinates may lie outside of the tensor, but the inner one at a multiple of 16 bytes. */
__device__ inline void tile_load(void *to, const CUtensorMap &map, TileAt at, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%4}], [%5];" ::"r"(shared_address(to)),
                 "l"(&map), "r"(at.inner), "r"(at.middle), "r"(at.row), "r"(shared_address(barrier))
                 : "memory");
}

/* The same, of what leaves the L2 cache after all else. */
__device__ inline void tile_load_lasting(void *to, const CUtensorMap &map, TileAt at, uint64_t *barrier)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
                 "l"(&map), "r"(at.inner), "r"(at.middle), "r"(at.row), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* Of a store, the tile may reach beyond the tensor, but not begin before it. */
__device__ inline void tile_store(const CUtensorMap &map, TileAt at, const void *from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(at.inner), "r"(at.middle), "r"(at.row), "r"(shared_address(from))
                 : "memory");
}

/* Bytes as they lie; addresses and their number are multiples of 16. */
__device__ inline void bytes_load(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Bytes into the L2 cache, ahead of their load. */
__device__ inline void bytes_prefetch(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

__device__ inline void bytes_store(void *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
                 "r"(bytes)
                 : "memory");
}

__device__ inline void tile_prefetch(const CUtensorMap &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* Stores are grouped; a group's tiles may be overwritten once at most `later` groups after it are still unread. */
__device__ inline void stores_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int later> __device__ inline void stores_wait()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(later) : "memory");
}

/* Orders a thread's own writes to shared memory before what the copy engine reads of it next. */
__device__ inline void shared_publish()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
