/*
 * The preparation of the summaries' spans, which selective_scan_back_summary_neat.cu includes in its namespace: from
 * memory, by the copy engine, to the stage that is walked.
 */

struct alignas(16) TwoSteps {
    float delta[2], input[2];
};

/* A span as it lies in memory: rows of all of a block's channels, or of a panel's states. */
template <typename T, typename U> struct Raw {
    alignas(128) U delta[SPAN * COLUMNS];
    alignas(128) T x[SPAN * COLUMNS];
    alignas(128) T dy[SPAN * COLUMNS];
    alignas(128) T z[SPAN * COLUMNS];
    alignas(128) U B[SPAN * PANEL];
    alignas(128) U C[SPAN * PANEL];
};

template <typename T, typename U> struct Tiles {
    Raw<T, U> raw;
    TwoSteps step[PAIRS][COLUMNS];
    Four<float> du[SPAN / PART][COLUMNS];
    alignas(128) float B[2][SPAN * PANEL], C[2][SPAN * PANEL]; /* of a span and, as it is copied, the next */
    alignas(16) float bias[COLUMNS];
    int first[COLUMNS], wild[COLUMNS]; /* the first tile with a wild state; whether there are wild gradients */
    unsigned largest[2][2];            /* |du| and |C| of a span and the next, as bits */
    int seat[THREADS_OF_ALL];          /* the pair of steps and the first channel that a thread prepares */
    uint64_t copied;                   /* a barrier */
};

/* Where a step of a channel lies: so that neither fours of channels nor neighbours meet in a bank. */
__device__ inline int place_of_column(int column)
{
    return column ^ (column / 8 & 3);
}

