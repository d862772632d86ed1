/* The device: threads of the host on which blocks run, in the order of a launch, as many at a time as fit. */
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "meeting.h"

namespace emulator
{

namespace
{

enum { USUAL_MULTIPROCESSORS = 132 };

/* Never torn down: its threads wait when the process ends. */
struct Device {
    std::mutex mutex, launching;
    std::condition_variable begins, ends;
    const Launch *launch;
    unsigned long next, total; /* blocks */
    unsigned started, places, working;
};

Device &device()
{
    static Device *device = new Device();
    return *device;
}

unsigned long number_from(const char *name, unsigned long usual)
{
    const char *text = getenv(name);
    return text && *text ? strtoul(text, NULL, 10) : usual;
}

/* Takes blocks until none is left. */
void work(Device &d, std::unique_lock<std::mutex> &lock)
{
    d.places--;
    d.working++;
    for (bool first = true; d.next < d.total; first = false) {
        const unsigned long index = d.next++;
        const Launch &launch = *d.launch;
        lock.unlock();
        if (first) poison_shared(launch.kernel);
        run_block(launch, index);
        lock.lock();
    }
    if (--d.working == 0) d.ends.notify_all();
}

void serve()
{
    Device &d = device();
    std::unique_lock<std::mutex> lock(d.mutex);
    for (;;) {
        d.begins.wait(lock, [&] { return d.places > 0 && d.next < d.total; });
        work(d, lock);
    }
}

} // namespace

int multiprocessors()
{
    static const int count = (int)number_from("RILL_EMULATOR_SMS", USUAL_MULTIPROCESSORS);
    return count;
}

size_t most_shared()
{
    static const size_t bytes = number_from("RILL_EMULATOR_SHARED", MOST_SHARED >> 10) << 10;
    return bytes < MOST_SHARED ? bytes : MOST_SHARED;
}

unsigned long seed()
{
    static const unsigned long drawn = number_from("RILL_EMULATOR_SEED", 0);
    return drawn;
}

int blocks_together(unsigned threads, size_t shared)
{
    const size_t of_system = 1024; /* bytes of shared memory that a block takes for the system */
    return (int)std::min<size_t>(
        {MULTIPROCESSOR_BLOCKS, MULTIPROCESSOR_THREADS / threads, MULTIPROCESSOR_SHARED / (shared + of_system)});
}

/*
 * More threads than the host has cores add nothing but memory; a few more than one let blocks wait for each other.
 * Kernels may count on the blocks ahead of one that runs, as on a GPU, but not on those behind it; only the first
 * four may, on the one that comes next.
 */
void run(const Launch &launch)
{
    Device &d = device();
    const unsigned most = std::max({6u, 2 * std::thread::hardware_concurrency(), launch.cluster});
    const unsigned fit =
        (unsigned)(multiprocessors() *
                   blocks_together(launch.threads.x * launch.threads.y * launch.threads.z, launch.shared));
    std::lock_guard<std::mutex> launching(d.launching);
    std::unique_lock<std::mutex> lock(d.mutex);
    d.launch = &launch;
    d.next = 0;
    d.total = (unsigned long)launch.blocks.x * launch.blocks.y * launch.blocks.z;
    d.places = (unsigned)std::min<unsigned long>({most, fit, d.total});
    for (; d.started < d.places; d.started++) std::thread(serve).detach();
    d.begins.notify_all();
    d.ends.wait(lock, [&] { return d.next == d.total && d.working == 0; });
    d.total = d.next = 0;
}

} // namespace emulator
