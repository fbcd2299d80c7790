// This is what the programs of a machine do (dszoom_driver_world.h): accesses, and an imitation of the compiled checks
// before them.
#include "coherence/hazard.h"
#include "dszoom_world.h"

namespace multigrain::dszoom::explored {

// --- Golden memory

void World::Impl::loaded(unsigned line, unsigned word, uint64_t value) {
  if (value != self().golden)
    complain(fmt::format("processor {} loads {:#x} from word {} of line {}, where {:#x} was stored last", running,
                         value, word, line, self().golden));
  if (scenario.compares) self().results.push_back(value);
}

void World::Impl::stored(unsigned node, unsigned line, unsigned word, uint64_t value) {
  golden[line][word] = value;
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    if (n == node) continue;
    if ((table_word(n, line).load() & kReadable) != 0)
      complain(fmt::format("F1: a store to line {} while node {} may read it", line, n));
    for (unsigned w = 0; w < kWords; ++w)
      if (frame(n, line)[w] != MG_FINE_FLAG64)
        complain(fmt::format("F2: a store to line {} while node {} has a copy", line, n));
  }
}

// --- Accesses, of which a check has passed

void World::Impl::load_there(unsigned node, unsigned line, unsigned word) {
  uint64_t* const at = frame(node, line) + word;
  before_access(at);
  loaded(line, word, std::atomic_ref(*at).load());
}

void World::Impl::store_there(unsigned node, unsigned line, unsigned word, uint64_t value) {
  uint64_t* const at = frame(node, line) + word;
  before_access(at);
  std::atomic_ref(*at).store(value);
  stored(node, line, word, value);
}

void World::Impl::add_there(unsigned node, unsigned line, unsigned word, uint64_t addend) {
  uint64_t* const at = frame(node, line) + word;
  before_access(at);
  const uint64_t old = std::atomic_ref(*at).fetch_add(addend);
  loaded(line, word, old);
  stored(node, line, word, old + addend);
}

void World::Impl::access_there(unsigned node, unsigned line, const Op& op) {
  if (op.access == Access::kLoadBoth)
    load_there(node, line, op.word);
  else if (op.access == Access::kAdd || op.access == Access::kAddBoth)
    add_there(node, line, op.word, op.value);
  else
    store_there(node, line, op.word, op.value);
}

// --- Compiled checks

uintptr_t World::Impl::address_of(unsigned node, unsigned line) {
  self().line = static_cast<uint8_t>(line);
  return reinterpret_cast<uintptr_t>(nodes[node].memory->region().base()) + offset_of(line);
}

void World::Impl::hazard(uint64_t value, size_t number) {
  if (value == 0 && is(Mutant::kHazardStaysOpen)) return;
  before_access(__multigrain_hazards + number);
  std::atomic_ref<uint64_t>(__multigrain_hazards[number]).exchange(value);
}

bool World::Impl::looks(unsigned node, unsigned line, bool stores) {
  before_access(&table_word(node, line));
  const uint64_t word = table_word(node, line).load();
  return stores ? word == kExclusive : (word & kReadable) != 0;
}

exploring_driver::OrderOfCheck World::Impl::order() const {
  return {.epoch_then_publish = is(Mutant::kEpochThenPublish), .look_then_cache = is(Mutant::kLookThenCache)};
}

template <typename Publish>
void World::Impl::begin_check(unsigned node, Publish&& publish) {
  if (!caches()) return publish();
  exploring_driver::publish_and_read_epoch(nodes[node].hazards->rights_epoch(), self().held_epoch, order(), publish,
                                           [&](const void* at) { before_access(at); });
}

bool World::Impl::passes(unsigned node, unsigned line, bool stores) {
  if (!caches()) return looks(node, line, stores);
  using exploring_driver::Looked;
  const auto look = [&](bool whole) {
    bool all = true;
    for (unsigned l = 0; l < kLines; ++l) {
      if (l != line && (!whole || scenario.caches != Caches::kBothLines || is(Mutant::kCachesAllOfPage))) continue;
      if (looks(node, l, stores)) continue;
      if (l == line) return Looked::kMissing;
      all = false;
    }
    return all ? Looked::kAll : Looked::kHere;
  };
  return exploring_driver::check_and_cache(
      nodes[node].hazards->rights_epoch(), self().held_epoch, page_of(node, line), stores, order(),
      [&](const void* at) { before_access(at); }, look);
}

