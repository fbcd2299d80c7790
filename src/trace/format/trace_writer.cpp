#include "trace/format/trace_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "trace/format/block_codec.h"
#include "trace/format/layout.h"

namespace multigrain::trace {

// This is the file as blocks of bytes.
struct TraceWriter::File {
  std::string path, partial;
  WriteOptions options;
  int fd = -1;
  uint64_t offset = 0;
  std::vector<IndexEntry> index;
  BlockEncoder encoder;
  ZSTD_CCtx* compressor = nullptr;
  Bytes payload, packed;
  std::string failure;  // the error that every further call returns
  bool finished = false;

  ~File() {
    ZSTD_freeCCtx(compressor);
    if (fd >= 0) close(fd);
    if (fd >= 0 && !finished) unlink(partial.c_str());
  }

  Status write_bytes(const void* data, size_t size) {
    const char* at = static_cast<const char*>(data);
    offset += size;
    while (size > 0) {
      const ssize_t written = ::write(fd, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        auto error = fail_errno(errno, "cannot write " + partial);
        failure = error.value().message;
        return error;
      }
      at += written;
      size -= static_cast<size_t>(written);
    }
    return {};
  }

  // Compresses `payload` and writes it.
  Status write_block(BlockHeader header) {
    const size_t bound = ZSTD_compressBound(payload.size());
    packed.resize(kBlockHeaderBytes + bound);
    const size_t size = ZSTD_compressCCtx(compressor, packed.data() + kBlockHeaderBytes, bound, payload.data(),
                                          payload.size(), options.level);
    if (ZSTD_isError(size) || payload.size() > kMaxPayloadBytes) {
      failure = fmt::format("cannot compress a block of {}: {}", partial,
                            ZSTD_isError(size) ? ZSTD_getErrorName(size) : "it is too large");
      return fail("{}", failure);
    }
    header.packed_bytes = static_cast<uint32_t>(size);
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.checksum = checksum_of(packed.data() + kBlockHeaderBytes, size);
    const auto bytes = pack_block_header(header);
    std::copy(bytes.begin(), bytes.end(), packed.begin());
    if (header.kind != BlockKind::kIndex)
      index.push_back({.offset = offset,
                       .bytes = kBlockHeaderBytes + size,
                       .kind = header.kind,
                       .first = header.first,
                       .references = header.references,
                       .events = header.events});
    return write_bytes(packed.data(), kBlockHeaderBytes + size);
  }
};

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(std::string path, const TraceHeader& header,
                                                         WriteOptions options) {
  if (options.level < 1 || options.level > 19) return fail("compression level {} is not from 1 to 19", options.level);
  if (options.block_references == 0 || options.block_references > kMaxBlockReferences)
    return fail("a block of {} references is not from 1 to {}", options.block_references, kMaxBlockReferences);
  for (size_t i = 0; i < header.sites.size(); ++i) {
    if (const SiteId caller = header.sites[i].caller; caller != 0 && caller >= i)
      return fail("site {} has site {} for its caller, which must come before it", i, caller);
  }
  struct stat status;
  if (!options.overwrite && lstat(path.c_str(), &status) == 0)
    return fail("{} exists; remove it or ask for it to be overwritten", path);
  auto file = std::make_unique<File>();
  file->path = std::move(path);
  file->partial = file->path + ".partial";
  file->options = options;
  if (options.overwrite && unlink(file->partial.c_str()) != 0 && errno != ENOENT)
    return fail_errno(errno, "cannot replace " + file->partial);
  const int fd = ::open(file->partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    if (errno == EEXIST)
      return fail(
          "{} exists: it is being written, or its writer was killed; repair it (mgtrace filter --repair) or "
          "remove it",
          file->partial);
    return fail_errno(errno, "cannot create " + file->partial);
  }
  file->fd = fd;
  file->compressor = ZSTD_createCCtx();
  std::unique_ptr<TraceWriter> writer(new TraceWriter(std::move(file)));
  writer->header_.sites.resize(1);
  writer->header_.names.resize(1);
  writer->changed_sites_.push_back(0);
  writer->update_header(header);
  const auto bytes = pack_file_header();
  const Status written = writer->file_->write_bytes(bytes.data(), bytes.size());
  if (!written) return tl::unexpected<Error>(written.error());
  return writer;
}

TraceWriter::TraceWriter(std::unique_ptr<File> file)
    : file_(std::move(file)), block_references_(file_->options.block_references) {
  references_.reserve(block_references_);
}

TraceWriter::~TraceWriter() = default;

uint64_t TraceWriter::bytes() const {
  return file_->offset;
}

template <typename... Args>
Status TraceWriter::refuse(fmt::format_string<Args...> format, Args&&... args) {
  file_->failure = fmt::format("cannot write {}: ", file_->path) + fmt::format(format, std::forward<Args>(args)...);
  return fail("{}", file_->failure);
}

Status TraceWriter::check(const Reference& reference, uint64_t index) {
  if (reference.processor >= header_.processors)
    return refuse("reference {} is of processor {}, but the trace has {} processors", index, reference.processor,
                  header_.processors);
  if (reference.site >= header_.sites.size())
    return refuse("reference {} is at site {}, but the trace has {} sites", index, reference.site,
                  header_.sites.size());
  return refuse("reference {} is of {} bytes, and neither a read nor a write of 1 to 255", index, reference.size);
}

Status TraceWriter::append(std::span<const Reference> references) {
  if (!file_->failure.empty()) return fail("{}", file_->failure);
  const size_t sites = header_.sites.size();
  const unsigned processors = header_.processors;
  while (!references.empty()) {
    const size_t count = std::min<size_t>(references.size(), block_references_ - references_.size());
    bool good = true;
    for (const Reference& reference : references.first(count))
      good &= (reference.processor < processors) & (reference.site < sites) & (reference.size != 0) &
              (static_cast<uint8_t>(reference.access) <= 1);
    if (!good) {
      for (size_t i = 0; i < count; ++i) {
        const Reference& reference = references[i];
        if (reference.processor >= processors || reference.site >= sites || reference.size == 0 ||
            static_cast<uint8_t>(reference.access) > 1)
          return check(reference, this->references() + i);
      }
    }
    references_.insert(references_.end(), references.begin(), references.begin() + static_cast<ptrdiff_t>(count));
    references = references.subspan(count);
    if (references_.size() == block_references_)
      if (Status status = flush(); !status) return status;
  }
  return {};
}

Status TraceWriter::append(const Event& event) {
  if (!file_->failure.empty()) return fail("{}", file_->failure);
  if (event.position != references())
    return refuse("an event says that {} references come before it, but {} do", event.position, references());
  if (event.processor >= header_.processors)
    return refuse("an event after reference {} is of processor {}, but the trace has {} processors", event.position,
                  event.processor, header_.processors);
  if (event.site >= header_.sites.size() || event.name >= header_.names.size())
    return refuse("an event after reference {} is of site {} and name {}, but the trace has {} and {}", event.position,
                  event.site, event.name, header_.sites.size(), header_.names.size());
  if (event.kind > EventKind::kEnd)
    return refuse("an event after reference {} is of kind {}", event.position, static_cast<unsigned>(event.kind));
  events_.push_back(event);
  return events_.size() == kMaxBlockEvents ? flush() : Status{};
}

Status TraceWriter::append(const Batch& batch) {
  if (batch.first != references())
    return refuse("a stretch begins with reference {}, but {} come before it", batch.first, references());
  std::span<const Reference> rest = batch.references;
  for (const Event& event : batch.events) {
    if (event.position < references() || event.position - references() > rest.size())
      return refuse("an event says that {} references come before it, which lies outside its stretch or goes back",
                    event.position);
    const auto before = static_cast<size_t>(event.position - references());
    if (Status status = append(rest.first(before)); !status) return status;
    rest = rest.subspan(before);
    if (Status status = append(event); !status) return status;
  }
  return append(rest);
}

SiteId TraceWriter::add_site(Site site) {
  const auto id = static_cast<SiteId>(header_.sites.size());
  MG_CHECK(site.caller == 0 || site.caller < id);
  header_.sites.push_back(std::move(site));
  changed_sites_.push_back(id);
  return id;
}

uint32_t TraceWriter::add_name(std::string name) {
  header_changed_ = true;
  header_.names.push_back(std::move(name));
  return static_cast<uint32_t>(header_.names.size() - 1);
}

void TraceWriter::set_site(SiteId id, Site site) {
  MG_CHECK(id < header_.sites.size() && (site.caller == 0 || site.caller < id));
  header_.sites[id] = std::move(site);
  changed_sites_.push_back(id);
}

void TraceWriter::set_processors(unsigned processors) {
  header_changed_ |= processors != header_.processors;
  header_.processors = processors;
}

void TraceWriter::set_program(std::string program) {
  header_changed_ = true;
  header_.program = std::move(program);
}

void TraceWriter::set_recorder(std::string recorder) {
  header_changed_ = true;
  header_.recorder = std::move(recorder);
}

void TraceWriter::set_dilation(double dilation) {
  header_changed_ = true;
  header_.dilation = dilation;
}

void TraceWriter::set_sampling(const Sampling& sampling) {
  header_changed_ = true;
  header_.sampling = sampling;
}

void TraceWriter::update_header(const TraceHeader& header) {
  set_processors(std::max(header.processors, header_.processors));
  if (header.program != header_.program) set_program(header.program);
  if (header.recorder != header_.recorder) set_recorder(header.recorder);
  if (header.dilation != header_.dilation) set_dilation(header.dilation);
  if (header.sampling != header_.sampling) set_sampling(header.sampling);
  for (size_t i = 0; i < header.sites.size(); ++i) {
    if (i == header_.sites.size()) {
      add_site(header.sites[i]);
    } else if (const Site& a = header.sites[i], &b = header_.sites[i];
               a.line != b.line || a.caller != b.caller || a.function != b.function || a.file != b.file) {
      set_site(static_cast<SiteId>(i), a);
    }
  }
  for (size_t i = header_.names.size(); i < header.names.size(); ++i) add_name(header.names[i]);
}

Status TraceWriter::flush() {
  File& file = *file_;
  if (!file.failure.empty()) return fail("{}", file.failure);
  if (header_changed_ || !changed_sites_.empty()) {
    std::sort(changed_sites_.begin(), changed_sites_.end());
    changed_sites_.erase(std::unique(changed_sites_.begin(), changed_sites_.end()), changed_sites_.end());
    file.payload.clear();
    pack_header(header_, changed_sites_, written_names_, file.payload);
    if (Status status = file.write_block({.kind = BlockKind::kHeader}); !status) return status;
    changed_sites_.clear();
    written_names_ = header_.names.size();
    header_changed_ = false;
  }
  if (references_.empty() && events_.empty()) return {};
  file.encoder.encode(written_references_, references_, events_, file.payload);
  const BlockHeader block{.kind = BlockKind::kData,
                          .first = written_references_,
                          .references = static_cast<uint32_t>(references_.size()),
                          .events = static_cast<uint32_t>(events_.size())};
  if (Status status = file.write_block(block); !status) return status;
  written_references_ += references_.size();
  written_events_ += events_.size();
  references_.clear();
  events_.clear();
  return {};
}

Status TraceWriter::finish() {
  File& file = *file_;
  if (Status status = flush(); !status) return status;
  const uint64_t index_offset = file.offset;
  file.payload.clear();
  pack_index(file.index, file.payload);
  if (Status status = file.write_block({.kind = BlockKind::kIndex}); !status) return status;
  const auto trailer = pack_trailer(index_offset);
  if (Status status = file.write_bytes(trailer.data(), trailer.size()); !status) return status;
  const unsigned flags = file.options.overwrite ? 0u : RENAME_NOREPLACE;
  if (renameat2(AT_FDCWD, file.partial.c_str(), AT_FDCWD, file.path.c_str(), flags) != 0) {
    auto error = fail_errno(errno, "cannot rename " + file.partial + " to " + file.path);
    file.failure = error.value().message;
    return error;
  }
  file.finished = true;
  file.failure = file.path + " is complete; nothing can be added";
  return {};
}

}  // namespace multigrain::trace
