/*
 * The first kernel of the selective scan's gradients (selective_scan_back_summary.cu tells what it makes) for neat
 * tensors of types that are known, one panel of states, and softplus without limits.  A block takes a chunk of up to
 * 64 channels, a span of two tiles at a time, which the copy engine has brought: each warp prepares the steps of its
 * own channels, a thread those of four channels and two steps, and then walks them:
 *
 *     warp   = 8 channels x 4 lanes with 4 states each
 *
 * Warps meet only in B and C, which they turn together, and where the last of them sends for the next span.
 *
 * What runs against time, Σ P_t du_t C_t, changes no more once P_t is small enough, which most states soon come to.
 * Once a warp has no more than 32 left that a span could change a bit of, its lanes take these alone.
 */
#include <machine/bulk.cuh>
#include <machine/held.cuh>
#include <machine/kernel.cuh>

#include "s6_back_copies.h"
#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int SPAN = 2 * TILE, PAIRS = SPAN / 2, COLUMNS = RL_S6_BACK_CHANNELS, WARP_COLUMNS = 8;
constexpr int THREADS_OF_ALL = COLUMNS * RL_S6_BACK_SUMMARY_THREADS, WARPS = THREADS_OF_ALL / 32;
constexpr float HIDDEN = 0x1.fp-26f; /* what is no more of a number rounds away when it is added */
constexpr int PART = 4;              /* steps whose δ and du are read at a time */
constexpr float LASTING = -0.125f;   /* the power of two of a decay that is near 1, after a span */
constexpr int WAY = 8;               /* steps that are added up by themselves */
constexpr int MOST_FEW = 32;         /* states of a warp that are taken by themselves */
static_assert(PAIRS * WARP_COLUMNS == 32 * 4, "a thread prepares four channels of two steps");

/* Steps against time: the product of their decays, and what they make of a gradient of zero. */
struct Way {
    float product, gradient;

    /* One more step, the latest. */
    __device__ void take(float decay, float gradient_of_step, bool first)
    {
        product = first ? decay : product * decay;
        gradient = first ? product * gradient_of_step : fmaf(product, gradient_of_step, gradient);
    }
    __device__ void join(const Way &later)
    {
        gradient = fmaf(product, later.gradient, gradient);
        product *= later.product;
    }
};

/* A state that is taken by itself: channel and state of the warp's. */
struct alignas(8) Few {
    float rate;
    int place;
};

#include "selective_scan_back_summary_stage.cuh"

static_assert(sizeof(Tiles<float, float, true>) <= 75 * 1024, "a multiprocessor holds three blocks");

#include "selective_scan_back_summary_walk.cuh"

template <typename T, typename U, bool gated>
__global__ void __launch_bounds__(THREADS_OF_ALL, 3)
    summary_kernel(const __grid_constant__ rl_s6_back_summary_args args)
{
    Tiles<T, U, gated> &tiles = shared_as<Tiles<T, U, gated>>();
    if (threadIdx.x == 0) {
        barrier_init(&tiles.copied, 1);
        barrier_init(&tiles.shared, (int)blockDim.x / 32);
        barrier_publish();
        tiles.done = 0;
        for (int k = 0; k < 2 * WARPS; k++) tiles.largest[k / WARPS][k % WARPS] = 0; /* of warps that are not there */
        tile_prefetch(args.copies.delta), tile_prefetch(args.copies.x), tile_prefetch(args.copies.B);
    }
    uint32_t parity = 0;
    __syncthreads(); /* the barriers are there */
    await_earlier();
    let_later_start();
    const int64_t pieces = args.back.scan.sequences * args.back.scan.blocks;
    for (int64_t task = blockIdx.x; task < args.back.scan.tasks; task += gridDim.x) {
        /* The first chunks, which are less work, come last. */
        const int64_t chunks_before = quotient(task, pieces), piece = task - chunks_before * pieces;
        const int64_t sequence = quotient(piece, args.back.scan.blocks);
        const Block block = locate_block(args.back.scan, piece - sequence * args.back.scan.blocks);
        const Chunk chunk = locate_chunk(args.back.scan, sequence, args.back.scan.chunks - 1 - chunks_before);
        Summary<T, U, gated>(args, chunk, block, tiles).run(parity);
        __syncthreads(); /* before the next task's first span takes the place of the last */
    }
}

} // namespace

const void *rl_s6_back_summary_neat_kernel(rl_s6_back_form form, bool gated)
{
    if (form == RL_S6_BACK_NEAT_BF16)
        return gated ? kernel_address<summary_kernel<bf16, bf16, true>>()
                     : kernel_address<summary_kernel<bf16, bf16, false>>();
    if (form == RL_S6_BACK_NEAT_MIXED)
        return gated ? kernel_address<summary_kernel<bf16, float, true>>()
                     : kernel_address<summary_kernel<bf16, float, false>>();
    return gated ? kernel_address<summary_kernel<float, float, true>>()
                 : kernel_address<summary_kernel<float, float, false>>();
}

size_t rl_s6_back_summary_neat_shared(rl_s6_back_form form, bool gated)
{
    if (form == RL_S6_BACK_NEAT_BF16)
        return gated ? sizeof(Tiles<bf16, bf16, true>) : sizeof(Tiles<bf16, bf16, false>);
    if (form == RL_S6_BACK_NEAT_MIXED)
        return gated ? sizeof(Tiles<bf16, float, true>) : sizeof(Tiles<bf16, float, false>);
    return gated ? sizeof(Tiles<float, float, true>) : sizeof(Tiles<float, float, false>);
}
