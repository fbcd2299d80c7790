// This has compiled checks as docs/internals/fine-grain.md describes them, and faults, in the world of shasta_world.h,
// and the threads that go through them.
#include <array>
#include <atomic>
#include <span>

#include "caching_check.h"
#include "shasta_world.h"

namespace multigrain::shasta::explored {

void World::Impl::fault_in(unsigned node, unsigned block) {
  while (true) {
    before_access(&nodes[node].rights.granted(block));
    if (nodes[node].rights.granted(block) != 0) return;
    MG_CHECK(nodes[node].driver->on_fault(PageId(block), false));
  }
}

void World::Impl::fault_in_page(unsigned node, unsigned block) {
  const unsigned home = scenario.machine.homes[block];
  uint64_t& here = arrived[node][block];
  if (node == home) return;
  before_access(&here);
  if (here != 0) return;
  send_beside(kPageRequest, home, block);
  stop(Thread::At::kAnswer, &here);
}

void World::Impl::send_beside(Beside type, unsigned to, uint64_t page, uint64_t value) const {
  MessageHeader header;
  header.type = type;
  header.word = {page, value, 0};
  nodes[running->node].fabric->send(NodeId(static_cast<uint16_t>(to)), header, SendContext::kHandler);
}

void World::Impl::handle_beside(const multigrain::Message& message) {
  const uint64_t page = message.header.word[0];
  const NodeOf& node = nodes[running->node];
  switch (static_cast<Beside>(message.header.type)) {
    case kPageRequest:
      return send_beside(kPageAnswer, message.from.value, page);
    case kPageAnswer:
      before_access(&arrived[running->node][page]);
      arrived[running->node][page] = 1;
      return;
    case kHomeRequest:
      return send_beside(kHomeAnswer, message.from.value, page, node.homes->claim_for(message.from, PageId(page)));
    case kHomeAnswer:
      return node.homes->learn(PageId(page), message.header.word[1]);
  }
}

uint64_t* World::Impl::touch(unsigned node, const Access& access) {
  if ((scenario.pages >> access.block & 1) != 0)
    fault_in_page(node, access.block);
  else
    fault_in(node, access.block);
  uint64_t* const at = frame(node, access.block, access.word);
  // This is the place between a check and its access, which does not depend on how the check passed.
  if (scenario.whole_transitions && has_hazard(*running)) {
    running->records.clear();
    stop(Thread::At::kStep, at);
  }
  before_access(at);
  return at;
}

void World::Impl::hazard(uint64_t value, size_t number) {
  before_access(__multigrain_hazards + number);
  std::atomic_ref<uint64_t>(__multigrain_hazards[number]).exchange(value);
}

bool World::Impl::looks(unsigned node, uint64_t line, bool writable) {
  before_access(&table_word(node, line));
  const uint64_t now = table_word(node, line).load();
  return writable ? now == kExclusive : (now & kReadable) != 0;
}

bool World::Impl::try_begin_store(unsigned node, const Access& access) {
  const uint64_t line = line_of(access);
  const uint64_t wanted = make_hazard(line, 1, true);
  bool passes;
  if (is(Fault::kStoreWithoutHazard)) {
    passes = looks(node, line, true);
  } else if (is(Fault::kLookThenPublish)) {
    passes = looks(node, line, true);
    hazard(wanted);
  } else {
    hazard(wanted);
    passes = looks(node, line, true);
  }
  if (!passes && __multigrain_hazards[0] != 0) hazard(0);
  return passes;
}

void World::Impl::close() {
  if (__multigrain_hazards[0] != 0) hazard(0);
}

void World::Impl::store(unsigned node, const Access& access) {
  const uint64_t value = access.value;
  if (!try_begin_store(node, access) &&
      nodes[node].driver->store(address_of(node, access), std::as_bytes(std::span(&value, 1))))
    return;
  store_there(node, access);
  close();
}

void World::Impl::load(unsigned node, const Access& access) {
  uint64_t value = std::atomic_ref(*touch(node, access)).load();
  if (static_cast<uint32_t>(value) == MG_FINE_FLAG32)
    nodes[node].driver->load(address_of(node, access), std::as_writable_bytes(std::span(&value, 1)));
  running->registers[access.reg] = static_cast<programs::Value>(value);
}

bool World::Impl::try_open_known(unsigned node, const Access& access) {
  using exploring_driver::Looked;
  std::atomic<uint64_t>& rights_epoch = nodes[node].hazards->rights_epoch();
  const auto stop_before = [&](const void* at) { before_access(at); };
  uint64_t seen = 0;
  exploring_driver::publish_and_read_epoch(
      rights_epoch, seen, {}, [&] { hazard(make_hazard(line_of(access), 1, true)); }, stop_before);
  const bool passes = exploring_driver::check_and_cache(
      rights_epoch, seen, cached[node][access.block], true, {}, stop_before,
      [&](bool) { return looks(node, line_of(access), true) ? Looked::kAll : Looked::kMissing; });
  if (!passes) hazard(0);
  return passes;
}

void World::Impl::add(unsigned node, const Access& access) {
  if (!(scenario.caches ? try_open_known(node, access) : try_begin_store(node, access)))
    nodes[node].driver->begin_store(address_of(node, access));
  const uint64_t old = std::atomic_ref(*touch(node, access)).fetch_add(access.value);
  running->registers[access.reg] = static_cast<programs::Value>(old);
  close();
}

void World::Impl::access_unchecked(unsigned node, const Access& access) {
  uint64_t* const at = touch(node, access);
  if (access.stores)
    std::atomic_ref(*at).store(access.value);
  else
    running->registers[access.reg] = static_cast<programs::Value>(std::atomic_ref(*at).load());
}

void World::Impl::come_to_next_place() const {
  ++running->place;
  if (scenario.whole_transitions) running->records.clear();
}

void World::Impl::batch(unsigned node, const Op& op) {
  const std::array<const Access*, 2> accesses = {&op.first, &op.second};
  for (unsigned attempt = 0; attempt < 2; ++attempt) {
    for (const Access* access : accesses) {
      come_to_next_place();
      nodes[node].driver->fetch_lines(address_of(node, *access), address_of(node, *access) + 1, access->stores);
    }
    for (size_t i = 0; i < accesses.size(); ++i) hazard(make_hazard(line_of(*accesses[i]), 1, accesses[i]->stores), i);
    bool passes = true;
    for (const Access* access : accesses) passes = passes && looks(node, line_of(*access), access->stores);
    for (const Access* access : accesses) {
      come_to_next_place();
      if (passes) access_unchecked(node, *access);
    }
    for (size_t i = 0; i < accesses.size(); ++i) hazard(0, i);
    if (passes) return;
  }
  for (const Access* access : accesses) {
    come_to_next_place();
    if (access->stores)
      store(node, *access);
    else
      load(node, *access);
  }
}

void World::Impl::held(unsigned node, const Op& op) {
  const uint64_t all = make_hazard(0, 1, true) | MG_FINE_HAZARD_ALL;
  hazard(all, 1);
  for (const Access* access : {&op.first, &op.second}) {
    if (!access->stores) {
      const uint64_t value = std::atomic_ref(*touch(node, *access)).load();
      running->registers[access->reg] = static_cast<programs::Value>(value);
      if (static_cast<uint32_t>(value) != MG_FINE_FLAG32) continue;
      hazard(0, 1);
      load(node, *access);
    } else {
      if (looks(node, line_of(*access), true)) {
        store_there(node, *access);
        continue;
      }
      hazard(0, 1);
      store(node, *access);
    }
    hazard(all, 1);
  }
  hazard(0, 1);
}

void World::Impl::execute(const Op& op) {
  const unsigned node = running->node;
  running->keeps = op.type == OpType::kBatch && !scenario.whole_transitions;
  switch (op.type) {
    case OpType::kLoad:
      return load(node, op.first);
    case OpType::kStore:
      return store(node, op.first);
    case OpType::kAdd:
      return add(node, op.first);
    case OpType::kBatch:
      return scenario.held ? held(node, op) : batch(node, op);
    case OpType::kPrefetch:
      return nodes[node].driver->prefetch_exclusive(address_of(node, op.first));
    case OpType::kFence: {
      const std::atomic<uint64_t>* const outstanding = nodes[node].driver->outstanding();
      if (outstanding == nullptr) return;
      before_access(outstanding);
      if (outstanding->load() != 0) nodes[node].driver->fence();
      return;
    }
  }
}

void World::Impl::operation_over() {
  running->place = 0;
  running->records.clear();
  running->locked_at = Thread::kNotLocked;
}

void World::Impl::play() {
  Thread& thread = *running;
  switch (thread.role) {
    case Thread::Role::kProcessor:
      for (const Op& op : scenario.machine.programs[thread.program]) {
        if (scenario.whole_transitions) stop(Thread::At::kStep, nullptr);
        execute(op);
        operation_over();
        ++thread.pc;
      }
      break;
    case Thread::Role::kHandler:
      while (true) {
        stop(Thread::At::kIdle, nullptr);
        nodes[thread.node].fabric->handle(thread.packet);
        operation_over();
        thread.packet = {};
      }
    case Thread::Role::kService:
      while (true) {
        stop(Thread::At::kIdle, nullptr);
        nodes[thread.node].service_wanted = false;
        nodes[thread.node].driver->serve();
        operation_over();
      }
  }
  stop(Thread::At::kEnd, nullptr);
  panic("a program goes on after its end");
}

}  // namespace multigrain::shasta::explored
