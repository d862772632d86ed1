/*
 * LANES vectors of LANES numbers, transposed in registers.  Interleaving vector i with vector i + LANES/2, for every
 * i, moves the top bit of the vector's index to the bottom of the lane's; log2(LANES) times that is the
 * transposition.
 */
#ifndef RL_CPU_TRANSPOSE_H
#define RL_CPU_TRANSPOSE_H

#include "vec.h"

#if RL_VECTOR_BYTES * 8 / RL_REAL_BITS == 16
#define INTERLEAVE_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define INTERLEAVE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif RL_VECTOR_BYTES * 8 / RL_REAL_BITS == 8
#define INTERLEAVE_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define INTERLEAVE_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#elif RL_VECTOR_BYTES * 8 / RL_REAL_BITS == 4
#define INTERLEAVE_LOW 0, 4, 1, 5
#define INTERLEAVE_HIGH 2, 6, 3, 7
#else
#define INTERLEAVE_LOW 0, 2
#define INTERLEAVE_HIGH 1, 3
#endif

RL_INLINE void transpose(vreal *v)
{
    for (int done = 1; done < LANES; done *= 2) {
        vreal next[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i] = __builtin_shufflevector(v[i], v[i + LANES / 2], INTERLEAVE_LOW);
            next[2 * i + 1] = __builtin_shufflevector(v[i], v[i + LANES / 2], INTERLEAVE_HIGH);
        }
        for (int i = 0; i < LANES; i++) v[i] = next[i];
    }
}

#endif
