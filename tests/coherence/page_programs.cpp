#include "page_programs.h"

namespace multigrain::page_programs {
namespace {

// This tries every order of whole operations.
struct Interleavings {
  const std::vector<Program>& programs;
  const size_t pages;
  std::vector<size_t> pc;
  std::vector<uint64_t> registers;
  std::array<std::array<uint64_t, kMaxWords>, kMaxPages> memory{};
  std::set<std::vector<uint64_t>> seen{};
  std::set<Outcome> outcomes{};

  void go() {
    std::vector<uint64_t> state(pc.begin(), pc.end());
    Outcome outcome = registers;
    for (size_t p = 0; p < pages; ++p) outcome.insert(outcome.end(), memory[p].begin(), memory[p].end());
    state.insert(state.end(), outcome.begin(), outcome.end());
    if (!seen.insert(state).second) return;
    bool is_end = true;
    for (size_t p = 0; p < pc.size(); ++p) {
      if (pc[p] == programs[p].size()) continue;
      is_end = false;
      const Op& op = programs[p][pc[p]];
      const auto old_memory = memory;
      uint64_t& reg = registers[p * kRegisters + op.reg];
      const uint64_t old_register = reg;
      uint64_t& word = memory[op.page][op.word];
      if (op.type == OpType::kDiscard) memory[op.page] = {};
      if (op.type == OpType::kLoad || op.type == OpType::kAdd || op.type == OpType::kMove) reg = word;
      if (op.type == OpType::kStore) word = op.value;
      if (op.type == OpType::kStoreRegister) word = reg;
      if (op.type == OpType::kAdd) word += op.value;
      if (op.type == OpType::kMove) memory[op.to][op.word] = word;
      ++pc[p];
      go();
      --pc[p];
      memory = old_memory;
      reg = old_register;
    }
    if (is_end) outcomes.insert(outcome);
  }
};

}  // namespace

std::vector<Program> with_moves_in_two(const std::vector<Program>& programs) {
  std::vector<Program> all;
  for (const Program& program : programs) {
    Program& ops = all.emplace_back();
    for (const Op& op : program) {
      if (op.type != OpType::kMove) {
        ops.push_back(op);
        continue;
      }
      ops.push_back(load(op.page, op.reg, op.word));
      ops.push_back({.type = OpType::kStoreRegister, .page = op.to, .word = op.word, .reg = op.reg});
    }
  }
  return all;
}

std::set<Outcome> sequential_outcomes(const std::vector<Program>& programs, size_t pages) {
  Interleavings all{.programs = programs,
                    .pages = pages,
                    .pc = std::vector<size_t>(programs.size()),
                    .registers = std::vector<uint64_t>(programs.size() * kRegisters)};
  all.go();
  return all.outcomes;
}

}  // namespace multigrain::page_programs
