/*
 * The first kernel of the selective scan's gradients (selective_scan_back_summary.cu tells what it makes) for neat
 * tensors of types that are known, one panel of states and softplus without limits.  A block takes a chunk of up to
 * 64 channels:
 *
 *     warp   = 8 channels x 4 lanes with 4 states each
 *
 * A tile is walked while the next one is prepared, a few numbers between a few steps, for the walk waits for
 * exponentials and the preparation does not; the one after that is on its way, brought by the copy engine.
 *
 * What runs against time, Σ P_t du_t C_t, changes no more once P_t is small enough: a warp leaves out the tiles that
 * could not change a bit of it.
 */
#include <machine/bulk.cuh>
#include <machine/kernel.cuh>

#include "s6_back_copies.h"
#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int PAIRS = TILE / 2, COLUMNS = RL_S6_BACK_CHANNELS, WARP_COLUMNS = 8;
constexpr int THREADS_OF_ALL = COLUMNS * RL_S6_BACK_SUMMARY_THREADS;
constexpr int PART = 4;  /* steps whose δ and du are read at a time */
constexpr int ROUND = 4; /* tiles between two looks whether the way back may end */
static_assert(RL_S6_BACK_SUMMARY_THREADS * 2 == PAIRS, "a thread prepares two steps of two channels");

struct alignas(16) TwoSteps {
    float delta[2], input[2];
};

/* A tile as it lies in memory: rows of all of a block's channels, or of a panel's states. */
template <typename T, typename U> struct Raw {
    alignas(128) U delta[TILE * COLUMNS];
    alignas(128) T x[TILE * COLUMNS];
    alignas(128) T dy[TILE * COLUMNS];
    alignas(128) T z[TILE * COLUMNS];
    alignas(128) U B[TILE * PANEL];
    alignas(128) U C[TILE * PANEL];
};

/* A tile prepared. */
struct Stage {
    TwoSteps step[PAIRS][COLUMNS];
    Four<float> du[TILE / PART][COLUMNS];
    alignas(16) float B[TILE * PANEL], C[TILE * PANEL];
};

template <typename T, typename U> struct Tiles {
    Raw<T, U> raw[2];
    Stage stage[2];
    float bias[COLUMNS];
    int first[COLUMNS], wild[COLUMNS]; /* the first tile with a wild state; whether there are wild gradients */
    unsigned largest[3][2];            /* |du| and |C| of a tile, the next and the one before, as bits */
    uint64_t copied[2];                /* barriers */
};

/* Where a step of a channel lies: so that neither fours of channels nor neighbours meet in a bank. */
__device__ inline int place_of_column(int column)
{
    return column ^ (column / 8 & 3);
}

