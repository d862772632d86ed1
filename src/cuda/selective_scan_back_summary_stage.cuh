/*
 * The preparation of the summaries' spans, which selective_scan_back_summary_neat.cu includes in its namespace: from
 * memory, by the copy engine, to what is walked.  Each warp prepares the steps of its own channels; of B and C it has
 * a share, which all walk.
 */

struct alignas(16) TwoSteps {
    float delta[2], input[2];
};

/* Columns of a tensor that the copy engine brings together: rows of 128 bytes, in which its swizzle parts the banks.
 */
constexpr int LINE = 128, UNIT = 16;
template <typename E> constexpr int BOX = LINE / (int)sizeof(E);

/* A span as it lies in memory: boxes of a block's channels, and rows of a panel's states where they are not walked
 * as they come. */
template <typename T, typename U, bool gated> struct Raw {
    alignas(1024) U delta[SPAN * COLUMNS];
    alignas(1024) T x[SPAN * COLUMNS];
    alignas(1024) T dy[SPAN * COLUMNS];
    alignas(1024) T z[gated ? SPAN * COLUMNS : 1];
    alignas(128) U B[sizeof(U) == sizeof(float) ? 1 : SPAN * PANEL];
    alignas(128) U C[sizeof(U) == sizeof(float) ? 1 : SPAN * PANEL];
};

/* The steps of a warp's channels, a place more in a row so that banks differ. */
struct Own {
    TwoSteps step[PAIRS][WARP_COLUMNS + 1];
    Four<float> du[SPAN / PART][WARP_COLUMNS + 1];
    /* The sums of two steps' sizes, four pairs and a gap; then the few, and then what they have come to. */
    union {
        alignas(16) float numbers[(PAIRS + PAIRS / 4) * WARP_COLUMNS];
        Few few[MOST_FEW];
    };
};

template <typename T, typename U, bool gated> struct Tiles {
    Raw<T, U, gated> raw;
    alignas(128) float B[2][SPAN * PANEL], C[2][SPAN * PANEL]; /* of a span and, as it is copied, the next */
    Own own[WARPS];
    alignas(16) float bias[COLUMNS];
    int first[COLUMNS], wild[COLUMNS]; /* the first tile with a wild state; whether there are wild gradients */
    unsigned largest[2][WARPS];        /* |C| of a span and the next, as bits, of each warp's share */
    unsigned done;                     /* warps that need no more what has been copied */
    uint16_t seat[2][THREADS_OF_ALL];  /* where a thread's four channels of T, of U lie in their boxes */
    uint64_t copied, shared;           /* barriers: it is there; all have turned their shares of B and C */
};

