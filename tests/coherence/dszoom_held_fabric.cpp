#include "dszoom_held_fabric.h"

#include "dszoom_world.h"

namespace multigrain::dszoom::explored {

Completion HeldFabric::issue(Record record, NodeId at, SegmentId segment, uint64_t offset) {
  MG_CHECK(g_world != nullptr && g_world->self().node == self().value, self().value);
  Processor& fibre = g_world->self();
  record.at = at;
  record.segment = segment;
  record.offset = offset;
  record.id = next_id_++;
  record.what = mix(mix(mix(2 + static_cast<uint64_t>(record.kind), at.value), static_cast<uint64_t>(segment)), offset);
  if (record.is_swap_of_epoch())
    MG_CHECK(g_world->caches() && offset == words::kRightsEpoch, offset);
  else
    record.what = mix(record.what, record.value);
  if (record.is_scan()) record.known_before = g_world->state(fibre.node).known_epoch(at.value);
  if (!record.is_unlock()) g_world->has_no_hazard("an operation");
  // This is the first operation of the next step of the miss: the driver has learnt all that the step before has
  // brought.
  const bool is_first =
      std::ranges::all_of(fibre.records, [](const Record& r) { return r.done || r.nobody_waits || r.is_unlock(); });
  if (is_first) fibre.forget();
  if (record.kind == Kind::kSwap && record.value == kLocked && fibre.buffer != nullptr)
    std::memset(fibre.buffer, 0, kLines * kLineBytes);
  fibre.records.push_back(record);
  return {record.id};
}

uint64_t HeldFabric::last_swap(NodeId at) {
  uint64_t last = 0;
  for (const Record& record : g_world->self().records)
    if (record.kind == Kind::kSwap && record.at == at && !record.done) last = record.id;
  return last;
}

bool HeldFabric::scan(Record& record) {
  const Processor* reader = nullptr;
  for (const auto& fibre : g_world->fibres)
    for (const Record& each : fibre->records)
      if (&each == &record) reader = fibre.get();
  const auto words_of = [&](uint64_t offset, uint64_t& word) {
    const std::span<std::byte> to = record.to.subspan(offset, sizeof word);
    inner().get(record.at, record.segment, record.offset + offset, to);
    std::memcpy(&word, to.data(), sizeof word);
    return to;
  };
  uint64_t word = 0;
  if (record.moved == 0) {
    std::ranges::fill(record.to, std::byte{0});
    words_of(0, word);  // the number of slots
  }
  unsigned hazards = 0;
  for (const auto& fibre : g_world->fibres)
    if (fibre->node == record.at.value) hazards += g_world->hazards_used;
  const unsigned units = hazards + 1;
  const unsigned unit = record.moved++;
  if (unit == (record.epoch_first ? 0 : hazards)) {
    const std::span<std::byte> epoch = words_of(words::kRightsEpoch - words::kHazards, word);
    const bool even = (word & MG_FINE_EPOCH_CACHED) == 0;
    if (is(Mutant::kSeesNoEpoch) || (is(Mutant::kOneEvenValue) && even)) word = 0;
    std::memcpy(epoch.data(), &word, sizeof word);
    record.value = word;
    record.has_epoch = true;
  } else {
    unsigned skip = record.epoch_first ? unit - 1 : unit;
    for (const auto& fibre : g_world->fibres) {
      if (fibre->node != record.at.value) continue;
      if (skip >= g_world->hazards_used) {
        skip -= g_world->hazards_used;
        continue;
      }
      const std::span<std::byte> hazard =
          words_of((1 + fibre->slot) * words::kBytesPerHazardSlot + skip * sizeof word, word);
      if (is(Mutant::kSeesNoHazards)) word = 0;
      std::memcpy(hazard.data(), &word, sizeof word);
      break;
    }
    // A hazard that does not cover the line counts as none.
    const bool counts = reader->miss == nullptr ||
                        covers(word, g_world->number_of(reader->line), *reader->run_lines, reader->miss->stores());
    record.result = mix(record.result, counts ? word : 0);
  }
  // On machines without caches the rights epoch never changes.
  if (record.moved == hazards && !g_world->caches() && hazards != 0) return true;
  return record.moved == units;
}

bool HeldFabric::is_complete(Completion completion) {
  const Record* const record = g_world->self().find(completion.id);
  return record == nullptr || record->done || record->nobody_waits;
}

void HeldFabric::wait(Completion completion) {
  Processor& fibre = g_world->self();
  while (!is_complete(completion)) {
    fibre.at = Place::At::kWait;
    fibre.waits_for = completion.id;
    g_world->stop();
  }
}

}  // namespace multigrain::dszoom::explored