template <typename T, typename U, bool gated> struct Summary {
    const rl_s6_back_args &args;
    const rl_s6_back_copies &copies;
    const Chunk &chunk;
    const Block &block;
    Tiles<T, U> &tiles;
    unsigned &phases;  /* of the barriers: a bit each */
    bool split, backs; /* there are chunks; this one's way back is wanted */

    /* Of the thread that prepares. */
    int pair, own, half; /* its steps, its first channel, how far it is to the second */

    /* Of the thread that walks. */
    int lane, order, column;
    float rate[STATES], h[STATES], back[STATES], deltas; /* before a span of two tiles */
    float *kept, *sums;                                  /* of the tile that is walked */

    __device__ Summary(const rl_s6_back_summary_args &args, const Chunk &chunk, const Block &block,
                       Tiles<T, U> &tiles, unsigned &phases)
        : args(args.back), copies(args.copies), chunk(chunk), block(block), tiles(tiles), phases(phases),
          split(args.back.scan.chunks > 1), h{}, back{}, deltas(0)
    {
        const int in_warp = threadIdx.x & 31;
        backs = split && chunk.piece.chunk > 0; /* nobody asks for that of a sequence's first chunk */
        half = args.back.scan.block_channels / 2;
        pair = threadIdx.x / half;
        own = threadIdx.x % half;
        lane = in_warp / 2 % LANES;
        order = in_warp / 8;
        column = threadIdx.x / 32 * WARP_COLUMNS + in_warp % 2 + 2 * order;
    }

    __device__ bool exists() const
    {
        return column < block.channels;
    }
    __device__ int64_t channel() const
    {
        return block.channel + column;
    }
    __device__ bool has_gradients() const
    {
        return backs && args.dy.data;
    }

    /* One thread sends for a tile; what of it lies beyond the tensors becomes zeros. */
    __device__ void copy(int tile) const
    {
        Raw<T, U> &raw = tiles.raw[tile & 1];
        uint64_t *const copied = &tiles.copied[tile & 1];
        const int area = TILE * args.scan.block_channels, row = (int)(chunk.piece.row + tile * TILE);
        const TileAt steps = {(int)block.channel, row, (int)chunk.piece.batch};
        const TileAt states = {(int)(block.group * args.scan.states), row, (int)chunk.piece.batch};
        int bytes = area * (int)(sizeof(U) + sizeof(T)) + (int)sizeof raw.B;
        if (has_gradients()) bytes += area * (int)(gated ? 2 * sizeof(T) : sizeof(T)) + (int)sizeof raw.C;
        barrier_expect(copied, bytes);
        tile_load(raw.delta, copies.delta, steps, copied);
        tile_load(raw.x, copies.x, steps, copied);
        tile_load(raw.B, copies.B, states, copied);
        if (!has_gradients()) return;
        tile_load(raw.dy, copies.dy, steps, copied);
        tile_load(raw.C, copies.C, states, copied);
        if (gated) tile_load(raw.z, copies.z, steps, copied);
    }

    /* A tile that is prepared, and what the thread has found of it. */
    struct Preparation {
        const Raw<T, U> &raw;
        Stage &stage;
        int tile;
        int steps;                /* that exist */
        float sum, size, largest; /* of inputs and gradients, in which NaN and infinity stay; largest of δ as it is
                                     stored and of gradients */
    };
    __device__ Preparation begin_preparation(int tile) const
    {
        return {tiles.raw[tile & 1],
                tiles.stage[tile & 1],
                tile,
                min((int)chunk.piece.count - tile * TILE, TILE),
                0,
                0,
                0};
    }

    __device__ bool has(const Preparation &of, int i, int channel) const
    {
        return channel < block.channels && 2 * pair + i < of.steps;
    }
    /* Where a number of the thread lies, of step i. */
    __device__ int place_in_raw(int i, int channel) const
    {
        return (2 * pair + i) * args.scan.block_channels + channel;
    }
    __device__ float load_du(const Preparation &of, int i, int channel) const
    {
        const int at = place_in_raw(i, channel);
        const float dy = widen(of.raw.dy[at]);
        return gated ? dy * gate(widen(of.raw.z[at])) : dy;
    }
    __device__ float2 &du_of(Stage &stage, int channel) const
    {
        return ((float2 *)&stage.du[pair / 2][place_of_column(channel)])[pair & 1];
    }

    /* Two steps of one of the thread's channels.  What does not exist becomes zeros: it does nothing. */
    __device__ void prepare(Preparation &of, int which) const
    {
        const int channel = own + which * half;
        const float bias = tiles.bias[channel];
        float size[2], input[2], du[2] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float raw = widen(of.raw.delta[place_in_raw(i, channel)]) + bias;
            size[i] = softplus_of_small(raw);
            input[i] = size[i] * widen(of.raw.x[place_in_raw(i, channel)]);
            if (has_gradients()) du[i] = load_du(of, i, channel);
            of.size = fmaxf(of.size, fabsf(raw));
        }
        if (of.steps < TILE || channel >= block.channels) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (!has(of, i, channel)) size[i] = input[i] = du[i] = 0;
        }
        of.stage.step[pair][place_of_column(channel)] = {{size[0], size[1]}, {input[0], input[1]}};
        of.sum += fabsf(input[0]) + fabsf(input[1]);
        if (!has_gradients()) return;
        du_of(of.stage, channel) = make_float2(du[0], du[1]);
        of.sum += fabsf(du[0]) + fabsf(du[1]);
        of.largest = fmaxf(of.largest, fmaxf(fabsf(du[0]), fabsf(du[1])));
    }

    /* The same of a thread that has unusual numbers, and notes what the fast order cannot take. */
    __device__ void prepare_any(Preparation &of) const
    {
#pragma unroll 1
        for (int k = 0; k < 4; k++) {
            const int i = k & 1, channel = own + (k >> 1) * half, at = place_in_raw(i, channel);
            if (!has(of, i, channel)) continue;
            TwoSteps &step = of.stage.step[pair][place_of_column(channel)];
            const float size = soften_rare(widen(of.raw.delta[at]) + tiles.bias[channel]).x;
            const float input = size * widen(of.raw.x[at]), du = has_gradients() ? load_du(of, i, channel) : 0;
            step.delta[i] = size;
            step.input[i] = input;
            if (!is_tame(size, input)) atomicMin(&tiles.first[channel], of.tile);
            if (!is_tame(size, du)) atomicOr(&tiles.wild[channel], RL_S6_BACK_WILD_GRADIENTS);
        }
    }

    /* A quad of B or C.  Answers its largest number, as bits: a NaN is larger than all. */
    __device__ static unsigned put_states(const U *from, bool given, float *to)
    {
        const Quad<U> raw = *(const Quad<U> *)from;
        Four<float> four;
        unsigned largest = 0;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            four.state[k] = given ? widen(raw.get(k)) : 0;
            const unsigned bits = __float_as_uint(four.state[k]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
        *(Four<float> *)to = four;
        return largest;
    }
    /* A warp has quads of one of them. */
    __device__ void prepare_states(Preparation &of) const
    {
        constexpr int QUADS = TILE * LANES;
        for (int i = threadIdx.x; i < (has_gradients() ? 2 * QUADS : QUADS); i += blockDim.x) {
            const int quad = i % QUADS, at = quad * STATES;
            const bool given = quad / LANES < of.steps && quad % LANES * STATES < args.scan.states;
            if (i < QUADS) {
                put_states(of.raw.B + at, given, of.stage.B + at);
                continue;
            }
            const unsigned largest = __reduce_max_sync(~0u, put_states(of.raw.C + at, given, of.stage.C + at));
            if (threadIdx.x % 32 == 0) atomicMax(&tiles.largest[of.tile % 3][1], largest);
        }
    }

    __device__ void finish_preparation(Preparation &of) const
    {
        prepare_states(of);
        if (!(of.size <= SMALL && of.sum <= Limits<float>::tame)) prepare_any(of);
        if (!has_gradients()) return;
        const unsigned largest = __reduce_max_sync(~0u, __float_as_uint(of.largest));
        if (threadIdx.x % 32 == 0) atomicMax(&tiles.largest[of.tile % 3][0], largest);
    }

    /* What a span has made of zero so far, and a tile of it of the way back. */
    struct Local {
        float h[STATES], sum, product[STATES], gradient[STATES];
    };

    template <bool going> __device__ void walk_steps(const Stage &stage, int first, Local &local) const
    {
        const TwoSteps *const pairs = &stage.step[first / 2][place_of_column(column)];
        const float *const b_row = stage.B + first * PANEL + lane * STATES;
        const float *const c_row = stage.C + first * PANEL + lane * STATES;
        const TwoSteps two[2] = {pairs[0], pairs[COLUMNS]};
        Four<float> du = {};
        if (going) du = stage.du[first / PART][place_of_column(column)];
#pragma unroll
        for (int t = 0; t < PART; t++) {
            const float size = two[t / 2].delta[t % 2], input = two[t / 2].input[t % 2];
            const Four<float> b = *(const Four<float> *)(b_row + t * PANEL);
            Four<float> c = {};
            if (going) c = *(const Four<float> *)(c_row + t * PANEL);
            local.sum += size;
#pragma unroll
            for (int k = 0; k < STATES; k++) {
                const float decay = rough_decay(size, rate[k]);
                local.h[k] = fmaf(decay, local.h[k], input * b.state[k]);
                if (!going) continue;
                local.product[k] *= decay;
                local.gradient[k] = fmaf(local.product[k], du.state[t] * c.state[k], local.gradient[k]);
            }
        }
    }

    /* A tile, while the next is prepared, if there is one. */
    template <bool going> __device__ void walk(const Stage &stage, Local &local, bool ahead, Preparation &next) const
    {
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int part = 0; part < 2; part++) walk_steps<going>(stage, (2 * half + part) * PART, local);
            if (ahead) prepare(next, half);
        }
    }

    /* States as the walk back holds them: slot i is state i ^ order. */
    __device__ void store_states(float *to, const float (&from)[STATES]) const
    {
        Four<float> four;
        float turned[STATES];
#pragma unroll
        for (int k = 0; k < STATES; k++) turned[k] = order & 1 ? from[k ^ 1] : from[k];
#pragma unroll
        for (int k = 0; k < STATES; k++) four.state[k] = order & 2 ? turned[k ^ 2] : turned[k];
        *(Four<float> *)to = four;
    }
    /* Numbers from row to row of such, and the thread's first. */
    __device__ int64_t row_size() const
    {
        return args.scan.blocks * blockDim.x * STATES;
    }
    __device__ int64_t place(int64_t row) const
    {
        const int own = (column / WARP_COLUMNS & 1) ^ lane / 2;
        const int thread = column / WARP * 32 + (int)(threadIdx.x & 31);
        return row * row_size() + ((block.number * OWN + own) * (int)(blockDim.x / OWN) + thread) * STATES;
    }

    /* Whether a tile may change a bit of what runs against time, for any chain of the warp. */
    __device__ bool may_change(int tile, const float (&before)[STATES]) const
    {
        const unsigned *const bits = tiles.largest[tile % 3];
        const float largest = (float)TILE * __uint_as_float(bits[0]) * __uint_as_float(bits[1]);
        bool may = false;
#pragma unroll
        for (int k = 0; k < STATES; k++) may = may || !(before[k] * largest <= 0x1p-27f * fabsf(back[k]));
        return __any_sync(~0u, may && exists() && lane * STATES < args.scan.states);
    }

    /* The states before a tile. */
    __device__ void keep(const float (&states)[STATES], float sum) const
    {
        store_states(kept, states);
        if (lane == 0 && exists()) *sums = sum;
    }

    /* The way back over a tile, and with it the way forward. */
    __device__ void walk_back(const Stage &stage, int tile, Local &local, bool ahead, Preparation &next, bool &going)
    {
        float before[STATES];
#pragma unroll
        for (int k = 0; k < STATES; k++) before[k] = distant_decay(rate[k], deltas + local.sum);
        if (!going || tile % ROUND == 0) going = may_change(tile, before);
        if (!going) {
            walk<false>(stage, local, ahead, next);
            return;
        }
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            local.product[k] = 1;
            local.gradient[k] = 0;
        }
        walk<true>(stage, local, ahead, next);
