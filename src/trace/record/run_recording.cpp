#include "trace/record/run_recording.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/streams.h"
#include "trace/format/trace_writer.h"
#include "trace/model/decisions.h"
#include "trace/record/recorder.h"
#include "trace/record/symbols.h"

namespace multigrain::trace {
namespace {

using record::ChunkHeader;
using record::ChunkKind;
using record::Control;
using record::EventRecord;
using record::kChunkBytes;
using record::kLargestAccess;
using record::kRecordsOfChunk;
using record::kWrites;
using record::ReferenceRecord;
using record::ticks_of;

// Private references are reported when there are so many, so that there are few such events.
constexpr uint64_t kPrivateInterval = 1u << 16;

// The file's bytes while this exists.
class Mapped {
 public:
  static Result<std::unique_ptr<Mapped>> map(int file) {
    struct stat status = {};
    if (fstat(file, &status) != 0) return fail_errno(errno, "cannot read the recording");
    const auto size = static_cast<size_t>(status.st_size);
    void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) return fail_errno(errno, "cannot map the recording");
    return std::unique_ptr<Mapped>(new Mapped(static_cast<const std::byte*>(mapped), size));
  }
  ~Mapped() { munmap(const_cast<std::byte*>(bytes_), size_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  [[nodiscard]] const Control& control() const { return *reinterpret_cast<const Control*>(bytes_); }
  [[nodiscard]] uint64_t chunks() const { return std::min<uint64_t>(control().chunks.load(), size_ / kChunkBytes - 1); }
  [[nodiscard]] const ChunkHeader& chunk(uint64_t number) const {
    return *reinterpret_cast<const ChunkHeader*>(bytes_ + (number + 1) * kChunkBytes);
  }

 private:
  Mapped(const std::byte* bytes, size_t size) : bytes_(bytes), size_(size) {}
  const std::byte* const bytes_;
  const size_t size_;
};

// The records of one thread, or the events of one node, one after the other.
template <typename Record>
class Stream {
 public:
  Stream(const Mapped& file, std::vector<uint64_t> chunks) : file_(file), chunks_(std::move(chunks)) {
    // A buffer that was not emptied behind its copy has that one's number.
    const auto place = [&](uint64_t number) {
      const ChunkHeader& chunk = file_.chunk(number);
      return std::pair(chunk.sequence, chunk.is_buffer);
    };
    std::ranges::sort(chunks_, {}, place);
    const auto same = [&](uint64_t a, uint64_t b) { return place(a).first == place(b).first; };
    const auto copied = std::ranges::unique(chunks_, same);
    chunks_.erase(copied.begin(), copied.end());
    settle();
  }
  [[nodiscard]] bool is_at_end() const { return chunk_ == chunks_.size(); }
  [[nodiscard]] const Record& record() const { return records()[index_]; }
  [[nodiscard]] uint64_t clock() const { return record().clock.load(std::memory_order_acquire); }
  [[nodiscard]] uint16_t node() const { return file_.chunk(chunks_.front()).node; }
  void next() {
    ++index_;
    settle();
  }

 private:
  [[nodiscard]] const Record* records() const {
    return reinterpret_cast<const Record*>(&file_.chunk(chunks_[chunk_]) + 1);
  }
  void settle() {
    while (!is_at_end() && (index_ == kRecordsOfChunk<Record> || clock() == 0)) ++chunk_, index_ = 0;
  }

  const Mapped& file_;
  std::vector<uint64_t> chunks_;
  size_t chunk_ = 0;
  size_t index_ = 0;
};

// What the streams of a recording become.
class Merge {
 public:
  Merge(const Mapped& file, TraceWriter& writer, DecisionLog& log) : file_(file), writer_(writer), log_(log) {}

  Status run() {
    if (Status found = find_streams(); !found) return found;
    while (true) {
      if (!events_due()) {
        if (threads_due_.empty()) break;
        if (Status done = take_reference(); !done) return done;
      }
    }
    if (Status written = flush(); !written) return written;
    for (uint16_t node = 0; node < private_.size(); ++node)
      if (Status written = report_private(node); !written) return written;
    name_sites();
    return {};
  }
  [[nodiscard]] uint64_t private_references() const { return all_private_; }
  // References between bursts, which are not in the trace.
  [[nodiscard]] uint64_t left_out() const { return left_out_; }

 private:
  using Due = std::pair<uint64_t, size_t>;  // the clock of a stream's next record, and the stream
  using Queue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

  Status find_streams() {
    std::map<std::pair<uint16_t, uint32_t>, std::vector<uint64_t>> threads;
    std::map<uint16_t, std::vector<uint64_t>> events;
    std::map<uint32_t, std::string> mappings;
    for (uint64_t i = 0; i < file_.chunks(); ++i) {
      const ChunkHeader& chunk = file_.chunk(i);
      const ChunkKind kind = chunk.kind.load(std::memory_order_acquire);
      if (kind == ChunkKind{}) continue;
      if (chunk.node >= log_.nodes) return fail("chunk {} of the recording was overwritten by the program", i);
      if (kind == ChunkKind::kReferences) {
        threads[{chunk.node, chunk.stream}].push_back(i);
        if (chunk.is_buffer != 0) left_out_ += chunk.left_out;
      } else if (kind == ChunkKind::kEvents) {
        events[chunk.node].push_back(i);
      } else if (kind == ChunkKind::kMappings) {
        const char* const text = reinterpret_cast<const char*>(&chunk + 1);
        if (chunk.is_buffer == 0 || !mappings.contains(chunk.sequence))
          mappings[chunk.sequence] = std::string(text, strnlen(text, kChunkBytes - sizeof chunk));
      } else {
        return fail("chunk {} of the recording was overwritten by the program", i);
      }
    }
    private_.resize(log_.nodes);
    for (auto& [key, chunks] : threads) threads_.emplace_back(file_, std::move(chunks));
    for (auto& [key, chunks] : events) events_.emplace_back(file_, std::move(chunks));
    for (size_t i = 0; i < threads_.size(); ++i)
      if (!threads_[i].is_at_end()) threads_due_.emplace(threads_[i].clock(), i);
    for (size_t i = 0; i < events_.size(); ++i)
      if (!events_[i].is_at_end()) events_due_.emplace(events_[i].clock(), i);
    std::string text;
    for (const auto& [sequence, part] : mappings) text += part;
    symbols_.load(mappings_in(text));
    return {};
  }

  // Takes the next event, if it comes before all references. An event comes before a reference of the same clock.
  bool events_due() {
    if (events_due_.empty()) return false;
    const auto [clock, number] = events_due_.top();
    if (!threads_due_.empty() && threads_due_.top().first < clock) return false;
    events_due_.pop();
    Stream<EventRecord>& stream = events_[number];
    const EventRecord& event = stream.record();
    log_.events.push_back({.position = log_.references,
                           .page = event.page,
                           .policy_page = event.policy_page,
                           .now = event.now,
                           .holders = event.holders,
                           .node = event.node,
                           .kind = event.kind,
                           .right = event.right,
                           .answer = event.answer,
                           .placement = event.placement,
                           .between_bursts = static_cast<uint8_t>(bursts_.contains(clock) ? 0 : 1)});
    stream.next();
    if (!stream.is_at_end()) events_due_.emplace(stream.clock(), number);
    return true;
  }

  Status take_reference() {
    const size_t number = threads_due_.top().second;
    threads_due_.pop();
    Stream<ReferenceRecord>& stream = threads_[number];
    const ReferenceRecord& record = stream.record();
    const uint16_t node = stream.node();
    private_[node] += record.private_references;
    if (private_[node] >= kPrivateInterval) {
      if (Status written = flush(); !written) return written;
      if (Status written = report_private(node); !written) return written;
    }
    const Access access = (record.address & kWrites) != 0 ? Access::kWrite : Access::kRead;
    const SiteId site = site_of(record.caller);
    uint64_t address = record.address & ~kWrites;
    const uint64_t end = address + record.bytes;
    uint64_t tick = stream.clock();
    const uint64_t last_tick = tick + ticks_of(record.bytes) - 1;
    while (address < end) {
      const uint64_t size = record.bytes <= kLargestAccess ? record.bytes : std::min(end - address, 8 - address % 8);
      if (!bursts_.is_on() || bursts_.contains(tick))
        add({address, site, node, access, static_cast<uint8_t>(size)});
      else
        ++left_out_;
      address += size;
      tick = std::min(tick + 1, last_tick);
    }
    stream.next();
    if (!stream.is_at_end()) threads_due_.emplace(stream.clock(), number);
    return references_.size() < TraceSource::kBatch ? Status() : flush();
  }

  void add(const Reference& reference) {
    digest_.add(reference);
    references_.push_back(reference);
    ++log_.references;
    log_.digest = digest_.value();
  }
  Status flush() {
    Status written = writer_.append(references_);
    references_.clear();
    return written;
  }
  Status report_private(uint16_t node) {
    if (private_[node] == 0) return {};
    const uint64_t count = std::exchange(private_[node], 0);
    all_private_ += count;
    return writer_.append(Event{.position = log_.references,
                                .address = 0,
                                .value = count,
                                .name = 0,
                                .site = 0,
                                .processor = node,
                                .kind = EventKind::kPrivate});
  }

  // `caller` is behind the instruction.
  SiteId site_of(uint64_t caller) {
    const auto [found, added] = sites_.try_emplace(caller, 0);
    if (added) {
      found->second = writer_.add_site(symbols_.site_of(caller - 1));
      addresses_.push_back(caller - 1);
      numbers_.push_back(found->second);
    }
    return found->second;
  }
  // Lines are looked up for all sites together.
  void name_sites() {
    std::vector<Site> sites;
    sites.reserve(addresses_.size());
    for (const uint64_t address : addresses_) sites.push_back(symbols_.site_of(address));
    symbols_.add_lines(addresses_, sites);
    for (size_t i = 0; i < sites.size(); ++i) writer_.set_site(numbers_[i], std::move(sites[i]));
  }

  const Mapped& file_;
  const Bursts bursts_ = file_.control().bursts;
  TraceWriter& writer_;
  DecisionLog& log_;
  std::vector<Stream<ReferenceRecord>> threads_;
  std::vector<Stream<EventRecord>> events_;
  Queue threads_due_, events_due_;
  Symbols symbols_;
  std::unordered_map<uint64_t, SiteId> sites_;
  std::vector<uint64_t> addresses_;
  std::vector<SiteId> numbers_;
  std::vector<uint64_t> private_;
  uint64_t all_private_ = 0;
  uint64_t left_out_ = 0;
  std::vector<Reference> references_;
  TraceDigest digest_;
};

}  // namespace

Result<RunRecording> RunRecording::create(std::string trace, const Bursts& bursts) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::absolute(trace, ignored);
  if (std::filesystem::is_directory(path, ignored)) return fail("'{}' is a directory", trace);
  const auto fd = open_unnamed(path.parent_path().string());
  if (!fd) return tl::unexpected(fd.error());
  FileDescriptor file(*fd);
  if (ftruncate(file.get(), kChunkBytes) != 0) return fail_errno(errno, "cannot write the recording");
  void* const mapped = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, "cannot map the recording");
  auto* const control = new (mapped) Control;
  control->magic = record::kMagic;
  control->bursts = bursts;
  munmap(mapped, kChunkBytes);
  return RunRecording(path.string(), std::move(file));
}

