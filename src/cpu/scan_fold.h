/* Summaries of tiles, and the states that follow from them: see scan_fold.c. */
#ifndef RL_CPU_SCAN_FOLD_H
#define RL_CPU_SCAN_FOLD_H

#include "scan.h"

/* A tile's summary, and the state that enters each lane. */
typedef struct rl_scan_folding {
    double decay[RL_MOST_LANES], decay_low[RL_MOST_LANES], fresh[RL_MOST_LANES], fresh_low[RL_MOST_LANES],
        least[RL_MOST_LANES], largest[RL_MOST_LANES], peak[RL_MOST_LANES], reset[RL_MOST_LANES], turns[RL_MOST_LANES];
    double entry[RL_MOST_LANES];
} rl_scan_folding;

/* A number's parts to twice the bits of double: high + low, high what double has.  Of a float state low is 0. */
typedef struct rl_scan_long {
    double high[2], low[2];
} rl_scan_long;

/* A real state high + low, and a little more. */
rl_scan_long rl_scan_plus(double high, double low, double more);

/* Where the kernels put a tile's summary.  Answers how many parts it has: a vector of float is two of double. */
int rl_scan_parts_of_summary(const rl_scan_job *job, const rl_scan_tile *tile, rl_scan_folding *s,
                             rl_scan_summary part[2]);
void rl_scan_summarise_tile(const rl_scan_job *job, const rl_scan_tile *tile, rl_scan_folding *s);

/* end = P e + S as the lane's summary has it; answers whether that may stand for the walk. */
bool rl_scan_fold(const rl_scan_job *job, const rl_scan_folding *s, int64_t lane, const rl_scan_long *e,
                  rl_scan_long *end);

/* From the state before the tile to those that enter the lanes, and to the one after the tile. */
void rl_scan_pass_through(const rl_scan_job *job, rl_scan_way way, const rl_scan_tile *tile, rl_scan_folding *s,
                          rl_scan_long *state);

/* Whether decays of this magnitude, the largest of some, may make what a fold is off grow to more than it was. */
bool rl_scan_grows(const rl_scan_job *job, double largest);

/* The same of a tile that was summarised. */
bool rl_scan_tile_grows(const rl_scan_job *job, const rl_scan_folding *s);

#endif
