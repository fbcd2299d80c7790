#include "trace/format/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>

#include "base/mutex.h"
#include "trace/format/block_codec.h"
#include "trace/format/layout.h"
#include "trace/format/trace_writer.h"

namespace multigrain::trace {
namespace {

// Reads exactly `size` bytes. Returns false with errno, which is 0 at the end of the file.
bool read_at(int fd, void* to, size_t size, uint64_t offset) {
  char* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = pread(fd, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) errno = 0;
      return false;
    }
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

// Reads the payload of one block after the other. Errors are clauses that follow "block 3 at byte 1234".
class PayloadReader {
 public:
  explicit PayloadReader(int fd) : fd_(fd), decompressor_(ZSTD_createDCtx()) {}
  ~PayloadReader() { ZSTD_freeDCtx(decompressor_); }
  PayloadReader(const PayloadReader&) = delete;
  PayloadReader& operator=(const PayloadReader&) = delete;

  // Reads the block at `offset`, whose bytes must end at `end` or before.
  std::string read(uint64_t offset, uint64_t end) {
    std::string wrong = read_header(offset, end);
    if (!wrong.empty()) return wrong;
    packed_.resize(header.packed_bytes);
    if (!read_at(fd_, packed_.data(), packed_.size(), offset + kBlockHeaderBytes)) return unreadable();
    if (checksum_of(packed_.data(), packed_.size()) != header.checksum)
      return "is damaged: its checksum is another than its contents'";
    if (ZSTD_getFrameContentSize(packed_.data(), packed_.size()) != header.payload_bytes)
      return "is damaged: it is not compressed as it says";
    // One block is not much larger than the next, so no memory is cleared again and again.
    if (payload_.size() < header.payload_bytes + BlockDecoder::kPadding)
      payload_.resize(header.payload_bytes + BlockDecoder::kPadding);
    const size_t size =
        ZSTD_decompressDCtx(decompressor_, payload_.data(), header.payload_bytes, packed_.data(), packed_.size());
    if (ZSTD_isError(size) || size != header.payload_bytes) return "is damaged: it cannot be decompressed";
    return {};
  }
  std::string read_header(uint64_t offset, uint64_t end) {
    if (end - offset < kBlockHeaderBytes) return "is cut off in its header";
    std::array<uint8_t, kBlockHeaderBytes> bytes;
    if (!read_at(fd_, bytes.data(), bytes.size(), offset)) return unreadable();
    if (!unpack_block_header(bytes, header)) return "is damaged: its header makes no sense";
    if (header.packed_bytes > end - offset - kBlockHeaderBytes) return "is cut off";
    return {};
  }
  [[nodiscard]] std::span<const uint8_t> payload() const { return {payload_.data(), header.payload_bytes}; }

  BlockHeader header;  // the header of the block that was read last

 private:
  static std::string unreadable() {
    return errno == 0 ? "is cut off" : fmt::format("cannot be read: {}", fail_errno(errno, "").value().message);
  }

  int fd_;
  ZSTD_DCtx* decompressor_;
  Bytes packed_, payload_;
};

// This is a block that a thread decodes ahead.
struct Ahead {
  enum class State { kFree, kTaken, kReady } state = State::kFree;
  std::vector<Reference> references;
  std::vector<Event> events;
  std::string wrong;
};

}  // namespace

struct TraceFile::Implementation {
  std::string path;
  ReadOptions options;
  int fd = -1;
  uint64_t bytes = 0;
  uint32_t version = 0;
  TraceHeader header;
  std::vector<IndexEntry> index;  // all blocks that the file has
  std::vector<BlockInfo> blocks;  // the blocks with data
  uint64_t references = 0, events = 0;
  std::string damage;   // the damage behind the blocks in `blocks`; empty: none
  std::string failure;  // the error that next() has returned, and will return
  std::unique_ptr<PayloadReader> reader;

  // This is for reading in the caller's thread.
  BlockDecoder decoder;
  size_t block = 0;   // the index in `blocks` of the block that is being read
  bool open = false;  // this block has been begun
  size_t given = 0;   // how many of its references have been delivered
  size_t given_events = 0;
  std::vector<Reference> batch;
  const std::vector<Event>* block_events = nullptr;

