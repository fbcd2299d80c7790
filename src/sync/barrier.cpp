// Barriers: carries out the actions of the pure engine in barrier_engine.h, for the processors that call and for the
// messages that come.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "sync/messages.h"
#include "sync/sync.h"

namespace multigrain {
namespace {

constexpr uint32_t kMaxCount = 65535;
// In a barrier's argument, beside its count: it takes whichever threads come.
constexpr uint32_t kForAny = kMaxCount + 1;

uint32_t count_of(const SyncHandle& barrier) {
  return barrier.argument & kMaxCount;
}
constexpr const char* kBarrierDestroyed = "a barrier was used after mg_barrier_destroy; its handle:";

}  // namespace

SyncId Sync::barrier_create(unsigned count) {
  if (count == 0) count = nodes_ * processors_;
  if (count > kMaxCount) die(1, "mg_barrier_create: the count is above 65535:", count);
  return create(SyncKind::kBarrier, count, "mg_barrier_create: too many barriers; a node can have created at a time:")
      .encode();
}

SyncId Sync::barrier_create_for_any(unsigned count) {
  if (count == 0 || count > kMaxCount) die(1, "a barrier's count is not 1 to 65535:", count);
  return create(SyncKind::kBarrier, count | kForAny, "too many barriers; a node can have created at a time:").encode();
}

void Sync::barrier_destroy(SyncId barrier) {
  destroy(barrier, SyncKind::kBarrier, "mg_barrier_destroy: not a barrier (0 is an uninitialised handle):",
          "mg_barrier_destroy: the barrier was destroyed before; its handle:");
}

BarrierPlace Sync::barrier_place_of(const SyncHandle& barrier) const {
  return {self_, manager_of(barrier), nodes_, processors_, options_.barrier_radix, host_.gathers_at_barrier()};
}

// Returns false if the barrier was destroyed.
bool Sync::enter_generation(BarrierRecord& record, const SyncHandle& barrier) {
  if (record.generation > barrier.generation) return false;
  if (record.generation < barrier.generation) {
    if (record.node.busy() || record.counted.busy())
      die(1, "mg_barrier_destroy: processors wait at the barrier; its index:", barrier.index);
    record.node = {};
    record.counted = {};
    record.latest = 0;
    record.generation = barrier.generation;
  }
  return true;
}

// In virtual time an episode goes on at the time of its latest arrival, which need not be the arrival that this
// node heard of last.
void Sync::arrive(BarrierRecord& record) {
  if (virtual_time::on()) record.latest = std::max(record.latest, virtual_time::stamp());
}

Nanoseconds Sync::depart(BarrierRecord& record, const BarrierActions& actions) {
  const bool goes_on = actions.send_up || actions.released || actions.gather || actions.learn;
  return goes_on ? std::exchange(record.latest, Nanoseconds{0}) : 0;
}

void Sync::release_waiters(BarrierRecord& record, Nanoseconds since) {
  const virtual_time::StampFloor floor(since);
  record.event.mark();
  record.rounds.fetch_add(1, std::memory_order_release);
}

void Sync::barrier(SyncId id) {
  const SyncHandle barrier = check(id, SyncKind::kBarrier, "mg_barrier: not a barrier (0 is an uninitialised handle):");
  BarrierRecord& record = find(barriers_, barrier);
  host_.enter(SyncActivity::kBarrier);
  count(kBarriers);
  virtual_time::spend(&MachineCosts::barrier_arrive);
  // The last processor of the node to arrive releases for all of them, so their stores must be visible to it; unless each
  // releases for itself.
  if (options_.own_releases)
    host_.release();
  else
    host_.drain_store_buffer();
  if (barrier.argument == nodes_ * processors_) {
    barrier_of_all(id, barrier, record);
  } else {
    barrier_of_some(id, barrier, record);
  }
  virtual_time::spend(&MachineCosts::barrier_leave);
  virtual_time::spend(&MachineCosts::node_miss);
  virtual_time::left_barrier();
  host_.leave();
}

void Sync::barrier_of_all(SyncId id, const SyncHandle& barrier, BarrierRecord& record) {
  const BarrierPlace place = barrier_place_of(barrier);
  record.guard.lock();
  if (!enter_generation(record, barrier)) die(1, kBarrierDestroyed, id.value);
  const uint32_t round = record.rounds.load(std::memory_order_relaxed);
  if (record.node.arrived() == processors_)
    die(1, "mg_barrier: more threads of a node than it has processors are at a barrier of all processors; its handle:",
        id.value);
  const bool is_first = record.node.arrived() == 0;
  const bool last = record.node.arrive(place);
  if (!is_first) virtual_time::spend(&MachineCosts::node_miss);
  arrive(record);
  const Nanoseconds latest = record.latest;
  record.guard.unlock();
  if (last) {
    virtual_time::advance(latest);
    let_go_deferred();
    host_.release_at_barrier();
  }
  std::optional<PollingScope> polling(fabric_);
  if (last) {
    record.guard.lock();
    const uint32_t episode = record.node.episode();
    const BarrierActions actions = record.node.flushed(place);
    go_on(id, place, record, episode, actions, SendContext::kOrdinary);
  }
  if (last && place.gathers) {
    polling.reset();
    gather_and_learn(id, place, record);
    polling.emplace(fabric_);
  }
  wait_until(*polling, host_.wait_policy(), record.event, [&] {
    host_.help();
    return record.rounds.load(std::memory_order_acquire) != round;
  });
  polling.reset();
  host_.acquire_at_barrier();
}

// Carries out what follows from an arrival at this node, or from what it has heard. Unlocks the record.
void Sync::go_on(SyncId id, const BarrierPlace& place, BarrierRecord& record, uint32_t episode,
                 const BarrierActions& actions, SendContext context) {
  arrive(record);
  const Nanoseconds since = depart(record, actions);
  if (actions.released) release_waiters(record, since);
  call_worker(record, actions, since);
  record.guard.unlock();
  perform(id, place, record, episode, actions, since, context);
}

// The node's last processor does this, because messages are handled by whichever thread polls, which must not wait.
void Sync::call_worker(BarrierRecord& record, const BarrierActions& actions, Nanoseconds since) {
  if (!actions.gather && !actions.learn) return;
  const virtual_time::StampFloor floor(since);
  record.worker.mark();
  record.work.store(actions.gather ? BarrierWork::kGather : BarrierWork::kLearn, std::memory_order_release);
}

// Returns when the node has learnt what it needs, so that its processors may go.
void Sync::gather_and_learn(SyncId id, const BarrierPlace& place, BarrierRecord& record) {
  std::array<NodeId, NodeSet::kCapacity> children;
  for (unsigned i = 0; i < place.children(); ++i) children[i] = place.child(i);
  for (bool is_done = false; !is_done;) {
    wait_until(fabric_, host_.wait_policy(), record.worker, [&] {
      host_.help();
      return record.work.load(std::memory_order_acquire) != BarrierWork::kNone;
    });
    const BarrierWork work = record.work.exchange(BarrierWork::kNone, std::memory_order_relaxed);
    if (work == BarrierWork::kGather)
      host_.gather_at_barrier({children.data(), place.children()});
    else
      host_.learn_at_barrier(place.is_root() ? self_ : place.parent(), place.children() != 0);
    record.guard.lock();
    const uint32_t episode = record.node.episode();
    const BarrierActions actions = work == BarrierWork::kGather ? record.node.gathered(place) : record.node.learned();
    is_done = actions.released;
    go_on(id, place, record, episode, actions, SendContext::kOrdinary);
  }
}

void Sync::perform(SyncId id, const BarrierPlace& place, BarrierRecord& record, uint32_t episode,
                   const BarrierActions& actions, Nanoseconds since, SendContext context) {
  const virtual_time::StampFloor floor(since);
  MessageHeader header;
  header.word[0] = id.value;
  header.extra = episode;
  if (actions.send_up) {
    header.type = sync_message::kBarrierUp;
    fabric_.send(place.parent(), header, context);
  }
  if (actions.released) {
    header.type = sync_message::kBarrierDown;
    for (unsigned i = 0; i < place.children(); ++i) fabric_.send(place.child(i), header, context);
    record.event.notify();
  }
  if (actions.gather || actions.learn) record.worker.notify();
}

void Sync::barrier_of_some(SyncId id, const SyncHandle& barrier, BarrierRecord& record) {
  let_go_deferred();
  host_.release();
  const NodeId manager = manager_of(barrier);
  record.guard.lock();
  if (!enter_generation(record, barrier)) die(1, kBarrierDestroyed, id.value);
  const uint32_t ticket = record.tickets++;
  if (manager == self_) counted_arrival(id, record, count_of(barrier), self_);
  record.guard.unlock();
  std::optional<PollingScope> polling(fabric_);
  if (manager != self_) {
    MessageHeader header;
    header.type = sync_message::kBarrierArrive;
    header.word[0] = id.value;
    fabric_.send(manager, header, SendContext::kOrdinary);
  }
  wait_until(*polling, host_.wait_policy(), record.event,
             [&] { return static_cast<int32_t>(record.departed.load(std::memory_order_acquire) - ticket) > 0; });
  polling.reset();
  host_.acquire_all();
}

// Runs at the manager.
void Sync::counted_arrival(SyncId id, BarrierRecord& record, uint32_t count, NodeId from) {
  arrive(record);
  const virtual_time::StampFloor floor(record.latest);
  record.counted.arrive(count, from, [&](NodeId node, uint16_t waiters) {
    record.guard.assume_held();
    record.latest = 0;
    if (node == self_) {
      record.event.mark();
      record.departed.fetch_add(waiters, std::memory_order_release);
      record.event.notify();
      return;
    }
    MessageHeader header;
    header.type = sync_message::kBarrierDepart;
    header.extra = waiters;
    header.word[0] = id.value;
    fabric_.send(node, header, SendContext::kHandler);
  });
}

// Ends the run unless this message can go the way that it came: along the tree of a barrier of all processors, or
// between a node and the manager of any other barrier.
void Sync::check_sender(const Message& message, const SyncHandle& barrier, const BarrierPlace& place) const {
  const bool of_all = barrier.argument == nodes_ * processors_;
  bool possible = false;
  switch (message.header.type) {
    case sync_message::kBarrierUp:
      for (unsigned i = 0; of_all && i < place.children(); ++i) possible = possible || place.child(i) == message.from;
      break;
    case sync_message::kBarrierDown:
      possible = of_all && !place.is_root() && place.parent() == message.from;
      break;
    case sync_message::kBarrierArrive:
      possible = !of_all && place.is_root();
      break;
    default:
      possible = !of_all && message.from == place.root;
  }
  if (!possible)
    panic("a barrier's message came from the wrong node, or to it (sender, type, handle):", message.from.value,
          message.header.type, message.header.word[0]);
}

void Sync::on_barrier_message(const Message& message) {
  const SyncHandle barrier = check_message(message, SyncKind::kBarrier);
  const SyncId id(message.header.word[0]);
  const BarrierPlace place = barrier_place_of(barrier);
  BarrierRecord& record = find(barriers_, barrier);
  check_sender(message, barrier, place);
  record.guard.lock();
  // A processor that has left the barrier may destroy it while other processors have not heard that they may leave too.
  // So a departure counts whatever has become of the barrier since: tickets go on through the generations, and a
  // manager's messages to one node keep their order.
  if (message.header.type == sync_message::kBarrierDepart) {
    MG_CHECK(message.header.extra <= record.tickets - record.departed.load(std::memory_order_relaxed),
             message.from.value, message.header.extra);
    record.event.mark();
    record.departed.fetch_add(message.header.extra, std::memory_order_release);
    record.guard.unlock();
    record.event.notify();
    return;
  }
  if (!enter_generation(record, barrier)) die(1, kBarrierDestroyed, id.value);
  if (message.header.type == sync_message::kBarrierArrive) {
    if (record.counted.arrived() >= count_of(barrier))
      panic("a barrier is told of more processors than it waits for (sender, handle):", message.from.value, id.value);
    counted_arrival(id, record, count_of(barrier), message.from);
    record.guard.unlock();
    return;
  }
  const uint32_t episode = message.header.extra;
  const BarrierActions actions = message.header.type == sync_message::kBarrierUp ? record.node.on_up(place, episode)
                                                                                 : record.node.on_down(place, episode);
  go_on(id, place, record, episode, actions, SendContext::kHandler);
}

}  // namespace multigrain
