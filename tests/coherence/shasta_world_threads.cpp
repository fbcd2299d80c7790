// This says where the threads of the world (shasta_world.h) stop, and what drivers find behind their ports.
#include <algorithm>
#include <csignal>
#include <cstring>

#include "coherence/shasta/inside_protocol.h"
#include "driver_steps.h"
#include "explorer.h"
#include "profile/this_thread.h"
#include "shasta_world.h"

namespace multigrain::shasta::explored {

using exploring::mix;

namespace {

template <typename Scope>
unsigned leave() {
  alignas(Scope) std::byte place[sizeof(Scope)];
  unsigned depth = 0;
  for (; Scope::on(); ++depth) reinterpret_cast<Scope*>(place)->~Scope();
  return depth;
}
template <typename Scope>
void enter(unsigned depth) {
  alignas(Scope) std::byte place[sizeof(Scope)];
  for (; depth > 0; --depth) new (place) Scope;
}

}  // namespace

void World::Impl::run(Thread& thread) {
  running = &thread;
  __multigrain_hazards = thread.hazards;
  set_this_profile(thread.profile);
  enter<InsideProtocol>(thread.inside);
  enter<NoHandlersScope>(thread.elsewhere);
  thread.run();
  thread.inside = leave<InsideProtocol>();
  thread.elsewhere = leave<NoHandlersScope>();
  running = nullptr;
}
void World::Impl::stop(Thread::At at, const void* address) {
  Thread& thread = *running;
  // The actions with the lock held are done.
  if (thread.locked_at != Thread::kNotLocked && !state(thread.node).is_locked()) {
    if (!thread.keeps) thread.records.resize(thread.locked_at);
    thread.locked_at = Thread::kNotLocked;
  }
  thread.at = at;
  thread.address = address;
  thread.stop();
}
bool World::Impl::is_epoch(const void* address) const {
  const auto* const at = static_cast<const uint64_t*>(address);
  return address == &nodes[running->node].hazards->rights_epoch() ||
         (at >= cached.front().data() && at < cached.back().data() + kMaxBlocks);
}

uint64_t World::Impl::name_of_epoch(unsigned node, uint64_t value) const {
  std::vector<uint64_t>& known = epoch[node];
  const auto found = std::ranges::find(known, value & ~uint64_t{3});
  const auto number = static_cast<uint64_t>(found - known.begin());
  if (found == known.end()) known.push_back(value & ~uint64_t{3});
  return number << 2 | (value & 3);
}

bool World::Impl::is_watched(const void* address) const {
  const NodeOf& node = nodes[running->node];
  const auto* const at = static_cast<const std::byte*>(address);
  if (is_epoch(address)) return scenario.caches;
  const std::byte* const frames = node.memory->region().alias(PageId(0));
  if (at >= frames && at < frames + ExploredMemory::kRegionSize) {
    const auto offset = static_cast<uint64_t>(at - frames);
    for (unsigned b = 0; b < blocks(); ++b)
      for (unsigned w = 0; w < kMaxWords; ++w)
        if (offset == offset_of(b, w)) return true;
    return false;
  }
  const std::span<std::byte> table = node.table->bytes();
  if (at >= table.data() && at < table.data() + table.size()) {
    for (unsigned b = 0; b < blocks(); ++b)
      for (unsigned l = 0; l < scenario.lines; ++l)
        if (address == &table_word(running->node, b * (kPage >> kShift) + l)) return true;
    return false;
  }
  const std::byte* const words = node.memory->words().data();
  if (at >= words && at < words + words::kBytes) {
    const auto* const first = words + words::kHazards + words::kBytesPerHazardSlot;
    return static_cast<size_t>(at - first) % words::kBytesPerHazardSlot < kHazards * sizeof(uint64_t);
  }
  const DriverState driver = state(running->node);
  for (unsigned b = 0; b < blocks(); ++b) {
    if (address == &arrived[running->node][b]) return true;
    if (address == &driver.page(b).touched) return !driver.page(b).touched.load();
    if (address == &driver.page(b).home_plus_one) return driver.page(b).home_plus_one.load() == 0;
    if (address == &nodes[running->node].homes->known()[b]) return nodes[running->node].homes->known()[b] == 0;
    if (address == &nodes[running->node].rights.granted(b)) return nodes[running->node].rights.granted(b) == 0;
  }
  // These are records of pages that no program uses.
  if (address != &driver.outstanding() && address != &driver.deferred())
    return at >= reinterpret_cast<const std::byte*>(claimed.data()) &&
           at < reinterpret_cast<const std::byte*>(claimed.data() + claimed.size());
  return address != &driver.outstanding() || scenario.machine.model == Model::kRc;
}

void World::Impl::before_access(const void* address, size_t bytes) {
  if (running == nullptr || !is_watched(address)) return;
  // No thread stops with the lock held, because what it sees then does not count afterwards.
  if (scenario.whole_transitions && state(running->node).is_locked()) return;
  if (!scenario.whole_transitions) stop(Thread::At::kStep, address);
  Seen record{.what = mix(1 + reinterpret_cast<uintptr_t>(address)), .result = 0};
  std::memcpy(&record.result, address, bytes);
  if (is_epoch(address)) record.result = name_of_epoch(running->node, record.result);
  running->records.push_back(record);
}

bool World::Impl::is_free(const void* address) {
  auto& lock = *static_cast<SpinLock*>(const_cast<void*>(address));
  if (!lock.try_lock()) return false;
  lock.unlock();
  return true;
}

unsigned World::Impl::ways(const Thread& thread) const {
  switch (thread.at) {
    case Thread::At::kStep:
      return 1;
    case Thread::At::kLock:
      return is_free(thread.address) ? 1 : 0;
    case Thread::At::kChange:
      return *static_cast<const uint64_t*>(thread.address) != thread.seen ? 1 : 0;
    case Thread::At::kAnswer:
      return *static_cast<const uint64_t*>(thread.address) != 0 ? 1 : 0;
    case Thread::At::kMessage:
      return state(thread.node).is_woken(thread.number) ? 1 : 0;
    case Thread::At::kIdle: {
      if (thread.role == Thread::Role::kService) return nodes[thread.node].service_wanted ? 1 : 0;
      const size_t messages = nodes[thread.node].from[thread.number].size();
      return static_cast<unsigned>(std::min<size_t>(messages, is(Fault::kMessagesOvertake) ? 2 : 1));
    }
    case Thread::At::kEnd:
      return 0;
  }
  return 0;
}

void stop_at(const void* address, size_t bytes) {
  if (g_world != nullptr) g_world->before_access(address, bytes);
}

bool ask_for_home(NodeId asker, PageId page, const uint64_t& known) {
  const unsigned arbiter = g_world == nullptr ? 0 : g_world->node_count() - 1;
  if (g_world == nullptr || g_world->running == nullptr || asker.value == arbiter) return false;
  g_world->send_beside(kHomeRequest, arbiter, page.value);
  g_world->stop(Thread::At::kAnswer, &known);
  stop_at(&known, sizeof known);
  return true;
}

void LinkFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice,
                      SendContext, Nanoseconds) {
  Packet& packet = g_world->nodes[to.value].from[self().value].emplace_back(self(), header);
  MG_CHECK(payload.size() <= packet.bytes.size());
  std::ranges::copy(payload, packet.bytes.begin());
  packet.size = payload.size();
}

