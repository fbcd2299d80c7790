// The nodes of a run with --record share one file, which mgrun has made, and which has no name: the records of what their threads refer
// to, and of what the placement does. mgrun makes a trace of it when the run is over (trace/record/run_recording.h).
//
// Time is a clock of the whole run ([Lamport]). A thread's clock counts its references; what one thread has to know of another
// moves clocks forward (recorder.h says when). The shared clock is never behind an event of any node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bursts.h"

namespace multigrain::record {

inline constexpr uint64_t kMagic = 0x31'44'52'43'45'52'47'4d;  // "MGRECRD1"
inline constexpr size_t kChunkBytes = size_t{256} << 10;

// The first chunk of the file is this. mgrun sets `magic` and `bursts`.
struct Control {
  uint64_t magic = 0;
  std::atomic<uint64_t> clock{0};
  std::atomic<uint64_t> chunks{0};    // how many have been taken
  std::atomic<uint32_t> attached{0};  // nodes that record
  std::atomic<uint32_t> page_size{0};
  Bursts bursts{};  // ticks of the clock whose references are recorded
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Control) <= kChunkBytes);

enum class ChunkKind : uint32_t {
  kReferences = 1,  // of one thread: ReferenceRecords
  kEvents = 2,      // of one node: EventRecords
  kMappings = 3,    // of node 0: text of /proc/self/maps, ended by a zero
};

// This stands before the records of a chunk. Chunk i lies at offset (i + 1) * kChunkBytes.
//
// A stream has one chunk that is mapped, its buffer, to which its records go. A full buffer is copied into another chunk by a system
// call, and begins again as the next in sequence: so that no page is touched for the first time but the buffer's. Whenever a process
// ends, each record is in the buffer, in the copy, or in both, which then have the same sequence.
struct ChunkHeader {
  std::atomic<ChunkKind> kind{};  // written last; 0: the node took the chunk, and ended before it used it
  uint16_t node = 0;
  uint16_t is_buffer = 0;  // 0: it is a copy
  uint32_t stream = 0;     // the thread's, of its node
  uint32_t sequence = 0;   // the number of this chunk in its stream
  uint64_t left_out = 0;   // of a thread's buffer: references between bursts, of which there are no records
};
static_assert(sizeof(ChunkHeader) == 24);

// Bytes of shared memory that a thread has read or written. Those of one access are in one page; of an access that crosses pages
// there are several records. Clocks never fall in a stream.
struct ReferenceRecord {
  std::atomic<uint64_t> clock{
      0};                // written last; 0: there are no more records in this chunk, and what follows means nothing
  uint64_t address = 0;  // bit 63: it was written
  uint64_t caller = 0;   // behind the instruction
  uint32_t bytes = 0;
  uint32_t private_references = 0;  // since the record before
};
static_assert(sizeof(ReferenceRecord) == 32);
inline constexpr uint64_t kWrites = uint64_t{1} << 63;
// A longer access is a copy or a fill, and counts as references of a word each.
inline constexpr uint32_t kLargestAccess = 64;
// By so much an access moves the clock of its thread.
constexpr uint64_t ticks_of(uint64_t bytes) {
  return bytes <= kLargestAccess ? 1 : (bytes + 7) / 8;
}

enum class EventKind : uint8_t {
  kDecided = 1,  // by the policy, at the page's home
  kPinned,       // by the program, at the page's home: `answer` is the Pin
  kGranted,      // the node has the right `right` from now on
  kLowered,      // the node has no more than `right` from now on
};

// An event of the placement. Its clock is that of no other event.
struct EventRecord {
  std::atomic<uint64_t> clock{0};  // as above
  uint64_t page = 0;               // address / page size
  uint64_t policy_page = 0;        // kDecided: the page's number, as the policy was told it
  uint64_t now = 0;                // kDecided: the time that the policy was told, ns
  uint64_t holders = 0;            // kDecided: of the directory's entry
  uint16_t node = 0;               // whose request it is, or who has the right
  EventKind kind{};
  uint8_t right = 0;      // placement::State; kDecided: the access that is wanted
  uint8_t answer = 0;     // kDecided: placement::Location
  uint8_t placement = 0;  // kDecided: placement::Placement, of the directory's entry
  uint16_t reserved = 0;
};
static_assert(sizeof(EventRecord) == 48);

template <typename Record>
inline constexpr size_t kRecordsOfChunk = (kChunkBytes - sizeof(ChunkHeader)) / sizeof(Record);

}  // namespace multigrain::record
