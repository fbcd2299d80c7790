#include "checkpoint/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <type_traits>

#include "base/file_size_limit.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

namespace multigrain::checkpoint {
namespace {

constexpr uint64_t kHeadMagic = 0x3144'4145'4847'4d00;  // "\0MGHEAD1"
constexpr uint64_t kPartMagic = 0x3154'5241'5047'4d00;  // "\0MGPART1"
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint64_t kAbsent = uint64_t{1} << 63;  // in the number of a page that has no bytes

// The first of zstd's ordinary levels: what the others save is not worth the time, during which all processors wait.
constexpr int kLevel = 1;
constexpr size_t kBlockBytes = size_t{1} << 20;

// The head's file: this, then the parts, then the checksum of both.
struct HeadRecord {
  uint64_t magic;
  uint32_t version;
  uint32_t nodes;
  uint64_t program;
  uint64_t region_size;
  uint64_t page_size;
  uint64_t number;
  uint64_t root;
  std::array<char, 16> protocol;
  uint32_t line_size;
  uint32_t parts;
};
static_assert(sizeof(HeadRecord) == 80 && offsetof(HeadRecord, root) == kRootInHead);

struct NodePartRecord {
  uint64_t node;
  Part part;
};
static_assert(sizeof(NodePartRecord) == 32);

// A part's file: this, and then blocks.
struct PartRecord {
  uint64_t magic;
  uint32_t version;
  uint32_t node;
  uint64_t number;
  uint64_t before;
};
static_assert(sizeof(PartRecord) == 32);

// A block: this, and then a frame of zstd; or its bytes as they are, if the two lengths are equal.
struct BlockRecord {
  uint32_t bytes;
  uint32_t packed_bytes;
};

// The bytes of all blocks: this, the extents, the runs, the superblocks, the words of their bitmaps, the record of private memory, and
// then for each page its number and its bytes; at the end a number that no page has.
struct BooksRecord {
  uint64_t extents, runs, superblocks, bitmap_words, program_bytes;
};

struct ExtentRecord {
  uint64_t first, pages;
  uint32_t block_size;
  uint16_t owner, node;
  uint8_t policy, grain, may_move_to_lines, pin;
  uint32_t reserved;
};
static_assert(sizeof(ExtentRecord) == 32);

struct RunRecord {
  uint64_t first, pages;
  uint32_t kind;
  uint8_t is_allocated, is_dirty;
  uint16_t reserved;
};
static_assert(sizeof(RunRecord) == 24 && sizeof(SmallImage::Superblock) == 24);

ExtentRecord record_of(const Extent& extent) {
  const Placement& placement = extent.placement;
  return {.first = extent.first.value,
          .pages = extent.pages,
          .block_size = placement.block_size,
          .owner = extent.owner,
          .node = placement.node.value,
          .policy = static_cast<uint8_t>(placement.policy),
          .grain = static_cast<uint8_t>(placement.grain),
          .may_move_to_lines = static_cast<uint8_t>(placement.may_move_to_lines ? 1 : 0),
          .pin = static_cast<uint8_t>(placement.pin),
          .reserved = 0};
}

Extent extent_of(const ExtentRecord& record) {
  return {.first = PageId(record.first),
          .pages = record.pages,
          .placement = {.policy = static_cast<HomePolicy>(record.policy),
                        .node = NodeId(record.node),
                        .grain = static_cast<Grain>(record.grain),
                        .block_size = record.block_size,
                        .may_move_to_lines = record.may_move_to_lines != 0,
                        .pin = static_cast<Pin>(record.pin)},
          .owner = record.owner};
}

std::string head_name(const std::string& folder) {
  return folder + "/" + kHeadName;
}

// A file has its name for good once its folder is on the disk.
Status sync_folder(const std::string& folder) {
  const FileDescriptor open_folder(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!open_folder.is_open() || fsync(open_folder.get()) != 0)
    return fail_errno(errno, fmt::format("cannot write '{}'", folder));
  return {};
}

// Returns 0, or an errno value.
int write_all(int file, std::span<const std::byte> bytes) {
  const FileSizeLimitIsAnError limit;
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

Result<std::optional<std::vector<std::byte>>> read_file(const std::string& name) {
  const FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open() && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  const auto failed = [&] { return fail_errno(errno, fmt::format("cannot read '{}'", name)); };
  if (!file.is_open()) return failed();
  std::vector<std::byte> bytes;
  while (true) {
    const size_t had = bytes.size();
    bytes.resize(had + 65536);
    const ssize_t got = read(file.get(), bytes.data() + had, 65536);
    if (got < 0 && errno != EINTR) return failed();
    bytes.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return bytes;
  }
}

uint64_t hash_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

Status make_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    return fail_errno(errno, fmt::format("cannot make '{}'", folder));
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    return fail_errno(errno, fmt::format("cannot write to '{}'", folder));
  return {};
}

std::string part_name(const std::string& folder, uint64_t number, NodeId node) {
  return fmt::format("{}/memory-{}-{}", folder, number, node.value);
}

Result<std::optional<Head>> read_head(const std::string& folder) {
  const std::string name = head_name(folder);
  const auto file = read_file(name);
  if (!file) return tl::unexpected(file.error());
  if (!*file) return std::nullopt;
  const std::span<const std::byte> bytes(**file);
  HeadRecord record;
  if (bytes.size() < sizeof record) return fail("'{}' is truncated, or is no checkpoint", name);
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.magic != kHeadMagic) return fail("'{}' is no checkpoint", name);
  if (record.version != kVersion)
    return fail("'{}' has version {}, and this Multigrain reads version {}", name, record.version, kVersion);
  if (bytes.size() != sizeof record + uint64_t{record.parts} * sizeof(NodePartRecord) + sizeof(uint64_t))
    return fail("'{}' is truncated", name);
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + bytes.size() - sizeof checksum, sizeof checksum);
  if (checksum != hash_of(bytes.first(bytes.size() - sizeof checksum)))
    return fail("'{}' is torn: its checksum is wrong", name);
  Head head;
  head.machine = {.program = record.program,
                  .region_size = record.region_size,
                  .page_size = record.page_size,
                  .nodes = record.nodes,
                  .line_size = record.line_size,
                  .protocol = record.protocol};
  head.number = record.number;
  head.root = record.root;
  const auto senseless = [&] { return fail("'{}' makes no sense", name); };
  if (record.nodes > record.parts) return senseless();
  head.chains.resize(record.nodes);
  for (uint32_t i = 0; i < record.parts; ++i) {
    NodePartRecord one;
    std::memcpy(&one, bytes.data() + sizeof record + i * sizeof one, sizeof one);
    if (one.node >= record.nodes) return senseless();
    head.chains[one.node].push_back(one.part);
  }
  for (const std::vector<Part>& chain : head.chains)
    if (chain.empty() || chain.back().number != head.number) return senseless();
  return head;
}

