/* A head's block (linear_attention_floats_heads.cuh). */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_BLOCK_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_BLOCK_CUH

#include <machine/early.cuh>

#include "linear_attention_floats_heads_answerers.cuh"
#include "linear_attention_floats_heads_keepers.cuh"
#include "linear_attention_floats_heads_movers.cuh"

namespace attention_heads
{

/* Registers of their threads. */
template <int WHAT> struct Registers {
    static constexpr int ANSWERER = WHAT == RL_HEADS_DK ? 144 : 136, KEEPER = 104;
    static constexpr int SPLITTER = WHAT == RL_HEADS_DK ? 56 : 72, MOVER = 32;
    static_assert(2 * ANSWERER + KEEPER + SPLITTER + MOVER == 5 * 96, "what the block has");
};

template <int WHAT>
__global__ void __launch_bounds__(RL_HEADS_THREADS, 1) heads_kernel(const __grid_constant__ rl_heads_args whole)
{
    if constexpr (HAS_PRODUCTS) {
        typedef attention_heads::Room<WHAT> Room;
        const rl_floats_args &args = whole.all;
        char *const shared = (char *)dynamic_shared;
        Signals &signals = *(Signals *)(shared + Room::SIGNALS);
        const int64_t lanes = WHAT == RL_HEADS_Y || WHAT == RL_HEADS_DV ? args.in.values : args.in.keys;
        const unsigned slabs = (unsigned)((lanes + LANES - 1) / LANES);
        const int walk = (int)(blockIdx.x / slabs), lane = (int)(blockIdx.x % slabs) * LANES;
        const int thread = (int)threadIdx.x, group = same(thread / GROUP);
        let_later_start();
        if (thread == 0) {
            for (int i = 0; i < 2; i++) {
                barrier_init(&signals.full[i], 1), barrier_init(&signals.empty[i], 8);
                barrier_init(&signals.split_b[i], 4), barrier_init(&signals.used_b[i], 8);
                barrier_init(&signals.split_c[i], 4), barrier_init(&signals.used_c[i], 8);
                barrier_init(&signals.state[i], 4), barrier_init(&signals.read[i], 4);
                barrier_init(&signals.summed[i], 8), barrier_init(&signals.taken[i], 1);
            }
            barrier_publish();
        }
        __syncthreads(); /* the signals are there */
        await_earlier();
        bool special = false, all = false;
        if (group < 2) {
            registers_raise<Registers<WHAT>::ANSWERER>();
            Answerers<WHAT> own(whole, shared, walk, lane, thread % GROUP);
            own.run(group);
            special = own.special, all = own.all;
        } else if (group == 2) {
            registers_raise<Registers<WHAT>::KEEPER>();
            Keepers<WHAT> own(whole, shared, walk, lane, thread % GROUP);
            own.run();
            special = own.special, all = own.all;
        } else if (group == 3) {
            registers_lower<Registers<WHAT>::SPLITTER>();
            Splitters<WHAT> own(whole, shared, walk, lane, thread % GROUP);
            own.run();
            special = own.special, all = own.all;
        } else {
            registers_lower<Registers<WHAT>::MOVER>();
            const int warp = same(thread / 32 % 4);
            if (warp == 0) {
                if (thread % 32 == 0) Loader<WHAT>(whole, shared, walk, lane).run();
                __syncwarp(); /* the engine is told by registers that a warp's threads share */
            } else if (warp == 1 && WHAT == RL_HEADS_DK) {
                Finisher<WHAT> finisher(whole, shared, walk, lane, thread % 32);
                if (finisher.wants_gates()) finisher.run();
            }
        }
        all = __syncthreads_or(all);
        special = __syncthreads_or(special);
        if (thread == 0)
            args.marks.parts[(int64_t)walk * args.marks.each + args.part + lane / LANES] = all ? RL_ATTENTION_ALL
                                                                                           : special
                                                                                               ? RL_ATTENTION_SPECIAL
                                                                                               : 0;
    }
}

} // namespace attention_heads

#endif
