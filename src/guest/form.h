// The form of a system call's arguments: which are values, and how many bytes the call reads and writes where the others
// point. calls.def and commands.def have them in the notation that form_notation.h reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace multigrain::guest {

enum class Way : uint8_t { kIn, kOut, kBoth };  // what the call does with the bytes: reads, writes, or both

// How many units of bytes there are.
enum class Count : uint8_t {
  kOne,
  kLong,     // as argument `from` says
  kInt,      // as argument `from` says, which has 32 bits
  kBits,     // as many longs as have that many bits, which are 32
  kPointed,  // as the word of 32 bits says to which argument `from` points
  kInside,   // as the word of 32 bits says that is `from` bytes behind their begin
};

enum class Kind : uint8_t {
  kValue,
  kString,    // ends with a zero
  kBytes,     // `before` bytes and units of `unit` bytes
  kVector,    // iovecs, as many as argument `from` says
  kMessage,   // one msghdr
  kMessages,  // mmsghdrs, as many as argument `from` says, which has 32 bits
  kNested,    // a structure with one address in it: nested_shape(from)
};

struct Shape {
  Kind kind = Kind::kValue;
  Way way = Way::kIn;
  Count count = Count::kOne;
  uint8_t from = 0;
  uint16_t before = 0;
  uint16_t unit = 0;
  bool is_up_to = false;          // the call may be made for fewer units, and its result says how many it has done
  bool is_what_is_there = false;  // of bytes that are not all readable, those before
  bool may_stay = false;          // it is no error if what the call has written cannot be stored
};

struct Form {
  std::array<Shape, 6> arguments{};
  uint8_t count = 0;
  // The argument that has a command, on which the form depends; -1: none.
  int8_t command = -1;
  bool is_known = false;
};

// A structure that a call reads, with the address of something else that it reads or writes.
struct NestedShape {
  const char* name;
  uint16_t size;
  uint16_t address_at;
  Way way;  // of what is there
  uint16_t bytes;
  // If not zero: how many times `bytes`, by a word of so many bytes.
  uint8_t count_size;
  uint16_t count_at;
};

// By its place in the list of form_notation.h.
const NestedShape& nested_shape(size_t index);
// That of mq_notify() by a thread, whose form depends on what it points to.
uint8_t notify_shape();

// The form of that call with these arguments. Not known: the call cannot be made with copies of what its addresses mean.
Form form_of(long number, const uint64_t arguments[6]);

}  // namespace multigrain::guest
