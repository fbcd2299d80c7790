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

namespace multigrain::checkpoint {
namespace {

constexpr uint64_t kHeadMagic = 0x3144'4145'4847'4d00;  // "\0MGHEAD1"
constexpr uint64_t kPartMagic = 0x3154'5241'5047'4d00;  // "\0MGPART1"
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr size_t kBufferBytes = size_t{1} << 20;

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
  uint32_t reserved;
};
static_assert(sizeof(HeadRecord) == 80 && sizeof(Part) == 16);

// A part's file: this, the extents, the runs, the superblocks, the words of their bitmaps, and then for each page its
// number and its bytes; at the end a number that no page has.
struct PartRecord {
  uint64_t magic;
  uint32_t version;
  uint32_t node;
  uint64_t number;
  uint64_t extents, runs, superblocks, bitmap_words;
};
static_assert(sizeof(PartRecord) == 56);

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
  return folder + "/checkpoint";
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
  if (bytes.size() != sizeof record + uint64_t{record.nodes} * sizeof(Part) + sizeof(uint64_t))
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
  head.parts.resize(record.nodes);
  std::memcpy(head.parts.data(), bytes.data() + sizeof record, record.nodes * sizeof(Part));
  return head;
}

Status write_head(const std::string& folder, const Head& head) {
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
                          .reserved = 0};
  std::vector<std::byte> bytes(sizeof record + head.parts.size() * sizeof(Part) + sizeof(uint64_t));
  std::memcpy(bytes.data(), &record, sizeof record);
  std::memcpy(bytes.data() + sizeof record, head.parts.data(), head.parts.size() * sizeof(Part));
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

void remove_other_parts(const std::string& folder, uint64_t number, NodeId node) {
  constexpr std::string_view kBegin = "memory-";
  const std::string end = fmt::format("-{}", node.value);
  const std::string kept = part_name(folder, number, node);
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), last; !failed && entry != last;
       entry.increment(failed)) {
    const std::string name = entry->path().filename();
    if (name.size() <= kBegin.size() + end.size() || !name.starts_with(kBegin) || !name.ends_with(end)) continue;
    const std::string digits = name.substr(kBegin.size(), name.size() - kBegin.size() - end.size());
    if (digits.find_first_not_of("0123456789") != digits.npos) continue;
    const std::string whole = folder + "/" + name;
    if (whole != kept) unlink(whole.c_str());
  }
}

// --- Writing a part

void PartWriter::FreeState::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}

PartWriter::PartWriter(std::string name, FileDescriptor file)
    : name_(std::move(name)), file_(std::move(file)), hash_(XXH3_createState()) {
  buffer_.reserve(kBufferBytes);
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(hash_.get()));
}

Result<PartWriter> PartWriter::create(const std::string& folder, uint64_t number, NodeId node) {
  std::string name = part_name(folder, number, node);
  FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.is_open()) return fail_errno(errno, fmt::format("cannot write '{}'", name));
  PartWriter writer(std::move(name), std::move(file));
  PartRecord record{};
  record.magic = kPartMagic;
  record.version = kVersion;
  record.node = node.value;
  record.number = number;
  writer.add(&record, offsetof(PartRecord, extents));
  return writer;
}

void PartWriter::add(const void* bytes, size_t size) {
  const auto* from = static_cast<const std::byte*>(bytes);
  while (size != 0) {
    const size_t some = std::min(size, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), from, from + some);
    from += some;
    size -= some;
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void PartWriter::flush() {
  if (failed_ == 0) {
    XXH3_64bits_update(static_cast<XXH3_state_t*>(hash_.get()), buffer_.data(), buffer_.size());
    bytes_ += buffer_.size();
    failed_ = write_all(file_.get(), buffer_);
  }
  buffer_.clear();
}

void PartWriter::add_books(const SpaceImage& space, const SmallImage& small) {
  const std::array<uint64_t, 4> counts{space.extents.size(), space.runs.size(), small.superblocks.size(),
                                       small.bitmaps.size()};
  add(counts.data(), sizeof counts);
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
}

void PartWriter::add_page(PageId page, std::span<const std::byte> bytes) {
  add(&page.value, sizeof page.value);
  add(bytes.data(), bytes.size());
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
  return Part{bytes_, XXH3_64bits_digest(static_cast<XXH3_state_t*>(hash_.get()))};
}

// --- Reading a part

Result<PartReader> PartReader::open(const std::string& folder, uint64_t number, NodeId node, const Part& part) {
  std::string name = part_name(folder, number, node);
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
  if (record.magic != kPartMagic || record.version != kVersion || record.node != node.value || record.number != number)
    return fail("'{}' is another part than its name says", reader.name_);
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
  if (rest_.size() < sizeof record) return false;
  std::memcpy(&record, rest_.data(), sizeof record);
  rest_ = rest_.subspan(sizeof record);
  return true;
}

Status PartReader::read_books(SpaceImage& space, SmallImage& small) {
  PartRecord head;
  if (!take(head)) return senseless();
  // A count beyond the file's length makes no sense, and would take all memory.
  for (const uint64_t count : {head.extents, head.runs, head.superblocks, head.bitmap_words})
    if (count > rest_.size()) return senseless();
  for (uint64_t i = 0; i < head.extents; ++i) {
    ExtentRecord record;
    if (!take(record)) return senseless();
    const bool is_known = record.policy <= static_cast<uint8_t>(HomePolicy::kNode) &&
                          record.grain <= static_cast<uint8_t>(Grain::kLine) &&
                          record.pin <= static_cast<uint8_t>(Pin::kGlobal);
    if (!is_known) return senseless();
    space.extents.push_back(extent_of(record));
  }
  for (uint64_t i = 0; i < head.runs; ++i) {
    RunRecord record;
    if (!take(record)) return senseless();
    space.runs.push_back({record.first, record.pages, record.kind, record.is_allocated != 0, record.is_dirty != 0});
  }
  small.superblocks.resize(head.superblocks);
  for (SmallImage::Superblock& superblock : small.superblocks)
    if (!take(superblock)) return senseless();
  small.bitmaps.resize(head.bitmap_words);
  for (uint64_t& word : small.bitmaps)
    if (!take(word)) return senseless();
  return {};
}

Result<std::optional<PartReader::Page>> PartReader::next_page(size_t page_size) {
  uint64_t page;
  if (!take(page)) return senseless();
  if (page == kNoPage) {
    if (!rest_.empty()) return senseless();
    return std::nullopt;
  }
  if (rest_.size() < page_size) return senseless();
  const Page found{PageId(page), rest_.first(page_size)};
  rest_ = rest_.subspan(page_size);
  return found;
}

}  // namespace multigrain::checkpoint
