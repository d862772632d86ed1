#include "ceilings.h"

#include <cblas.h>
#include <stdlib.h>
#include <time.h>

#include "rates.h"
#include "timing.h"
#include "triad.h"

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The best of a few repeats of a loop on all threads: elements per second. */
static double loop_rate(rate_loop *loop, int threads, int64_t rounds, int repeats)
{
    double best = 0.0;
    for (int i = 0; i < repeats; i++) {
        int64_t total = 0;
        double begin = bench_now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
        {
            float sink;
            total += loop(rounds, &sink);
            __asm__ volatile("" : : "m"(sink));
        }
        double rate = (double)total / (bench_now() - begin);
        if (rate > best) best = rate;
    }
    return best;
}

double bench_fma_seconds(int threads, int64_t rounds)
{
    rate_loop *loop = bench_rates_here()->multiply_adds;
    double begin = bench_now();
#pragma omp parallel num_threads(threads)
    {
        float sink;
        loop(rounds / threads, &sink);
        __asm__ volatile("" : : "m"(sink));
    }
    return bench_now() - begin;
}

/* Bytes per second of the faster triad: stores past the caches save reading what is written. */
static double triad_rate(int threads, double bytes, int repeats)
{
    bench_triad triad;
    failure why;
    double least = 1e300;
    if (!bench_triad_open(&triad, bytes, threads, bench_rates_here()->isa, &why)) return 0.0;
    bench_work works[] = {{bench_triad_run, NULL, &triad}, {bench_triad_run_streaming, NULL, &triad}};
    double seconds[2], moved = 3.0 * sizeof *triad.a * (double)triad.count;
    if (bench_time_turns(repeats, works, 2, seconds, &why)) least = seconds[0] < seconds[1] ? seconds[0] : seconds[1];
    bench_triad_close(&triad);
    return moved / least;
}

/*
 * OpenBLAS's own threads; with one thread the call is made inside a parallel region of one, where the OpenMP build
 * stays on it.
 */
static void product(int threads, int n, const double *wide, const float *narrow, void *out)
{
#pragma omp parallel num_threads(1) if (threads == 1)
    {
        if (wide)
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1.0, wide, n, wide, n, 0.0, out, n);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1.0f, narrow, n, narrow, n, 0.0f, out, n);
    }
}

static double product_rate(int threads, bool is_wide, int n, int repeats)
{
    size_t count = (size_t)n * (size_t)n;
    double *wide = malloc(count * sizeof *wide), *out = malloc(count * sizeof *out), best = 0.0;
    if (wide && out) {
        for (size_t i = 0; i < count; i++) {
            double value = (double)(i % 1009) / 1009.0 - 0.4;
            if (is_wide)
                wide[i] = value;
            else
                ((float *)wide)[i] = (float)value;
        }
        for (int i = 0; i < repeats; i++) {
            double begin = bench_now();
            product(threads, n, is_wide ? wide : NULL, (const float *)wide, out);
            double rate = 2.0 * (double)n * (double)count / (bench_now() - begin);
            if (rate > best) best = rate;
        }
    }
    free(wide);
    free(out);
    return best;
}

bool bench_cpu_ceilings(int threads, bool quick, bench_ceilings *ceilings, failure *why)
{
    const bench_rates *here = bench_rates_here();
    int repeats = quick ? 3 : 10;
    int64_t rounds = quick ? 1000000 : 4000000;
    *ceilings = (bench_ceilings){
        .bytes = triad_rate(threads, quick ? 1e8 : 4e8, repeats),
        .exponentials = loop_rate(here->exponentials, threads, rounds, repeats),
        .state_steps = loop_rate(here->state_steps, threads, rounds, repeats),
        .flops_f32 = product_rate(threads, false, quick ? 768 : 1536, repeats),
        .flops_f64 = product_rate(threads, true, quick ? 768 : 1536, repeats),
    };
    ceilings->flops_bf16 = ceilings->flops_f16 = ceilings->flops_f32; /* 16-bit data is widened */
    return ceilings->bytes > 0.0 ? true : failure_set(why, "out of memory for the ceilings");
}
