/*
 * STREAM's triad a = b + 3 c, compiled once an instruction set: with ordinary stores, which read the line that they
 * write, and with stores past the caches where the machine has them.
 */
#include "rates.h"

#if defined __SSE2__
#include <immintrin.h>
#endif

#define JOIN2(left, right) left##_##right
#define JOIN(left, right) JOIN2(left, right)
#define NAMED(name) JOIN(name, BENCH_ISA)

triad_loop NAMED(bench_triad_loop), NAMED(bench_streaming_triad_loop);

enum { LINE = 8 }; /* doubles */

void NAMED(bench_triad_loop)(double *a, const double *b, const double *c, int64_t count)
{
    for (int64_t i = 0; i < count; i++) a[i] = b[i] + 3.0 * c[i];
}

#if defined __AVX512F__

static inline void stream_line(double *to, const double *b, const double *c)
{
    _mm512_stream_pd(to, _mm512_fmadd_pd(_mm512_set1_pd(3.0), _mm512_loadu_pd(c), _mm512_loadu_pd(b)));
}

#elif defined __AVX2__

static inline void stream_line(double *to, const double *b, const double *c)
{
    for (int i = 0; i < LINE; i += 4)
        _mm256_stream_pd(to + i,
                         _mm256_fmadd_pd(_mm256_set1_pd(3.0), _mm256_loadu_pd(c + i), _mm256_loadu_pd(b + i)));
}

#elif defined __SSE2__

static inline void stream_line(double *to, const double *b, const double *c)
{
    for (int i = 0; i < LINE; i += 2)
        _mm_stream_pd(to + i, _mm_add_pd(_mm_loadu_pd(b + i), _mm_mul_pd(_mm_set1_pd(3.0), _mm_loadu_pd(c + i))));
}

#else

static inline void stream_line(double *to, const double *b, const double *c)
{
    for (int i = 0; i < LINE; i++) to[i] = b[i] + 3.0 * c[i];
}

#endif

void NAMED(bench_streaming_triad_loop)(double *a, const double *b, const double *c, int64_t count)
{
    int64_t whole = count - count % LINE;
    for (int64_t i = 0; i < whole; i += LINE) stream_line(a + i, b + i, c + i);
    NAMED(bench_triad_loop)(a + whole, b + whole, c + whole, count - whole);
#if defined __SSE2__
    _mm_sfence(); /* the stores are done when the time is taken */
#endif
}
