/* The warpgroups of a head's block that have the answers. */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_ANSWERERS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_ANSWERERS_CUH

#include "linear_attention_floats_heads_pairs.cuh"

namespace attention_heads
{

/* What a thread has of a further tile's rows, as sums have it. */
struct Further {
    float2 own[2][LANES / 8];
};

/* One of them. */
template <int WHAT> struct Answerers : Head<WHAT> {
    typedef Head<WHAT> Base;
    using Base::args;
    using Base::chunks;
    using Base::lane;
    using Base::shared;
    using Base::signals;
    using Base::stage;
    using Base::thread;
    typedef typename Base::Room Room;
    const int warp;
    bool special, all;

    __device__ Answerers(const rl_heads_args &all, char *shared, int walk, int lane, int thread)
        : Base(all, shared, walk, lane, thread), warp(same(thread / 32)), special(false), all(false)
    {
    }
    __device__ __forceinline__ int row(int half) const
    {
        return warp * STRIP + group_of_lane() + half * 8;
    }
    /* A tile's rows; what is not finite becomes 0. */
    __device__ __forceinline__ void load_rows(Operand<> &a, char *from)
    {
        const int own = thread % 32, at = warp * STRIP + own % 16;
        char *const pieces[4] = {piece_at(from, at, own / 16), piece_at(from, at, 2 + own / 16),
                                 piece_at(from, at, 4 + own / 16), piece_at(from, at, 6 + own / 16)};
        uint32_t raw[EIGHTS][4];
        float each[4] = {0, 0, 0, 0};
#pragma unroll
        for (int n = 0; n < EIGHTS; n++) matrices_load<4, false>(raw[n], pieces[n % 4] + n / 4 * PANEL);
#pragma unroll
        for (int n = 0; n < EIGHTS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) each[i] = fmaf(__uint_as_float(raw[n][i]), 0.0f, each[i]);
        const float finite = each[0] + each[1] + each[2] + each[3];
        if (__any_sync(ALL, finite != 0)) {
            special = true;
#pragma unroll
            for (int n = 0; n < EIGHTS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (!is_finite(__uint_as_float(raw[n][i]))) raw[n][i] = 0;
        }
#pragma unroll
        for (int n = 0; n < EIGHTS; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                a.set(n / 2, n % 2 * 2 + i, __uint_as_float(raw[n][i]), __uint_as_float(raw[n][i + 2]));
    }
    /* A thread's two of each eight lanes of the further tile; what is not finite becomes 0. */
    __device__ __forceinline__ void load_further(Further &e, int turn) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < LANES / 8; n++) {
                const char *const at = piece_at(stage(turn) + Room::E, row(half), n * 2 + pair_of_lane() / 2);
                e.own[half][n] = ((const float2 *)at)[pair_of_lane() % 2];
                clean(e.own[half][n].x), clean(e.own[half][n].y);
            }
    }
    /* P of steps in the order of running. */
    __device__ __forceinline__ void mask(float (&P)[WIDE / 2]) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int own = row(half) - 2 * pair_of_lane();
#pragma unroll
            for (int n = 0; n < EIGHTS; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (Base::LATER ? n * 8 + e < own : n * 8 + e > own) P[n * 4 + half * 2 + e] = 0;
        }
    }
    /* P with its decays. */
    __device__ __forceinline__ void weigh(float (&P)[WIDE / 2], const Record &r) const
    {
        const float *const between = r.between[2 * warp], *const across = r.across + 2 * pair_of_lane();
        const float *const own[2] = {r.own[2 * warp][group_of_lane()] + 2 * pair_of_lane(),
                                     r.own[2 * warp + 1][group_of_lane()] + 2 * pair_of_lane()};
        const float2 within[2] = {*(const float2 *)own[0], *(const float2 *)own[1]};
        const float side[2] = {r.side[row(0)], r.side[row(1)]};
#pragma unroll
        for (int n = 0; n < EIGHTS; n++) {
            const float2 there = *(const float2 *)(across + n * 8);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float decay = side[half] * between[half * BLOCKS + n];
                const bool is_own = n == 2 * warp + half;
                P[n * 4 + half * 2] *= is_own ? within[half].x : decay * there.x;
                P[n * 4 + half * 2 + 1] *= is_own ? within[half].y : decay * there.y;
            }
        }
    }
    __device__ __forceinline__ void store(const float (&Y)[LANES / 2], int turn) const
    {
        const Side to = this->output();
        if (!to.view.data) return;
        const int64_t base = this->span().at(to.view, to.head, this->first(turn));
        const int steps = this->steps(turn), first = lane + 2 * pair_of_lane();
        if (to.wide && lane + LANES <= to.lanes && steps == STEPS) {
            float *const at = (float *)to.view.data + base + row(0) * to.view.step + first;
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int n = 0; n < LANES / 8; n++)
                    *(float2 *)(at + half * 8 * to.view.step + n * 8) =
                        float2{Y[n * 4 + half * 2], Y[n * 4 + half * 2 + 1]};
            return;
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < LANES / 8; n++)
                if (row(half) < steps)
                    store_lanes({Y[n * 4 + half * 2], Y[n * 4 + half * 2 + 1]}, to.view, to.wide,
                                base + row(half) * to.view.step + (first + n * 8) * to.view.lane,
                                to.lanes - (first + n * 8));
    }
    __device__ __forceinline__ void judge(const Operand<> &a, int turn)
    {
        if (!this->record(turn).fades) return;
#pragma unroll
        for (int n = 0; n < WIDE / TURN; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                all = all || is_large(__uint_as_float(a.part[0][n][i] << 16), MODERATE_INPUT) ||
                      is_large(__uint_as_float(a.part[0][n][i] & 0xffff0000u), MODERATE_INPUT);
    }
    /* Each row's product with its row of the further tile. */
    __device__ __forceinline__ void dot_rows(float (&total)[2], const float (&Y)[LANES / 2], const Further &e) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            total[half] = 0;
#pragma unroll
            for (int n = 0; n < LANES / 8; n++) {
                total[half] = fmaf(Y[n * 4 + half * 2], e.own[half][n].x, total[half]);
                total[half] = fmaf(Y[n * 4 + half * 2 + 1], e.own[half][n].y, total[half]);
            }
            total[half] += __shfl_xor_sync(ALL, total[half], 1);
            total[half] += __shfl_xor_sync(ALL, total[half], 2);
        }
    }
    /* u, or w: of the answer that comes of the state alone. */
    __device__ __forceinline__ void dot_state(const float (&Y)[LANES / 2], const Further &e, const Record &r,
                                              int turn)
    {
        float total[2];
        dot_rows(total, Y, e);
        if (pair_of_lane() > 0) return;
#pragma unroll
        for (int half = 0; half < 2; half++)
            if constexpr (WHAT == RL_HEADS_DQ)
                args.read[this->place(turn) * STEPS + row(half)] =
                    total[half] * (r.decay[row(half)] * r.out[row(half)]);
            else if constexpr (WHAT == RL_HEADS_DK)
                this->sums(turn).given[row(half)] = total[half] * (r.decay[row(half)] * r.out[row(half)]);
    }
    /* dbeta of the block's lanes; Y not yet times beta. */
    __device__ __forceinline__ void dot_answer(const float (&Y)[LANES / 2], const Further &e, int turn)
    {
        float total[2];
        dot_rows(total, Y, e);
        if (pair_of_lane() > 0) return;
#pragma unroll
        for (int half = 0; half < 2; half++) args.worth[this->place(turn) * STEPS + row(half)] = total[half];
    }
    /* N: P with k q over the block's lanes, which are both in shared memory as they lie. */
    __device__ __forceinline__ void add_pairs(const float (&P)[WIDE / 2], const Further &e, const Record &r, int turn)
    {
        float N[WIDE / 2];
        {
            Operand<LANES / TURN> a;
#pragma unroll
            for (int n = 0; n < LANES / TURN; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float2 own = e.own[i % 2][n * 2 + i / 2];
                    a.set(n, i, own.x, own.y);
                }
            multiply<WIDE, SHORT>(N, a, this->parts_of_c(turn));
            products_wait<0>();
            a.stay();
            hold(N);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float beta = r.mild ? r.out[row(half)] * r.decay[row(half)] : r.out[row(half)];
#pragma unroll
            for (int n = 0; n < EIGHTS; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) N[n * 4 + half * 2 + e] *= P[n * 4 + half * 2 + e] * beta;
        }
        sum_pairs(N, this->sums(turn), warp);
    }
    __device__ __forceinline__ void finish(float (&Y)[LANES / 2], const float (&Z)[LANES / 2], const Further &e,
                                           const Record &r, int turn)
    {
        float finite = 0;
#pragma unroll
        for (int i = 0; i < LANES / 2; i++) {
            const float decay = r.decay[row(i / 2 % 2)];
            Y[i] = fmaf(Y[i], decay, r.mild ? Z[i] * decay : Z[i]);
        }
        if (WHAT == RL_HEADS_DK && args.dbeta.data) dot_answer(Y, e, turn);
#pragma unroll
        for (int i = 0; i < LANES / 2; i++) {
            Y[i] *= r.out[row(i / 2 % 2)];
            finite = fmaf(Y[i], 0.0f, finite);
        }
        all = all || finite != 0;
    }
    /* P of a chunk, under way. */
    __device__ __forceinline__ void ask(float (&P)[WIDE / 2], Operand<> &a, Further &e, int turn)
    {
        this->await(signals().full, turn);
        load_rows(a, stage(turn));
        if (Room::PAIRS) load_further(e, turn);
        this->arrive(signals().empty[turn % STAGES]);
        this->await(signals().split_b, turn);
        multiply<WIDE, LONG>(P, a, this->parts_of_b(turn));
    }
    __device__ __forceinline__ void read_state(float (&Y)[LANES / 2], const Operand<> &a, int turn)
    {
        this->await(signals().state, turn);
        multiply<LANES, ACROSS>(Y, a, this->state(turn));
    }
    /* What the gates' gradients need of P, weighed, and of the answer that comes of the state alone. */
    __device__ __forceinline__ void leave_sums(const float (&P)[WIDE / 2], const float (&Y)[LANES / 2],
                                               const Further &e, int turn)
    {
        if (!this->wants_gates()) return;
        const Record &r = this->record(turn);
        if constexpr (WHAT == RL_HEADS_DQ) dot_state(Y, e, r, turn);
        if constexpr (WHAT == RL_HEADS_DK) {
            this->await(signals().taken, turn - 2);
            dot_state(Y, e, r, turn);
            this->await(signals().split_c, turn);
            add_pairs(P, e, r, turn);
            this->arrive(signals().summed[turn % 2]);
        }
    }
    /* Every second chunk: the other group has those between. */
    __device__ __forceinline__ void run(int first)
    {
#pragma unroll 1
        for (int turn = first; turn < chunks; turn += 2) {
            const Record &r = this->record(turn);
            float P[WIDE / 2], Y[LANES / 2], Z[LANES / 2];
            Further e;
            {
                Operand<> a;
                ask(P, a, e, turn);
                read_state(Y, a, turn);
                products_wait<0>();
                hold(P);
                a.stay();
                hold(Y);
                this->arrive(signals().used_b[turn % 2]);
                this->arrive(signals().read[turn % 2]);
                judge(a, turn);
            }
            if (r.mild)
                mask(P);
            else
                weigh(P, r);
            leave_sums(P, Y, e, turn);
            {
                Operand<> a;
#pragma unroll
                for (int n = 0; n < EIGHTS; n++)
#pragma unroll
                    for (int i = 0; i < 2; i++) a.set(n / 2, n % 2 * 2 + i, P[n * 4 + i * 2], P[n * 4 + i * 2 + 1]);
                this->await(signals().split_c, turn);
                multiply<LANES, ACROSS>(Z, a, this->parts_of_c(turn));
                products_wait<0>();
                a.stay();
                hold(Z);
            }
            this->arrive(signals().used_c[turn % 2]);
            finish(Y, Z, e, r, turn);
            store(Y, turn);
        }
    }
};

} // namespace attention_heads

#endif
