#include "check/lock_order.h"

#include <algorithm>
#include <set>

namespace multigrain::check {
namespace {

constexpr size_t kLongestCycle = 6;
// Programs with very many locks have very many paths. A search from one lock ends after so many steps.
constexpr size_t kMostSteps = 2000;

bool holds(const LockEdge& edge, uint64_t lock) {
  return edge.held.lock == lock ||
         std::find(edge.gate.begin(), edge.gate.begin() + edge.gates, lock) != edge.gate.begin() + edge.gates;
}

// Returns whether two processors can be where these edges say at one time.
bool can_coexist(const LockEdge& a, const LockEdge& b) {
  if (a.processor == b.processor || holds(b, a.held.lock)) return false;
  return std::none_of(a.gate.begin(), a.gate.begin() + a.gates, [&b](uint64_t gate) { return holds(b, gate); });
}

class Search {
 public:
  Search(std::span<const LockEdge> edges, size_t most) : most_(most) {
    for (const LockEdge& edge : edges) from_[edge.held.lock].push_back(&edge);
  }

  std::vector<LockCycle> run() {
    // Each cycle is found from its lowest lock on, so once only; short ones first.
    std::vector<uint64_t> locks;
    for (const auto& [lock, edges] : from_) locks.push_back(lock);
    std::ranges::sort(locks);
    for (size_t length = 2; length <= kLongestCycle; ++length) {
      for (const uint64_t lock : locks) {
        steps_ = 0;
        start_ = lock;
        extend(lock, length);
      }
    }
    return std::move(cycles_);
  }

 private:
  void extend(uint64_t at, size_t length) {
    if (cycles_.size() >= most_ || ++steps_ > kMostSteps) return;
    const auto edges = from_.find(at);
    if (edges == from_.end()) return;
    for (const LockEdge* const edge : edges->second) {
      const bool closes = edge->wanted.lock == start_;
      if (closes != (path_.size() + 1 == length) || edge->wanted.lock < start_) continue;
      if (!std::ranges::all_of(path_, [edge](const LockEdge* other) { return can_coexist(*edge, *other); })) continue;
      path_.push_back(edge);
      if (closes)
        add();
      else
        extend(edge->wanted.lock, length);
      path_.pop_back();
    }
  }

  void add() {
    std::set<uint64_t> locks;
    for (const LockEdge* const edge : path_) locks.insert(edge->held.lock);
    if (!known_.insert(std::move(locks)).second) return;
    LockCycle& cycle = cycles_.emplace_back();
    for (const LockEdge* const edge : path_) cycle.push_back(*edge);
  }

  const size_t most_;
  std::unordered_map<uint64_t, std::vector<const LockEdge*>> from_;
  uint64_t start_ = 0;
  size_t steps_ = 0;
  std::vector<const LockEdge*> path_;
  std::set<std::set<uint64_t>> known_;
  std::vector<LockCycle> cycles_;
};

}  // namespace

void LockOrder::note(std::span<const HeldLockPlace> held, const HeldLockPlace& wanted, uint32_t processor) {
  held = held.first(std::min<size_t>(held.size(), LockEdge::kMostHeld + 1));
  for (size_t i = 0; i < held.size(); ++i) {
    if (held[i].lock == wanted.lock) continue;
    LockEdge edge{.held = held[i], .wanted = wanted, .processor = processor};
    for (size_t j = 0; j < held.size(); ++j)
      if (j != i) edge.gate[edge.gates++] = held[j].lock;
    std::sort(edge.gate.begin(), edge.gate.begin() + edge.gates);
    std::vector<uint32_t>& known = of_pair_[{edge.held.lock, wanted.lock}];
    const auto is_same = [this, &edge](uint32_t other) {
      return edges_[other].processor == edge.processor && edges_[other].gates == edge.gates &&
             edges_[other].gate == edge.gate;
    };
    if (known.size() >= kMostOfPair || std::ranges::any_of(known, is_same)) continue;
    if (edges_.size() >= kMostEdges) {
      ++lost_;
      continue;
    }
    known.push_back(static_cast<uint32_t>(edges_.size()));
    edges_.push_back(edge);
  }
}

std::vector<LockCycle> find_cycles(std::span<const LockEdge> edges, size_t most) {
  return Search(edges, most).run();
}

}  // namespace multigrain::check
