/* The producers of selective_scan.cuh, which includes this in its namespace: all traffic with device memory. */

template <typename T, typename U, typename Acc, typename Shape, Pass pass, Work work>
struct Producer : Sizer<T, U, Acc, Shape, pass, work> {
    using Base = Sizer<T, U, Acc, Shape, pass, work>;
    using Sums = typename Base::Sums;
    using Base::ACROSS, Base::LANES, Base::HELD, Base::BUSY, Base::args, Base::task, Base::column, Base::first;
    using Base::count, Base::whole, Base::skips, Base::x, Base::delta, Base::y, Base::tiles;
    using Base::step_size, Base::raw_x, Base::raw_B, Base::raw_C, Base::own_of, Base::is_part;

    __device__ Producer(const rl_s6_walk_args &walk, const Task &task, Tiles<Acc, Shape> &tiles)
        : Base(walk, task, tiles)
    {
        this->put_constants(tiles);
    }

    __device__ Acc value_of(int k) const
    {
        return widen(raw_x[k / ACROSS].get(k % ACROSS));
    }

    /* Tells the consumers of a channel's tile. */
    __device__ void note(const Stage &stage, int c, Flag flag)
    {
        atomicOr(&tiles.flags[stage.tile % 4][hidden(column)] + c, flag); /* else columns take registers all along */
    }

    /* Their sums, channel by channel, and whether they let the channel look slow. */
    __device__ void put_sums(const Stage &stage, const Acc (&step)[HELD])
    {
        Sums sums;
#pragma unroll
        for (int c = 0; c < ACROSS; c++)
            sums.sum[c] = (step[c] + step[ACROSS + c]) + (step[2 * ACROSS + c] + step[3 * ACROSS + c]);
        *(Sums *)&tiles.deltas[stage.tile & 1][first / GROUP][column] = sums;
        if constexpr (pass == FULL && sizeof(Acc) == 4) {
            const Sums slowest = *(const Sums *)&tiles.slowest[column];
#pragma unroll
            for (int c = 0; c < ACROSS; c++)
                if (!(sums.sum[c] * slowest.sum[c] <= -LASTING<T> * GROUP / STEPS)) note(stage, c, SLOW);
        }
    }

    /* What the thread put down as the step size of one of its own. */
    __device__ Acc delta_of(const Stage &stage, int step, int c) const
    {
        return (&tiles.step[stage.tile & 1][(first + step) / 2][column])[c].pair[step % 2].delta;
    }

    /* δ and δx of the thread's steps of a tile.  Whether all inputs are of the usual size. */
    __device__ bool put_pairs(const Stage &stage, const Acc (&step)[HELD])
    {
        Acc size = 0; /* NaN and infinity stay in the sum */
#pragma unroll
        for (int s = 0; s < GROUP; s += 2) {
#pragma unroll
            for (int c = 0; c < ACROSS; c++) {
                const int k = s * ACROSS + c, later = k + ACROSS;
                const TwoSteps<Acc> out = {
                    {{step[k], step[k] * value_of(k)}, {step[later], step[later] * value_of(later)}}};
                size += fabs(out.pair[0].input) + fabs(out.pair[1].input);
                (&tiles.step[stage.tile & 1][(first + s) / 2][column])[c] = out;
            }
        }
        return size <= Limits<Acc>::tame;
    }

    /* Where a channel's four steps of y are begun.  Nobody else comes here. */
    __device__ Quad<Acc> &begun_of(const Stage &stage, int c) const
    {
        return tiles.begun[stage.turn][first / GROUP][slot_of(hidden(column)) ^ c];
    }