Status write_head(const std::string& folder, const Head& head) {
  std::vector<NodePartRecord> parts;
  for (size_t n = 0; n < head.chains.size(); ++n)
    for (const Part& part : head.chains[n]) parts.push_back({n, part});
  const HeadRecord record{.magic = kHeadMagic,
                          .version = kVersion,
                          .nodes = head.machine.nodes,
                          .program = head.machine.program,
                          .region_size = head.machine.region_size,
                          .page_size = head.machine.page_size,
                          .number = head.number,
                          .root = head.root,
                          .protocol = head.machine.protocol,
                          .line_size = head.machine.line_size,
                          .parts = static_cast<uint32_t>(parts.size())};
  std::vector<std::byte> bytes(sizeof record + parts.size() * sizeof parts[0] + sizeof(uint64_t));
  std::memcpy(bytes.data(), &record, sizeof record);
  std::memcpy(bytes.data() + sizeof record, parts.data(), parts.size() * sizeof parts[0]);
  const uint64_t checksum = hash_of(std::span(bytes).first(bytes.size() - sizeof checksum));
  std::memcpy(bytes.data() + bytes.size() - sizeof checksum, &checksum, sizeof checksum);

  const std::string name = head_name(folder);
  const std::string unfinished = name + ".unfinished";
  const auto failed = [&](int code) {
    unlink(unfinished.c_str());
    return fail_errno(code, fmt::format("cannot write '{}'", name));
  };
  // The names of the parts are on the disk before the name of the head is.
  if (Status synced = sync_folder(folder); !synced) return synced;
  FileDescriptor file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open()) return failed(errno);
  if (const int code = write_all(file.get(), bytes); code != 0) return failed(code);
  if (fsync(file.get()) != 0) return failed(errno);
  file.close();
  if (std::rename(unfinished.c_str(), name.c_str()) != 0) return failed(errno);
  return sync_folder(folder);
}