#pragma unroll
        for (int k = 0; k < STATES; k++) back[k] = fmaf(before[k], local.gradient[k], back[k]);
    }

    /* Where a span ends: its states from those before it. */
    __device__ void anchor(Local &local)
    {
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            h[k] = fmaf(long_decay(rate[k], local.sum), h[k], local.h[k]);
            local.h[k] = 0;
        }
        deltas += local.sum;
        local.sum = 0;
    }

    __device__ void run_tile(int tile, Local &local, double &total, bool &going)
    {
        const bool ahead = tile + 1 < (int)chunk.tiles;
        Preparation next = begin_preparation(tile + 1);
        if (tile + 2 < (int)chunk.tiles && threadIdx.x == 0) copy(tile + 2);
        if (threadIdx.x < 2) tiles.largest[(tile + 2) % 3][threadIdx.x] = 0;
        if (ahead) await(tile + 1);
        if (has_gradients())
            walk_back(tiles.stage[tile & 1], tile, local, ahead, next, going);
        else
            walk<false>(tiles.stage[tile & 1], local, ahead, next);
        kept += row_size();
        sums += args.scan.channels;
        if (ahead) finish_preparation(next);
        if (ahead && tile % 2 == 0) {
            float middle[STATES];
#pragma unroll
            for (int k = 0; k < STATES; k++) middle[k] = fmaf(distant_decay(rate[k], local.sum), h[k], local.h[k]);
            keep(middle, deltas + local.sum);
            return;
        }
        total += local.sum;
        anchor(local);
        if (ahead) keep(h, deltas);
    }

    __device__ void begin()
    {
        const int64_t row = chunk.kept;
        kept = (float *)args.kept + place(row);
        sums = (float *)args.kept_sums + row * args.scan.channels + channel();
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            const int64_t state = lane * STATES + k;
            rate[k] = exists() && state < args.scan.states ? rate_of(load_A<float>(args.scan, channel(), state)) : 0;
        }
        for (int k = threadIdx.x; k < args.scan.block_channels; k += blockDim.x) {
            const bool given = k < block.channels && args.scan.bias.data;
            tiles.bias[k] =
                given ? ((const float *)args.scan.bias.data)[(block.channel + k) * args.scan.bias.stride] : 0.0f;
            tiles.first[k] = RL_S6_BACK_NONE;
            tiles.wild[k] = 0;
        }
        if (threadIdx.x < 6) (&tiles.largest[0][0])[threadIdx.x] = 0;
    }

    /* Until a tile has come. */
    __device__ void await(int tile)
    {
        const int which = tile & 1;
        barrier_wait(&tiles.copied[which], phases >> which & 1);
        phases ^= 1u << which;
    }

    __device__ void run()
    {
        double total = 0;
        Local local = {};
        bool going = true;
        begin();
        if (threadIdx.x == 0 && chunk.tiles > 0) copy(0);
        if (threadIdx.x == 0 && chunk.tiles > 1) copy(1);
        __syncthreads(); /* notes are clear, and biases there */
        if (chunk.tiles > 0) {
            Preparation first = begin_preparation(0);
            await(0);
            prepare(first, 0);
            prepare(first, 1);
            finish_preparation(first);
        }
        for (int tile = 0; tile < (int)chunk.tiles; tile++) {
            __syncthreads(); /* the tile is prepared, what has been copied of it is used up, and the one before is
                                left */
            run_tile(tile, local, total, going);
        }
        __syncthreads(); /* notes are complete */
        finish(total);
    }

    __device__ void finish(double total) const
    {
        const int64_t row = chunk.piece.sequence * args.scan.chunks + chunk.piece.chunk;
        if (split) {
            store_states((float *)args.ends + place(row), h);
            store_states((float *)args.backs + place(row), back);
            if (lane == 0 && exists()) args.step_sums[row * args.scan.channels + channel()] = total;
        }
        for (int k = threadIdx.x; k < block.channels; k += blockDim.x)
            args.wild[row * args.scan.channels + block.channel + k] = tiles.first[k] | tiles.wild[k];
    }
};

