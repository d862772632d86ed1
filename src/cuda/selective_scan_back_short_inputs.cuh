/* dB and dC of a short sequence's steps, which selective_scan_back_short.cu includes in its namespace. */

/* Over the lanes of a channel. */
template <typename Acc> __device__ inline Acc sum_states(Acc value)
{
#pragma unroll
    for (int half = STATES / 2; half > 0; half /= 2) value += __shfl_xor_sync(~0u, value, half);
    return value;
}

template <typename Short, typename Acc>
__device__ inline void store_inputs(const Short &of, int64_t part, int t, Acc sum)
{
    const rl_s6_args &scan = of.args.scan;
    const int64_t time = scan.reverse ? of.piece.row - t : of.piece.row + t, states = scan.states;
    const int64_t row = part * of.args.rows + of.piece.batch * scan.length + time;
    if (of.state < states) ((Acc *)of.args.bc_parts)[(row * 2 + of.own) * states + of.state] = sum;
}

/* The pair's dB in the lanes of its first channel, dC in those of the second. */
template <typename Short, typename Acc> __device__ inline void share_inputs(const Short &of, int t, Acc dB, Acc dC)
{
    const Acc other = __shfl_xor_sync(~0u, of.own ? dB : dC, STATES), sum = of.own ? other + dC : dB + other;
    if (HAS_PRODUCTS && of.args.mates > 1)
        of.room.decay[t * LANES + of.lane] = sum; /* nobody reads the decay any more */
    else
        store_inputs(of, of.block, t, sum);
}

/* Adds them up over the blocks of the cluster, each of which has every so many of the steps. */
template <typename Acc, typename Short> __device__ inline void add_mates(const Short &of)
{
#pragma unroll 1
    for (int t = of.warp * MATES + cluster_rank(); t < of.steps; t += WARPS * MATES) {
        Acc value[MATES], sum = 0;
#pragma unroll
        for (int k = 0; k < MATES; k++)
            value[k] = mate_load(mate_address(of.room.decay + t * LANES + of.lane, k), Acc(0));
#pragma unroll
        for (int k = 0; k < MATES; k++) sum += value[k];
        store_inputs(of, of.block / MATES, t, sum);
    }
}

/* All threads of the block, or of the cluster, have come here. */
template <typename Acc, typename Short> __device__ inline void meet_mates(const Short &of)
{
    if constexpr (HAS_PRODUCTS) { /* and so clusters */
        if (of.args.mates > 1) {
            cluster_meet();
            add_mates<Acc>(of);
            return;
        }
    }
    __syncthreads();
}

/* Shared memory is not left while mates read it. */
template <typename Short> __device__ inline void leave_mates(const Short &of)
{
    if constexpr (HAS_PRODUCTS) {
        if (of.args.mates > 1) cluster_meet();
    }
}