std::optional<std::string> difference(const Machine& written, const Machine& here) {
  if (written.program != here.program) return "it is of another program, or of another build of this one";
  const auto other = [](const char* what, const auto& theirs, const auto& ours) {
    return fmt::format("it is of a run with {} {}, and this one has {}", what, theirs, ours);
  };
  const auto text = [](const std::array<char, 16>& name) { return std::string(name.data(), strnlen(name.data(), 16)); };
  if (written.nodes != here.nodes) return other("--nodes", written.nodes, here.nodes);
  if (written.protocol != here.protocol) return other("--protocol", text(written.protocol), text(here.protocol));
  if (written.page_size != here.page_size) return other("--page-size", written.page_size, here.page_size);
  if (written.region_size != here.region_size) return other("--region-size", written.region_size, here.region_size);
  if (written.line_size != here.line_size) return other("--line-size", written.line_size, here.line_size);
  return std::nullopt;
}

void remove_parts(const std::string& folder, const std::function<bool(uint64_t, unsigned)>& is_to_go) {
  constexpr std::string_view kBegin = "memory-";
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), last; !failed && entry != last;
       entry.increment(failed)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(kBegin)) continue;
    uint64_t number = 0;
    unsigned node = 0;
    const char* const end = name.data() + name.size();
    const auto first = std::from_chars(name.data() + kBegin.size(), end, number);
    if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') continue;
    const auto second = std::from_chars(first.ptr + 1, end, node);
    if (second.ec != std::errc{} || second.ptr != end) continue;
    if (is_to_go(number, node)) unlink((folder + "/" + name).c_str());
  }
}

// --- Writing a part

void PartWriter::FreeHash::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}

void PartWriter::FreeCompressor::operator()(void* state) const {
  ZSTD_freeCCtx(static_cast<ZSTD_CCtx*>(state));
}

PartWriter::PartWriter(std::string name, FileDescriptor file)
    : name_(std::move(name)), file_(std::move(file)), hash_(XXH3_createState()), compressor_(ZSTD_createCCtx()) {
  block_.reserve(kBlockBytes);
  packed_.resize(sizeof(BlockRecord) + ZSTD_compressBound(kBlockBytes));
  if (compressor_ == nullptr) failed_ = ENOMEM;
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(hash_.get()));
}

Result<PartWriter> PartWriter::create(const std::string& folder, uint64_t number, NodeId node, uint64_t before) {
  std::string name = part_name(folder, number, node);
  FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open()) return fail_errno(errno, fmt::format("cannot write '{}'", name));
  PartWriter writer(std::move(name), std::move(file));
  writer.number_ = number;
  const PartRecord record{
      .magic = kPartMagic, .version = kVersion, .node = node.value, .number = number, .before = before};
  writer.write(std::as_bytes(std::span(&record, 1)));
  return writer;
}

void PartWriter::add(const void* bytes, size_t size) {
  const auto* from = static_cast<const std::byte*>(bytes);
  while (size != 0) {
    const size_t some = std::min(size, kBlockBytes - block_.size());
    block_.insert(block_.end(), from, from + some);
    from += some;
    size -= some;
    if (block_.size() == kBlockBytes) flush();
  }
}

