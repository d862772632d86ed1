/* A thread's walk along a strip: what scan_split.c, which shares strips out, has done by tiles and by runs. */
#ifndef RL_CPU_SCAN_STRIP_H
#define RL_CPU_SCAN_STRIP_H

#include "scan_fold.h"

enum { RL_PIECE_ROWS = RL_TILE_ROWS / 2 }; /* of each of a tile's two vectors of pieces, over time */

typedef struct rl_scan_walk {
    const rl_scan_job *job;
    const rl_scan_scratch *scratch;
    rl_scan_strip *shared; /* NULL: one thread walks the strip alone */
    rl_scan_way way;
    rl_scan_place place; /* of the tile at hand */
    int64_t tile_steps;
    rl_scan_long state[RL_MOST_LANES]; /* of each number, before the tile at hand */
    bool grows; /* decays above 1 were met, where they may not be: the loop must walk it all again */
} rl_scan_walk;

/* The state before a tile, into w->state: waits for who walks the tile before it. */
void rl_scan_await_state(rl_scan_walk *w, int64_t tile);

/* w->state for who walks the tile; said before that is whether the strip is for the loop. */
void rl_scan_pass_state(const rl_scan_walk *w, int64_t tile);

/* The state that leaves the strip, from scratch to the tensor; not where the strip is for the loop. */
void rl_scan_leave(const rl_scan_walk *w, const rl_scan_place *place);

/* A vector of states from scratch. */
void rl_scan_widen(const rl_scan_job *job, rl_scan_long *to, const void *from);

/* scan_strip_tile.c: the index-th tile; and the strip's last steps, or first ones, in one lane. */
void rl_scan_run_tile(rl_scan_walk *w, int64_t index);
void rl_scan_walk_rest(rl_scan_walk *w, rl_scan_place place);

/*
 * scan_strip_run.c: whether the strip has runs; tiles from `index` on by their run, if the steps before them tell
 * what enters it, or if its summary may stand for it; all of a strip that is not shared.
 */
bool rl_scan_has_runs(const rl_scan_walk *w);
bool rl_scan_run_ahead(rl_scan_walk *w, int64_t index, int64_t tiles);
bool rl_scan_run_in_order(rl_scan_walk *w, int64_t index, int64_t tiles);
void rl_scan_run_alone(rl_scan_walk *w);

#endif
