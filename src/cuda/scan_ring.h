/* The scan by a ring of tiles: when, and its launch. */
#ifndef RL_CUDA_SCAN_RING_H
#define RL_CUDA_SCAN_RING_H

#include "device.h"
#include "scan_args.h"

/*
 * Launches the ring kernels where the problem is one for them: a Hopper device, one type, sequences of some length,
 * and tensors as the copy engine takes them: channels contiguous in all, or time in all, and that axis' size, other
 * strides and addresses multiples of 16 bytes.  `taken` tells whether it was.
 */
rill_status rl_cuda_scan_ring(rill_context *context, const rl_scan_args *args, bool backward, bool *taken);

#endif
