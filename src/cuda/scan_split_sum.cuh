/* A block of the split scan: what its threads share, the elements of each, and the summary of a tile. */
#ifndef RL_CUDA_SCAN_SPLIT_SUM_CUH
#define RL_CUDA_SCAN_SPLIT_SUM_CUH

#include <machine/barriers.cuh>

#include "scan_split_chain.cuh"

namespace
{

constexpr int WARPS = WORKERS / 32; /* the last one of them tells */

template <typename T> constexpr int STEPS_OF = sizeof(T) == 2 ? 32 : 64 / (int)sizeof(T);
template <typename N> constexpr int MOST_LANES = sizeof(N) == 4 ? 16 : 4;

enum Barrier { EVERYBODY, AMONG_WORKERS, AMONG_CARRIERS };

template <Barrier barrier> __device__ inline void meet()
{
    constexpr int threads = barrier == EVERYBODY ? WORKERS + CARRIERS : barrier == AMONG_WORKERS ? WORKERS : CARRIERS;
    __syncwarp(); /* a warp comes as one */
    barrier_meet<barrier, threads>();
}

/* Whether it holds for any worker. */
__device__ inline bool workers_meet(bool value)
{
    __syncwarp();
    return barrier_meet_any<AMONG_WORKERS, WORKERS>(value);
}

/* What a block shares beside its rooms; the fewer rooms, the more summaries at a time. */
template <typename N, bool backward> struct Shared {
    typedef typename Wide<N>::W W;
    static constexpr int BYTES = !BY_ROWS ? 4096 : !backward ? 40960 : sizeof(W) == 8 ? 18432 : 10240;
    static constexpr int TOLD = BYTES / (int)sizeof(Told<W>);
    Dealer dealer;
    Tile tiles[8]; /* those of the rounds from the last one on; 4 are in use */
    Told<W> own[2][MOST_LANES<N>];
    W carry[2][MOST_LANES<N>];
    N enter[2][MOST_LANES<N>];
    Told<W> told[TOLD];
    Told<W> groups[TOLD / 8];
    Summary<N> warp_sums[WARPS * MOST_LANES<N>];
    N ends[WORKERS];
    uint8_t walked[WORKERS];
};

template <typename T> __device__ inline T one()
{
    if constexpr (IsComplex<T>::value)
        return {1, 0};
    else
        return narrow<T>(1.0f);
}

/* The tile that a thread works on, and its place there. */
template <typename T, rl_split_layout layout> struct Seat {
    typedef typename Accumulated<T>::type N;
    static constexpr int STEPS = STEPS_OF<T>;
    typedef Chunk<T, STEPS> Own;
    typedef OwnPlaces<T, STEPS, layout> Mine;
    typedef Places<T, STEPS, layout> All;
    const rl_scan_args &args;
    const All &places;
    const Mine &own_places;
    const Tile &tile;
    const int chunk, lane;
    const int count; /* its steps that the sequence has: below 1, none; above STEPS, all and more to come */

    __device__ Seat(const rl_scan_args &args, const All &places, const Mine &own_places, const Tile &tile)
        : args(args), places(places), own_places(own_places), tile(tile),
          chunk((int)threadIdx.x >> places.lanes_log2()), lane((int)threadIdx.x & (places.lanes() - 1)),
          count(tile.count - chunk * STEPS)
    {
    }

    __device__ int64_t channel() const
    {
        return tile.channel + lane;
    }
    __device__ bool has_channel() const
    {
        return channel() < args.channels;
    }
    /* Which of its steps is the sequence's last, if any. */
    __device__ int last_step() const
    {
        return tile.is_last && count <= STEPS ? count - 1 : -1;
    }
};

/* Steps beyond the sequence leave the state alone, and a step that nothing precedes drops it. */
template <bool backward, typename S>
__device__ __forceinline__ void trim(const S &seat, typename S::Own &a, typename S::Own &input)
{
    typedef decltype(a.get(0)) T;
    if (seat.tile.is_plain) return;
    const bool is_first = seat.chunk == 0 && seat.tile.ordinal == 0;
    const int skew = is_first ? seat.tile.skew : 0;
    if (seat.count < S::STEPS || skew > 0) {
#pragma unroll
        for (int k = 0; k < S::STEPS; k++)
            if (k >= seat.count || k < skew) {
                a.set(k, one<T>());
                input.set(k, T{});
            }
    }
    if (!backward && !seat.args.enter.data && is_first) {
#pragma unroll
        for (int k = 0; k < 16 / (int)sizeof(T); k++) a.set(k, k == skew ? T{} : a.get(k));
    }
    if (backward && !seat.args.start.data && seat.last_step() >= 0) {
#pragma unroll
        for (int k = 0; k < S::STEPS; k++)
            a.set(k, k == seat.last_step() ? T{} : a.get(k)); /* a choice, for an index would take them to memory */
    }
}

template <typename N, bool backward, typename W, typename Factor>
__device__ inline W stepped(W state, Factor a, Factor input)
{
    return backward ? times(plus(state, input), a) : plus(times(state, a), input);
}

/* What a sub-chunk does to the state that enters it. */
template <bool backward, typename Own> __device__ __forceinline__ auto summed_up(const Own &a, const Own &input)
{
    typedef decltype(a.get(0)) T;
    typedef typename Accumulated<T>::type N;
    typedef Wide<N> Wider;
    typedef typename Wider::W W;
    constexpr int STEPS = STEPS_OF<T>;
    Summary<N> sum = no_steps<N>();
    bool has_zero = false, is_tiny = false;
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        N decay = (N)widen(a.get(k));
        const N value = (N)widen(input.get(k));
        if (backward) decay = conjugate(decay);
        const auto factor = Wider::factor(decay);
        sum.P = times(sum.P, factor);
        sum.S = stepped<N, backward>(sum.S, factor, Wider::factor(value));
        sum.mass = stepped_mass<backward>(sum.mass, decay, value);
        has_zero = has_zero || is_zero(decay);
        if constexpr (Wider::follows_growth) {
            sum.growth *= fmaxf(1.0f, (float)size_of(factor));
            is_tiny = is_tiny || size_of(sum.P) < TINY;
        }
    }
    if (!has_zero) {
        sum.P = unsigned_zero(sum.P);
        if constexpr (Wider::follows_growth)
            if (is_tiny && size_of(sum.P) <= DBL_MAX)
                sum.P = number<W>(sum.growth <= MOST_GROWTH ? 0.0 : (double)NAN);
        return sum;
    }
    sum.P = number<W>(-0.0);
    if (size_of(sum.S) <= DBL_MAX) return sum;
    sum.S = W{};
    sum.mass = {};
#pragma unroll 1
    for (int k = 0; k < STEPS; k++) { /* again, with what a reset drops dropped */
        N decay{}, value{};
#pragma unroll
        for (int j = 0; j < STEPS; j++)
            if (j == k) {
                decay = (N)widen(a.get(j));
                value = (N)widen(input.get(j));
            }
        if (backward) decay = conjugate(decay);
        W dropped_state = {};
        if (!backward) dropped_state = plus(dropped_state, Wider::factor(value));
        if (is_zero(decay)) sum.mass = {};
        sum.mass = stepped_mass<backward>(sum.mass, decay, value);
        sum.S =
            is_zero(decay) ? dropped_state : stepped<N, backward>(sum.S, Wider::factor(decay), Wider::factor(value));
    }
    return sum;
}