template <typename T, typename U, bool gated>
__global__ void __launch_bounds__(THREADS_OF_ALL, 3)
    summary_kernel(const __grid_constant__ rl_s6_back_summary_args args)
{
    Tiles<T, U> &tiles = *reinterpret_cast<Tiles<T, U> *>(dynamic_shared);
    if (threadIdx.x == 0) {
        barrier_init(&tiles.copied[0], 1);
        barrier_init(&tiles.copied[1], 1);
        barrier_publish();
    }
    unsigned phases = 0;
    await_earlier();
    let_later_start();
    const int64_t pieces = args.back.scan.sequences * args.back.scan.blocks;
    for (int64_t task = blockIdx.x; task < args.back.scan.tasks; task += gridDim.x) {
        /* The first chunks, which are less work, come last. */
        const int64_t chunks_before = task / pieces, piece = task - chunks_before * pieces;
        const int64_t sequence = piece / args.back.scan.blocks;
        const Block block = locate_block(args.back.scan, piece - sequence * args.back.scan.blocks);
        const Chunk chunk = locate_chunk(args.back.scan, sequence, args.back.scan.chunks - 1 - chunks_before);
        Summary<T, U, gated>(args, chunk, block, tiles, phases).run();
        __syncthreads(); /* before the next task clears the notes */
    }
}

} // namespace

const void *rl_s6_back_summary_neat_kernel(rl_s6_back_form form, bool gated)
{
    if (form == RL_S6_BACK_NEAT_BF16)
        return gated ? kernel_address<summary_kernel<bf16, bf16, true>>()
                     : kernel_address<summary_kernel<bf16, bf16, false>>();
    return gated ? kernel_address<summary_kernel<float, float, true>>()
                 : kernel_address<summary_kernel<float, float, false>>();
}

size_t rl_s6_back_summary_neat_shared(rl_s6_back_form form)
{
    return form == RL_S6_BACK_NEAT_BF16 ? sizeof(Tiles<bf16, bf16>) : sizeof(Tiles<float, float>);
}
