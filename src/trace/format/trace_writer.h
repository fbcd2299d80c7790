// Writes a trace file. docs/internals/trace-format.md says what is in one.
//
// The writer gives the file the name PATH.partial, and its own name when finish() has completed it, so no file that is
// called PATH is half-written. It writes every block to the file as soon as the block is full. If the writing process
// is killed, PATH.partial holds a trace up to the last whole block, which TraceFile reads with `allow_partial`
// ("mgtrace filter --repair" makes an ordinary trace of it). A writer that is destroyed without finish() removes its
// PATH.partial.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct WriteOptions {
  bool overwrite = false;  // PATH, and the PATH.partial of a writer that was killed
  int level = 3;           // zstd's, 1 to 19
  // These are the references of a block: what is lost of a trace when its writer is killed, and what a reader can skip
  // or read in parallel; larger ones compress better. At most kMaxBlockReferences.
  uint32_t block_references = 1u << 18;
};

// This is not thread-safe. After an error every further call but the destructor returns an error.
class TraceWriter {
 public:
  // These are the limits of a block; a reader rejects more as damage.
  static constexpr uint32_t kMaxBlockReferences = 1u << 20;
  static constexpr uint32_t kMaxBlockEvents = 1u << 16;

  // Fails if PATH or PATH.partial exists, unless options.overwrite is set, and if a site's caller does not come before it. `header` may lack what is not known yet.
  static Result<std::unique_ptr<TraceWriter>> create(std::string path, const TraceHeader& header,
                                                     WriteOptions options = {});
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Appends the next references and events. A site, name or processor must have been declared by the time it is used,
  // each event must lie where references stand (its position: the number of references appended before it).
  Status append(std::span<const Reference> references);
  Status append(const Event& event);
  // Appends a stretch as a TraceSource gives it. batch.first must be references().
  Status append(const Batch& batch);

  // This is the trace's header as it is so far. Sites and names may be added and changed at any time, before their
  // first use at the latest; the other fields too. A changed header is written with the next block.
  SiteId add_site(Site site);
  uint32_t add_name(std::string name);
  void set_site(SiteId id, Site site);
  void set_processors(unsigned processors);
  void set_program(std::string program);
  void set_recorder(std::string recorder);
  void set_dilation(double dilation);
  void set_sampling(const Sampling& sampling);
  // Takes everything of `header` that is new. The copy of a source whose header grows while it is read needs this.
  void update_header(const TraceHeader& header);
  [[nodiscard]] const TraceHeader& header() const { return header_; }

  [[nodiscard]] uint64_t references() const { return written_references_ + references_.size(); }
  [[nodiscard]] uint64_t events() const { return written_events_ + events_.size(); }
  // Returns the size of the file so far.
  [[nodiscard]] uint64_t bytes() const;

  // Ends the block, so that the references and events appended until now are safe if the process is killed.
  Status flush();
  // Completes the file and gives it its name. The caller must make no other call afterwards but the destructor.
  Status finish();

 private:
  struct File;

  explicit TraceWriter(std::unique_ptr<File> file);
  template <typename... Args>
  Status refuse(fmt::format_string<Args...> format, Args&&... args);
  Status check(const Reference& reference, uint64_t index);

  std::unique_ptr<File> file_;  // writes blocks as bytes
  TraceHeader header_;
  bool header_changed_ = true;
  std::vector<SiteId> changed_sites_;  // the sites to be written with the next block
  size_t written_names_ = 0;
  uint32_t block_references_;

  std::vector<Reference> references_;  // the references of the block that is being filled
  std::vector<Event> events_;
  uint64_t written_references_ = 0;
  uint64_t written_events_ = 0;
};

}  // namespace multigrain::trace
