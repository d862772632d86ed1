/*
 * What the blocks of a split scan tell each other: tickets, summaries and ends of tiles.
 *
 * A block takes a group's tiles in order, by tickets: a tile that waits for an earlier one waits for a block that is
 * running, so however few blocks are resident, none waits for ever.  A word that is not there yet has all bits set;
 * every word written is complete in itself, so no fence is needed between summary and flag.
 */
#ifndef RL_CUDA_SCAN_SPLIT_CHAIN_CUH
#define RL_CUDA_SCAN_SPLIT_CHAIN_CUH

#include <machine/words.cuh>

#include "scan_split_number.cuh"
#include "scan_split_tile.cuh"

constexpr unsigned long long MISSING = ~0ull;

__device__ inline void put_word(unsigned long long *to, double value)
{
    unsigned long long word = (unsigned long long)__double_as_longlong(value);
    if (word == MISSING) word = 0x7ff8000000000000ull; /* a NaN is as good as another */
    store_relaxed(to, word);
}

__device__ inline void put_words(unsigned long long *to, double first, double second)
{
    unsigned long long x = (unsigned long long)__double_as_longlong(first);
    unsigned long long y = (unsigned long long)__double_as_longlong(second);
    if (x == MISSING) x = 0x7ff8000000000000ull;
    if (y == MISSING) y = 0x7ff8000000000000ull;
    store_relaxed(to, x, y);
}

__device__ inline double await_word(const unsigned long long *from)
{
    unsigned long long word;
    do {
        load_relaxed(from, word);
    } while (word == MISSING);
    return __longlong_as_double((long long)word);
}

__device__ inline void await_words(const unsigned long long *from, double &first, double &second)
{
    unsigned long long x, y;
    do {
        load_relaxed(from, x, y);
    } while (x == MISSING || y == MISSING);
    first = __longlong_as_double((long long)x);
    second = __longlong_as_double((long long)y);
}

/* Tiles whose summaries are joined before they are folded; growth is not told, so 1 where it is followed. */
template <typename N> constexpr int GROUP = Wide<N>::follows_growth ? 1 : 8;

/* A summary as it is told to other blocks, with its mass in the last bits of P and S. */
template <typename W> struct Told {
    W P, S;
};

template <typename N> __device__ inline Told<typename Wide<N>::W> as_told(Summary<N> sum)
{
    write_mass(sum.P, sum.S, sum.mass);
    return {sum.P, sum.S};
}

template <typename N> __device__ inline Summary<N> from_told(const Told<typename Wide<N>::W> &told)
{
    Summary<N> sum = no_steps<N>();
    sum.P = told.P;
    sum.S = told.S;
    read_mass(sum.P, sum.S, sum.mass);
    return sum;
}

template <typename W> __device__ inline void put(void *to, const Told<W> &told)
{
    constexpr int words = (int)sizeof told / 8;
    double value[words];
    memcpy(value, &told, sizeof told);
#pragma unroll
    for (int k = 0; k < words; k += 2) put_words((unsigned long long *)to + k, value[k], value[k + 1]);
}

/* Waits for `count` summaries, which some threads take in turn, with several loads under way each. */
template <int threads, typename W>
__device__ inline void await_all(Told<W> *to, const Told<W> *from, int count, int thread)
{
    constexpr int AT_ONCE = sizeof(W) == 8 ? 8 : 1, WORDS = (int)sizeof(Told<W>) / 8;
    for (int first = thread; first < count; first += AT_ONCE * threads) {
        unsigned long long word[AT_ONCE][WORDS];
        bool is_missing;
        do {
            is_missing = false;
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                const int k = first + j * threads < count ? first + j * threads : first;
#pragma unroll
                for (int w = 0; w < WORDS; w += 2)
                    load_relaxed((const unsigned long long *)(from + k) + w, word[j][w], word[j][w + 1]);
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
                for (int w = 0; w < WORDS; w++) is_missing |= word[j][w] == MISSING;
        } while (is_missing);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (first + j * threads < count) memcpy(&to[first + j * threads], word[j], sizeof(Told<W>));
    }
}

/* The state after a tile, as numbers that double holds exactly. */
__device__ inline void put_end(void *to, double value)
{
    put_word((unsigned long long *)to, value);
}
__device__ inline void put_end(void *to, Complex<double> value)
{
    put_words((unsigned long long *)to, value.re, value.im);
}
__device__ inline void await_end(const void *from, double &value)
{
    value = await_word((const unsigned long long *)from);
}
__device__ inline void await_end(const void *from, Complex<double> &value)
{
    await_words((const unsigned long long *)from, value.re, value.im);
}

