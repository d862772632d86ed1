/* The gradients of linear attention by chunks in float32: the kernels (linear_attention_floats_back.cuh). */
#include <machine/early.cuh>

#include <machine/kernel.cuh>

#include "linear_attention_floats_back.cuh"

namespace
{

using namespace attention_floats;

template <int WIDE> __device__ __forceinline__ void prepare_weights(const Task &task, const BackTiles<WIDE> &tiles)
{
    const int i = task.thread;
    if (i >= STEPS) return;
    finish_decays(tiles.decays, i);
    tiles.sum_weights[i] = tiles.decays.to_end[i] * tiles.decays.beta[i];
    tiles.back_weights[i] = tiles.decays.from_begin[i] * (float)task.args.in.scale;
}

__device__ __forceinline__ int strip_of(const Task &task)
{
    return (task.thread / 32 + (int)blockIdx.x) % STRIPS;
}

/*
 * Once more from finite tiles where something that products gave is not finite.  `special` and `all`: whether the
 * head must be marked so, by the threads that have found it.
 */
template <int WIDE>
__device__ __forceinline__ void make_gradients(const Task &task, const BackTiles<WIDE> &tiles, bool &special,
                                               bool &all)
{
#pragma unroll 1
    for (int attempt = 0; attempt < 2; attempt++) {
        Gradients<WIDE> gradients(task, tiles, strip_of(task));
        if (task.args.dgate.data) tiles.cross_states(task);
        gradients.run();
        bool good = gradients.finite == 0, tiny = false;
        __syncthreads(); /* the sums for the gates are there */
        if (task.args.dgate.data && task.thread < 32) good = finish_gates(task, tiles, tiny) && good;
        all = all || tiny;
        if (!__syncthreads_or(!good)) return; /* and the tiles are no longer needed */
        (attempt == 0 ? special : all) = true;
        tiles.make_all_finite(task);
        __syncthreads(); /* the tiles are finite */
    }
}

template <int WIDE>
__global__ void __launch_bounds__(BACK_THREADS, 2) back_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        let_later_start();
        await_earlier();
        const Task task(args, blockIdx.x / (unsigned)args.chunks, blockIdx.x % (unsigned)args.chunks, BACK_THREADS);
        const BackTiles<WIDE> tiles((float *)dynamic_shared);
        tiles.load(task);
        load_state<WIDE>(tiles.S, args.S + task.place() * (WIDE * WIDE), task);
        load_state<WIDE>(tiles.G, args.G + task.place() * (WIDE * WIDE), task);
        if (task.thread < STEPS)
            start_decays(tiles.decays, args.in, task.span(), task.head(), task.first(), task.thread);
        await_copies();
        __syncthreads(); /* the tiles and the blocks' decays are there */
        prepare_weights(task, tiles);
        if (__syncthreads_or(!tiles.is_welcome(task))) { /* and all decays are there */
            if (task.thread == 0) args.marks.all[task.walk] = 1;
            return;
        }
        bool special = tiles.decays.is_special(), all = false;
        make_gradients(task, tiles, special, all);
        if (special) args.marks.special[task.walk] = 1;
        if (all) args.marks.all[task.walk] = 1;
    }
}

/* The sums of a chunk, both ways in time; false where not all is finite. */
template <int WIDE> __device__ __forceinline__ bool add_both(const Task &task, const BackTiles<WIDE> &tiles)
{
    const bool first = task.thread < RL_FLOATS_THREADS;
    if (task.thread >= 2 * RL_FLOATS_THREADS) return true;
    return add_steps<WIDE>(first ? tiles.S : tiles.G, WIDE + 4, first ? tiles.k : tiles.q,
                           first ? tiles.sum_weights : tiles.back_weights, first ? tiles.v : tiles.dy,
                           task.thread / 32 % STRIPS);
}

/* All chunks of a head. */
__global__ void __launch_bounds__(WHOLE_BACK_THREADS *RL_FLOATS_MOST_WHOLE_BACK, 1)
    whole_kernel(const __grid_constant__ rl_floats_args args)
{
    if constexpr (HAS_PRODUCTS) {
        constexpr int WIDE = RL_FLOATS_NARROW, PITCH = WIDE + 4;
        let_later_start();
        await_earlier();
        const Task task(args, blockIdx.x, (int)threadIdx.x / WHOLE_BACK_THREADS, WHOLE_BACK_THREADS);
        float *const shared = (float *)dynamic_shared;
        const BackTiles<WIDE> tiles(shared + task.chunk * BackTiles<WIDE>::FLOATS);
        tiles.load(task);
        if (task.thread < STEPS)
            start_decays(tiles.decays, args.in, task.span(), task.head(), task.first(), task.thread);
        await_copies();
        __syncthreads(); /* the tiles and the blocks' decays are there */
        prepare_weights(task, tiles);
        __syncthreads(); /* all decays are there */
        bool special = tiles.decays.is_special(), all = false;
        if (__syncthreads_or(!add_both(task, tiles))) { /* and the sums are there */
            special = true;
            tiles.make_all_finite(task);
            __syncthreads(); /* the tiles are finite */
            add_both(task, tiles);
            __syncthreads(); /* the sums are there */
        }
        for (int i = (int)threadIdx.x; i < WIDE * WIDE; i += (int)blockDim.x) {
            const int key = i / WIDE, value = i % WIDE, at = key * PITCH + value;
            float S = state_number<WIDE>(args.in.S_init, args.in, task.walk, key, value);
            float G = state_number<WIDE>(args.dS_final, args.in, task.walk, key, value);
            const bool enters = is_finite(S) && is_finite(G);
            for (int n = 0; n < args.chunks; n++) {
                const BackTiles<WIDE> ahead(shared + n * BackTiles<WIDE>::FLOATS);
                const BackTiles<WIDE> behind(shared + (args.chunks - 1 - n) * BackTiles<WIDE>::FLOATS);
                const double carry = ahead.decays.product(), back = behind.decays.product();
                const float sum = ahead.S[at], later = behind.G[at];
                ahead.S[at] = S, behind.G[at] = G;
                S = passed((float)carry, (float)(carry - (float)carry), S, sum);
                G = passed((float)back, (float)(back - (float)back), G, later);
            }
            special = special || !enters;
            all = all || (enters && !(is_finite(S) && is_finite(G)));
            store_state_number(args.dS_init, args.in, task.walk, key, value, G);
        }
        __syncthreads(); /* the states are there */
        all = all || !tiles.is_welcome(task);
        make_gradients(task, tiles, special, all);
        all = __syncthreads_or(all), special = __syncthreads_or(special);
        if (threadIdx.x == 0) args.marks.all[task.walk] = all, args.marks.special[task.walk] = special;
    }
}

} // namespace

const void *rl_floats_back_kernel(int wide)
{
    return wide == RL_FLOATS_NARROW ? kernel_address<back_kernel<RL_FLOATS_NARROW>>()
                                    : kernel_address<back_kernel<RL_FLOATS_MOST_WIDE>>();
}

const void *rl_floats_whole_back_kernel(void)
{
    return kernel_address<whole_kernel>();
}

size_t rl_floats_back_shared(int wide)
{
    return (wide == RL_FLOATS_NARROW ? BackTiles<RL_FLOATS_NARROW>::FLOATS : BackTiles<RL_FLOATS_MOST_WIDE>::FLOATS) *
           sizeof(float);
}

size_t rl_floats_whole_back_shared(int64_t chunks)
{
    return (size_t)chunks * BackTiles<RL_FLOATS_NARROW>::FLOATS * sizeof(float);
}
