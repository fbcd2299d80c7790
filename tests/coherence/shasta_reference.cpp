// This has the memory models by themselves, without blocks that move: the outcomes that they allow a machine's
// programs.
#include <deque>
#include <unordered_set>

#include "base/error.h"
#include "shasta_programs.h"

namespace multigrain::shasta::programs {
namespace {

struct Entry {
  uint8_t block = 0;
  uint8_t word = 0;
  Value value = 0;
};

struct Abstract {
  struct Thread {
    uint8_t pc = 0;
    bool fencing = false;
    uint8_t fence = 0;  // rc: blocks whose stores must become visible to all first
    std::array<Value, kMaxRegisters> registers{};
    std::deque<Entry> buffer;
  };
  std::vector<Thread> threads;
  Value memory[kMaxBlocks][kMaxWords] = {};
  // Under rc one node may have stored to a block that the other nodes do not see yet. They can store to it only after
  // that.
  uint8_t locked[kMaxBlocks] = {};  // 1 + the node
  Value ahead[kMaxBlocks][kMaxWords] = {};

  [[nodiscard]] std::string key() const {
    std::string out;
    for (const Thread& t : threads) {
      out += static_cast<char>(t.pc);
      out += static_cast<char>(t.fencing);
      out += static_cast<char>(t.fence);
      out.append(reinterpret_cast<const char*>(t.registers.data()), t.registers.size());
      out += static_cast<char>(t.buffer.size());
      for (const Entry& e : t.buffer) {
        out += static_cast<char>(e.block * kMaxWords + e.word);
        out += static_cast<char>(e.value);
      }
    }
    out.append(reinterpret_cast<const char*>(memory), sizeof(memory));
    out.append(reinterpret_cast<const char*>(locked), sizeof(locked));
    out.append(reinterpret_cast<const char*>(ahead), sizeof(ahead));
    return out;
  }
};

class Enumerator {
 public:
  explicit Enumerator(const Machine& machine) : machine_(machine), blocks_(machine.homes.size()) {}

  Outcomes run() {
    Abstract start;
    start.threads.resize(machine_.programs.size());
    add(start);
    while (!work_.empty()) {
      const Abstract state = std::move(work_.back());
      work_.pop_back();
      bool ended = true;
      for (unsigned t = 0; t < state.threads.size(); ++t) ended = step(state, t) && ended;
      for (unsigned b = 0; b < blocks_; ++b) {
        if (state.locked[b] == 0) continue;
        ended = false;
        Abstract to = state;
        make_global(to, b);
        add(to);
      }
      if (ended) end(state);
    }
    return std::move(outcomes_);
  }

 private:
  void add(const Abstract& state) {
    if (seen_.insert(state.key()).second) work_.push_back(state);
  }

  void make_global(Abstract& to, unsigned b) {
    std::copy(std::begin(to.ahead[b]), std::end(to.ahead[b]), std::begin(to.memory[b]));
    std::fill(std::begin(to.ahead[b]), std::end(to.ahead[b]), Value{0});
    to.locked[b] = 0;
    for (Abstract::Thread& t : to.threads) t.fence = static_cast<uint8_t>(t.fence & ~(1u << b));
  }

  [[nodiscard]] Value shared(const Abstract& state, unsigned t, unsigned b, unsigned w) const {
    return state.locked[b] == machine_.processors[t] + 1 ? state.ahead[b][w] : state.memory[b][w];
  }

  // A store leaves its processor.
  [[nodiscard]] bool can_make(const Abstract& state, unsigned t, unsigned b) const {
    return state.locked[b] == 0 || state.locked[b] == machine_.processors[t] + 1;
  }
  void make(Abstract& to, unsigned t, unsigned b, unsigned w, Value value) {
    if (machine_.model != Model::kRc) {
      to.memory[b][w] = value;
      return;
    }
    if (to.locked[b] == 0) {
      to.locked[b] = static_cast<uint8_t>(machine_.processors[t] + 1);
      std::copy(std::begin(to.memory[b]), std::end(to.memory[b]), std::begin(to.ahead[b]));
    }
    to.ahead[b][w] = value;
  }

  // Returns whether the processor has ended.
  bool step(const Abstract& state, unsigned t) {
    const Abstract::Thread& thread = state.threads[t];
    for (size_t i = 0; i < thread.buffer.size(); ++i) {
      const Entry e = thread.buffer[i];
      bool first = true;
      for (size_t k = 0; k < i; ++k) first = first && thread.buffer[k].block != e.block;
      if (!first || !can_make(state, t, e.block)) continue;
      Abstract to = state;
      auto& buffer = to.threads[t].buffer;
      buffer.erase(buffer.begin() + static_cast<std::ptrdiff_t>(i));
      make(to, t, e.block, e.word, e.value);
      add(to);
    }
    if (thread.pc == machine_.programs[t].size()) return thread.buffer.empty();
    const Op& op = machine_.programs[t][thread.pc];
    const Access& a = op.first;
    Abstract to = state;
    Abstract::Thread& me = to.threads[t];
    ++me.pc;
    switch (op.type) {
      case OpType::kLoad: {
        Value value = shared(state, t, a.block, a.word);
        for (const Entry& e : thread.buffer)
          if (e.block == a.block && e.word == a.word) value = e.value;
        me.registers[a.reg] = value;
        break;
      }
      case OpType::kStore:
        if (machine_.model == Model::kSc) {
          make(to, t, a.block, a.word, a.value);
        } else {
          me.buffer.push_back({a.block, a.word, a.value});
        }
        break;
      case OpType::kFence:
        if (!thread.buffer.empty()) return false;
        if (!thread.fencing) {
          --me.pc;
          me.fencing = true;
          for (unsigned b = 0; b < blocks_; ++b)
            if (state.locked[b] == machine_.processors[t] + 1) me.fence = static_cast<uint8_t>(me.fence | 1u << b);
        } else {
          if (thread.fence != 0) return false;
          me.fencing = false;
        }
        break;
      case OpType::kAdd: {
        for (const Entry& e : thread.buffer)
          if (e.block == a.block) return false;
        if (!can_make(state, t, a.block)) return false;
        const Value old = shared(state, t, a.block, a.word);
        me.registers[a.reg] = old;
        make(to, t, a.block, a.word, static_cast<Value>(old + a.value));
        break;
      }
      case OpType::kPrefetch:
        break;
      case OpType::kBatch:
        panic("the reference has no batches");
    }
    add(to);
    return false;
  }

  void end(const Abstract& state) {
    Outcome out;
    for (const Abstract::Thread& t : state.threads) out.insert(out.end(), t.registers.begin(), t.registers.end());
    for (unsigned b = 0; b < blocks_; ++b)
      out.insert(out.end(), std::begin(state.memory[b]), std::end(state.memory[b]));
    outcomes_.insert(out);
  }

  const Machine& machine_;
  size_t blocks_;
  std::vector<Abstract> work_;
  std::unordered_set<std::string> seen_;
  Outcomes outcomes_;
};

}  // namespace

Outcomes reference(const Machine& machine) {
  return Enumerator(machine).run();
}

}  // namespace multigrain::shasta::programs
