#include "cluster.h"

#include <sched.h>

#include <atomic>
#include <mutex>

#include "transfers.h"

namespace emulator
{

struct Told {
    uint64_t *barrier;
    uint32_t bytes;
};

/* One of a launch; its blocks start one after the other. */
struct Cluster {
    std::atomic<Block *> blocks[MOST_CLUSTER];
    std::atomic<uint64_t> met;
    std::mutex mutex;
    std::vector<Told> told[MOST_CLUSTER]; /* each block */
};

std::shared_ptr<Cluster[]> make_clusters(const Launch &launch)
{
    if (launch.cluster == 1) return NULL;
    const unsigned long blocks = (unsigned long)launch.blocks.x * launch.blocks.y * launch.blocks.z;
    return std::shared_ptr<Cluster[]>(new Cluster[blocks / launch.cluster]());
}

int cluster_rank()
{
    return self->block->rank;
}

int cluster_blocks()
{
    return (int)self->block->launch->cluster;
}

void meet_in_cluster()
{
    enum { BARRIER = 15 };
    Block &block = *self->block;
    meet_at_barrier("barrier.cluster", BARRIER, 0, false);
    if (block.cluster && self->rank == 0) {
        const uint64_t all = block.launch->cluster, end = (block.cluster->met.fetch_add(1) / all + 1) * all;
        while (block.cluster->met.load() < end) poll("barrier.cluster");
        progress();
    }
    meet_at_barrier("barrier.cluster", BARRIER, 0, false);
}

char *shared_of(int rank)
{
    if (rank < 0 || rank >= cluster_blocks()) fail("a cluster of %d blocks has no block %d", cluster_blocks(), rank);
    Block *block = self->block->cluster ? self->block->cluster->blocks[rank].load() : self->block;
    if (!block) fail("block %d of the cluster has not begun, or is over", rank);
    return block->shared;
}

void arrive_at(int rank, uint64_t *barrier, uint32_t bytes)
{
    if (shared_of(rank) == self->block->shared) return count_bytes(barrier, bytes);
    Cluster &cluster = *self->block->cluster;
    std::lock_guard<std::mutex> lock(cluster.mutex);
    cluster.told[rank].push_back({barrier, bytes});
    progress();
}

void take_arrivals()
{
    Block &block = *self->block;
    if (!block.cluster) return;
    std::vector<Told> told;
    {
        std::lock_guard<std::mutex> lock(block.cluster->mutex);
        told.swap(block.cluster->told[block.rank]);
    }
    for (const Told &one : told) count_bytes(one.barrier, one.bytes);
}

void enter_cluster(Block &block, unsigned long index)
{
    const Launch &launch = *block.launch;
    block.cluster = launch.clusters ? &launch.clusters[index / launch.cluster] : NULL;
    block.rank = launch.clusters ? (int)(index % launch.cluster) : 0;
    if (block.cluster) block.cluster->blocks[block.rank].store(&block);
}

void leave_cluster(Block &block)
{
    if (block.cluster) block.cluster->blocks[block.rank].store(NULL);
}

} // namespace emulator
