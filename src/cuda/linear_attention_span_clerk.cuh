/*
 * The warps of a block of spans that make no gradients by products: one has inputs and states brought, the others
 * read states for the gates' gradients, and one of them goes through the steps:
 *
 *     g_t dg_t = Σ_{j<t<=s} N_sj  +  Σ_{s>=t} u_s  +  Σ_{j<t} w_j  +  b_last <G, S>
 *
 * over all steps of the span, as linear_attention_chunk_gates.cuh has it for a chunk.  No term is the small
 * difference of large ones.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_SPAN_CLERK_CUH
#define RL_CUDA_LINEAR_ATTENTION_SPAN_CLERK_CUH

#include "linear_attention_chunk_gates.cuh"
#include "linear_attention_span_ground.cuh"

namespace attention_spans
{

struct Clerk : Ground {
    __device__ Clerk(const rl_spans_args &args, char *shared) : Ground(args, shared)
    {
    }

    /* By one thread. */
    __device__ __forceinline__ void load(int which, const CUtensorMap &map, const Span &span) const
    {
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
            for (int chunk = 0; chunk < RL_SPANS_CHUNKS; chunk++)
                tile_load(tensor(which) + panel * PANEL + chunk * TILE, map,
                          HeadTileAt{panel * WIDE, span.first + chunk * STEPS, span.head, span.sequence},
                          &signals().full[which]);
    }
    /* Ahead of all tensors that need them. */
    __device__ __forceinline__ void load_decays(const Span &span, int turn) const
    {
        const Decays *const from = (const Decays *)args.walk.gates + span.place(args) * RL_SPANS_CHUNKS;
        const uint32_t bytes = RL_SPANS_CHUNKS * sizeof(Decays);
        uint64_t *const full = &signals().full[V];
        barrier_expect(full, TENSOR + bytes + (span.is_last ? 0 : PIECE));
        bytes_load(&decays(turn, 0), from, bytes, full);
        if (!span.is_last) bytes_load(next_gate(turn), from[RL_SPANS_CHUNKS].until, PIECE, full);
    }
    __device__ __forceinline__ void load_state(int which, const char *from, const Span &span) const
    {
        barrier_expect(&signals().full[which], TENSOR);
        bytes_load(tensor(which), from + span.place(args) * TENSOR, TENSOR, &signals().full[which]);
    }
    __device__ __forceinline__ void load_input(int which, const CUtensorMap &map, const Span &span) const
    {
        barrier_expect(&signals().full[which], TENSOR);
        load(which, map, span);
    }
    __device__ __forceinline__ void await_use(int which, int turn) const
    {
        if (turn > 0) barrier_wait(&signals().used[which], (turn - 1) & 1);
    }
    /* In the order in which the places become free. */
    __device__ __forceinline__ void bring(int64_t total) const
    {
        const rl_chunks_args &walk = args.walk;
        if (thread > 0) return;
        int turn = 0;
        for (int64_t index = blockIdx.x; index < total; index += gridDim.x, turn++) {
            const Span span(args, index);
            await_use(V, turn);
            load_decays(span, turn);
            load(V, walk.k, span);
            await_use(S, turn);
            load_state(S, args.S, span);
            await_use(Q, turn);
            load_input(Q, walk.partner, span);
            await_use(G, turn);
            load_state(G, args.G, span);
            await_use(K, turn);
            load_input(K, walk.v, span);
            await_use(DY, turn);
            load_input(DY, walk.q, span);
        }
    }

    /* Of the clerks that read. */
    __device__ __forceinline__ int reader() const
    {
        return thread - 32;
    }
    __device__ __forceinline__ void cross_states() const
    {
        const uint4 *const left = (const uint4 *)tensor(S), *const right = (const uint4 *)tensor(G);
        float sums[2] = {0, 0};
#pragma unroll 2
        for (int at = reader(); at < TENSOR / PIECE; at += CLERKS * 32) {
            const uint4 a = left[at], b = right[at];
            const uint32_t one[4] = {a.x, a.y, a.z, a.w}, other[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                sums[0] = fmaf(low_of(one[k]), low_of(other[k]), sums[0]);
                sums[1] = fmaf(high_of(one[k]), high_of(other[k]), sums[1]);
            }
        }
        float sum = sums[0] + sums[1];
#pragma unroll
        for (int away = 16; away > 0; away /= 2) sum += __shfl_xor_sync(ALL, sum, away);
        if (thread % 32 == 0) notes().cross[warp() - 1] = sum;
    }
    /* Whether one of the numbers may not meet products beside gates that fade. */
    __device__ __forceinline__ bool exceeds(int from, int until, float most) const
    {
        bool found = false;
#pragma unroll 1
        for (int at = from * (TENSOR / 4) + reader(); at < until * (TENSOR / 4); at += CLERKS * 32) {
            const uint32_t word = ((const uint32_t *)shared)[at];
            found = found || !(fabsf(low_of(word)) <= most) || !(fabsf(high_of(word)) <= most);
        }
        return found;
    }
    __device__ __forceinline__ bool forbids(int turn) const
    {
        const Decays &a = decays(turn, 0), &b = decays(turn, 1);
        if (!(a.growth[0] * a.growth[1] * b.growth[0] * b.growth[1] <= GROWTH_MOST)) return true;
        if (a.fade[0] * a.fade[1] * b.fade[0] * b.fade[1] >= FADED) return false;
        bool heavy = false;
#pragma unroll
        for (int chunk = 0; chunk < RL_SPANS_CHUNKS; chunk++)
            for (float most : decays(turn, chunk).heaviest) heavy = heavy || !(most <= MODERATE_WEIGHT);
        const float most_input = 0x1p10f;
        for (int which = 0; which < TENSORS; which++) await(which, turn);
        return heavy || exceeds(Q, S, most_input) || exceeds(S, TENSORS, MODERATE_STATE);
    }
    __device__ __forceinline__ float factor_at(const Decays &d, int step) const
    {
        return d.reset[step] ? 0 : d.gate[step];
    }
    /* A lane has four steps; two lanes a block. */
    __device__ __forceinline__ void store(const Span &span, const float (&flow)[4], int turn) const
    {
        const int lane = thread % 32;
        const Decays &d = decays(turn, lane / 16);
        bool good = true;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int step = 4 * lane + i;
            if (step >= span.steps) continue;
            const float factor = factor_at(d, step % STEPS);
            const bool is_read = span.first + step > 0 || args.has_state;
            const bool divides = is_read && !args.walk.gate_is_log;
            const float own = args.walk.gate_is_log && factor == 0 ? 0 : flow[i];
            good = good && is_finite(own) && !(divides && !(fabsf(factor) >= LEAST_GATE));
            store_any(args.dgate.data, args.dgate.dtype, span.at(args.dgate, step),
                      !is_read  ? 0
                      : divides ? own / factor
                                : own);
        }
        if (!good) mark(span);
    }
    __device__ __forceinline__ void finish(const Span &span, int turn) const
    {
        const Notes &n = notes();
        const int lane = thread % 32, chunk = lane / 16, step = 4 * lane, within = step % STEPS;
        float own[4] = {0, 0, 0, 0}, read[4], given[4], later = 0, across = 0;
#pragma unroll
        for (int warp = 0; warp < WALK_WARPS; warp++) {
            later += n.later[chunk][warp][within / BLOCK];
#pragma unroll
            for (int i = 0; i < 4; i++) own[i] += n.columns[chunk][warp][within + i];
        }
#pragma unroll
        for (int i = 2; i >= 0; i--) own[i] += own[i + 1];
        const float other = __shfl_down_sync(ALL, own[0], 1);
        if (lane % 2 == 0) later += other;
        for (int clerk = 0; clerk < CLERKS; clerk++) across += n.cross[clerk];
        across *= decays(turn, 0).carry * decays(turn, 1).carry * (span.is_last ? 1 : *next_gate(turn));
        float crossing[4], rows[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            read[i] = n.read[step + i], given[i] = n.given[step + i];
            crossing[i] = 0, rows[i] = 0;
            if (chunk == 0) rows[i] = n.rows[within + i];
            for (int warp = 0; chunk == 1 && warp < WALK_WARPS; warp++) crossing[i] += n.crossing[warp][within + i];
        }
        const auto around = attention::sums_around(given[0] + given[1] + given[2] + given[3],
                                                   read[0] + read[1] + read[2] + read[3], lane);
        const auto between = attention::sums_around(rows[0] + rows[1] + rows[2] + rows[3],
                                                    crossing[0] + crossing[1] + crossing[2] + crossing[3], lane);
        float earlier[4], behind[4], flow[4];
        earlier[0] = around.earlier + (chunk == 0 ? between.earlier : 0);
        behind[3] = around.later + read[3] + (chunk == 1 ? between.later + crossing[3] : 0);
#pragma unroll
        for (int i = 1; i < 4; i++) {
            earlier[i] = earlier[i - 1] + (given[i - 1] + rows[i - 1]);
            behind[3 - i] = behind[4 - i] + (read[3 - i] + crossing[3 - i]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) flow[i] = (n.near[step + i] + own[i] + later) + behind[i] + earlier[i] + across;
        store(span, flow, turn);
    }
    __device__ __forceinline__ void read(int64_t total)
    {
        int turn = 0;
#pragma unroll 1
        for (int64_t index = blockIdx.x; index < total; index += gridDim.x, turn++) {
            const Span span(args, index);
            if (turn > 0) barrier_wait(&signals().taken, (turn - 1) & 1);
            await(V, turn); /* with the products of gates */
            if (forbids(turn)) mark(span);
            await(S, turn);
            await(G, turn);
            if (wants_gates()) cross_states();
#pragma unroll
            for (int which = 0; which < TENSORS; which++) arrive(&signals().used[which]);
            arrive(&signals().noted);
            if (warp() != 1) continue;
            barrier_wait(&signals().noted, turn & 1);
            if (wants_gates()) finish(span, turn);
            arrive(&signals().taken);
        }
    }
};

} // namespace attention_spans

#endif
