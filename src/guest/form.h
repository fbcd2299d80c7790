// The form of a system call's arguments: which are values, and how many bytes the call reads and writes where the
// others point. The host needs it to make calls with copies of the guest's memory. calls.def and commands.def have the
// forms in the notation that form_notation.h reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace multigrain::guest {

// All system calls have numbers below this one.
inline constexpr size_t kCalls = 512;

// Says whether the call reads the bytes, writes them, or both.
enum class Way : uint8_t { kIn, kOut, kBoth };

// Says where the number of units stands.
enum class Count : uint8_t {
  kOne,
  kLong,  // argument `from`
  kInt,   // argument `from`, which has 32 bits
  // Units are longs: as many as hold the bits that argument `from` counts, which has 32 bits.
  kBits,
  kPointed,  // the 32-bit word to which argument `from` points
  kInside,   // the 32-bit word `from` bytes behind the begin
};

enum class Kind : uint8_t {
  kValue,
  kString,    // a string that ends with a zero
  kBytes,     // `before` bytes and units of `unit` bytes
  kVector,    // iovecs, as many as argument `from` says
  kMessage,   // one msghdr
  kMessages,  // mmsghdrs, as many as 32-bit argument `from` says
  kNested,    // a structure with one address in it: nested_shape(from)
};

struct Shape {
  Kind kind = Kind::kValue;
  Way way = Way::kIn;
  Count count = Count::kOne;
  uint8_t from = 0;
  uint16_t before = 0;
  uint16_t unit = 0;
  // The call may be made for fewer units, and its result says how many it has done.
  bool is_up_to = false;
  // If not all bytes are readable, the call gets those before the first that is not.
  bool is_what_is_there = false;
  // It is no error if what the call has written cannot be stored.
  bool may_stay = false;
};

struct Form {
  std::array<Shape, 6> arguments{};
  uint8_t count = 0;
  // The form depends on the command in this argument; -1: on none.
  int8_t command = -1;
  bool is_known = false;
};

// Describes a structure that a call reads, with the address of something else that the call reads or writes.
struct NestedShape {
  const char* name;
  uint16_t size;
  uint16_t address_at;
  Way way;  // how the call uses the memory there
  uint16_t bytes;
  // If not zero: a word of that many bytes at `count_at` says how many times there are `bytes`.
  uint8_t count_size;
  uint16_t count_at;
};

// Returns the shape at this place in the list of form_notation.h.
const NestedShape& nested_shape(size_t index);
// Returns the place of the shape of mq_notify() by a thread. That call's form depends on what its argument points to.
uint8_t notify_shape();

// Returns the form of that call with these arguments. If it is not known, the call cannot be made with copies of what
// its addresses mean.
Form form_of(long number, const uint64_t arguments[6]);

}  // namespace multigrain::guest
