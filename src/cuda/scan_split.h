/* The scan of few long sequences: time is split over the whole GPU, in one pass over memory. */
#ifndef RL_CUDA_SCAN_SPLIT_H
#define RL_CUDA_SCAN_SPLIT_H

#include "device.h"
#include "scan_args.h"

/*
 * Whether a scan is better split over time than walked by a thread a channel: by sizes, types, strides, addresses
 * and the device alone, so that a call's answer never changes.  Never with `reproducible`, for a channel's bits then
 * depend on where its tiles begin.
 */
bool rl_cuda_scan_split_wanted(const rill_context *context, const rl_scan_args *args, bool backward);

/* Runs a scan of either direction.  sequences and channels are at least 1. */
rill_status rl_cuda_scan_split(rill_context *context, const rl_scan_args *args, bool backward);

/* Sets all bits of blocks' common memory, of `units` times 16 bytes, ahead of their kernel. */
rill_status rl_cuda_reset_common(rill_context *context, void *common, int64_t units);

/* Once for the device, which is current: raises the kernels' limits of shared memory. */
cudaError_t rl_cuda_prepare_scan_split(rl_cuda_state *state);

#endif
