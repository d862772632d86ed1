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

/* Arrives at another block's barrier: that block is told, and does it when one of its threads waits. */
void arrive_at(int rank, uint64_t *barrier);
/* The arrivals that the running block was told of. */
void take_arrivals();

/* A block takes its place, before any of its threads runs, and leaves it when all are over. */
void enter_cluster(Block &block, unsigned long index);
void leave_cluster(Block &block);

} // namespace emulator

#endif
