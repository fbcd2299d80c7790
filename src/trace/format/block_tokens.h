// This says what the bytes of a block stand for (docs/internals/trace-format.md, "Data blocks"), for its encoder and
// its decoder.
#pragma once

#include <cstdint>

#include "trace/trace.h"

namespace multigrain::trace::block_tokens {

// This is a slot's predictor. Slots are named by index here and by byte offset in the decoder.
constexpr uint32_t kNone = ~0u;

// A token is a byte. Its low half is the kind, which says what ends a run of correct predictions. Its high half is the
// length of the run, with kLongRun for "kLongRun + the next number of the values stream". The kind is 2 * the
// successor's choice + whether the address was mispredicted; with kind 0 the processor's references end.
constexpr unsigned kLongRun = 15;
enum Choice : unsigned {
  kNext = 0,         // the predicted successor
  kAlternativeOnce,  // the alternative successor, which stays the alternative
  kAlternative,      // the alternative successor, which changes places with the predicted one
  kExplicitOnce,     // the slot that the values stream names; nothing is learned
  kExplicitSecond,   // that slot, which becomes the alternative
  kExplicitFirst,    // that slot, which becomes the predicted one, and the predicted one becomes the alternative
  kChoices,
};

// This says how a mispredicted address is given, in the low bits of a byte of the addresses' kinds stream; the bits
// above are the bytes of the value - 1.
enum AddressMode : unsigned {
  kFromOwn = 0,   // value + the slot's last address
  kFromPrevious,  // value + the processor's last address
  kFromBase,      // value + the last address of the slot that predictions start from
  kLearnOwn,      // value + the slot's last address; later predictions do the same
  kLearnBase,     // value + the last address of the slot that the values stream names; later predictions do the same
  kAddressModes,
};

// The order of the processors has a byte for each run. Its low half is the step from the last run's processor to this
// one's, less 1, modulo their number; its high half the length less 1; kEscape in either: that + the next number of the
// stream of values.
constexpr unsigned kEscape = 15;

// These bits say which fields of an event follow, in this order.
enum EventField : unsigned {
  kHasProcessor = 1,
  kHasAddress = 2,
  kHasValue = 4,
  kHasName = 8,
  kHasSite = 16,
  kEventFields = 32,
};
constexpr unsigned kEventKinds = 8;
static_assert(static_cast<unsigned>(EventKind::kEnd) + 1 == kEventKinds);

}  // namespace multigrain::trace::block_tokens
