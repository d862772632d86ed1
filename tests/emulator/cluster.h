/* Blocks of a cluster, each on a thread of the host of its own, and what they do to each other. */
#ifndef EMULATOR_CLUSTER_H
#define EMULATOR_CLUSTER_H

#include "block.h"

namespace emulator
{

/* Of the running block. */
int cluster_rank();
int cluster_blocks();
void meet_in_cluster();
char *shared_of(int rank);

/* Bytes that a block's barrier waits for are there: the block is told, and counts them when a thread of it waits. */
void arrive_at(int rank, uint64_t *barrier, uint32_t bytes);
/* What the running block was told; and a barrier of its own counts them (transfers.cpp). */
void take_arrivals();
void count_bytes(uint64_t *barrier, uint32_t bytes);

/* A block takes its place, before any of its threads runs, and leaves it when all are over. */
void enter_cluster(Block &block, unsigned long index);
void leave_cluster(Block &block);

} // namespace emulator

#endif