  // These threads decode ahead: block b is decoded into ahead[b % ahead.size()].
  Mutex mutex;
  ConditionVariable changed;
  std::vector<Ahead> ahead;
  size_t next_to_take MG_GUARDED_BY(mutex) = 0;
  bool stop MG_GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;

  ~Implementation() {
    {
      const LockGuard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
    reader.reset();
    if (fd >= 0) close(fd);
  }

  bool read_index();
  std::string scan();
  std::string begin_block(size_t which, PayloadReader& from, BlockDecoder& to) const;
  void work();
  void start_threads();
  Result<Batch> fail_at(size_t which, const std::string& wrong);
  Result<Batch> end();
  Result<Batch> next_here();
  Result<Batch> next_ahead();
  [[nodiscard]] Batch cut(std::span<const Reference> references_of_batch, const std::vector<Event>& events_of_block);
};

// Reads the index at the end, and the headers that it names. Returns false if the caller has to scan for blocks
// instead.
bool TraceFile::Implementation::read_index() {
  if (bytes < kFileHeaderBytes + kBlockHeaderBytes + kTrailerBytes) return false;
  std::array<uint8_t, kTrailerBytes> trailer;
  uint64_t offset;
  if (!read_at(fd, trailer.data(), trailer.size(), bytes - kTrailerBytes) || !unpack_trailer(trailer, offset))
    return false;
  const uint64_t end = bytes - kTrailerBytes;
  if (offset < kFileHeaderBytes || offset > end) return false;
  if (!reader->read(offset, end).empty() || reader->header.kind != BlockKind::kIndex ||
      offset + kBlockHeaderBytes + reader->header.packed_bytes != end)
    return false;
  if (!unpack_index(reader->payload(), offset, index)) return false;
  for (const IndexEntry& entry : index) {
    if (entry.kind != BlockKind::kHeader) continue;
    if (!reader->read(entry.offset, entry.offset + entry.bytes).empty() || reader->header.kind != BlockKind::kHeader ||
        !unpack_header(reader->payload(), version, header))
      return false;
  }
  return true;
}

// Finds the blocks from the front, up to the first that is not whole. Returns what is wrong there.
std::string TraceFile::Implementation::scan() {
  index.clear();
  header = {};
  uint64_t offset = kFileHeaderBytes, first = 0;
  while (offset < bytes) {
    const auto place = [&] { return fmt::format("block {} at byte {}", index.size(), offset); };
    std::string wrong = reader->read_header(offset, bytes);
    if (!wrong.empty()) return fmt::format("{} {}", place(), wrong);
    const BlockHeader found = reader->header;
    const uint64_t size = kBlockHeaderBytes + found.packed_bytes;
    if (found.kind == BlockKind::kIndex) return fmt::format("{}, the index, or what follows it, is damaged", place());
    if (found.kind == BlockKind::kHeader) {
      wrong = reader->read(offset, offset + size);
      if (wrong.empty() && !unpack_header(reader->payload(), version, header))
        wrong = "is damaged: its contents make no sense";
      if (!wrong.empty()) return fmt::format("{} {}", place(), wrong);
    } else {
      if (found.first != first)
        return fmt::format("{} goes back or leaves a gap: it begins with reference {} where {} is next", place(),
                           found.first, first);
    }
    index.push_back({.offset = offset,
                     .bytes = size,
                     .kind = found.kind,
                     .first = first,
                     .references = found.references,
                     .events = found.events});
    first += found.references;
    offset += size;
  }
  return fmt::format("it ends at byte {} without an index: it was cut off, or its writer was killed", offset);
}

bool TraceFile::begins_as_trace(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat status;
  std::array<uint8_t, kFileHeaderBytes> bytes{};
  const bool found = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && read_at(fd, bytes.data(), bytes.size(), 0) &&
                     has_file_magic(bytes);
  close(fd);
  return found;
}

Result<std::unique_ptr<TraceFile>> TraceFile::open(std::string path, ReadOptions options) {
  auto implementation = std::make_unique<Implementation>();
  Implementation& file = *implementation;
  file.path = std::move(path);
  file.options = options;
  file.fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd < 0) return fail_errno(errno, "cannot open " + file.path);
  struct stat status;
  if (fstat(file.fd, &status) != 0) return fail_errno(errno, "cannot examine " + file.path);
  if (!S_ISREG(status.st_mode)) return fail("cannot read {}: it is not a regular file", file.path);
  file.bytes = static_cast<uint64_t>(status.st_size);
  if (file.bytes == 0) return fail("cannot read {}: it is empty", file.path);
  std::array<uint8_t, kFileHeaderBytes> bytes{};
  const auto there = static_cast<size_t>(std::min<uint64_t>(file.bytes, bytes.size()));
  if (!read_at(file.fd, bytes.data(), there, 0)) return fail_errno(errno, "cannot read " + file.path);
  if (there < bytes.size())
    return fail("cannot read {}: it is too short to be a Multigrain trace ({} bytes)", file.path, there);
  const auto version = unpack_file_header(bytes);
  if (!version) return fail("cannot read {}: {}", file.path, version.error().message);
  file.version = *version;
  file.reader = std::make_unique<PayloadReader>(file.fd);
  if (!file.read_index()) file.damage = file.scan();
  if (file.header.sites.empty()) file.header.sites.resize(1);
  if (file.header.names.empty()) file.header.names.resize(1);
  for (size_t i = 0; i < file.index.size(); ++i) {
    const IndexEntry& entry = file.index[i];
    if (entry.kind != BlockKind::kData) continue;
    file.blocks.push_back({.number = i,
                           .offset = entry.offset,
                           .first = entry.first,
                           .references = entry.references,
                           .events = entry.events,
                           .compressed_bytes = static_cast<uint32_t>(entry.bytes)});
    file.references += entry.references;
    file.events += entry.events;
  }
  file.options.end_block = std::min(options.end_block, file.blocks.size());
  // A range that ends before the last block ignores damage behind its end.
  file.block = std::min(options.first_block, file.options.end_block);
  {
    const LockGuard lock(file.mutex);
    file.next_to_take = file.block;
  }
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(implementation)));
}