/* A block's thread as it prepares spans. */
template <typename T, typename U, bool gated> struct Stager {
    static constexpr bool IN_PLACE = sizeof(U) == sizeof(float); /* B and C are walked as they have come */

    const rl_s6_back_args &args;
    const rl_s6_back_copies &copies;
    const Chunk &chunk;
    const Block &block;
    Tiles<T, U, gated> &tiles;
    const int warp, lane, warps;
    const int way_back; /* nonzero: that of the chunk is wanted, and has gradients */

    __device__ Stager(const rl_s6_back_summary_args &args, const Chunk &chunk, const Block &block,
                      Tiles<T, U, gated> &tiles)
        : args(args.back), copies(args.copies), chunk(chunk), block(block), tiles(tiles),
          warp(__shfl_sync(~0u, threadIdx.x / 32, 0)), lane(threadIdx.x & 31), warps((int)blockDim.x / 32),
          /* Nobody asks for that of a sequence's first chunk. */
          way_back(hidden(args.back.scan.chunks > 1 && chunk.piece.chunk > 0 && args.back.dy.data))
    {
    }

    __device__ Own &own() const
    {
        return tiles.own[warp];
    }
    /* The thread's two steps, the first of its four channels of the warp's. */
    __device__ int pair() const
    {
        return lane / 2;
    }
    __device__ int quad() const
    {
        return lane % 2 * 4;
    }
    __device__ int quad_column() const
    {
        return warp * WARP_COLUMNS + quad();
    }

    /* Before the first span. */
    __device__ void begin_stage() const
    {
        const int k = warp * WARP_COLUMNS + lane;
        /* What the compiler could work out at each use it would not hold. */
        tiles.seat[0][threadIdx.x] = (uint16_t)place_in_boxes((int)sizeof(T));
        tiles.seat[1][threadIdx.x] = (uint16_t)place_in_boxes((int)sizeof(U));
        if (lane < WARP_COLUMNS) {
            const bool given = k < block.channels && args.scan.bias.data;
            tiles.bias[k] =
                given ? ((const float *)args.scan.bias.data)[(block.channel + k) * args.scan.bias.stride] : 0.0f;
            tiles.first[k] = RL_S6_BACK_NONE;
            tiles.wild[k] = 0;
        }
        __syncwarp();
    }

    /* Where the numbers of B and C of a span stand. */
    __device__ static int stage_of(int tile)
    {
        return tile / 2 & 1;
    }

    /* Boxes that hold the block's channels. */
    template <typename E> __device__ int boxes() const
    {
        return (args.scan.block_channels + BOX<E> - 1) / BOX<E>;
    }
    template <typename E> __device__ void copy_boxes(E *to, const CUtensorMap &map, TileAt at) const
    {
        for (int k = 0; k < boxes<E>(); k++, at.inner += BOX<E>)
            tile_load(to + k * SPAN * BOX<E>, map, at, &tiles.copied);
    }

    /* One thread sends for a span; what of it lies beyond the tensors becomes zeros. */
    __device__ void copy(int tile) const
    {
        Raw<T, U, gated> &raw = tiles.raw;
        void *const B = IN_PLACE ? (void *)tiles.B[stage_of(tile)] : raw.B;
        void *const C = IN_PLACE ? (void *)tiles.C[stage_of(tile)] : raw.C;
        const int row = (int)(chunk.piece.row + (int64_t)tile * TILE), rows = SPAN * LINE;
        const int states_bytes = SPAN * PANEL * (int)sizeof(U);
        const TileAt steps = {(int)block.channel, row, (int)chunk.piece.batch};
        const TileAt states = {(int)(block.group * args.scan.states), row, (int)chunk.piece.batch};
        int bytes = rows * (boxes<U>() + boxes<T>()) + states_bytes;
        if (way_back) bytes += rows * boxes<T>() * (gated ? 2 : 1) + states_bytes;
        barrier_expect(&tiles.copied, bytes);
        copy_boxes(raw.delta, copies.delta, steps);
        copy_boxes(raw.x, copies.x, steps);
        tile_load(B, copies.B, states, &tiles.copied);
        if (!way_back) return;
        copy_boxes(raw.dy, copies.dy, steps);
        tile_load(C, copies.C, states, &tiles.copied);
        if (gated) copy_boxes(raw.z, copies.z, steps);
    }

    /* The thread's four channels of its first step, of so many bytes each: where the swizzle puts them. */
    __device__ int place_in_boxes(int size) const
    {
        const int byte = quad_column() * size, row = 2 * pair();
        return (byte / LINE * SPAN + row) * LINE + (byte % LINE / UNIT ^ (row & 7)) * UNIT + byte % UNIT;
    }
    /* Of its step i: the second row of two has the lowest bit of its units turned. */
    template <typename E> __device__ const char *place_of_quad(const E *raw, int i) const
    {
        const int first = tiles.seat[sizeof(E) == sizeof(U)][threadIdx.x];
        return (const char *)raw + (i ? (first ^ UNIT) + LINE : first);
    }
    template <typename E> __device__ Quad<E> quad_of(const E *raw, int i) const
    {
        return *(const Quad<E> *)place_of_quad(raw, i);
    }

    /* Whether the thread has all of its steps in a span, and its channels. */
    __device__ bool prepares() const
    {
        return quad_column() < block.channels;
    }
    __device__ bool has_all(int steps) const
    {
        return steps == SPAN && prepares();
    }
    __device__ bool has(int k, int steps) const
    {
        return prepares() && 2 * pair() + k / 4 < steps;
    }

    /* The thread's steps where there are unusual numbers: notes what the fast order cannot take. */
    __device__ void prepare_any(int tile, int steps) const
    {
        const int at = tile + pair() / (TILE / 2);
#pragma unroll 1
        for (int k = 0; k < 8; k++) {
            if (!has(k, steps)) continue;
            const int i = k / 4, c = k % 4, channel = quad_column() + c;
            TwoSteps &step = own().step[pair()][quad() + c];
            const float size = softplus_of_any(load_one(tiles.raw.delta, i, c) + tiles.bias[channel]);
            const float input = size * load_one(tiles.raw.x, i, c);
            float du = 0;
            if (way_back) du = load_one(tiles.raw.dy, i, c);
            if (way_back && gated) du *= gate(load_one(tiles.raw.z, i, c));
            step.delta[i] = size;
            step.input[i] = input;
            own().numbers[(pair() + pair() / 4) * WARP_COLUMNS + quad() + c] = step.delta[0] + step.delta[1];
            if (!is_tame(size, input)) atomicMin(&tiles.first[channel], at);
            if (!is_tame(size, du)) atomicOr(&tiles.wild[channel], RL_S6_BACK_WILD_GRADIENTS);
        }
    }
    template <typename E> __device__ float load_one(const E *raw, int i, int c) const
    {
        return widen(((const E *)place_of_quad(raw, i))[c]);
    }

    /* Answers the sum of their sizes; `most`: the largest of those of two steps of a channel. */
    __device__ float prepare_gradients(int steps, float &most) const
    {
        float du[8], two[4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Quad<T> raw = quad_of(tiles.raw.dy, i);
#pragma unroll
            for (int c = 0; c < 4; c++) du[i * 4 + c] = widen(raw.get(c));
            if (!gated) continue;
            const Quad<T> gates = quad_of(tiles.raw.z, i);
#pragma unroll
            for (int c = 0; c < 4; c++) du[i * 4 + c] *= gate(widen(gates.get(c)));
        }
        if (!has_all(steps)) {
#pragma unroll
            for (int k = 0; k < 8; k++) du[k] = has(k, steps) ? du[k] : 0;
        }
#pragma unroll
        for (int c = 0; c < 4; c++) two[c] = fabsf(du[c]) + fabsf(du[4 + c]);
        most = fmaxf(fmaxf(two[0], two[1]), fmaxf(two[2], two[3]));
        float2 *const to = (float2 *)&own().du[pair() / 2][quad()] + (pair() & 1);
#pragma unroll
        for (int c = 0; c < 4; c++) to[2 * c] = make_float2(du[c], du[4 + c]);
        return (two[0] + two[1]) + (two[2] + two[3]);
    }

    /* What does not exist becomes zeros: it does nothing.  Answers what prepare_gradients has found the largest. */
    __device__ float prepare_steps(int tile, int steps) const
    {
        const Four<float> bias = *(const Four<float> *)&tiles.bias[quad_column()];
        float size[8], input[8], most = 0, sum = 0, most_du = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Quad<U> delta = quad_of(tiles.raw.delta, i);
            const Quad<T> x = quad_of(tiles.raw.x, i);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int k = i * 4 + c;
                const float raw = widen(delta.get(c)) + bias.state[c];
                most = fmaxf(most, fabsf(raw));
                size[k] = softplus_of_small(raw);
                input[k] = size[k] * widen(x.get(c));
            }
        }
        if (!has_all(steps)) {
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (!has(k, steps)) size[k] = input[k] = 0;
        }