void PartWriter::flush() {
  if (failed_ == 0 && !block_.empty()) {
    std::byte* const to = packed_.data() + sizeof(BlockRecord);
    size_t size = ZSTD_compressCCtx(static_cast<ZSTD_CCtx*>(compressor_.get()), to,
                                    packed_.size() - sizeof(BlockRecord), block_.data(), block_.size(), kLevel);
    if (ZSTD_isError(size) || size >= block_.size()) {
      size = block_.size();
      std::memcpy(to, block_.data(), size);
    }
    const BlockRecord record{static_cast<uint32_t>(block_.size()), static_cast<uint32_t>(size)};
    std::memcpy(packed_.data(), &record, sizeof record);
    write(std::span(packed_).first(sizeof record + size));
  }
  block_.clear();
}

void PartWriter::write(std::span<const std::byte> bytes) {
  if (failed_ != 0) return;
  XXH3_64bits_update(static_cast<XXH3_state_t*>(hash_.get()), bytes.data(), bytes.size());
  bytes_ += bytes.size();
  failed_ = write_all(file_.get(), bytes);
}

void PartWriter::add_books(const SpaceImage& space, const SmallImage& small, std::span<const std::byte> program) {
  const BooksRecord books{space.extents.size(), space.runs.size(), small.superblocks.size(), small.bitmaps.size(),
                          program.size()};
  add(&books, sizeof books);
  for (const Extent& extent : space.extents) {
    const ExtentRecord record = record_of(extent);
    add(&record, sizeof record);
  }
  for (const SpaceImage::Run& run : space.runs) {
    const RunRecord record{.first = run.first,
                           .pages = run.pages,
                           .kind = run.kind,
                           .is_allocated = static_cast<uint8_t>(run.is_allocated ? 1 : 0),
                           .is_dirty = static_cast<uint8_t>(run.is_dirty ? 1 : 0),
                           .reserved = 0};
    add(&record, sizeof record);
  }
  add(small.superblocks.data(), small.superblocks.size() * sizeof small.superblocks[0]);
  add(small.bitmaps.data(), small.bitmaps.size() * sizeof small.bitmaps[0]);
  add(program.data(), program.size());
}

void PartWriter::add_page(PageId page, std::span<const std::byte> bytes) {
  add(&page.value, sizeof page.value);
  add(bytes.data(), bytes.size());
}

void PartWriter::add_absent(PageId page) {
  const uint64_t value = page.value | kAbsent;
  add(&value, sizeof value);
}

Result<Part> PartWriter::finish() {
  add(&kNoPage, sizeof kNoPage);
  flush();
  if (failed_ == 0 && fsync(file_.get()) != 0) failed_ = errno;
  file_.close();
  if (failed_ != 0) {
    unlink(name_.c_str());
    return fail_errno(failed_, fmt::format("cannot write '{}'", name_));
  }
  return Part{number_, bytes_, XXH3_64bits_digest(static_cast<XXH3_state_t*>(hash_.get()))};
}

// --- Reading a part

Result<PartReader> PartReader::open(const std::string& folder, NodeId node, const Part& part, const Part* before) {
  std::string name = part_name(folder, part.number, node);
  const FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!file.is_open() || fstat(file.get(), &status) != 0)
    return fail_errno(errno, fmt::format("cannot read '{}'", name));
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size != part.bytes)
    return fail("'{}' is truncated, or was overwritten: it has {} bytes of {}", name, size, part.bytes);
  if (size < sizeof(PartRecord)) return fail("'{}' is no part of a checkpoint", name);
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, fmt::format("cannot read '{}'", name));
  PartReader reader(std::move(name), {static_cast<const std::byte*>(mapped), size});
  madvise(mapped, size, MADV_SEQUENTIAL);
  if (hash_of(reader.all_) != part.checksum)
    return fail("'{}' is damaged: its checksum is not what the head of the checkpoint says", reader.name_);
  PartRecord record;
  std::memcpy(&record, reader.all_.data(), sizeof record);
  if (record.magic != kPartMagic || record.version != kVersion || record.node != node.value ||
      record.number != part.number || record.before != (before == nullptr ? 0 : before->number))
    return fail("'{}' is another part than its name says", reader.name_);
  reader.rest_ = reader.rest_.subspan(sizeof record);
  return reader;
}

