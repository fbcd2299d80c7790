// The recorder's runtime, inside a traced program, hands this to the process that merges its streams: one file of
// fixed-size chunks (each belongs to the stream of one processor), and one file of descriptions. Both are unlinked
// files whose descriptors the traced program inherits, so that nothing is left behind, and what was written is there
// however the program ends.
//
// The header is freestanding, because the runtime is linked into any C program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bursts.h"

namespace multigrain::trace::raw {

inline constexpr uint32_t kVersion = 3;
// This variable of the environment turns recording on; it has the two descriptors, "chunks,descriptions".
inline constexpr const char* kEnvironment = "MULTIGRAIN_RECORD";

inline constexpr size_t kChunkBytes = size_t{256} << 10;
inline constexpr uint32_t kChunkMagic = 0x4b43474d;  // "MGCK"
inline constexpr unsigned kMaxProcessors = 65535;

// A record is some words of 8 bytes: the head, address | size << 48 | kind << 56, and what belongs to its kind. The head is written
// last, with release order, so that a record with a head other than 0 is complete; the word behind a record is 0 until there is
// another.
enum class Kind : uint8_t {
  kNone = 0,  // the end of the records that were written; what follows means nothing
  // References: the next word is site | (private references since the previous record) << 32.
  kRead,
  kWrite,
  kTime,     // the next word: the clock from here on
  kPrivate,  // the next word: so many private references
  kCalls,    // the next word: the calls (State::calls) that led to the references from here on that are in no group
  // References of a group, whose number is in the lower half of the head's address, and the calls that led to it in the upper 24
  // bits before the kind: the addresses of the group's bases.
  kGroup,
  kLoop,  // the same for a loop: the number of iterations, and the addresses in the last one
  // Events: the next word as for a reference, the clock, a value.
  kAllocate,  // value: bytes
  kFree,
  kAcquire,
  kRelease,
  kBarrier,
  kStart,  // address, value: the thread's stack
  kEnd,
};
inline constexpr unsigned kWordsOfReference = 2;
inline constexpr unsigned kWordsOfEvent = 4;
// A group has so many bases at most.
inline constexpr unsigned kMaxBases = 12;
// The words of the longest record, a loop's, and the word behind it.
inline constexpr unsigned kMostWords = 3 + kMaxBases;

// Calls that led somewhere have a number of at most 24 bits, 0 if they are not known, which is in words at these bits.
inline constexpr unsigned kCallsShift = 32;
inline constexpr uint32_t kMostCalls = 1u << 16;  // more are not told apart

inline constexpr uint64_t kAddressMask = (uint64_t{1} << 48) - 1;

constexpr uint64_t head_of(Kind kind, uint64_t address, uint64_t size) {
  return (address & kAddressMask) | size << 48 | static_cast<uint64_t>(kind) << 56;
}
constexpr uint64_t tail_of(uint32_t site, uint64_t private_references) {
  return site | private_references << 32;
}

// This stands before the records of a chunk. Chunk i lies at offset (i + 1) * kChunkBytes, and before them all is the
// Control.
//
// A processor has one chunk that is mapped, its buffer, to which its records go. A full buffer is copied into another chunk by a
// system call, and begins again as the next in sequence: so that no page is touched for the first time but the buffer's.
// However the program ends, each record is in the buffer, in the copy, or in both, which then have the same sequence.
struct ChunkHeader {
  uint32_t magic;  // written last
  uint16_t processor;
  uint16_t is_buffer;  // 0: it is a copy
  uint64_t sequence;   // the number of this chunk in its processor's stream
};
static_assert(sizeof(ChunkHeader) == 16);
inline constexpr size_t kWordsOfChunk = (kChunkBytes - sizeof(ChunkHeader)) / sizeof(uint64_t);

// The traced program and its recorder share this. The recorder sets version, reference_limit and bursts.
struct Control {
  uint32_t version;
  uint32_t reserved;
  uint64_t reference_limit;  // the recording stops behind about so many references; 0: no limit
  uint64_t references;       // that were recorded, as far as threads have said so
  uint32_t chunks;           // how many have been taken so far
  uint32_t processors;       // how many numbers have been given out: 0 to processors - 1
  uint32_t attached;         // the program contains the runtime
  int32_t error;             // the errno value that stopped the recording; 0: none
  uint64_t stop_clock;       // after an error: all records up to this time are in the file
  uint64_t spins;            // reads of busy waiting that were left out
  uint64_t dropped;          // references that could not be recorded (of signal handlers that interrupt the runtime)
  Bursts bursts;
  uint64_t skipped;  // references between bursts of which no record was kept
};

// A description is this, and then `bytes` bytes.
enum class Description : uint32_t {
  kSites = 1,  // u32 first site, u32 count; for each: u32 line, then file, function, name, each ended by a 0
  // u32 first group, u32 count; for each: u32 accesses, u32 bases, u32 whether it is a loop, u32 0, u64 private references; the
  // bases' strides, i64, of a loop; the AccessDescriptions, of which sites are counted from the first site of all.
  kGroups = 2,
  // u32 number, u32 the number of the calls that led to the caller, u32 the site of the call
  kCalls = 3,
};
struct DescriptionHeader {
  Description kind;
  uint32_t bytes;
};

// The compiler pass lays this down in each object file, and hands it to the runtime at start-up. The pass builds the
// same types in LLVM's terms (pass/record_pass.cpp): change both.
struct SiteDescription {
  const char* file;
  const char* function;
  const char* name;  // the name of the variable that is allocated there; "": none
  uint32_t line;
  uint32_t reserved;
};
struct GlobalDescription {
  const void* address;
  uint64_t bytes;
  uint32_t site;  // an index into this module's sites
  uint32_t reserved;
};
struct AccessDescription {
  int64_t offset;  // from its base
  uint32_t site;   // an index into this module's sites
  uint16_t base;
  uint8_t kind;  // kRead or kWrite
  uint8_t bytes;
};
static_assert(sizeof(AccessDescription) == 16);
// References that are recorded together (pass/groups.h).
struct GroupDescription {
  const AccessDescription* access;
  const int64_t* strides;  // of its bases, by iteration; nullptr: it is no loop
  const uint32_t* first_site;
  uint64_t private_references;  // before the first access; of a loop, in each iteration
  uint32_t accesses;
  uint32_t bases;
};
// A call of the program. The instrumented code reads `known` before it, and calls the runtime if these are not the calls that led
// there.
struct CallDescription {
  uint64_t
      known;  // the number of the calls that led to the caller, and, from kCallsShift on, that of these with this call
  const void* function;  // the caller
  const uint32_t* first_site;
  uint32_t site;  // an index into this module's sites
  uint32_t reserved;
};
inline constexpr uint64_t kNoKnownCalls = 0xffffffff;
struct ModuleDescription {
  uint32_t version;
  uint32_t sites;
  const SiteDescription* site;
  uint32_t* first_site;  // the runtime sets this to the number of site 0
  uint64_t globals;
  const GlobalDescription* global;
  uint32_t* first_group;  // the runtime sets this to the number of group 0
  const GroupDescription* const* group;
  uint64_t groups;
};

// What instrumented code knows of a thread's state in the runtime, which begins with this.
struct State {
  uint64_t* next;   // the place of the next record
  uint64_t* limit;  // from here on the runtime has to be called for a record
  uint64_t stack_low;
  uint64_t private_stack_bytes;  // no other thread can know an object in so many bytes from stack_low
  uint64_t clock;
  uint64_t other;               // how much of the clock is not references that were recorded
  uint64_t private_references;  // that no record has
  uint64_t calls;               // the number of those that led to the function that runs, from kCallsShift on
  uint64_t spare[kMostWords];   // a record that the runtime shall write
};

}  // namespace multigrain::trace::raw