unsigned LinkFabric::poll() {
  g_world->stop(Thread::At::kMessage, nullptr);
  return 1;
}

void LinkFabric::wake_service() {
  if (g_world->is(Fault::kServiceIsNotWoken)) return;
  g_world->nodes[self().value].service_wanted = true;
}

}  // namespace multigrain::shasta::explored

namespace multigrain::exploring_driver {

using shasta::explored::g_world;
using shasta::explored::Thread;

void step(const void* address, size_t bytes) {
  shasta::explored::stop_at(address, bytes);
}

void step_of_lock(const void* lock) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  if (g_world->scenario.whole_transitions) {
    if (!g_world->is_free(lock)) g_world->stop(Thread::At::kLock, lock);
    return;
  }
  g_world->stop(Thread::At::kLock, lock);
  Thread& thread = *g_world->running;
  if (lock != &g_world->state(thread.node).lock()) return;
  // A thread's actions with the lock held follow from how it found the tables.
  shasta::explored::Seen record{.what = 2, .result = 0};
  thread.locked_at = thread.records.size();
  g_world->state(thread.node).serialise(g_world->blocks(), [&](uint64_t value) {
    record.result = exploring::mix(record.result ^ value) + 0x9e3779b97f4a7c15u;
  });
  thread.records.push_back(record);
}

void step_of_change(const uint64_t* address, uint64_t seen) {
  if (g_world == nullptr || g_world->running == nullptr) return;
  g_world->running->seen = seen;
  g_world->stop(Thread::At::kChange, address);
}

}  // namespace multigrain::exploring_driver
