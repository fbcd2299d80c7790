// This checks what must hold in every state of the world (shasta_world.h) and at its ends, and says which states are
// the same.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "coherence/hazard.h"
#include "coherence/shasta/message_types.h"
#include "shasta_world.h"

namespace multigrain::shasta::explored {

std::string World::Impl::check_copies(unsigned block) const {
  bool is_outstanding = false;
  for (unsigned n = 0; n < node_count(); ++n) is_outstanding = is_outstanding || state(n).outstanding().load() != 0;
  if (is_outstanding) return {};
  for (unsigned w = 0; w < kMaxWords; ++w) {
    std::optional<uint64_t> first;
    for (unsigned n = 0; n < node_count(); ++n) {
      const uint64_t value = *frame(n, block, w);
      const bool is_used = state(n).page(block).touched.load() || state(n).page(block).home_plus_one.load() == n + 1;
      if (!is_used || value == MG_FINE_FLAG64) continue;
      if (first.value_or(value) != value)
        return fmt::format(
            "S7: word {} of block {} is {:#x} in one frame and {:#x} in another, and nothing is outstanding", w, block,
            *first, value);
      first = value;
    }
  }
  return {};
}

std::string World::Impl::check_hazards(unsigned number) const {
  for (const auto& thread : threads) {
    if (thread->at != Thread::At::kStep || thread->address == nullptr) continue;
    const DriverState state = this->state(thread->node);
    const Block block = state.block(number);
    for (unsigned i = 0; i < kHazards; ++i) {
      const uint64_t hazard = thread->hazards[i];
      if ((hazard & MG_FINE_HAZARD_ALL) != 0 || !covers(hazard, number * (kPage >> kShift), true)) continue;
      const bool stores = (hazard & MG_FINE_HAZARD_STORES) != 0;
      if (stores ? block.state != State::kExclusive : !block.is_readable())
        return fmt::format("a hazard of processor {} of node {} outlives the {} of block {}", thread->number,
                           thread->node, stores ? "exclusive copy" : "copy", number);
      if (state.masks_words(number))
        return fmt::format("words of block {} are masked at node {} under a hazard", number, thread->node);
    }
  }
  return {};
}

std::string World::Impl::check_requests(unsigned number) const {
  unsigned exclusive = 0;
  unsigned readable = 0;
  bool is_complete = false;
  for (unsigned n = 0; n < node_count(); ++n) {
    if (state(n).page(number).home_plus_one.load() == 0) continue;
    const Block block = state(n).block(number);
    exclusive += block.state == State::kExclusive ? 1 : 0;
    readable += block.is_readable() ? 1 : 0;
    is_complete = is_complete || block.is_complete();
    if (!block.replied) continue;
    int missing = 0;
    for_each_message(number, [&](MessageKind kind, unsigned requester) {
      const bool counts = kind == MessageKind::kInvalidate || kind == MessageKind::kInvalidated;
      missing += counts && requester == n ? 1 : 0;
    });
    for (unsigned other = 0; other < node_count(); ++other) {
      if (state(other).page(number).home_plus_one.load() == 0) continue;
      const Block theirs = state(other).block(number);
      missing += theirs.has_invalidation && theirs.invalidation.value == n ? 1 : 0;
    }
    if (missing != block.acks)
      return fmt::format("S5: node {} waits for {} acknowledgements of block {}; there are {}", n, block.acks, number,
                         missing);
  }
  if (exclusive > 1) return fmt::format("block {} is exclusive at two nodes", number);
  if (!is_complete) return {};
  if (readable > 1) return fmt::format("block {} is exclusive at one node and readable at another", number);
  bool data = false;
  for_each_message(number, [&](MessageKind kind, unsigned) {
    data = data || kind == MessageKind::kData || kind == MessageKind::kDataExclusive;
  });
  if (data) return fmt::format("block {} is exclusive, and data is under way", number);
  return {};
}

programs::Outcome World::outcome() const {
  Outcome all;
  for (const auto& thread : impl_->threads)
    if (thread->role == Thread::Role::kProcessor)
      all.insert(all.end(), thread->registers.begin(), thread->registers.end());
  for (unsigned b = 0; b < impl_->blocks(); ++b) {
    unsigned holder = 0;
    for (unsigned n = 0; n < impl_->node_count(); ++n)
      if (impl_->state(n).page(b).home_plus_one.load() == n + 1)
        holder = impl_->state(n).block(b).sharers.first().value;
    for (unsigned w = 0; w < kMaxWords; ++w) all.push_back(static_cast<programs::Value>(*impl_->frame(holder, b, w)));
  }
  return all;
}

// Checks F1 of docs/internals/fine-grain.md. Under rc copies may be on their way to be invalidated, but no other node
// may store. A store that not all nodes can see (S2, S7 of transitions.h) must be one that a fence waits for, on every
// node that has seen it.
std::string World::check() const {
  if (impl_->has_stopped) return "the driver ends the run: an invariant of its own does not hold";
  for (unsigned b = 0; b < impl_->blocks(); ++b) {
    const uint64_t first = b * (kPage >> kShift);
    for (uint64_t line = first; line < first + impl_->scenario.lines; ++line)
      for (unsigned n = 0; n < impl_->node_count(); ++n) {
        if (impl_->table_word(n, line).load() != kExclusive) continue;
        for (unsigned other = 0; other < impl_->node_count(); ++other) {
          const uint64_t theirs = impl_->table_word(other, line).load();
          const bool wrong =
              impl_->scenario.machine.model == Model::kSc ? (theirs & kReadable) != 0 : theirs == kExclusive;
          if (other != n && wrong)
            return fmt::format("F1: node {} has line {} exclusively, and the word of node {} is {}", n, line, other,
                               theirs);
        }
      }
    for (unsigned n = 0; n < impl_->node_count(); ++n)
      if (impl_->state(n).frozen() == first && impl_->table_word(n, first).load() == kExclusive)
        return fmt::format("D3: node {} may store to line {} again, for which a message is deferred", n, first);
    if (const std::string wrong = impl_->check_copies(b); !wrong.empty()) return wrong;
    if (!impl_->scenario.whole_transitions) continue;
    if (const std::string wrong = impl_->check_hazards(b); !wrong.empty()) return wrong;
    if (const std::string wrong = impl_->check_requests(b); !wrong.empty()) return wrong;
  }
  return {};
}

std::string World::check_end() const {
  for (unsigned n = 0; n < impl_->node_count(); ++n)
    if (!impl_->state(n).is_at_rest()) return fmt::format("node {} is not at rest at the end", n);
  for (unsigned b = 0; b < impl_->blocks(); ++b) {
    unsigned home = kMaxNodes;
    for (unsigned n = 0; n < impl_->node_count(); ++n)
      if (impl_->state(n).page(b).home_plus_one.load() == n + 1) home = n;
    if (home == kMaxNodes) continue;  // no node has used it
    const Block entry = impl_->state(home).block(b);
    const NodeSet have = entry.sharers;
    if (have.empty()) return fmt::format("nobody has block {}", b);
    for (unsigned n = 0; n < impl_->node_count(); ++n) {
      const DriverState state = impl_->state(n);
      const bool touched = state.page(b).touched.load();
      const bool has = have.contains(NodeId(static_cast<uint16_t>(n)));
      if (!touched && n != home) {
        if (has) return fmt::format("node {} has block {}, whose page it has not touched", n, b);
        continue;
      }
      if (state.page(b).home_plus_one.load() != home + 1)
        return fmt::format("nodes {} and {} take different nodes for the home of block {}", n, home, b);
      const uint64_t should = !touched || !has ? 0 : have.size() == 1 ? kExclusive : kReadable;
      for (unsigned l = 0; l < impl_->scenario.lines; ++l) {
        const uint64_t word = impl_->table_word(n, b * (kPage >> kShift) + l).load() & kExclusive;
        // The home publishes words later that it touched under a hazard.
        if (word == should || (n == home && word == 0 && impl_->scenario.held)) continue;
        return fmt::format("the word of block {} line {} at node {} has the rights {} and not {}", b, l, n, word,
                           should);
      }
      for (unsigned w = 0; w < kMaxWords; ++w) {
        const uint64_t value = *impl_->frame(n, b, w);
        const uint64_t wanted = has ? *impl_->frame(have.first().value, b, w) : MG_FINE_FLAG64;
        if (value != wanted)
          return fmt::format("F2: word {} of block {} in the frame of node {}, which {} it, is {:#x}", w, b, n,
                             has ? "has" : "does not have", value);
      }
    }
  }
  for (const auto& thread : impl_->threads)
    for (unsigned i = 0; i < kHazards; ++i)
      if (thread->hazards[i] != 0) return "a hazard is published at the end";
  return {};
}

void World::serialise(std::vector<uint8_t>& out) const {
  const auto add = [&](uint64_t value) {
    const size_t size = out.size();
    out.resize(size + sizeof value);
    std::memcpy(out.data() + size, &value, sizeof value);
  };
  const auto add_packet = [&](const Packet& packet) {
    add(packet.header.type | uint64_t{packet.header.small} << 8 | uint64_t{packet.header.extra} << 24 |
        uint64_t{packet.size != 0} << 60);
    add(packet.header.word[0] | packet.header.word[1] << 32);
    for (unsigned w = 0; packet.size != 0 && w < kMaxWords; ++w) {
      uint64_t value = 0;
      std::memcpy(&value, packet.bytes.data() + impl_->offset_of(0, w), sizeof value);
      add(value);
    }
  };
  for (unsigned n = 0; n < impl_->node_count(); ++n) {
    NodeOf& node = impl_->nodes[n];
    impl_->state(n).serialise(impl_->blocks(), add);
    add(node.service_wanted);
    if (impl_->scenario.caches) {
      add(impl_->name_of_epoch(n, node.hazards->rights_epoch().load()));
      for (const uint64_t value : impl_->cached[n]) add(impl_->name_of_epoch(n, value));
    }
    for (unsigned b = 0; b < impl_->blocks(); ++b) {
      for (unsigned w = 0; w < kMaxWords; ++w) add(*impl_->frame(n, b, w));
      add(node.rights.granted(b) | node.homes->known()[b] << 8 | impl_->claimed[b] << 16 | impl_->arrived[n][b] << 24);
    }
    for (const std::deque<Packet>& link : node.from) {
      add(link.size());
      for (const Packet& packet : link) add_packet(packet);
    }
  }
  for (const auto& thread : impl_->threads) {
    add(static_cast<uint64_t>(thread->at) | uint64_t{thread->pc} << 8 | uint64_t{thread->place} << 16 |
        thread->records.size() << 24);
    if (thread->at == Thread::At::kIdle || thread->at == Thread::At::kEnd) {
      if (thread->role != Thread::Role::kProcessor) continue;
    }
    add(reinterpret_cast<uintptr_t>(thread->address));
    if (thread->at == Thread::At::kChange) add(thread->seen);
    uint64_t registers = 0;
    for (const programs::Value value : thread->registers) registers = registers << 8 | value;
    add(registers);
    for (unsigned i = 0; i < kHazards; ++i) add(thread->hazards[i]);
    if (thread->role == Thread::Role::kHandler) add_packet(thread->packet);
    for (const Seen& record : thread->records) {
      add(record.what);
      add(record.result);
    }
  }
}

}  // namespace multigrain::shasta::explored