PartReader::~PartReader() {
  if (!all_.empty()) munmap(const_cast<std::byte*>(all_.data()), all_.size());
}

tl::unexpected<Error> PartReader::senseless() const {
  return fail("'{}' makes no sense at byte {}", name_, all_.size() - rest_.size());
}

template <typename Record>
bool PartReader::take(Record& record) {
  static_assert(std::is_trivially_copyable_v<Record>);
  return take(&record, sizeof record);
}

bool PartReader::take(void* bytes, size_t size) {
  auto* to = static_cast<std::byte*>(bytes);
  while (size != 0) {
    if (at_ == block_.size() && !next_block()) return false;
    const size_t some = std::min(size, block_.size() - at_);
    std::memcpy(to, block_.data() + at_, some);
    at_ += some;
    to += some;
    size -= some;
  }
  return true;
}

bool PartReader::next_block() {
  BlockRecord record;
  if (rest_.size() < sizeof record) return false;
  std::memcpy(&record, rest_.data(), sizeof record);
  const std::span<const std::byte> after = rest_.subspan(sizeof record);
  if (record.bytes == 0 || record.bytes > kBlockBytes || record.packed_bytes > after.size()) return false;
  block_.resize(record.bytes);
  at_ = 0;
  if (record.packed_bytes == record.bytes)
    std::memcpy(block_.data(), after.data(), record.bytes);
  else if (ZSTD_decompress(block_.data(), block_.size(), after.data(), record.packed_bytes) != block_.size())
    return false;
  rest_ = after.subspan(record.packed_bytes);
  return true;
}

Status PartReader::read_books(SpaceImage& space, SmallImage& small) {
  // Lists grow as their records are read: a wrong number would take all memory.
  BooksRecord books;
  if (!take(books)) return senseless();
  for (uint64_t i = 0; i < books.extents; ++i) {
    ExtentRecord record;
    if (!take(record)) return senseless();
    const bool is_known = record.policy <= static_cast<uint8_t>(HomePolicy::kNode) &&
                          record.grain <= static_cast<uint8_t>(Grain::kLine) &&
                          record.pin <= static_cast<uint8_t>(Pin::kGlobal);
    if (!is_known) return senseless();
    space.extents.push_back(extent_of(record));
  }
  for (uint64_t i = 0; i < books.runs; ++i) {
    RunRecord record;
    if (!take(record)) return senseless();
    space.runs.push_back({record.first, record.pages, record.kind, record.is_allocated != 0, record.is_dirty != 0});
  }
  for (uint64_t i = 0; i < books.superblocks; ++i) {
    SmallImage::Superblock superblock;
    if (!take(superblock)) return senseless();
    small.superblocks.push_back(superblock);
  }
  for (uint64_t i = 0; i < books.bitmap_words; ++i) {
    uint64_t word;
    if (!take(word)) return senseless();
    small.bitmaps.push_back(word);
  }
  constexpr uint64_t kAtATime = 4096;
  while (program_.size() < books.program_bytes) {
    const size_t have = program_.size();
    program_.resize(have + std::min(kAtATime, books.program_bytes - have));
    if (!take(&program_[have], program_.size() - have)) return senseless();
  }
  return {};
}

Result<std::optional<PartReader::Page>> PartReader::next_page(size_t page_size) {
  uint64_t page;
  if (!take(page)) return senseless();
  if (page == kNoPage) {
    if (!rest_.empty() || at_ != block_.size()) return senseless();
    return std::nullopt;
  }
  if ((page & kAbsent) != 0) return Page{PageId(page & ~kAbsent), {}};
  page_.resize(page_size);
  if (!take(page_.data(), page_size)) return senseless();
  return Page{PageId(page), page_};
}

}  // namespace multigrain::checkpoint
