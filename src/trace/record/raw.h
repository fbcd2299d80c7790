// The recorder's runtime, inside a traced program, hands this to the process that merges its streams: one file of
// fixed-size chunks (each belongs to the stream of one processor), and one file of descriptions. Both are unlinked
// files whose descriptors the traced program inherits, so that nothing is left behind, and what was written is there
// however the program ends.
//
// The header is freestanding, because the runtime is linked into any C program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace multigrain::trace::raw {

inline constexpr uint32_t kVersion = 1;
// This variable of the environment turns recording on; it has the two descriptors, "chunks,descriptions".
inline constexpr const char* kEnvironment = "MULTIGRAIN_RECORD";

inline constexpr size_t kChunkBytes = size_t{256} << 10;
inline constexpr uint32_t kChunkMagic = 0x4b43474d;  // "MGCK"
inline constexpr unsigned kMaxProcessors = 65535;

// This is the kind of a record. Those up to kWrite are references and take one Record; kTime takes one; events take
// two.
enum class Kind : uint8_t {
  kNone = 0,  // the end of the records that were written
  kRead,
  kWrite,
  kTime,      // tail: the clock from here on
  kAllocate,  // value: bytes
  kFree,
  kAcquire,
  kRelease,
  kBarrier,
  kStart,  // address, value: the thread's stack
  kEnd,
};

// The runtime writes a record's head last, with release order, so a record with a head other than 0 is complete.
struct Record {
  uint64_t head;  // address | size << 48 | kind << 56
  uint64_t tail;  // site | (private references since the previous record) << 32
};
// This is the second half of an event.
struct EventTail {
  uint64_t clock;
  uint64_t value;
};
static_assert(sizeof(Record) == 16 && sizeof(EventTail) == 16);

inline constexpr uint64_t kAddressMask = (uint64_t{1} << 48) - 1;

constexpr uint64_t head_of(Kind kind, uint64_t address, uint64_t size) {
  return (address & kAddressMask) | size << 48 | static_cast<uint64_t>(kind) << 56;
}
constexpr uint64_t tail_of(uint32_t site, uint64_t private_references) {
  return site | private_references << 32;
}

// This stands before the records of a chunk. Chunk i lies at offset (i + 1) * kChunkBytes, and before them all is the
// Control.
struct ChunkHeader {
  uint32_t magic;
  uint16_t processor;
  uint16_t reserved;
  uint64_t sequence;  // the number of this chunk in its processor's stream
};
static_assert(sizeof(ChunkHeader) == sizeof(Record));
inline constexpr size_t kRecordsOfChunk = kChunkBytes / sizeof(Record) - 1;

// The traced program and its recorder share this. The recorder sets version and chunk_limit.
struct Control {
  uint32_t version;
  uint32_t chunk_limit;  // chunks that may be written; 0: no limit
  uint32_t chunks;       // how many have been taken so far
  uint32_t processors;   // how many numbers have been given out: 0 to processors - 1
  uint32_t attached;     // the program contains the runtime
  int32_t error;         // the errno value that stopped the recording; 0: none
  uint64_t stop_clock;   // after an error: all records up to this time are in the file
  uint64_t spins;        // reads of busy waiting that were left out
  uint64_t dropped;      // references that could not be recorded (of signal handlers that interrupt the runtime)
};

// A description is this, and then `bytes` bytes.
enum class Description : uint32_t {
  kSites = 1,  // u32 first site, u32 count; for each: u32 line, then file, function, name, each ended by a 0
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
struct ModuleDescription {
  uint32_t version;
  uint32_t sites;
  const SiteDescription* site;
  uint32_t* first_site;  // the runtime sets this to the number of site 0
  uint64_t globals;
  const GlobalDescription* global;
};

}  // namespace multigrain::trace::raw