void World::Impl::check_over() {
  self().held_epoch = kHoldsNoEpoch;
}

bool World::Impl::open(unsigned node, unsigned line) {
  const uint64_t wanted = make_hazard(number_of(line), 1, true);
  bool good = false;
  if (is(Mutant::kStoreWithoutHazard)) {
    if (looks(node, line, true)) return false;
  } else if (is(Mutant::kLookThenPublish)) {
    good = looks(node, line, true);
    hazard(wanted);
  } else {
    begin_check(node, [&] { hazard(wanted); });
    good = passes(node, line, true);
  }
  check_over();
  if (good) return true;
  hazard(0);
  nodes[node].driver->begin_store(address_of(node, line));
  return true;
}

void World::Impl::load(unsigned node, unsigned line, unsigned word) {
  uint64_t* const at = frame(node, line) + word;
  before_access(at);
  uint64_t value = std::atomic_ref(*at).load();
  if (static_cast<uint32_t>(value) == MG_FINE_FLAG32)
    nodes[node].driver->load(address_of(node, line) + word * sizeof value,
                             std::as_writable_bytes(std::span(&value, 1)));
  loaded(line, word, value);
}

void World::Impl::access(unsigned node, unsigned line, const Op& op) {
  if (op.access == Access::kLoad || op.access == Access::kLoadBoth) return load(node, line, op.word);
  const bool opened = open(node, line);
  begin_part(self().part + kOpened);
  access_there(node, line, op);
  if (opened) hazard(0);
}

bool World::Impl::try_begin_both(unsigned node, bool stores, unsigned attempt) {
  const unsigned first_part = 10 * (1 + attempt);
  begin_part(first_part);
  begin_check(node, [&] {
    for (unsigned l = 0; l < kLines; ++l) hazard(make_hazard(number_of(l), 1, stores), l);
  });
  bool good = true;
  for (unsigned l = 0; good && l < (is(Mutant::kLooksAtOneLine) ? 1 : kLines); ++l) {
    begin_part(first_part + 1 + l);
    good = passes(node, l, stores);
  }
  check_over();
  if (good) return true;
  begin_part(first_part + 1 + kLines);
  for (unsigned l = 0; l < kLines; ++l) hazard(0, l);
  return false;
}

bool World::Impl::begin_both(unsigned node, bool stores) {
  if (try_begin_both(node, stores, 0)) return true;
  for (unsigned l = 0; l < kLines; ++l) {
    begin_part(50 + l);
    const uintptr_t begin = address_of(node, l);
    nodes[node].driver->fetch_lines(begin, begin + 1, stores);
  }
  return try_begin_both(node, stores, 1);
}

void World::Impl::batch(unsigned node, const Op& op) {
  const bool opened = begin_both(node, op.access != Access::kLoadBoth);
  for (unsigned l = 0; l < kLines; ++l) {
    begin_part((opened ? 100 : 200) + l);
    if (opened)
      access_there(node, l, op);
    else
      access(node, l, op);
  }
  for (unsigned l = 0; opened && l < kLines; ++l) hazard(0, l);
}

void World::Impl::hold(unsigned node, const Op& op) {
  const auto publish = [&] { hazard(MG_FINE_HAZARD_ALL + MG_FINE_HAZARD_LINE + MG_FINE_HAZARD_STORES); };
  begin_check(node, publish);
  for (unsigned l = 0; l < kLines; ++l) {
    begin_part(20 * (1 + l));
    const bool good = passes(node, l, true);
    begin_part(20 * (1 + l) + (good ? 1 : 2));
    if (!good) {
      check_over();
      hazard(0);
      access(node, l, op);
      begin_part(20 * (1 + l) + 3);
      begin_check(node, publish);
      continue;
    }
    store_there(node, l, op.word, op.value);
  }
  check_over();
  hazard(0);
}

void World::Impl::execute(unsigned node, const Op& op) {
  switch (op.access) {
    case Access::kLoad:
    case Access::kStore:
    case Access::kAdd:
      return access(node, op.line, op);
    case Access::kLoadBoth:
    case Access::kStoreBoth:
    case Access::kAddBoth:
      return batch(node, op);
    case Access::kHoldBoth:
      return hold(node, op);
  }
}

void World::Impl::play() {
  for (const Op& op : scenario.programs[static_cast<size_t>(running)]) {
    execute(self().node, op);
    operation_over();
  }
  self().at = Place::At::kEnd;
  stop();
}

}  // namespace multigrain::dszoom::explored
