// This checks what must hold in every state of the world of sc_driver_world.h and at its ends, and says which states
// are the same, and what a sequential memory allows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <set>
#include <vector>

#include "sc_world.h"

namespace multigrain::sc::explored {

std::set<Outcome> allowed_outcomes(const Scenario& scenario) {
  return page_programs::sequential_outcomes(scenario.programs, scenario.homes.size());
}

Outcome World::outcome() const {
  Outcome all;
  for (const auto& thread : impl_->threads)
    if (thread->role == Thread::Role::kProcessor)
      all.insert(all.end(), thread->registers.begin(), thread->registers.end());
  for (unsigned p = 0; p < impl_->pages(); ++p) {
    unsigned holder = impl_->scenario.homes[p];
    for (unsigned n = 0; n < impl_->scenario.nodes; ++n)
      if (impl_->state(n).page(p).is_readable()) holder = n;
    const uint64_t* const frame = impl_->frame(holder, p);
    all.insert(all.end(), frame, frame + kMaxWords);
  }
  return all;
}

std::string World::check() const {
  if (impl_->has_stopped) return "the driver ends the run: an invariant of its own does not hold";
  if (!impl_->wrong.empty()) return impl_->wrong;
  for (unsigned p = 0; p < impl_->pages(); ++p)
    for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
      if (impl_->nodes[n].rights.of(p) != Right::kWrite) continue;
      for (unsigned other = 0; other < impl_->scenario.nodes; ++other)
        if (other != n && impl_->nodes[other].rights.of(p) != Right::kNone)
          return fmt::format("C1: node {} may write page {}, and node {} may use it", n, p, other);
    }
  return {};
}

std::string World::check_end() const {
  for (unsigned p = 0; p < impl_->pages(); ++p) {
    const unsigned home = impl_->scenario.homes[p];
    const Page& entry = impl_->state(home).page(p);
    if (!entry.begun) continue;  // no node has used it
    for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
      const Page& page = impl_->state(n).page(p);
      if (page.pending != Pending::kNone || page.acks != 0 || page.is_to_go() || !page.forwarded_reads.empty() ||
          page.waiting_to_read != 0 || page.waiting_to_write != 0 || page.returning != 0 || !page.discarders.empty())
        return fmt::format("page {} is not at rest at node {} in the end", p, n);
      const bool has = entry.sharers.contains(NodeId(static_cast<uint16_t>(n)));
      if (has != page.is_readable())
        return fmt::format("the directory says that node {} {} page {}, and it {}", n, has ? "has" : "does not have", p,
                           has ? "does not" : "does");
      if (page.state == State::kExclusive && entry.sharers.size() != 1)
        return fmt::format("node {} has page {} exclusively, and {} nodes have it", n, p, entry.sharers.size());
    }
  }
  for (unsigned n = 0; n < impl_->scenario.nodes; ++n)
    if (impl_->state(n).first_listed() != 0) return fmt::format("node {} has a list of pages with holds in the end", n);
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
        packet.header.word[0] << 48 | packet.header.word[1] << 56);
  };
  for (unsigned n = 0; n < impl_->scenario.nodes; ++n) {
    const NodeOf& node = impl_->nodes[n];
    impl_->state(n).serialise(impl_->pages(), add);
    add(node.service_wanted);
    for (unsigned p = 0; p < impl_->pages(); ++p) {
      add(static_cast<uint64_t>(node.rights.of(p)));
      // No processor sees the bytes of a frame that is neither readable nor about to be fetched. But the fabric's fetch
      // reads the sender's frame after the sender has let go of the page, so all frames count.
      for (unsigned w = 0; w < kMaxWords; ++w) add(impl_->frame(n, p)[w]);
    }
    for (const std::deque<Packet>& link : node.from) {
      add(link.size());
      for (const Packet& packet : link) add_packet(packet);
    }
  }
  for (const auto& thread : impl_->threads) {
    add(static_cast<uint64_t>(thread->at) | uint64_t{thread->pc} << 8 | thread->records.size() << 16 |
        uint64_t{thread->faults[0]} << 32 | uint64_t{thread->faults[1]} << 40);
    if (thread->role == Thread::Role::kProcessor)
      for (const uint64_t value : thread->registers) add(value);
    if (thread->at == Thread::At::kIdle || thread->at == Thread::At::kEnd) continue;
    add(reinterpret_cast<uintptr_t>(thread->address));
    add(thread->page | uint64_t{thread->is_write} << 8 | uint64_t{impl_->ways(*thread)} << 16);
    if (thread->role == Thread::Role::kHandler) add_packet(thread->packet);
    for (const Seen& record : thread->records) {
      add(record.what);
      add(record.result);
    }
  }
}

}  // namespace multigrain::sc::explored