#pragma unroll
        for (int k = 0; k < 8; k++) sum += fabsf(input[k]);
#pragma unroll
        for (int c = 0; c < 4; c++)
            own().step[pair()][quad() + c] = {{size[c], size[4 + c]}, {input[c], input[4 + c]}};
        float *const sizes = &own().numbers[(pair() + pair() / 4) * WARP_COLUMNS + quad()];
        *(Four<float> *)sizes = {size[0] + size[4], size[1] + size[5], size[2] + size[6], size[3] + size[7]};
        if (way_back) sum += prepare_gradients(steps, most_du);
        if (!(most <= SMALL && sum <= Limits<float>::tame)) prepare_any(tile, steps);
        return most_du;
    }

    /* A quad of B or C.  Answers its largest number, as bits: a NaN is larger than all. */
    __device__ static unsigned put_states(const U *from, bool given, float *to)
    {
        const Quad<U> raw = IN_PLACE ? *(const Quad<U> *)to : *(const Quad<U> *)from;
        Four<float> four;
        unsigned largest = 0;
#pragma unroll
        for (int k = 0; k < STATES; k++) {
            four.state[k] = given ? widen(raw.get(k)) : 0;
            const unsigned bits = __float_as_uint(four.state[k]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
        }
        if (!IN_PLACE || !given) *(Four<float> *)to = four;
        if (IN_PLACE && !given) shared_publish(); /* the copy engine writes there next */
        return largest;
    }

    /* The warp's share of B and C: half of the threads have the one, half the other. */
    __device__ void share_states(int tile, int steps) const
    {
        constexpr int QUADS = SPAN * LANES;
        const int stage = stage_of(tile), states = (int)args.scan.states;
        const bool second = lane >= QUADS / WARPS, as_it_is = IN_PLACE && steps == SPAN && states == PANEL;
        float *const to = second ? tiles.C[stage] : tiles.B[stage];
        const U *const from = second ? tiles.raw.C : tiles.raw.B;
        unsigned largest = 0;
        if (second ? way_back != 0 : !as_it_is) {
#pragma unroll 1
            for (int i = warp * (QUADS / WARPS) + lane % (QUADS / WARPS); i < QUADS; i += warps * (QUADS / WARPS)) {
                const bool given = i / LANES < steps && i % LANES * STATES < states;
                const unsigned own = put_states(IN_PLACE ? nullptr : from + i * STATES, given, to + i * STATES);
                if (second) largest = own > largest ? own : largest;
            }
        }
        __syncwarp(); /* the share is there */
        largest = __reduce_max_sync(~0u, largest);
        if (lane != 0) return;
        tiles.largest[stage][warp] = largest;
        barrier_arrive(&tiles.shared);
    }

    /* Once the warp is done with what has been copied; the last one sends for the next span. */
    __device__ void release(int tile, bool more) const
    {
        __syncwarp();
        if (lane == 0) {
            __threadfence_block();
            if (atomicInc(&tiles.done, warps - 1) == warps - 1u && more) copy(tile + 2);
        }
        __syncwarp();
    }

    /* Turns what has been copied into what is walked.  Answers the largest |du| of two steps of a channel. */
    __device__ float prepare(int tile, int steps, bool more) const
    {
        share_states(tile, steps);
        const float most_du = prepare_steps(tile, steps);
        release(tile, more);
        return way_back ? __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most_du))) : 0.0f;
    }
};
