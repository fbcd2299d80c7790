// Every component declares the message types and the words of its own. This file, where all of them meet, checks at
// compile time that no two components have taken the same.
#include <array>
#include <cstddef>

#include "coherence/hazard_words.h"
#include "coherence/hlrc/words.h"
#include "coherence/mgs/message_types.h"
#include "coherence/placement/message_types.h"
#include "coherence/sc/message_types.h"
#include "coherence/shasta/message_types.h"
#include "memory/heap/shared_heap.h"
#include "memory/heap/words.h"
#include "races/words.h"
#include "runtime/message_types.h"
#include "sync/futex/messages.h"
#include "sync/messages.h"
#include "sync/words.h"

namespace multigrain {
namespace {

template <size_t kCount>
constexpr bool are_disjoint(const std::array<words::Range, kCount>& ranges) {
  for (size_t i = 0; i < kCount; ++i) {
    if (ranges[i].bytes == 0) return false;
    for (size_t j = 0; j < i; ++j)
      if (ranges[i].begin < ranges[j].end() && ranges[j].begin < ranges[i].end()) return false;
  }
  return true;
}

template <size_t kCount>
constexpr bool end_at(const std::array<words::Range, kCount>& ranges, uint64_t end) {
  uint64_t last = 0;
  for (const words::Range& range : ranges) last = last < range.end() ? range.end() : last;
  return last == end;
}

constexpr words::Range types(unsigned first, unsigned end) {
  return {first, end - first};
}

constexpr std::array kWords{words::kTestWords,  words::kNoticeWords,    words::kLockWords,
                            words::kFetchWords, words::kHazardWords,    words::kHomeWords,
                            words::kCondWords,  words::kLockWantedWord, words::kRaceWords};
static_assert(are_disjoint(kWords) && end_at(kWords, words::kBytes));

constexpr std::array kMessageTypes{types(message_range::kMgs, message_range::kMgsEnd),
                                   types(message_range::kSc, message_range::kScEnd),
                                   types(message_range::kPlacement, message_range::kPlacementEnd),
                                   types(message_range::kShasta, message_range::kShastaEnd),
                                   types(message_range::kSync, message_range::kSyncEnd),
                                   types(message_range::kFutex, message_range::kFutexEnd),
                                   types(message_range::kHeap, message_range::kHeapEnd),
                                   types(message_range::kRuntime, message_range::kRuntimeEnd),
                                   types(message_range::kTest, message_range::kTestEnd)};
static_assert(are_disjoint(kMessageTypes) && end_at(kMessageTypes, 0x100));
static_assert(sync_message::kEnd <= message_range::kSyncEnd && heap_message::kEnd <= message_range::kHeapEnd &&
              futex_message::kEnd <= message_range::kFutexEnd);

}  // namespace
}  // namespace multigrain
