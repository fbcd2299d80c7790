#include "report/crash_report.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/checked_memory.h"
#include "memory/layout.h"
#include "report/origins.h"
#include "report/symbols.h"
#include "sync/handle.h"

namespace multigrain {
namespace {

using Statuses = std::span<const NodeStatus* const>;

// An address below this is taken for a null pointer with an offset.
constexpr uint64_t kNullPage = 65536;
// An address at most this far from a known one is taken to belong to it.
constexpr uint64_t kNear = 65536;

constexpr const char* kRegisters[] = {"r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15",
                                      "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp"};

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

Symbols symbols_of(const NodeStatus& node) {
  const CrashRecord& crash = node.crash;
  std::vector<LoadedModule> modules;
  const uint32_t count = std::min(crash.modules.load(std::memory_order_acquire), CrashRecord::kMaxModules);
  for (uint32_t i = 0; i < count; ++i) {
    std::string path = text_of(crash.module[i].path);
    if (path.empty()) path = text_of(node.program);
    modules.push_back({std::move(path), crash.module[i].base});
  }
  return Symbols::of_modules(modules);
}

std::string signal_text(const CrashRecord& crash) {
  const auto number = static_cast<int>(crash.signal);
  const char* const description = sigdescr_np(number);
  std::string text = fmt::format("signal {} ({})", number, description != nullptr ? description : "no name");
  if (number == SIGFPE && crash.code == FPE_INTDIV) text += ": an integer was divided by zero";
  if (number == SIGFPE && crash.code == FPE_INTOVF) text += ": an integer overflowed";
  return text;
}

bool is_flag_value(uint64_t value) {
  return value - MG_FINE_FLAG64 < kNear || MG_FINE_FLAG64 - value < kNear;
}

constexpr std::string_view kFlag =
    "the flag value that stands in the lines which a node has not got: code that was compiled without access checks (a "
    "library, perhaps) has read shared memory under a line protocol; see docs/user/mgcc.md";

// Describes a general protection fault. The processor does not say which address caused it, so the registers are
// searched for the flag value.
std::string not_canonical(const CrashRecord& crash) {
  std::string text = "at an address that no program can have (not canonical)";
  for (size_t i = 0; i < std::size(kRegisters); ++i)
    if (is_flag_value(crash.registers[i]))
      return text + fmt::format("; register {} holds {:#x}: {}", kRegisters[i], crash.registers[i], kFlag);
  return text;
}

bool in_stack(const ProcessorStatus& processor, uint64_t address) {
  return address >= processor.stack_low.load(std::memory_order_relaxed) &&
         address < processor.stack_high.load(std::memory_order_relaxed);
}

const ProcessorStatus* crashed_processor(const NodeStatus& node) {
  const uint32_t local = node.crash.processor - node.first_processor;
  return local < std::min(node.processors, Config::kMaxProcessorsPerNode) ? &node.processor[local] : nullptr;
}

bool is_stack_overflow(const CrashRecord& crash, const ProcessorStatus& processor) {
  const uint64_t low = processor.stack_low.load(std::memory_order_relaxed);
  const uint64_t high = processor.stack_high.load(std::memory_order_relaxed);
  if (low == 0 || crash.stack_pointer >= high) return false;
  // The stack overflowed if the stack pointer, or the address that was accessed, is near the stack's low end or beyond
  // it, where the guard pages are.
  return crash.stack_pointer < low + kNear || (crash.address < low + kNear && crash.address + kNear > low);
}

std::string in_region(const NodeStatus& node, Statuses all, uint64_t address, Symbols& symbols) {
  const auto line = [&](uint64_t site) { return symbols.line_of_call(site); };
  const auto block = find_block(all, address);
  if (!block) return "in the shared region, where nothing was allocated";
  const uint64_t into = address - block->key;
  const std::string what = describe_block(*block, line);
  if (block->size == 0 || into < block->size) return fmt::format("byte {} of {}", into, what);
  static_cast<void>(node);
  return fmt::format("{} bytes beyond the end of {}, the nearest below it that is known", into - block->size, what);
}

// Says to what the memory at the accessed address belongs.
std::string whose(const NodeStatus& node, Statuses all, Symbols& symbols) {
  const CrashRecord& crash = node.crash;
  const uint64_t address = crash.address;
  if (address < kNullPage)
    return address == 0 ? "a null pointer" : fmt::format("{} bytes from a null pointer", address);
  if (address - MG_FINE_FLAG32 < kNear || MG_FINE_FLAG32 - address < kNear) return fmt::format("half of {}", kFlag);
  const ProcessorStatus* const own = crashed_processor(node);
  if (own != nullptr && is_stack_overflow(crash, *own))
    return fmt::format(
        "the stack of processor {} overflowed: it has {} KiB (ulimit -s sets the size; large arrays belong into the "
        "heap)",
        crash.processor,
        (own->stack_high.load(std::memory_order_relaxed) - own->stack_low.load(std::memory_order_relaxed)) / 1024);
  if (node.region_size != 0 && address - node.region < node.region_size) return in_region(node, all, address, symbols);
  for (const NodeStatus* const other : all) {
    if (other == &node) continue;
    for (uint32_t i = 0; i < std::min(other->processors, Config::kMaxProcessorsPerNode); ++i)
      if (in_stack(other->processor[i], address))
        return fmt::format(
            "in the stack of processor {} on node {}: what is on a stack exists on its own node only; pass data in "
            "shared memory (mg_alloc) or in the pointer itself",
            other->first_processor + i, other->node);
  }
  if (address - layout::kPrivateHeapBase < layout::kPrivateHeapSize)
    return fmt::format(
        "in the private heap, where node {} has nothing at that address: memory of malloc and new exists on its own "
        "node only, from the spawn that copied node 0's; pass data in shared memory (mg_alloc)",
        node.node);
  if (crash.signal == SIGBUS) return "in a mapped file, beyond its end, or memory that the system could not supply";
  return crash.code == SEGV_ACCERR ? "memory that must not be accessed so" : "where this node has no memory";
}

std::string headline(const NodeStatus& node, Statuses all, Symbols& symbols) {
  const CrashRecord& crash = node.crash;
  std::string text = fmt::format("node {}", node.node);
  if (crash.processor != CrashRecord::kNoProcessor)
    text += fmt::format(", processor {} (pid {}, thread {})", crash.processor, node.pid, crash.thread);
  else
    text += fmt::format(", a thread that is no processor (pid {}, thread {})", node.pid, crash.thread);
  text += fmt::format(": {}", signal_text(crash));
  const bool from_outside = crash.code == SI_USER || crash.code == SI_QUEUE;
  if (from_outside && crash.sender != node.pid) return text + fmt::format(", sent by process {}", crash.sender);
  if (crash.subject == CrashRecord::kFreedPointer) {
    const auto block = find_block(all, crash.address);
    text += fmt::format(": mg_free was called with {:#x}", crash.address);
    if (const uint64_t site = crash.free_site.load(std::memory_order_relaxed); site != 0)
      text += fmt::format(" at {}", symbols.line_of_call(site));
    if (block && (block->made != 0 || block->freed != 0) &&
        (block->key == crash.address || crash.address - block->key < block->size)) {
      text += crash.address == block->key ? ", " : fmt::format(", byte {} of ", crash.address - block->key);
      text += describe_block(*block, [&](uint64_t at) { return symbols.line_of_call(at); });
    }
    return text;
  }
  if (crash.subject != CrashRecord::kAccess) return text;
  if (crash.signal == SIGSEGV && crash.code == SI_KERNEL) return text + " " + not_canonical(crash);
  return text + fmt::format(" {} {:#x}: {}",
                            crash.address == crash.pc ? "executing"
                            : crash.is_write != 0     ? "writing to"
                                                      : "reading from",
                            crash.address, whose(node, all, symbols));
}

}  // namespace

std::string describe_crash(const NodeStatus& node, Statuses others) {
  const CrashRecord& crash = node.crash;
  if (!node.is_attached() || crash.state.load(std::memory_order_acquire) == CrashRecord::kNone) return {};
  Symbols symbols = symbols_of(node);
  std::string text = headline(node, others, symbols);
  const uint32_t frames = crash.frames.load(std::memory_order_acquire);
  uint32_t number = 0;
  bool in_program = true;
  std::string before;
  unsigned repeated = 0;
  const auto end_repetition = [&] {
    if (repeated != 0) text += fmt::format(" ({} times)", std::exchange(repeated, 0) + 1);
  };
  const auto add = [&](const CrashRecord::Frame& frame) {
    for (const std::string& function : symbols.describe_all(frame.pc, frame.is_call != 0)) {
      // The runtime's functions that call the program's are left out.
      in_program = in_program && !function.starts_with("multigrain::Processors::");
      if (!in_program || function.starts_with("run_here ")) continue;
      if (function == before) {
        ++repeated;
        ++number;
        continue;
      }
      end_repetition();
      before = function;
      text += fmt::format("\n  #{} {}", number++, function);
      if (function.starts_with("main at ") || function.starts_with("main+")) in_program = false;
    }
  };
  for (uint32_t i = 0; i < std::min(frames, CrashRecord::kMaxFrames); ++i) add(crash.frame[i]);
  if (frames > CrashRecord::kMaxFrames) {
    const uint32_t last = std::min(frames - CrashRecord::kMaxFrames, CrashRecord::kLastFrames);
    const uint32_t omitted = frames - CrashRecord::kMaxFrames - last;
    end_repetition();
    before.clear();
    if (omitted != 0) text += fmt::format("\n  ... {} more calls ...", omitted);
    number += omitted;
    for (uint32_t i = 0; i < last; ++i)
      add(crash.last[(frames - CrashRecord::kMaxFrames - last + i) % CrashRecord::kLastFrames]);
  }
  end_repetition();
  if (crash.state.load(std::memory_order_acquire) != CrashRecord::kComplete)
    text += "\n  (the stack could not be followed further)";
  return text;
}

std::string describe_mistake(const NodeStatus& node, Statuses others) {
  const MistakeRecord& mistake = node.mistake;
  if (!node.is_attached() || mistake.state.load(std::memory_order_acquire) != 2) return {};
  // Only the program's own code can be looked up. The process is gone, and the record does not say where it
  // had loaded libraries.
  const LoadedModule program{text_of(node.program), node.program_base};
  Symbols symbols = Symbols::of_modules({&program, 1});
  const SyncHandle lock = SyncHandle::decode(SyncId(mistake.lock));
  std::string text = fmt::format("node {}, processor {}: {}: lock {}", node.node, mistake.processor,
                                 text_of(mistake.sentence), lock.index);
  if (lock.creator != NodeId(0)) text += fmt::format(" of node {}", lock.creator.value);
  if (const auto origin = find_origin(others, mistake.lock); origin && origin->made != 0)
    text += fmt::format(" (created at {})", symbols.line_of_call(origin->made));
  for (const auto& place : mistake.place)
    if (place.site != 0) text += fmt::format(", {} at {}", text_of(place.label), symbols.line_of_call(place.site));
  return text;
}

}  // namespace multigrain