TraceFile::TraceFile(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
TraceFile::~TraceFile() = default;

// Reads block `which` and opens it for decoding. Returns what is wrong with it, or an empty string.
std::string TraceFile::Implementation::begin_block(size_t which, PayloadReader& from, BlockDecoder& to) const {
  const BlockInfo& info = blocks[which];
  std::string wrong = from.read(info.offset, info.offset + info.compressed_bytes);
  if (!wrong.empty()) return wrong;
  const BlockHeader& found = from.header;
  if (found.kind != BlockKind::kData || found.first != info.first || found.references != info.references ||
      found.events != info.events || found.references > TraceWriter::kMaxBlockReferences ||
      found.events > TraceWriter::kMaxBlockEvents)
    return "is damaged: its header is not what the index says or too large";
  wrong = to.open(from.payload(), {.first = info.first,
                                   .references = info.references,
                                   .events = info.events,
                                   .processors = header.processors,
                                   .sites = header.sites.size(),
                                   .names = header.names.size()});
  return wrong.empty() ? wrong : "is damaged: " + wrong;
}

Result<Batch> TraceFile::Implementation::fail_at(size_t which, const std::string& wrong) {
  const BlockInfo& info = blocks[which];
  damage = fmt::format("block {} at byte {} {}", info.number, info.offset, wrong);
  // The reader reads no block behind the damaged one.
  options.end_block = block = which;
  open = false;
  if (options.allow_partial) return Batch{.first = info.first + given, .references = {}, .events = {}};
  failure = fmt::format("{}: {}; the {} references before it are good", path, damage, info.first);
  return fail("{}", failure);
}

Result<Batch> TraceFile::Implementation::end() {
  const uint64_t first = block < blocks.size() ? blocks[block].first : references;
  if (!damage.empty() && !options.allow_partial && options.end_block == blocks.size()) {
    failure = fmt::format("{}: {}; the {} references before it are good", path, damage, references);
    return fail("{}", failure);
  }
  return Batch{.first = first, .references = {}, .events = {}};
}

// Returns the next batch of the current block, of which `given` references have been delivered.
Batch TraceFile::Implementation::cut(std::span<const Reference> references_of_batch,
                                     const std::vector<Event>& events_of_block) {
  const BlockInfo& info = blocks[block];
  Batch result{.first = info.first + given, .references = references_of_batch, .events = {}};
  given += references_of_batch.size();
  const bool last = given == info.references;
  size_t to = given_events;
  while (to < events_of_block.size() && (last || events_of_block[to].position < info.first + given)) ++to;
  result.events = std::span(events_of_block).subspan(given_events, to - given_events);
  given_events = to;
  return result;
}

Result<Batch> TraceFile::Implementation::next_here() {
  while (block < options.end_block) {
    if (!open) {
      given = given_events = 0;
      const std::string wrong = begin_block(block, *reader, decoder);
      if (!wrong.empty()) return fail_at(block, wrong);
      open = true;
      batch.resize(kBatch + BlockDecoder::kSlack);
    }
    const size_t count = std::min<size_t>(kBatch, blocks[block].references - given);
    if (count == 0 && (given > 0 || decoder.events().empty())) {
      open = false;
      ++block;
      continue;
    }
    if (!decoder.decode(batch.data(), count)) return fail_at(block, "is damaged: its references contradict its header");
    const Batch result = cut({batch.data(), count}, decoder.events());
    if (count == 0) {
      open = false;
      ++block;
    }
    return result;
  }
  return end();
}

void TraceFile::Implementation::work() {
  PayloadReader own_reader(fd);
  BlockDecoder own_decoder;
  const LockGuard lock(mutex);
  while (true) {
    while (!stop &&
           (next_to_take == options.end_block || ahead[next_to_take % ahead.size()].state != Ahead::State::kFree))
      changed.wait(mutex);
    if (stop) return;
    const size_t which = next_to_take++;
    Ahead& to = ahead[which % ahead.size()];
    to.state = Ahead::State::kTaken;
    mutex.unlock();
    to.wrong = begin_block(which, own_reader, own_decoder);
    if (to.wrong.empty()) {
      const size_t count = blocks[which].references;
      if (to.references.size() < count + BlockDecoder::kSlack) to.references.resize(count + BlockDecoder::kSlack);
      if (!own_decoder.decode(to.references.data(), count))
        to.wrong = "is damaged: its references contradict its header";
      to.events = own_decoder.events();
    }
    mutex.lock();
    to.state = Ahead::State::kReady;
    changed.notify_all();
  }
}

void TraceFile::Implementation::start_threads() {
  const size_t left = options.end_block - block;
  const size_t count = std::min<size_t>(options.threads, left);
  ahead = std::vector<Ahead>(count + 2);
  for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
}

Result<Batch> TraceFile::Implementation::next_ahead() {
  while (block < options.end_block) {
    if (threads.empty()) start_threads();
    Ahead& from = ahead[block % ahead.size()];
    if (!open) {
      const LockGuard lock(mutex);
      while (from.state != Ahead::State::kReady) changed.wait(mutex);
      given = given_events = 0;
      open = true;
    }
    if (!from.wrong.empty()) {
      {
        const LockGuard lock(mutex);
        stop = true;
      }
      changed.notify_all();
      for (std::thread& thread : threads) thread.join();
      threads.clear();
      return fail_at(block, from.wrong);
    }
    const size_t count = std::min<size_t>(kBatch, blocks[block].references - given);
    if (count == 0 && (given > 0 || given_events == from.events.size())) {
      {
        const LockGuard lock(mutex);
        from.state = Ahead::State::kFree;
      }
      changed.notify_all();
      open = false;
      ++block;
      continue;
    }
    return cut(std::span(from.references).subspan(given, count), from.events);
  }
  return end();
}

const TraceHeader& TraceFile::header() const {
  return implementation_->header;
}

Result<Batch> TraceFile::next() {
  if (!implementation_->failure.empty()) return fail("{}", implementation_->failure);
  return implementation_->options.threads > 0 ? implementation_->next_ahead() : implementation_->next_here();
}

const std::vector<BlockInfo>& TraceFile::blocks() const {
  return implementation_->blocks;
}
uint64_t TraceFile::references() const {
  return implementation_->references;
}
uint64_t TraceFile::events() const {
  return implementation_->events;
}
uint64_t TraceFile::file_bytes() const {
  return implementation_->bytes;
}
unsigned TraceFile::version() const {
  return implementation_->version;
}
const std::string& TraceFile::damage() const {
  return implementation_->damage;
}

}  // namespace multigrain::trace
