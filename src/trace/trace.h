// This is a reference trace, as every part of src/trace sees it: the references of all processors in one order, and
// what happened between them.
//
// The order is the trace's only time ([Bolosky], chapter 4): a reference's time is its index. Files (format/) and
// recorders (record/) produce traces, import/ reads those of other tools, filters change them, and analyses consume
// them. All of these use TraceSource, which gives a batch at a time, so that no trace need fit in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain::trace {

using ProcessorId = uint16_t;
// This says which statement made a reference: it is an index into TraceHeader's table of sites. 0: not known.
using SiteId = uint32_t;

enum class Access : uint8_t { kRead = 0, kWrite = 1 };

// This is one reference to memory that processors can share.
struct Reference {
  uint64_t address;
  SiteId site;
  ProcessorId processor;
  Access access;
  uint8_t size;  // bytes, 1 to 255; a longer access is several references
};
static_assert(sizeof(Reference) == 16);

enum class EventKind : uint8_t {
  kPrivate,   // `value` references of `processor` to its own memory (code, stack), which cost the same everywhere
  kAllocate,  // `address`, `value` bytes; `name`: index into names of allocations; `site`: where
  kFree,      // `address`
  kAcquire,   // `processor` acquired the lock at `address`
  kRelease,   // `processor` released the lock at `address`
  kBarrier,   // `processor` left the barrier at `address`
  kStart,     // `processor` began to run
  kEnd,       // `processor` ended
};

// This is something that happened between two references.
struct Event {
  uint64_t position;  // how many references of the trace come before it
  uint64_t address;
  uint64_t value;
  uint32_t name;
  SiteId site;
  ProcessorId processor;
  EventKind kind;
};

struct Site {
  std::string file;  // empty: not known
  std::string function;
  uint32_t line = 0;
  SiteId caller = 0;  // the site of the call that led to the function, which has a smaller number; 0: not known
};

// A recorder that samples takes bursts of references and leaves out what is between them. The references of all bursts
// follow each other in the trace; events are all there.
struct Sampling {
  uint64_t burst = 0;     // the length of a burst in references of each processor, private ones and waiting among them
  uint64_t interval = 0;  // each stretch of so many has one burst, at a place that is drawn for it; 0: all was recorded
  double scale = 1;       // the references of the run for each one that is in the trace

  [[nodiscard]] bool is_on() const { return interval != 0; }
  friend bool operator==(const Sampling&, const Sampling&) = default;
};

// This is what is known of a trace as a whole.
struct TraceHeader {
  unsigned processors = 0;
  std::string program;   // the command that was traced, for people
  std::string recorder;  // the program that made the trace, for people
  double dilation = 0;   // time of the traced run over the untraced one; 0: not known
  Sampling sampling;
  std::vector<Site> sites;         // sites[0] is the unknown one
  std::vector<std::string> names;  // the names of allocations; names[0] is ""
};

// This is a stretch of a trace. It is valid until the next call of the source that filled it.
struct Batch {
  uint64_t first = 0;  // the index in the trace of references[0]
  std::span<const Reference> references;
  std::span<const Event> events;  // first <= position <= first + references.size(); in order
};

// This is a trace that is read once, from the beginning to the end. It is not thread-safe.
class TraceSource {
 public:
  // A batch has at most so many references: few enough that one stays in the second-level cache while it is worked on.
  static constexpr size_t kBatch = 4096;

  virtual ~TraceSource() = default;
  // The header is complete at the end of the trace; before that it has the sites and names so far.
  [[nodiscard]] virtual const TraceHeader& header() const = 0;
  // Returns the next stretch; an empty one (no references and no events) is the end. An error names the place in the
  // file; everything that earlier calls returned is good.
  virtual Result<Batch> next() = 0;
};

// This is a trace in memory, for tests, generators and small imports.
class TraceInMemory final : public TraceSource {
 public:
  TraceInMemory(TraceHeader header, std::vector<Reference> references, std::vector<Event> events = {})
      : header_(std::move(header)), references_(std::move(references)), events_(std::move(events)) {}
  [[nodiscard]] const TraceHeader& header() const override { return header_; }
  Result<Batch> next() override;
  // Begins again at the first reference.
  void rewind() { position_ = next_event_ = 0; }

 private:
  TraceHeader header_;
  std::vector<Reference> references_;
  std::vector<Event> events_;
  size_t position_ = 0;
  size_t next_event_ = 0;
};

}  // namespace multigrain::trace