std::string RunRecording::file() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), file_.get());
}

bool RunRecording::has_begun() const {
  const auto file = Mapped::map(file_.get());
  return file && (*file)->control().attached.load() != 0;
}

Result<RunRecord> RunRecording::write(const RecordedRun& run) {
  auto file = Mapped::map(file_.get());
  if (!file) return tl::unexpected(file.error());
  if ((*file)->control().attached.load() == 0) return fail("no node of the run has recorded anything");
  DecisionLog log;
  log.nodes = run.nodes;
  log.page_size = (*file)->control().page_size.load();
  log.policy = run.policy;
  log.program = run.program;
  TraceHeader header;
  header.processors = run.nodes;
  header.program = run.program;
  header.recorder = "mgrun --record; processors are nodes";
  header.sites.emplace_back();
  header.names.emplace_back();
  auto writer = TraceWriter::create(trace_, header, {.overwrite = true});
  if (!writer) return tl::unexpected(writer.error());
  Merge merge(**file, **writer, log);
  if (Status merged = merge.run(); !merged) return tl::unexpected(merged.error());
  Sampling sampling;
  if (const Bursts& bursts = (*file)->control().bursts; bursts.is_on()) {
    if (log.references == 0 && merge.left_out() != 0)
      return fail(
          "none of the {} references to shared memory is in a burst: bursts of {} in intervals of {} are too few for a run that is "
          "so short",
          merge.left_out(), bursts.burst, bursts.interval);
    sampling = {.burst = bursts.burst,
                .interval = bursts.interval,
                .scale = log.references == 0
                             ? 1
                             : 1 + static_cast<double>(merge.left_out()) / static_cast<double>(log.references)};
    (*writer)->set_sampling(sampling);
  }
  if (Status finished = (*writer)->finish(); !finished) return tl::unexpected(finished.error());
  if (Status written = write_decisions(decisions_path(trace_), log); !written) return tl::unexpected(written.error());
  const auto decided = std::ranges::count(log.events, record::EventKind::kDecided, &PlacementEvent::kind);
  return RunRecord{.references = log.references,
                   .private_references = merge.private_references(),
                   .decisions = static_cast<uint64_t>(decided),
                   .sampling = sampling};
}

}  // namespace multigrain::trace
