#include "triad.h"

#include <stdlib.h>

#include "rates.h"

enum { PAGE = 4096, LINE = 8 }; /* bytes; doubles */

static double *array_of(int64_t count)
{
    void *memory;
    return posix_memalign(&memory, PAGE, (size_t)count * sizeof(double)) == 0 ? memory : NULL;
}

/* A thread's share begins on a line. */
static int64_t share_begin(const bench_triad *made, int thread)
{
    if (thread == made->threads) return made->count;
    return made->count / LINE * thread / made->threads * LINE;
}

static void touch(const bench_triad *made)
{
#pragma omp parallel for num_threads(made->threads) schedule(static, 1)
    for (int thread = 0; thread < made->threads; thread++) {
        for (int64_t i = share_begin(made, thread); i < share_begin(made, thread + 1); i++) {
            made->a[i] = 0.0;
            made->b[i] = 1.0;
            made->c[i] = (double)i;
        }
    }
}

bool bench_triad_open(bench_triad *made, double bytes, int threads, const char *isa, failure *why)
{
    int64_t count = (int64_t)(bytes / (3 * sizeof(double))) + 1;
    *made = (bench_triad){.threads = threads, .count = count, .isa = isa};
    made->a = array_of(count);
    made->b = array_of(count);
    made->c = array_of(count);
    if (made->a && made->b && made->c) {
        touch(made);
        return true;
    }
    bench_triad_close(made);
    return failure_set(why, "out of memory for the triad");
}

void bench_triad_close(bench_triad *made)
{
    free(made->a);
    free(made->b);
    free(made->c);
    *made = (bench_triad){0};
}

static void run(const bench_triad *made, triad_loop *loop)
{
#pragma omp parallel for num_threads(made->threads) schedule(static, 1)
    for (int thread = 0; thread < made->threads; thread++) {
        int64_t begin = share_begin(made, thread), end = share_begin(made, thread + 1);
        loop(made->a + begin, made->b + begin, made->c + begin, end - begin);
    }
}

bool bench_triad_run(void *triad, failure *why)
{
    (void)why;
    const bench_triad *made = triad;
    run(made, bench_rates_of(made->isa)->triad);
    return true;
}

bool bench_triad_run_streaming(void *triad, failure *why)
{
    (void)why;
    const bench_triad *made = triad;
    run(made, bench_rates_of(made->isa)->streaming_triad);
    return true;
}