    __device__ void put_skips(const Stage &stage)
    {
        const Sums skip = own_of(tiles.skip);
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            Quad<Acc> begun;
#pragma unroll
            for (int s = 0; s < GROUP; s++) begun.lane[s] = skip.sum[c] * value_of(s * ACROSS + c);
            begun_of(stage, c) = begun;
        }
    }

    /*
     * Any step sizes and inputs, one by one and from memory again: nothing is kept for this.  Notes for the consumers
     * which channels the fast order cannot take.
     */
    __device__ void put_unusual(const Stage &stage)
    {
        const int steps = stage.steps(task);
#pragma unroll 1
        for (int k = 0; k < HELD; k++) {
            const int s = k / ACROSS, c = k % ACROSS;
            Acc step[1] = {0}, value = 0;
            if (first + s < steps && c < count) {
                const int64_t back = STEPS - s;
                const Acc raw = widen(delta[c * args.delta.lane - back * args.delta.step]);
                const Acc more = (&tiles.bias[column])[c];
                step[0] = raw + more;
                value = widen(x[c * args.x.lane - back * args.x.step]);
                if constexpr (work == WHOLE)
                    this->any_soft(step[0], raw, more);
                else
                    step_size.any(step);
            }
            const Pair<Acc> pair = {step[0], step[0] * value};
            (&tiles.step[stage.tile & 1][(first + s) / 2][column])[c].pair[s % 2] = pair;
            if (!is_tame(pair.delta, pair.input)) note(stage, c, WILD);
        }
        Acc step[HELD];
#pragma unroll
        for (int k = 0; k < HELD; k++) step[k] = delta_of(stage, k / ACROSS, k % ACROSS);
        put_sums(stage, step);
        if (sizeof(T) == 4) note_repeats(stage, step);
    }

    /*
     * Notes for the consumers where the thread's four step sizes of a channel of float32 data are one (16-bit results
     * do not show what comes of it).  Where that is 0 its decay is 1 in any case.
     */
    __device__ void note_repeats(const Stage &stage, const Acc (&step)[HELD])
    {
        constexpr int LAST = HELD - ACROSS;
        bool any = false;
#pragma unroll
        for (int c = 0; c < ACROSS; c++) any = any || step[c] == step[LAST + c];
        if (!any) return;
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            bool same = step[c] != 0;
#pragma unroll
            for (int k = ACROSS; k < HELD; k += ACROSS) same = same && step[c] == step[k + c];
            if (same) note(stage, c, REPEATS);
        }
    }

    /* δ, δx and D x of the thread's steps of a tile. */
    __device__ void put_steps(const Stage &stage)
    {
        bool usual = false;
        if constexpr (sizeof(Acc) == 4) {
            Acc step[HELD];
            if constexpr (sizeof(T) == 2 && work == WHOLE) {
                usual = this->size_steps_roughly(step);
            } else {
                this->size_steps(step);
                usual = work == WHOLE ? step_size.usual_soft(step) : step_size.usual(step);
            }
            if (is_part(stage)) this->leave_out(stage, step);
            usual = put_pairs(stage, step) && usual;
            put_sums(stage, step);
            if (sizeof(T) == 4 && usual) note_repeats(stage, step);
        }
        if (pass == FULL && skips) put_skips(stage);
        if (!usual) put_unusual(stage);
    }

    /* Turns what fetch loaded into the shared tiles of the stage. */
    __device__ void prepare(const Stage &stage, int parity)
    {
        if (work == WHOLE && is_part(stage) && (int)threadIdx.x / 4 >= stage.steps(task)) raw_B = raw_C = {};
        put_bc(parity);
        if (BUSY || (stage.panel == 0 && count > 0)) put_steps(stage);
    }

    __device__ void put_bc(int parity)
    {
        Acc wide[8];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int at = k / Shape::OWN * 2 * Shape::OWN + k % Shape::OWN;
            wide[at] = widen(raw_B.get(k));
            wide[at + Shape::OWN] = pass == FULL ? widen(raw_C.get(k)) : Acc(0);
        }
        Quad<Acc> *to = (Quad<Acc> *)&tiles.bc[parity][threadIdx.x / 4][threadIdx.x % 4 * 8];
        to[0] = {{wide[0], wide[1], wide[2], wide[3]}};
        to[1] = {{wide[4], wide[5], wide[6], wide[7]}};
    }

    __device__ static void add_to(Quad<Acc> &sum, const Quad<Acc> &more)
    {
#pragma unroll
        for (int s = 0; s < GROUP; s++) sum.lane[s] += more.lane[s];
    }

    /* Four steps of a channel: what its lanes have of y at a stage, and what was begun. */
    __device__ Quad<Acc> add_up(const Stage &stage, int parity, int c) const
    {
        const auto &part = tiles.y[parity][first / GROUP];
        const int slot = slot_of(hidden(column)) ^ c;
        Quad<Acc> sum = part[0][slot];
#pragma unroll
        for (int lane = 1; lane < LANES; lane++) add_to(sum, part[lane][slot]);
        if (skips || (work != WHOLE && stage.panel > 0)) add_to(sum, begun_of(stage, c));
        return sum;
    }

    __device__ void pass_gate(int steps, Quad<Acc> (&sum)[ACROSS])
    {
        Few<T, ACROSS> gates[GROUP] = {}; /* else compilers carry others from round to round for it */
        const T *z = (const T *)tiles.gates[threadIdx.x];
        this->fetch_steps(gates, z, args.z, this->paces.z, steps);
        tiles.gates[threadIdx.x] = z;
        gate_sums(gates, sum);
    }

    __device__ static void gate_sums(const Few<T, ACROSS> (&gates)[GROUP], Quad<Acc> (&sum)[ACROSS])
    {
#pragma unroll
        for (int k = 0; k < HELD; k++)
            sum[k % ACROSS].lane[k / ACROSS] *= gate((Acc)widen(gates[k / ACROSS].get(k % ACROSS)));
    }

    __device__ static void round_sums(const Quad<Acc> (&sum)[ACROSS], Few<T, ACROSS> (&out)[GROUP])
    {
#pragma unroll
        for (int s = 0; s < GROUP; s++) {
            Acc row[ACROSS];
#pragma unroll
            for (int c = 0; c < ACROSS; c++) row[c] = sum[c].lane[s];
            out[s].round(row);
        }
    }

    /* Writes four steps of y.  Tiles come in order. */
    __device__ void write(int steps, const Quad<Acc> (&sum)[ACROSS])
    {
        Few<T, ACROSS> out[GROUP];
        round_sums(sum, out);
        if constexpr (work == WHOLE) {
            T *to = y;
            const int there = this->steps_there(steps);
#pragma unroll
            for (int s = 0; s < GROUP; s++, to = Base::after_bytes(to, this->paces.y.step))
                if (s < there) *(Few<T, ACROSS> *)to = out[s];
            y = Base::after_bytes(y, this->paces.y.tile);
        } else {
            T *to = y;
            int64_t step = args.y.step, lane = args.y.lane;
            hide(step, lane);
            y += STEPS * step;
            if (whole && steps == STEPS) {
#pragma unroll
                for (int s = 0; s < GROUP; s++, to += step) *(Few<T, ACROSS> *)to = out[s];
            } else {
#pragma unroll
                for (int s = 0; s < GROUP; s++, to += step)
                    store_few<T, ACROSS>(to, lane, first + s < steps ? count : 0, args.y.wide, out[s]);
            }
        }
    }

    /* What the consumers have of y at a stage; with the last panel the tile's y is complete. */
    __device__ void collect(const Stage &stage, int parity)
    {
        if (!BUSY && count == 0) return;
        const int steps = stage.steps(task);
        Quad<Acc> sum[ACROSS];
#pragma unroll
        for (int c = 0; c < ACROSS; c++) sum[c] = add_up(stage, parity, c);
        if (work != WHOLE && stage.panel + 1 < args.panels) {
#pragma unroll
            for (int c = 0; c < ACROSS; c++) begun_of(stage, c) = sum[c];
            return;
        }
        if (args.z.data) pass_gate(steps, sum);
        if (BUSY && stage.tile + 1 < task.tiles)
            write(STEPS, sum); /* as in fetch */
        else
            write(steps, sum);
    }

    /*
     * Of whole work, round k prepares tile k, fetches tile k + 1 and collects y of tile k - 2, while the consumers
     * are at tile k - 1.  All that a round has to know is its number.  What is asked for without being brought near
     * first is given the time of a collection, for compilers wait for it as soon as there is a branch.
     */
    __device__ void run_whole()
    {
        constexpr bool FAR = !Base::LOOKS;
        if (task.tiles > 0) this->fetch(Stage());
        block_barrier(Shape::THREADS); /* the flags are clear, and the task before has left the tiles */
        Stage next;
#pragma unroll 1
        for (;; next.advance(1)) {
            const Stage after = {next.tile + 1}, behind = {next.tile - 2, 0, next.turn == 2 ? 0 : next.turn + 1};
            const int parity = next.tile & 1;
            if (!FAR && pass == FULL && next.tile >= 2) collect(behind, parity);
            if (next.tile < task.tiles) prepare(next, parity);
            if (after.tile < task.tiles) this->fetch(after);
            if (FAR && pass == FULL && next.tile >= 2) collect(behind, parity);
            if (next.tile > task.tiles) return;
            block_barrier(Shape::THREADS); /* the tile is prepared, the one before used up, and its y complete */
        }
    }

    /*
     * Round k fetches stage k, prepares stage k - 1 and collects y of stage k - 3, while the consumers are at stage
     * k - 2.  The first rounds and the last are parts of the same loop, since a problem of a few stages waits mostly
     * for instructions that it has not yet met.
     */
    __device__ void run()
    {
        if constexpr (work == WHOLE) {
            run_whole();
            return;
        }
        const int panels = work == WHOLE ? 1 : args.panels, threads = work == WHOLE ? Shape::THREADS : blockDim.x;
        Stage behind, next, after;
        int parity = 1; /* of stages `next` and `behind` */
#pragma unroll 1
        for (int early = 3;; early -= early > 0, parity ^= 1) { /* rounds until there is a y to collect */
            if (early < 3 && next.tile < task.tiles) {
                prepare(next, parity);
                next.advance(panels);
            }
            if (after.tile < task.tiles) {
                this->fetch(after); /* what follows does not wait for it */
                after.advance(panels);
            }
            if (early == 0) {
                if (pass == FULL) collect(behind, parity);
                behind.advance(panels);
            }
            if (early < 2 && behind.tile == task.tiles) return;
            /* First: the flags are clear, and the task before has left the tiles.  Then: a stage is prepared.  From
             * then on also: the tiles of the one before are used up, and its y is complete. */
            block_barrier(threads);
        }
    }
};
