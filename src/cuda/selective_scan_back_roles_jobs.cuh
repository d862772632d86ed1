/* The order of a team's jobs, which selective_scan_back_roles.cu includes in its namespace: the work of one warp. */

struct Jobs {
    const rl_s6_back_args &args;
    Room &room;
    const int lane;

    __device__ Jobs(const rl_s6_back_args &args, Room &room) : args(args), room(room), lane(threadIdx.x & 31)
    {
    }

    __device__ bool is_split() const
    {
        return args.scan.chunks > 1;
    }

    __device__ void enter_task(Cursor &at) const
    {
        if (at.task >= args.pieces * args.scan.blocks) return;
        at.index = at.task / args.scan.blocks;
        at.block = locate_block(args.scan, at.task - at.index * args.scan.blocks);
        at.sequence = is_split() ? at.index / args.scan.chunks : at.index * args.run;
        at.end = at.sequence + (is_split() ? 1 : args.run);
        if (at.end > args.scan.sequences) at.end = args.scan.sequences;
        at.begins = true;
        at.vectors ^= 1;
    }

    __device__ void enter_sequence(Cursor &at) const
    {
        if (at.task >= args.pieces * args.scan.blocks) return;
        at.chunk = locate_chunk(args.scan, at.sequence, is_split() ? at.index % args.scan.chunks : 0);
        at.tile = at.chunk.tiles;
    }

    /* Each lane those of its own tensor. */
    __device__ void find_origins(Cursor &at) const
    {
        if (lane >= TENSORS) return;
        const rl_s6_view &view = view_of(args, lane);
        const int64_t first = lane >= OF_B ? at.block.group * view.group : at.block.channel;
        at.origin[lane] = (char *)view.data + (first_row(args.scan, view, at.chunk.piece) + first) * bytes_of(view);
    }

    __device__ void start(int64_t task)
    {
        Cursor &at = room.cursor;
        if (lane < TENSORS) {
            const rl_s6_view &view = view_of(args, lane);
            room.stride[lane] = view.step * bytes_of(view) * TILE;
        }
        if (lane == 0) {
            at.task = task;
            at.vectors = 0;
            enter_task(at);
            enter_sequence(at);
        }
        __syncwarp();
        find_origins(at);
        __syncwarp();
    }

    __device__ void fill(Job &job, const Cursor &at) const
    {
        const Piece &piece = at.chunk.piece;
        const int64_t own = OWN * TEAM * STATES, left = piece.count - at.tile * TILE;
        const int64_t tile = at.chunk.kept + at.tile, step = at.tile * TILE;
        const bool last = at.tile + 1 == at.chunk.tiles;
        job.block = at.block;
        job.task = at.task;
        job.index = at.index;
        job.sequence = piece.sequence;
        job.batch = piece.batch;
        job.first = piece.row + (args.scan.reverse ? -step : step);
        job.row = piece.sequence * args.scan.chunks + piece.chunk;
        job.kept = (const float *)args.kept + (tile * args.scan.blocks + at.block.number) * own;
        job.sums = (const float *)args.kept_sums + tile * args.scan.channels + at.block.channel;
        job.shares = (float *)args.bc_parts +
                     (at.block.number * args.rows + piece.batch * args.scan.length + job.first) * 2 * args.scan.states;
        job.steps = left < TILE ? (int)left : TILE;
        job.tile = (int)at.tile;
        job.begins = at.begins;
        job.ends_task = at.tile == 0 && at.sequence + 1 == at.end;
        job.enters = last;
        job.leaves = at.tile == 0;
        job.moves = !piece.starts || args.scan.h_init.data;
        job.starts = piece.starts;
        job.finishes = piece.ends || !is_split();
        job.vectors = at.vectors;
    }

    /* Describes the next job, and goes on to the one after it. */
    __device__ void describe(Job &job)
    {
        Cursor &at = room.cursor;
        const bool exists = at.task < args.pieces * args.scan.blocks;
        __syncwarp();
        if (!exists) {
            if (lane == 0) job.steps = 0;
            __syncwarp();
            return;
        }
        if (lane == 0) {
            at.tile--;
            fill(job, at);
            at.begins = false;
        }
        __syncwarp();
        if (lane < TENSORS) job.at[lane] = at.origin[lane] + at.tile * room.stride[lane];
        if (at.tile > 0) return;
        __syncwarp();
        if (lane == 0) {
            if (++at.sequence == at.end) {
                at.task += (int64_t)TEAMS * gridDim.x;
                enter_task(at);
            }
            enter_sequence(at);
        }
        __syncwarp();
        if (at.task < args.pieces * args.scan.blocks) find_origins(at);
        __syncwarp();
    }
};
