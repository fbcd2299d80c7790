#include "mgs_programs.h"

#include <bitset>
#include <stdexcept>

namespace multigrain::mgs::explored {
namespace {

// This numbers the operations of all processors, and says which happens before which.
class Order {
 public:
  static constexpr size_t kMax = 256;

  explicit Order(const Scenario& scenario) : scenario_(scenario) {
    for (const Processor& p : scenario.processors) {
      first_.push_back(count_);
      count_ += p.program.size();
    }
    if (count_ > kMax) throw std::invalid_argument(scenario.name + ": too many operations to order");
    before_.resize(count_);
    each([&](size_t id, const Op& op, size_t, size_t index) {
      if (index > 0) before_[id].set(id - 1);
      if (op.type != OpType::kWait) return;
      each([&](size_t other, const Op& signal_op, size_t, size_t) {
        if (signal_op.type == OpType::kSignal && (signal_op.tokens & op.tokens) != 0) before_[id].set(other);
      });
    });
    for (size_t k = 0; k < count_; ++k)
      for (size_t i = 0; i < count_; ++i)
        if (before_[i].test(k)) before_[i] |= before_[k];
    for (size_t i = 0; i < count_; ++i)
      if (before_[i].test(i)) throw std::invalid_argument(scenario.name + ": the tokens form a cycle");
  }

  [[nodiscard]] bool before(size_t a, size_t b) const { return before_[b].test(a); }
  [[nodiscard]] size_t id(size_t processor, size_t index) const { return first_[processor] + index; }

  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t p = 0; p < scenario_.processors.size(); ++p)
      for (size_t i = 0; i < scenario_.processors[p].program.size(); ++i)
        visit(id(p, i), scenario_.processors[p].program[i], p, i);
  }

 private:
  const Scenario& scenario_;
  std::vector<size_t> first_;
  std::vector<std::bitset<kMax>> before_;
  size_t count_ = 0;
};

}  // namespace

Op read(unsigned page, unsigned word) {
  return {.type = OpType::kRead, .page = static_cast<uint8_t>(page), .word = static_cast<uint8_t>(word), .legal = {}};
}
Op write(unsigned page, unsigned word, Value value) {
  return {.type = OpType::kWrite,
          .page = static_cast<uint8_t>(page),
          .word = static_cast<uint8_t>(word),
          .value = value,
          .legal = {}};
}
Op release() {
  return {.type = OpType::kRelease, .legal = {}};
}
Op signal(unsigned token) {
  return {.type = OpType::kSignal, .tokens = uint64_t{1} << token, .legal = {}};
}
Op wait(std::initializer_list<unsigned> tokens) {
  Op op{.type = OpType::kWait, .legal = {}};
  for (const unsigned token : tokens) op.tokens |= uint64_t{1} << token;
  return op;
}
Op lock(unsigned which) {
  return {.type = OpType::kLock, .page = static_cast<uint8_t>(which), .legal = {}};
}
Op unlock(unsigned which) {
  return {.type = OpType::kUnlock, .page = static_cast<uint8_t>(which), .legal = {}};
}
Op barrier() {
  return {.type = OpType::kBarrier, .legal = {}};
}

void Scenario::prepare() {
  if (nodes > kMaxNodes || words > kMaxWords || homes.size() > kMaxPages)
    throw std::invalid_argument(name + ": larger than a machine may be");

  for (const Processor& p : processors) {
    bool dirty = false;
    for (const Op& op : p.program) {
      if (op.type == OpType::kWrite) dirty = true;
      if (op.type == OpType::kRelease) dirty = false;
      const bool passes_on = op.type == OpType::kSignal || op.type == OpType::kUnlock || op.type == OpType::kBarrier;
      if (passes_on && dirty) throw std::invalid_argument(name + ": something is passed on without a release");
    }
    if (dirty) throw std::invalid_argument(name + ": a program ends without a release");
  }
  if (golden) return;

  const Order order(*this);
  const auto same_word = [](const Op& a, const Op& b) { return a.page == b.page && a.word == b.word; };
  // Returns the values of the writes to `target`'s word that `last` accepts and that no other write of these hides.
  const auto visible = [&](const Op& target, auto&& may_be_seen, auto&& is_settled) {
    std::vector<Value> values;
    bool initial = true;
    order.each([&](size_t w, const Op& op, size_t, size_t) {
      if (op.type != OpType::kWrite || !same_word(op, target)) return;
      if (is_settled(w)) initial = false;
      if (!may_be_seen(w)) return;
      bool hidden = false;
      order.each([&](size_t other, const Op& later, size_t, size_t) {
        if (later.type == OpType::kWrite && same_word(later, target) && order.before(w, other) && is_settled(other))
          hidden = true;
      });
      if (!hidden) values.push_back(op.value);
    });
    if (initial) values.push_back(0);
    return values;
  };

  order.each([&](size_t a, const Op& first, size_t, size_t) {
    order.each([&](size_t b, const Op& second, size_t, size_t) {
      if (a != b && first.type == OpType::kWrite && second.type == OpType::kWrite && same_word(first, second) &&
          !order.before(a, b) && !order.before(b, a))
        throw std::invalid_argument(name + ": two writes race");
    });
  });
  for (size_t p = 0; p < processors.size(); ++p) {
    for (size_t i = 0; i < processors[p].program.size(); ++i) {
      Op& op = processors[p].program[i];
      if (op.type != OpType::kRead) continue;
      const size_t r = order.id(p, i);
      op.legal =
          visible(op, [&](size_t w) { return !order.before(r, w); }, [&](size_t w) { return order.before(w, r); });
    }
  }
  final_values.clear();
  for (unsigned page = 0; page < homes.size(); ++page) {
    for (unsigned word = 0; word < words; ++word) {
      const auto always = [](size_t) { return true; };
      final_values.push_back(visible(read(page, word), always, always).front());
    }
  }
}

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

}  // namespace multigrain::mgs::explored
