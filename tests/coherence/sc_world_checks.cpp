// This checks what must hold in every state of the world of sc_driver_world.h and at its ends, and says what a sequential
// memory allows.
#include <fmt/format.h>

#include <set>

#include "sc_world.h"

namespace multigrain::sc::explored {

std::set<Outcome> allowed_outcomes(const Scenario& scenario) {
  return page_programs::sequential_outcomes(scenario.programs, scenario.homes.size());
}

unsigned Machine::holder(unsigned page) const {
  unsigned holder = parts.homes[page];
  for (unsigned n = 0; n < parts.nodes; ++n)
    if (state(n).page(page).is_readable()) holder = n;
  return holder;
}

std::string Machine::check() const {
  using exploring_pages::Right;
  for (unsigned p = 0; p < pages(); ++p)
    for (unsigned n = 0; n < parts.nodes; ++n) {
      if (nodes[n].rights.of(p) != Right::kWrite) continue;
      for (unsigned other = 0; other < parts.nodes; ++other)
        if (other != n && nodes[other].rights.of(p) != Right::kNone)
          return fmt::format("C1: node {} may write page {}, and node {} may use it", n, p, other);
    }
  return {};
}

std::string Machine::check_end() const {
  for (unsigned p = 0; p < pages(); ++p) {
    const unsigned home = parts.homes[p];
    const Page& entry = state(home).page(p);
    if (!entry.begun) continue;  // no node has used it
    for (unsigned n = 0; n < parts.nodes; ++n) {
      const Page& page = state(n).page(p);
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
  for (unsigned n = 0; n < parts.nodes; ++n)
    if (state(n).first_listed() != 0) return fmt::format("node {} has a list of pages with holds in the end", n);
  return {};
}

}  // namespace multigrain::sc::explored
