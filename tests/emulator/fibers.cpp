/* Threads of a block as fibers of the thread of the host that runs the block, and the order in which they run. */
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "cluster.h"
#include "meeting.h"

namespace emulator
{

__thread Thread *self __attribute__((tls_model("initial-exec")));

namespace
{

enum {
    STACK_BYTES = 128 << 10,
    SLACK = 1024,  /* behind a block's shared memory; must be as it was when the block ends */
    PATIENCE = 20, /* seconds without any progress */
    CANARY = 0x5a
};

std::atomic<uint64_t> events; /* of all blocks, some of them */

/* What a thread of the host keeps from block to block. */
struct Host {
    char *stacks, *shared;
    Block block;
};

char *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) perror("emulator: no memory for stacks"), abort();
    return (char *)memory;
}

Host &host()
{
    static thread_local Host *own;
    if (!own) {
        own = new Host();
        own->stacks = reserve((size_t)STACK_BYTES * MOST_THREADS);
        own->shared = reserve(MOST_SHARED + SLACK);
    }
    return *own;
}

} // namespace

/* Leaves one stack for another.  Registers that a call keeps are on the stack that is left. */
extern "C" void emulator_switch(void **left, void *entered);
asm(".text\n"
    ".type emulator_switch, @function\n"
    "emulator_switch:\n\t"
    "push %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t"
    "mov %rsp, (%rdi)\n\t"
    "mov %rsi, %rsp\n\t"
    "pop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbx\n\tpop %rbp\n\t"
    "ret\n"
    ".size emulator_switch, .-emulator_switch\n");

static uint64_t draw(Block &block)
{
    block.random ^= block.random << 13;
    block.random ^= block.random >> 7;
    block.random ^= block.random << 17;
    return block.random;
}

/* The next thread: the one that waited longest, or any. */
static Thread *next_thread(Block &block)
{
    Thread *&front = block.queue[block.first];
    if (seed()) std::swap(front, block.queue[(block.first + draw(block) % block.queued) % MOST_THREADS]);
    Thread *thread = front;
    block.first = (block.first + 1) % MOST_THREADS;
    block.queued--;
    return thread;
}

static bool is_stuck(const Block &block)
{
    return block.queued == 0 || block.idle > 2 * block.queued;
}

/* To the next thread, or where none gets on to run_block. */
void leave()
{
    Thread *const left = self;
    Block &block = *left->block;
    if (is_stuck(block)) {
        emulator_switch(&left->stack, block.scheduler);
    } else {
        self = next_thread(block);
        if (self != left) emulator_switch(&left->stack, self->stack);
    }
}

void wake(Thread *thread)
{
    Block &block = *thread->block;
    block.queue[(block.first + block.queued++) % MOST_THREADS] = thread;
    if (++block.wakes % 1024 == 0) events.fetch_add(1, std::memory_order_relaxed);
    if (block.idle) progress();
}

void progress()
{
    Block &block = *self->block;
    if (block.idle) events.fetch_add(1, std::memory_order_relaxed);
    block.idle = 0;
}

void poll(const char *what)
{
    Block &block = *self->block;
    self->waits_for = what;
    block.queue[(block.first + block.queued++) % MOST_THREADS] = self;
    block.idle++;
    leave();
    self->waits_for = NULL;
}

bool is_early()
{
    return seed() && draw(*self->block) >> 32 & 1;
}

/* Prints ranges of threads that wait for the same. */
static void print_waiting(const Block &block)
{
    for (int first = 0, last; first < block.count; first = last) {
        const char *what = block.all[(size_t)first].is_over ? "over" : block.all[(size_t)first].waits_for;
        for (last = first + 1; last < block.count; last++) {
            const Thread &next = block.all[(size_t)last];
            if ((next.is_over ? "over" : next.waits_for) != what) break;
        }
        fprintf(stderr, "  threads %d to %d: %s\n", first, last - 1, what ? what : "can run");
    }
}

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "emulator: ");
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (self) {
        const Block &block = *self->block;
        fprintf(stderr, "\n  %s\n  block %u,%u,%u, thread %d of %d, seed %lu\n", block.launch->known->name,
                block.place.x, block.place.y, block.place.z, self->rank, block.count, seed());
        print_waiting(block);
    }
    fflush(NULL);
    abort();
}

/* Of kernels alone: others' faults go on to what was there before. */
static struct sigaction fault_of_others;

static void tell_fault(int signal, siginfo_t *about, void *)
{
    if (self) fail("a thread touches memory that is not there, at %p", about->si_addr);
    sigaction(signal, &fault_of_others, NULL);
}

