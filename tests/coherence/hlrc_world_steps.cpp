// Which steps a machine that runs HLRC's driver can take, and which of them are taken alone (hlrc_driver_world.h, R1 and R2).
#include <algorithm>
#include <bit>

#include "coherence/hlrc/words.h"
#include "hlrc_world.h"

namespace multigrain::hlrc::explored {

// The next step of the processor.
Footprint World::step_of(size_t p) const {
  Footprint next;
  const Place& place = shared_.places[p];
  if (place.at == At::kStep && place.word != 0) next.words.push_back({place.word, place.writes});
  if (place.at == At::kLock) next.lock = scenario_.programs[p][place.pc].page;
  if (place.at == At::kWait) add_operations(p, next);
  return next;
}

void World::add_operations(size_t p, Footprint& next) const {
  for (const Operation& operation : shared_.operations[p])
    for (uint32_t rest = operation.pending; rest != 0; rest &= rest - 1)
      next.words.push_back(
          {word_of(operation, static_cast<unsigned>(std::countr_zero(rest))), operation.kind != Operation::Kind::kGet});
}

// An access at another node than the page's home is followed by a fetch at most.
bool World::access_concerns(unsigned node, const Op& op, const Footprint& next) const {
  return std::ranges::any_of(next.words, [&](const Footprint::Access& each) {
    const uint64_t offset = offset_of(each.word);
    const unsigned behind = scenario_.runs || scenario_.chains ? kMaxPages : scenario_.fetch_ahead ? 2u : 0u;
    for (unsigned page = scenario_.chains ? 0 : op.page; page < pages() && page <= op.page + behind; ++page) {
      const unsigned home = shared_.homes[page];
      if (node_of(each.word) != home) continue;
      if (segment_of(each.word) == SegmentId::kFrames) {
        if (offset / kPage != page) continue;
        if (home != node ? each.writes || (scenario_.to_lines && op.type == OpType::kWrite)
                         : page == op.page && offset % kPage / kWordBytes == op.word &&
                               (each.writes || op.type == OpType::kWrite))
          return true;
      } else if (home != node && is_entry_of(node, each.word)) {
        return true;
      }
    }
    return false;
  });
}

// Pages that the node writes, and that are at home elsewhere.
bool World::deposits_concern(unsigned node, Word word) const {
  if (segment_of(word) != SegmentId::kFrames) return false;
  const auto page = static_cast<unsigned>(offset_of(word) / kPage);
  if (shared_.homes[page] == node || node_of(word) != shared_.homes[page]) return false;
  for (size_t p = 0; p < processors(); ++p)
    if (scenario_.processors[p] == node)
      for (const Op& op : scenario_.programs[p])
        if (op.type == OpType::kWrite && op.page == page) return true;
  return false;
}

// An acquire fetches pages again, as a fault does.
bool World::updates_concern(unsigned node, const Footprint::Access& each) const {
  const auto page = static_cast<unsigned>(offset_of(each.word) / kPage);
  return each.writes && shared_.homes[page] != node && node_of(each.word) == shared_.homes[page];
}

bool World::is_entry_of(unsigned node, Word word) {
  return offset_of(word) >= words::kFetchLog && words::fetch_log_place(kMaxNodes, offset_of(word)).node == node;
}

bool World::release_concerns(unsigned node, const Footprint& next) const {
  return std::ranges::any_of(next.words, [&](const Footprint::Access& each) {
    // Its timestamp and its notices are written, its fetch logs read.
    if (segment_of(each.word) == SegmentId::kWords)
      return node_of(each.word) == node && (offset_of(each.word) < words::kFetchLog || each.writes);
    return deposits_concern(node, each.word);
  });
}

bool World::acquire_concerns(unsigned node, const Footprint& next) const {
  return std::ranges::any_of(next.words, [&](const Footprint::Access& each) {
    // Timestamps and notices are read, and its own timestamp is written.
    if (segment_of(each.word) == SegmentId::kWords)
      return (offset_of(each.word) < words::kFetchLog && (each.writes || node_of(each.word) == node)) ||
             (scenario_.updates && is_entry_of(node, each.word));
    return deposits_concern(node, each.word) || (scenario_.updates && updates_concern(node, each));
  });
}

// Whether q may access what p does next, before p has done it.
bool World::may_access(size_t q, size_t p, const Footprint& next) const {
  const Place& place = shared_.places[q];
  // Nobody waits at a barrier for a thread of the runtime.
  const bool is_awaited = is_processor(p);
  if (place.at == At::kEnd || (is_awaited && place.at == At::kBarrier && place.meeting == shared_.meetings))
    return false;
  const unsigned node = scenario_.processors[q];
  const Program& program = scenario_.programs[q];
  const auto is_held = [&](const Op& op) { return op.type == OpType::kLock && shared_.lock_holder[op.page] == p + 1; };
  if (place.at == At::kLock && is_held(program[place.pc])) return false;
  if (node == scenario_.processors[p]) return true;
  for (size_t i = place.pc; i < program.size(); ++i) {
    const Op& op = program[i];
    switch (op.type) {
      case OpType::kRead:
      case OpType::kWrite:
        if (access_concerns(node, op, next)) return true;
        break;
      case OpType::kEndSerialPart:
        break;
      case OpType::kCatchUp:
        if (acquire_concerns(node, next)) return true;
        break;
      case OpType::kLock:
        if (is_held(op)) return false;
        if (op.page == next.lock || acquire_concerns(node, next)) return true;
        break;
      case OpType::kUnlock:
        if (op.page == next.lock || release_concerns(node, next)) return true;
        break;
      case OpType::kBarrier:
        if (i == place.pc && (place.is_behind || place.at == At::kBarrier)) {
          if (acquire_concerns(node, next)) return true;
        } else if (is_awaited) {
          return release_concerns(node, next);
        } else if (release_concerns(node, next) || acquire_concerns(node, next)) {
          return true;
        }
        break;
    }
  }
  return false;
}

bool World::may_concern_others(size_t p) const {
  const Footprint next = step_of(p);
  for (size_t q = 0; q < processors(); ++q) {
    if (q != p && may_access(q, p, next)) return true;
    // Operations for which nobody waits, of mutants, are nobody's.
    for (const Operation& operation : shared_.operations[q]) {
      if (!operation.nobody_waits) continue;
      if (operation.kind == Operation::Kind::kRights && operation.at == scenario_.processors[p]) return true;
      for (uint32_t rest = operation.pending; rest != 0; rest &= rest - 1)
        if (next.concerns(word_of(operation, static_cast<unsigned>(std::countr_zero(rest))), true)) return true;
    }
  }
  return false;
}

// A processor whose next step is taken alone (R2).
std::optional<size_t> World::alone() {
  if (!scenario_.is_reduced) return std::nullopt;
  for (size_t p = 0; p < processors(); ++p)
    if (can_go_on(p) && shared_.places[p].at != At::kChoice && !may_concern_others(p)) return p;
  return std::nullopt;
}

// Without R1: any word that some program has written or will write.
bool World::is_ever_written(Word word) const {
  if (segment_of(word) == SegmentId::kFrames || offset_of(word) < words::kEpisodes) return true;
  if (offset_of(word) < words::kNotices) {
    const bool of_lines = offset_of(word) >= words::kToLines;
    const uint64_t from = offset_of(word) - (of_lines ? words::kToLines : words::kEpisodes);
    const uint64_t bytes = of_lines ? words::kToLinesBytes : words::kEpisodeBytes;
    const uint64_t place = from / bytes;
    const uint64_t index = from % bytes / kWordBytes;
    const auto barriers = std::ranges::count(scenario_.programs[0], OpType::kBarrier, &Op::type);
    if (scenario_.gathers_by != 0) return place < 2 && index < kGatheredWords;
    return processors_of(node_of(word)) != 0 && place < static_cast<uint64_t>(barriers) && index <= pages();
  }
  if (offset_of(word) >= words::kFetchLog) return true;
  size_t releases = 0;
  for (size_t p = 0; p < processors(); ++p)
    if (scenario_.processors[p] == node_of(word))
      releases += static_cast<size_t>(std::ranges::count_if(scenario_.programs[p], [](const Op& op) {
        return op.type == OpType::kUnlock || op.type == OpType::kBarrier;
      }));
  return (offset_of(word) - words::kNotices) / kWordBytes < releases * pages();
}

void World::enabled(std::vector<Event>& events) {
  events.clear();
  // Choices concern nobody but the processor.
  for (size_t p = 0; p < processors(); ++p) {
    if (shared_.places[p].at != At::kChoice) continue;
    for (const uint8_t choice : {uint8_t{0}, uint8_t{1}})
      events.push_back({.processor = static_cast<uint8_t>(p), .operation = Event::kGoesOn, .word = choice});
    return;
  }
  std::array<Footprint, kMaxProcessors> next;
  for (size_t p = 0; p < processors(); ++p) {
    next[p] = step_of(p);
    if (shared_.places[p].at != At::kWait) add_operations(p, next[p]);
  }
  for (size_t p = 0; p < processors(); ++p) {
    if (can_go_on(p)) events.push_back({.processor = static_cast<uint8_t>(p)});
    for (size_t i = 0; i < kOperations; ++i) {
      const Operation& operation = shared_.operations[p][i];
      for (uint32_t rest = operation.pending; rest != 0; rest &= rest - 1) {
        const auto word = static_cast<uint8_t>(std::countr_zero(rest));
        const Word at = word_of(operation, word);
        bool is_offered = operation.nobody_waits || (!scenario_.is_reduced && is_ever_written(at));
        for (size_t q = 0; q < processors() && !is_offered; ++q)
          is_offered =
              q != p &&
              (next[q].concerns(at, operation.kind != Operation::Kind::kGet) ||
               (fills_frame(p, operation) && next[q].concerns(word_at(scenario_.processors[p], operation.segment,
                                                                      operation.offset + place_of(operation, word)),
                                                              true)));
        if (is_offered)
          events.push_back({.processor = static_cast<uint8_t>(p), .operation = static_cast<uint8_t>(i), .word = word});
      }
    }
  }
}

}  // namespace multigrain::hlrc::explored