/* One fold after the other.  Where one is not accepted, `otherwise(k, state)` finds the state after it. */
template <typename N, typename Otherwise>
__device__ inline typename Wide<N>::W folded_over(const Told<typename Wide<N>::W> *told, int stride, int count,
                                                  typename Wide<N>::W state, const Otherwise &otherwise)
{
    typedef typename Wide<N>::W W;
    constexpr int TOGETHER = sizeof(W) == 8 ? 4 : 1;
    for (int k = 0; k < count; k += TOGETHER) {
        W next = state;
        bool accepted = TOGETHER > 1 && k + TOGETHER <= count;
        if (accepted) {
            Told<W> some[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) some[j] = told[(k + j) * stride];
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                const W entering = next;
                accepted &= fold_plainly<N>(from_told<N>(some[j]), entering, next);
            }
        }
        if (accepted) {
            state = next;
            continue;
        }
        for (int j = k; j < count && j < k + TOGETHER; j++) {
            if (!fold<N>(from_told<N>(told[j * stride]), state, next)) next = otherwise(j, state);
            state = next;
        }
    }
    return state;
}

/*
 * The state after `count` tiles, from the one before: x -> P x + S in their order.  Where a summary is not accepted
 * the tile's own block has walked it, and tells the end.
 */
template <typename N>
__device__ inline typename Wide<N>::W after_tiles(const Told<typename Wide<N>::W> *told, const void *ends, int stride,
                                                  int count, typename Wide<N>::W state)
{
    typedef typename Wide<N>::Factor Factor;
    return folded_over<N>(told, stride, count, state, [&](int k, typename Wide<N>::W) {
        Factor end;
        await_end((const Factor *)ends + k * stride, end);
        return Wide<N>::open(Wide<N>::back(end));
    });
}

/* The joined summary of a group's tiles. */
template <typename N> __device__ inline Summary<N> joined_told(const Told<typename Wide<N>::W> *told, int stride)
{
    Summary<N> sum = no_steps<N>();
    bool is_finite = true, resets = false;
#pragma unroll
    for (int k = 0; k < GROUP<N>; k++) {
        const Summary<N> more = from_told<N>(told[k * stride]);
        is_finite &= is_finite_sum(more);
        resets |= has_reset(more);
        sum = joined_plainly(sum, more);
    }
    if (is_finite) {
        mark(sum, resets);
        return sum;
    }
    sum = no_steps<N>();
#pragma unroll 1
    for (int k = 0; k < GROUP<N>; k++) sum = joined(sum, from_told<N>(told[k * stride]));
    return sum;
}

/*
 * The same for `count` groups of GROUP tiles, by their joined summaries, and where one is not accepted by its tiles.
 * A sequence's groups begin at multiples of GROUP tiles: so the state that enters a tile is one value, whoever
 * computes it and from wherever on.
 */
template <typename N>
__device__ inline typename Wide<N>::W after_groups(const Told<typename Wide<N>::W> *groups,
                                                   const Told<typename Wide<N>::W> *told, const void *ends,
                                                   int stride, int count, typename Wide<N>::W state)
{
    return folded_over<N>(groups, stride, count, state, [&](int k, typename Wide<N>::W before) {
        const int first = k * GROUP<N> * stride;
        return after_tiles<N>(told + first, (const typename Wide<N>::Factor *)ends + first, stride, GROUP<N>, before);
    });
}

/*
 * Hands a block its tiles: those of its group, the sequences' one after the other, and when none is left those of
 * another.  One warp runs it, all of its threads alike; it lies in shared memory.
 */
struct Dealer {
    int64_t total;  /* tiles of a group */
    int64_t before; /* tiles before those of `sequence` */
    int64_t sequence;
    int group;
    bool is_over;

    __device__ static int skew_of(const rl_split_args &args, const Span &span)
    {
        return (int)(args.scan.down ? -(span.begin + span.count) : span.begin) & (args.unit - 1);
    }

    __device__ static int64_t tiles_of(const rl_split_args &args, int64_t s)
    {
        const Span span(args.scan, s);
        if (span.count == 0) return 1; /* it still hands on its state */
        return ((span.count + skew_of(args, span) - 1) >> args.steps_log2) + 1;
    }