/* A block's thread as it prepares spans. */
template <typename T, typename U, bool gated> struct Stager {
    static constexpr bool IN_PLACE = sizeof(U) == sizeof(float); /* B and C are walked as they have come */

    const rl_s6_back_args &args;
    const rl_s6_back_copies &copies;
    const Chunk &chunk;
    const Block &block;
    const int columns; /* channels of a block, at most */
    Tiles<T, U> &tiles;
    bool split, backs; /* there are chunks; this one's way back is wanted */
    int pair, quad;    /* the thread's steps, its first channel */

    __device__ Stager(const rl_s6_back_summary_args &args, const Chunk &chunk, const Block &block, Tiles<T, U> &tiles)
        : args(args.back), copies(args.copies), chunk(chunk), block(block), columns(args.back.scan.block_channels),
          tiles(tiles), split(args.back.scan.chunks > 1)
    {
        backs = split && chunk.piece.chunk > 0; /* nobody asks for that of a sequence's first chunk */
    }

    /* Before the first span. */
    __device__ void begin_stage() const
    {
        const int quads = columns / 4;
        tiles.seat[threadIdx.x] = (int)threadIdx.x / quads << 8 | (int)threadIdx.x % quads * 4;
        for (int k = threadIdx.x; k < columns; k += blockDim.x) {
            const bool given = k < block.channels && args.scan.bias.data;
            tiles.bias[k] =
                given ? ((const float *)args.scan.bias.data)[(block.channel + k) * args.scan.bias.stride] : 0.0f;
            tiles.first[k] = RL_S6_BACK_NONE;
            tiles.wild[k] = 0;
        }
        if (threadIdx.x < 4) (&tiles.largest[0][0])[threadIdx.x] = 0;
    }

    /* What the compiler could work out ahead it would hold in registers, or spill. */
    __device__ void take_seat()
    {
        const int seat = tiles.seat[threadIdx.x];
        pair = seat >> 8;
        quad = seat & 0xff;
    }
    __device__ bool prepares() const
    {
        return quad < block.channels;
    }
    __device__ bool has_gradients() const
    {
        return backs && args.dy.data;
    }

    /* Where the numbers of B and C of a span stand. */
    __device__ static int stage_of(int64_t tile)
    {
        return IN_PLACE ? (int)(tile / 2 & 1) : 0;
    }

    /* One thread sends for a span; what of it lies beyond the tensors becomes zeros. */
    __device__ void copy(int64_t tile) const
    {
        Raw<T, U> &raw = tiles.raw;
        void *const B = IN_PLACE ? (void *)tiles.B[stage_of(tile)] : raw.B;
        void *const C = IN_PLACE ? (void *)tiles.C[stage_of(tile)] : raw.C;
        const int area = SPAN * columns, row = (int)(chunk.piece.row + tile * TILE);
        const TileAt steps = {(int)block.channel, row, (int)chunk.piece.batch};
        const TileAt states = {(int)(block.group * args.scan.states), row, (int)chunk.piece.batch};
        int bytes = area * (int)(sizeof(U) + sizeof(T)) + (int)sizeof raw.B;
        if (has_gradients()) bytes += area * (int)(gated ? 2 * sizeof(T) : sizeof(T)) + (int)sizeof raw.C;
        barrier_expect(&tiles.copied, bytes);
        tile_load(raw.delta, copies.delta, steps, &tiles.copied);
        tile_load(raw.x, copies.x, steps, &tiles.copied);
        tile_load(B, copies.B, states, &tiles.copied);
        if (has_gradients()) tile_load(raw.dy, copies.dy, steps, &tiles.copied);
        if (has_gradients()) tile_load(C, copies.C, states, &tiles.copied);
        if (gated && has_gradients()) tile_load(raw.z, copies.z, steps, &tiles.copied);
    }

    /* The thread's four channels of its step i. */
    template <typename E> __device__ Quad<E> quad_of(const E *raw, int i) const
    {
        return *(const Quad<E> *)&raw[(2 * pair + i) * columns + quad];
    }

    /* Whether the thread has all of its steps in a span, and its channels. */
    __device__ bool has_all(int steps) const
    {
        return steps == SPAN && prepares();
    }
    __device__ bool has(int k, int steps) const
    {
        return prepares() && 2 * pair + k / 4 < steps;
    }

    __device__ float load_du(int at) const
    {
        const float dy = widen(tiles.raw.dy[at]);
        return gated ? dy * gate(widen(tiles.raw.z[at])) : dy;
    }

    /* The thread's steps where there are unusual numbers: notes what the fast order cannot take. */
    __device__ void prepare_any(int64_t tile, int steps) const
    {
        const int own = (int)tile + pair / (TILE / 2);
#pragma unroll 1
        for (int k = 0; k < 8; k++) {
            if (!has(k, steps)) continue;
            const int channel = quad + k % 4, at = (2 * pair + k / 4) * columns + channel;
            TwoSteps &step = tiles.step[pair][place_of_column(channel)];
            const float size = softplus_of_any(widen(tiles.raw.delta[at]) + tiles.bias[channel]);
            const float input = size * widen(tiles.raw.x[at]), du = has_gradients() ? load_du(at) : 0;
            step.delta[k / 4] = size;
            step.input[k / 4] = input;
            if (!is_tame(size, input)) atomicMin(&tiles.first[channel], own);
            if (!is_tame(size, du)) atomicOr(&tiles.wild[channel], RL_S6_BACK_WILD_GRADIENTS);
        }
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
        float2 *const to = (float2 *)tiles.du[pair / 2] + (pair & 1);
#pragma unroll
        for (int c = 0; c < 4; c++) to[2 * place_of_column(quad + c)] = make_float2(du[c], du[4 + c]);
        return (two[0] + two[1]) + (two[2] + two[3]);
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

    __device__ void prepare_states(int64_t tile, int steps) const
    {
        constexpr int QUADS = SPAN * LANES;
        const int stage = stage_of(tile);
        if (!IN_PLACE || steps < SPAN || args.scan.states < PANEL)
            for (int i = threadIdx.x; i < QUADS; i += blockDim.x)
                put_states(tiles.raw.B + i * STATES, is_given(i, steps), tiles.B[stage] + i * STATES);
        if (!has_gradients()) return;
        for (int i = threadIdx.x; i < QUADS; i += blockDim.x) {
            const unsigned largest =
                put_states(tiles.raw.C + i * STATES, is_given(i, steps), tiles.C[stage] + i * STATES);
            note_largest(tile, 1, largest);
        }
    }
    __device__ bool is_given(int quad, int steps) const
    {
        return quad / LANES < steps && quad % LANES * STATES < args.scan.states;
    }
    /* Of a warp's numbers of du (0) or C. */
    __device__ void note_largest(int64_t tile, int which, unsigned bits) const
    {
        bits = __reduce_max_sync(~0u, bits);
        if (threadIdx.x % 32 == 0) atomicMax(&tiles.largest[tile / 2 & 1][which], bits);
    }

    /* What does not exist becomes zeros: it does nothing.  Answers what prepare_gradients has found the largest. */
    __device__ float prepare_steps(int64_t tile, int steps)
    {
        const Four<float> bias = *(const Four<float> *)&tiles.bias[quad];
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
            tiles.step[pair][place_of_column(quad + c)] = {{size[c], size[4 + c]}, {input[c], input[4 + c]}};
        if (has_gradients()) sum += prepare_gradients(steps, most_du);
        if (!(most <= SMALL && sum <= Limits<float>::tame)) prepare_any(tile, steps);
        return most_du;
    }

    /* Turns what has been copied into the stage. */
    __device__ void prepare(int64_t tile, int steps)
    {
        take_seat();
        const float most_du = prepare_steps(tile, steps);
        prepare_states(tile, steps);
        if (has_gradients()) note_largest(tile, 0, __float_as_uint(most_du));
    }
};