template <typename V, typename Shuffle> __device__ inline V shuffled(const V &value, const Shuffle &shuffle)
{
    constexpr int words = (int)sizeof(V) / 4;
    uint32_t word[words];
    memcpy(word, &value, sizeof value);
#pragma unroll
    for (int k = 0; k < words; k++) word[k] = shuffle(word[k]);
    V result;
    memcpy(&result, word, sizeof result);
    return result;
}

/* The threads of a warp that work on a channel. */
__device__ inline unsigned channel_mask(int lanes, int lane)
{
    const unsigned first = lanes == 1   ? ~0u
                           : lanes == 2 ? 0x55555555u
                           : lanes == 4 ? 0x11111111u
                           : lanes == 8 ? 0x01010101u
                                        : 0x00010001u;
    return first << lane;
}

/*
 * The joined sums of the warps before this one, of the channel that the thread works on.  Where one is not finite
 * they are joined with care, which costs more.
 */
template <typename N, bool backward>
__device__ inline Summary<N> warps_before(const Shared<N, backward> &shared, int lanes_log2)
{
    const int warp = (int)threadIdx.x / 32, place = (int)threadIdx.x & 31, lanes = 1 << lanes_log2;
    const int lane = place & (lanes - 1), part = place >> lanes_log2;
    const int each = max(1, WARPS * lanes / 32); /* warps of a part */
    const int most = min(32, WARPS * lanes);     /* threads of parts that have any */
    Summary<N> sum = no_steps<N>();
#pragma unroll 1
    for (int k = part * each; k < (part + 1) * each && k < warp; k++)
        sum = joined(sum, shared.warp_sums[k * lanes + lane]);
    const auto down = [&](int distance) {
        return shuffled(sum, [&](uint32_t x) { return __shfl_down_sync(~0u, x, (unsigned)distance); });
    };
    if (Wide<N>::follows_growth || __any_sync(~0u, !is_finite_sum(sum))) {
#pragma unroll 1
        for (int distance = lanes; distance < most; distance *= 2) sum = joined(sum, down(distance));
    } else {
        const bool resets = __ballot_sync(~0u, has_reset(sum)) & channel_mask(lanes, lane);
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2)
            if (distance >= lanes && distance < most) sum = joined_plainly(sum, down(distance));
        mark(sum, resets);
    }
    return shuffled(sum, [&](uint32_t x) { return __shfl_sync(~0u, x, lane); });
}

