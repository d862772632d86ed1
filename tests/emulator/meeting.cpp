/* Where threads wait for each other: barriers of the block, and what lanes do together. */
#include "meeting.h"

#include <string.h>

#include <algorithm>

namespace emulator
{

enum { WARP = 32, MOST_LANES = 128, BARRIERS = 16 };

static uint32_t bit_of(int index)
{
    return 1u << index % WARP;
}

static int first_of(int count)
{
    return self->rank / count * count;
}

static MeetingPlace &place_of(int count)
{
    Block &block = *self->block;
    return count == WARP ? block.warps[(size_t)self->rank / WARP] : block.groups[(size_t)self->rank / MOST_LANES];
}

void prepare_meetings(Block &block)
{
    block.warps.resize(MOST_THREADS / WARP);
    block.groups.resize(MOST_THREADS / MOST_LANES);
    for (MeetingPlace &place : block.warps) place.open.clear();
    for (MeetingPlace &place : block.groups) place.open.clear();
    for (Barrier &barrier : block.barriers) {
        barrier.arrived = barrier.holding = 0;
        barrier.waiting.clear();
    }
}

/* Lanes of the operation that are not over. */
static int count_lanes(int count, uint32_t lanes)
{
    const Block &block = *self->block;
    const int first = first_of(count), last = std::min(first + count, block.count);
    int found = 0;
    for (int rank = first; rank < last; rank++)
        found += (lanes & bit_of(rank)) != 0 && !block.all[(size_t)rank].is_over;
    return found;
}

static Meeting &find(MeetingPlace &place, int count, uint32_t lanes, Operation operation)
{
    for (Meeting &meeting : place.open)
        if (meeting.lanes == lanes && meeting.operation == operation) return meeting;
    place.open.push_back({});
    Meeting &meeting = place.open.back();
    meeting.operation = operation;
    meeting.lanes = lanes;
    meeting.missing = count_lanes(count, lanes);
    return meeting;
}

/* All have come: does what they came for. */
static void hold(MeetingPlace &place, Meeting &meeting, int count)
{
    const int first = first_of(count);
    if (meeting.operation) meeting.operation(meeting.items);
    for (int k = 0; k < count; k++) {
        if (!meeting.items[k]) continue;
        Thread *thread = &self->block->all[(size_t)(first + k)];
        if (thread != self) wake(thread);
    }
    if (&meeting != &place.open.back()) meeting = place.open.back();
    place.open.pop_back();
}

void meet_lanes(const char *what, int count, uint32_t lanes, void *item, Operation operation)
{
    if (!(lanes & bit_of(self->rank))) fail("%s: the thread is not among the lanes that it names, %08x", what, lanes);
    MeetingPlace &place = place_of(count);
    Meeting &meeting = find(place, count, lanes, operation);
    meeting.items[self->rank % count] = item;
    if (--meeting.missing == 0) {
        hold(place, meeting, count);
        return;
    }
    self->waits_for = what;
    leave();
    self->waits_for = NULL;
}

/* Others need not wait for the running thread. */
static void leave_place(int count)
{
    MeetingPlace &place = place_of(count);
    for (size_t k = place.open.size(); k-- > 0;) {
        Meeting &meeting = place.open[k];
        if (meeting.lanes & bit_of(self->rank) && --meeting.missing == 0) hold(place, meeting, count);
    }
}

void sync_lanes(uint32_t lanes)
{
    meet_lanes("__syncwarp", WARP, lanes, self, NULL);
}

namespace
{

struct Vote {
    bool value;
    uint32_t result;
};

struct Shuffled {
    uint64_t value, result;
    int from;
};

} // namespace

static void vote_all(void **items)
{
    uint32_t result = 0;
    for (int k = 0; k < WARP; k++)
        if (items[k] && ((Vote *)items[k])->value) result |= bit_of(k);
    for (int k = 0; k < WARP; k++)
        if (items[k]) ((Vote *)items[k])->result = result;
}

uint32_t ballot(uint32_t lanes, bool value)
{
    Vote vote = {value, 0};
    meet_lanes("a vote", WARP, lanes, &vote, vote_all);
    return vote.result;
}

/* What is taken from a lane that has not come is undefined: all bits. */
static void shuffle_all(void **items)
{
    for (int k = 0; k < WARP; k++) {
        Shuffled *own = (Shuffled *)items[k];
        if (!own) continue;
        const Shuffled *other = (const Shuffled *)items[own->from];
        own->result = other ? other->value : ~(uint64_t)0;
    }
}

uint64_t shuffle(uint32_t lanes, uint64_t value, int from)
{
    Shuffled own = {value, 0, from};
    meet_lanes("a shuffle", WARP, lanes, &own, shuffle_all);
    return own.result;
}

static bool is_complete(const Barrier &barrier)
{
    return barrier.arrived == (barrier.expected ? barrier.expected : self->block->alive);
}

static int open_barrier(Barrier &barrier)
{
    const int holding = barrier.holding;
    for (Thread *thread : barrier.waiting) {
        thread->outcome = holding;
        wake(thread);
    }
    barrier.waiting.clear();
    barrier.arrived = barrier.holding = 0;
    return holding;
}

int meet_at_barrier(const char *what, int index, int threads, bool value)
{
    if (index < 0 || index >= BARRIERS) fail("%s: there is no barrier %d", what, index);
    Barrier &barrier = self->block->barriers[index];
    if (barrier.arrived > 0 && barrier.expected != threads)
        fail("%s: barrier %d for %d threads, where others come for %d", what, index, threads, barrier.expected);
    barrier.expected = threads;
    barrier.arrived++;
    barrier.holding += value;
    if (is_complete(barrier)) return open_barrier(barrier);
    barrier.waiting.push_back(self);
    self->waits_for = what;
    leave();
    self->waits_for = NULL;
    return self->outcome;
}

void leave_meetings()
{
    leave_place(WARP);
    leave_place(MOST_LANES);
    for (Barrier &barrier : self->block->barriers)
        if (barrier.arrived > 0 && barrier.expected == 0 && is_complete(barrier)) open_barrier(barrier);
}

} // namespace emulator