static void watch_faults()
{
    struct sigaction action = {};
    action.sa_sigaction = tell_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &fault_of_others);
}

static void run_thread()
{
    const Launch &launch = *self->block->launch;
    launch.known->call(launch.kernel, launch.arguments);
    if (!self->stores.empty()) fail("a thread ended before its bulk stores had read shared memory");
    if (!self->products.empty()) fail("a thread ended before its products were done");
    self->is_over = true;
    self->block->alive--;
    events.fetch_add(1, std::memory_order_relaxed);
    progress();
    leave_meetings();
    leave();
}

static char *stack_of(int rank)
{
    return host().stacks + (size_t)rank * STACK_BYTES;
}

/* A stack from which emulator_switch returns into run_thread.  Tops are spread over the sets of the caches. */
static void *prepare_stack(int rank)
{
    char *bottom = stack_of(rank), *top = bottom + STACK_BYTES - (size_t)(rank * 7 % 61 + 1) * 64;
    memset(bottom, CANARY, 64);
    void **place = (void **)top - 8;
    memset(place, 0, 8 * sizeof *place);
    place[6] = (void *)run_thread;
    return place;
}

static void prepare_thread(Block &block, Thread &thread, int rank)
{
    thread.rank = rank;
    thread.block = &block;
    thread.place.x = (unsigned)rank % block.threads.x;
    thread.place.y = (unsigned)rank / block.threads.x % block.threads.y;
    thread.place.z = (unsigned)rank / block.threads.x / block.threads.y;
    thread.stack = prepare_stack(rank);
    thread.waits_for = NULL;
    thread.is_over = false;
    thread.copy_groups = thread.store_groups = thread.product_groups = 0;
    thread.copies.clear();
    thread.stores.clear();
    thread.products.clear();
    block.queue[(size_t)rank] = &thread;
}

static void prepare_block(Block &block, const Launch &launch, unsigned long index)
{
    block.launch = &launch;
    block.threads = launch.threads;
    block.blocks = launch.blocks;
    block.place.x = (unsigned)(index % launch.blocks.x);
    block.place.y = (unsigned)(index / launch.blocks.x % launch.blocks.y);
    block.place.z = (unsigned)(index / launch.blocks.x / launch.blocks.y);
    block.count = block.alive = (int)(launch.threads.x * launch.threads.y * launch.threads.z);
    block.random = (seed() * 0x9e3779b97f4a7c15u) ^ ((index + 1) * 0xbf58476d1ce4e5b9u);
    block.shared = host().shared;
    memset(block.shared, 0xff, launch.shared + SLACK);
    if (block.all.size() < (size_t)block.count) block.all.resize((size_t)block.count);
    block.first = 0;
    block.idle = 0;
    block.queued = (unsigned)block.count;
    block.loads.clear();
    for (int rank = 0; rank < block.count; rank++) prepare_thread(block, block.all[(size_t)rank], rank);
    prepare_meetings(block);
}

/* All threads that can run poll: another block has to do something. */
static void rest(Block &block, unsigned *rests)
{
    static __thread uint64_t seen;
    static __thread time_t since;
    block.idle = 0;
    if (++*rests < 64)
        sched_yield();
    else
        usleep(50);
    const uint64_t now = events.load(std::memory_order_relaxed);
    const time_t seconds = time(NULL);
    if (*rests == 1 || now != seen) {
        seen = now;
        since = seconds;
    } else if (seconds - since > PATIENCE) {
        fail("nothing has happened for %d seconds", PATIENCE);
    }
}

static void check_memory(const Block &block)
{
    for (int rank = 0; rank < block.count; rank++)
        if (stack_of(rank)[0] != CANARY) fail("a thread's stack of %d bytes is too small", STACK_BYTES);
    for (size_t k = 0; k < SLACK; k++)
        if (block.shared[block.launch->shared + k] != (char)0xff)
            fail("byte %zu behind the block's %zu bytes of shared memory was written", k, block.launch->shared);
    if (!block.loads.empty()) fail("a block ended before tiles that it loads had arrived");
}

void run_block(const Launch &launch, unsigned long index)
{
    Block &block = host().block;
    unsigned rests = 0;
    static std::once_flag watched;
    std::call_once(watched, watch_faults);
    prepare_block(block, launch, index);
    enter_cluster(block, index);
    self = &block.all[0];
    while (block.alive > 0) {
        if (block.queued == 0) fail("no thread of a block can go on");
        if (is_stuck(block)) rest(block, &rests);
        self = next_thread(block);
        emulator_switch(&block.scheduler, self->stack);
    }
    leave_cluster(block);
    check_memory(block);
    self = NULL;
}

} // namespace emulator
