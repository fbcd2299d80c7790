// The state of a machine that runs HLRC's driver (hlrc_driver_world.h), as far as it is not a driver's or on a stack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.h"
#include "coherence/hlrc/fault_history.h"
#include "fabric/fabric.h"
#include "hlrc_scenarios.h"
#include "node_memory.h"
#include "page_rights.h"
#include "profile/profile.h"

namespace multigrain::hlrc::explored {

inline constexpr size_t kWordBytes = sizeof(uint64_t);
inline constexpr size_t kOperations = 12;    // that a processor has under way
inline constexpr uint64_t kLogEntries = 24;  // of a ring, that are ever written, unless it goes round

enum class At : uint8_t { kStep, kChoice, kSpin, kWait, kLock, kBarrier, kGather, kLearn, kEnd };

// A word of memory that others may access. 0: none.
using Word = uint64_t;
constexpr Word word_at(unsigned node, SegmentId segment, uint64_t offset) {
  return uint64_t{1} << 63 | static_cast<uint64_t>(node) << 48 | static_cast<uint64_t>(segment) << 40 |
         offset / kWordBytes;
}
constexpr unsigned node_of(Word word) {
  return static_cast<unsigned>(word >> 48 & 0xff);
}
constexpr SegmentId segment_of(Word word) {
  return static_cast<SegmentId>(word >> 40 & 0xff);
}
constexpr uint64_t offset_of(Word word) {
  return (word & 0xffffffffff) * kWordBytes;
}

// Where a processor stands.
struct Place {
  At at = At::kEnd;
  bool writes = false;     // kStep: the word
  bool is_behind = false;  // of a barrier, and acquires; or has released there, and gathers
  uint8_t pc = 0;
  uint8_t meeting = 0;    // kBarrier, kGather, kLearn
  uint8_t waits_for = 0;  // kWait: the operation
  Category category = Category::kStopped;
  Word word = 0;             // kStep: what it accesses next
  SpinLock* lock = nullptr;  // kSpin
  bool choice = false;       // kChoice: what the driver will decide
  FaultHistory history{};
};

// A remote operation under way, or a change of rights that takes effect late.
struct Operation {
  enum class Kind : uint8_t { kNone, kPut, kGet, kSwap, kRights };
  Kind kind = Kind::kNone;
  bool nobody_waits = false;
  uint8_t at = 0;     // node
  uint8_t after = 0;  // 1 + which operation of the processor must have taken effect
  SegmentId segment = SegmentId::kFrames;
  uint32_t pending = 0;  // of its words, a bit each
  uint64_t offset = 0;
  std::byte* to = nullptr;
  std::array<std::array<uint8_t, kWordBytes>, kMaxWords> bytes{};  // of puts
  std::array<uint8_t, kMaxWords> mask{};                           // which of them
  uint64_t value = 0;
  uint64_t* old = nullptr;
};

// How far behind an operation's first byte its words are. Of a page there are the words that programs use.
inline uint64_t place_of(const Operation& operation, unsigned word) {
  if (operation.segment != SegmentId::kFrames) return word * kWordBytes;
  return word / kMaxWords * node_memory::kPage + word % kMaxWords * kWordBytes;
}
inline Word word_of(const Operation& operation, unsigned word) {
  return word_at(operation.at, operation.segment, operation.offset + place_of(operation, word));
}

using exploring_driver::Right;

struct Shared {
  std::array<Place, kMaxProcessors> places;
  std::array<std::array<Operation, kOperations>, kMaxProcessors> operations;
  std::array<uint8_t, kMaxLocks> lock_holder{};   // 1 + processor
  std::array<uint8_t, kMaxLocks> lock_from{};     // 1 + the node that let it go last
  uint8_t arrived = 0;                            // processors at the barrier, or nodes if homes follow
  std::array<uint8_t, kMaxNodes> arrived_here{};  // processors of the node, if homes follow
  // Where pages are at home since the last meeting, and were before it.
  std::array<uint8_t, kMaxPages> homes{};
  std::array<uint8_t, kMaxPages> former_homes{};
  std::array<Writers, kMaxPages> writers{};
  uint8_t meetings = 0;
  // At how many of them each node has gathered, and learnt, if notices are gathered.
  std::array<uint8_t, kMaxNodes> gathered{};
  std::array<uint8_t, kMaxNodes> learned{};
  // As the drivers have said: 1 + where the page is at home, if lines keep it coherent at the node.
  std::array<std::array<uint8_t, kMaxPages>, kMaxNodes> by_lines{};
  std::array<std::array<uint64_t, kMaxWords>, kMaxPages> golden{};
  std::array<std::array<Right, kMaxPages>, kMaxNodes> rights{};  // as the drivers have set them
  std::array<std::array<Right, kMaxPages>, kMaxNodes> actual{};  // what processors may do: the same, but for mutants
};

}  // namespace multigrain::hlrc::explored