    __device__ void begin(const rl_split_args &args)
    {
        int64_t sum = args.scan.sequences * tiles_of(args, 0);
        if (args.scan.offsets) {
            sum = 0;
            for (int64_t s = threadIdx.x & 31; s < args.scan.sequences; s += 32) sum += tiles_of(args, s);
            for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
        }
        total = sum < args.most_tiles ? sum : args.most_tiles; /* offsets that are not in order might give more */
        before = sequence = 0;
        group = (int)(blockIdx.x % (unsigned)args.groups);
        is_over = false;
        __syncwarp();
    }

    __device__ static int64_t draw(const rl_split_args &args, int from)
    {
        uint32_t ticket = 0;
        if (threadIdx.x % 32 == 0) ticket = atomicAdd(&args.tickets[from], 1u) + 1u;
        return __shfl_sync(~0u, ticket, 0);
    }

    /* A group, of those 32 after `skipped` others, that seems to have tiles left; negative: none. */
    __device__ int find(const rl_split_args &args, int skipped) const
    {
        const int ahead = skipped + (int)threadIdx.x % 32, other = (group + ahead) % args.groups;
        bool left = false;
        if (ahead < args.groups) {
            uint32_t taken;
            load_relaxed(&args.tickets[other], taken);
            left = (int64_t)(taken + 1u) < total;
        }
        const unsigned found = __ballot_sync(~0u, left);
        return found ? (group + skipped + __ffs((int)found) - 1) % args.groups : -1;
    }

    /* `place` is beyond the group's tiles: one of another group. */
    __device__ int64_t place_elsewhere(const rl_split_args &args, int64_t place)
    {
        for (int skipped = 1; place >= total && skipped < args.groups;) {
            const int other = find(args, skipped);
            if (other < 0) {
                skipped += 32;
                continue;
            }
            place = draw(args, other);
            if (place >= total) continue;
            __syncwarp();
            group = other;
            before = sequence = 0;
            __syncwarp();
        }
        return place;
    }

    /* Asks for a ticket; long before deal, for it takes its time.  Only the warp's first thread gets one. */
    __device__ uint32_t ask(const rl_split_args &args) const
    {
        return threadIdx.x % 32 == 0 && !is_over ? atomicAdd(&args.tickets[group], 1u) : 0;
    }

    __device__ void deal(const rl_split_args &args, uint32_t ticket, Tile &tile)
    {
        int64_t place = is_over ? total : (int64_t)(__shfl_sync(~0u, ticket, 0) + 1u);
        if (!is_over && place >= total) place = place_elsewhere(args, place);
        __syncwarp();
        if (place >= total) {
            is_over = true;
            tile.place = -1;
            __syncwarp();
            return;
        }
        int64_t s = sequence, passed = before;
        for (int64_t tiles = tiles_of(args, s); place >= passed + tiles; tiles = tiles_of(args, s)) {
            passed += tiles;
            s++;
        }
        __syncwarp();
        sequence = s;
        before = passed;
        const Span span(args.scan, s);
        const int skew = skew_of(args, span);
        const int64_t first = (place - passed) << args.steps_log2, steps = (int64_t)1 << args.steps_log2;
        const int64_t left = span.count > 0 ? span.count + skew - first : 0;
        const rl_scan_args &scan = args.scan;
        tile.span = span;
        tile.sequence = s;
        tile.place = place;
        tile.ordinal = place - passed;
        tile.channel = (int64_t)group << args.lanes_log2;
        tile.first = first;
        const int part = (int)threadIdx.x % 32; /* a thread each: this is on every block's way to its first loads */
        if (part < PARTS) {
            const rl_scan_view &view = view_of(scan, part);
            tile.at[part] = span.at(view, (int64_t)group << args.lanes_log2, scan.down) + (first - skew) * view.step;
        }
        tile.group = group;
        tile.skew = skew;
        tile.count = (int)(left < steps ? left : steps);
        tile.is_last = left <= steps;
        const bool begins = tile.ordinal == 0 && (skew > 0 || (!args.is_backward && !scan.enter.data));
        const bool ends = tile.is_last && args.is_backward && !scan.start.data;
        tile.is_plain = tile.count == steps && !begins && !ends;
        __syncwarp();
    }
};

#endif