/* The sums of the sub-chunks up to each thread's own, in its warp. */
template <typename N> __device__ inline Summary<N> sums_in_warp(Summary<N> sum, int lanes)
{
    const int place = (int)threadIdx.x & 31;
    const auto up = [&](int distance) {
        return shuffled(sum, [&](uint32_t x) { return __shfl_up_sync(~0u, x, (unsigned)distance); });
    };
    if (Wide<N>::follows_growth || __any_sync(~0u, !is_finite_sum(sum))) {
#pragma unroll 1
        for (int distance = lanes; distance < 32; distance *= 2) {
            const Summary<N> both = joined(up(distance), sum);
            if (place >= distance) sum = both;
        }
        return sum;
    }
    const unsigned upto = 0xffffffffu >> (31 - place);
    const bool resets = __ballot_sync(~0u, has_reset(sum)) & channel_mask(lanes, place & (lanes - 1)) & upto;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        if (distance < lanes) continue;
        const Summary<N> both = joined_plainly(up(distance), sum);
        if (place >= distance) sum = both;
    }
    mark(sum, resets);
    return sum;
}

/*
 * From each worker's own summary: that of all sub-chunks before it in the tile.  The last sub-chunk's threads leave
 * the tile's in `own` and tell it to the other blocks, unless told_to is NULL.
 */
template <typename N, bool backward>
__device__ __forceinline__ Summary<N> sums_before(Shared<N, backward> &shared, Summary<N> sum, int lanes_log2,
                                                  Told<typename Wide<N>::W> *own, char *told_to, bool fenced)
{
    const int lanes = 1 << lanes_log2, lane = (int)threadIdx.x & (lanes - 1), place = (int)threadIdx.x & 31;
    sum = sums_in_warp(sum, lanes);
    if (place >= 32 - lanes) shared.warp_sums[(int)threadIdx.x / 32 * lanes + lane] = sum;
    Summary<N> before = shuffled(sum, [&](uint32_t x) { return __shfl_up_sync(~0u, x, (unsigned)lanes); });
    if (place < lanes) before = no_steps<N>();
    meet<AMONG_WORKERS>(); /* warp_sums are complete */
    const Summary<N> warps = warps_before(shared, lanes_log2);
    if ((int)threadIdx.x >= WORKERS - lanes) {
        const auto told = as_told(joined(warps, sum));
        own[lane] = told;
        if (fenced) __threadfence(); /* the entering state, which h_final may overwrite, has been read */
        if (told_to) put(told_to + lane * sizeof told, told);
    }
    return joined(warps, before);
}

} // namespace

#endif
