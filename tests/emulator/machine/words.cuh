/* src/cuda/machine/words.cuh for the emulator.  Who loads such a word may do so in a loop: others run meanwhile. */
#ifndef RL_CUDA_MACHINE_WORDS_CUH
#define RL_CUDA_MACHINE_WORDS_CUH

#include <emmintrin.h>
#include <stdint.h>

inline void store_relaxed(unsigned long long *to, unsigned long long word)
{
    __atomic_store_n(to, word, __ATOMIC_RELAXED);
    emulator::progress();
}

/* Processors with AVX move 16 aligned bytes as one. */
inline void store_relaxed(unsigned long long *to, unsigned long long first, unsigned long long second)
{
    if ((uintptr_t)to % 16 != 0) emulator::fail("a pair of words is stored at %p, which is not aligned", (void *)to);
    *(volatile __m128i *)to = _mm_set_epi64x((long long)second, (long long)first);
    emulator::progress();
}

inline void load_relaxed(const uint32_t *from, uint32_t &word)
{
    emulator::poll("a word of global memory");
    word = __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline void load_relaxed(const unsigned long long *from, unsigned long long &word)
{
    emulator::poll("a word of global memory");
    word = __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline void load_relaxed(const unsigned long long *from, unsigned long long &first, unsigned long long &second)
{
    if ((uintptr_t)from % 16 != 0)
        emulator::fail("a pair of words is loaded from %p, which is not aligned", (const void *)from);
    emulator::poll("a pair of words of global memory");
    const __m128i both = *(const volatile __m128i *)from;
    first = (unsigned long long)_mm_cvtsi128_si64(both);
    second = (unsigned long long)_mm_cvtsi128_si64(_mm_unpackhi_epi64(both, both));
}

#endif
