#include "trace/record/merge.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/record/raw.h"

namespace multigrain::trace {
namespace {

using raw::Kind;

// After so many references private ones are reported, so that there are few such events and none is far from its place.
constexpr uint64_t kPrivateInterval = 1u << 16;

// These are the address ranges of live stacks.
class Stacks {
 public:
  void add(uint64_t low, uint64_t bytes) {
    if (bytes == 0) return;
    ranges_[low] = low + bytes;
    gap_bytes_ = 0;
  }
  void remove(uint64_t low) {
    ranges_.erase(low);
    gap_bytes_ = 0;
  }
  [[nodiscard]] bool contain(uint64_t address) {
    if (address - gap_low_ < gap_bytes_) return false;
    const auto above = ranges_.upper_bound(address);
    const uint64_t below_end = above == ranges_.begin() ? 0 : std::prev(above)->second;
    if (address < below_end) return true;
    // An address between two stacks is tested once.
    gap_low_ = below_end;
    gap_bytes_ = (above == ranges_.end() ? ~uint64_t{0} : above->first) - below_end;
    return false;
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;
  uint64_t gap_low_ = 0;
  uint64_t gap_bytes_ = 0;
};

// A set of pages of memory, by their numbers.
class Pages {
 public:
  void insert(uint64_t address) {
    const uint64_t page = address >> kShift;
    if (page == last_) return;
    last_ = page;
    pages_.insert(page);
  }
  [[nodiscard]] bool contains(uint64_t address) const { return pages_.contains(address >> kShift); }
  [[nodiscard]] bool contains_any(uint64_t begin, uint64_t end) const {
    const uint64_t last = (end - 1) >> kShift;
    if (last - (begin >> kShift) < pages_.size()) {
      for (uint64_t page = begin >> kShift; page <= last; ++page)
        if (pages_.contains(page)) return true;
      return false;
    }
    return std::ranges::any_of(pages_, [&](uint64_t page) { return page >= begin >> kShift && page <= last; });
  }

 private:
  static constexpr unsigned kShift = 12;
  std::unordered_set<uint64_t> pages_;
  uint64_t last_ = ~uint64_t{0};
};

struct Chunk {
  uint64_t sequence;
  uint64_t number;
  bool is_buffer;
};

// References that are recorded together.
struct Group {
  std::vector<raw::AccessDescription> accesses;  // with the sites' numbers
  std::vector<uint64_t> strides;                 // of a loop
  uint64_t private_references = 0;
  uint32_t bases = 0;
  bool is_loop = false;
};

// What a stream has next: a reference, or an event.
struct Item {
  Kind kind = Kind::kNone;
  uint8_t size = 0;
  uint32_t calls = 0;  // the number of those that led to a reference
  SiteId site = 0;
  uint64_t address = 0;
  uint64_t private_references = 0;  // since the item before
  uint64_t value = 0;               // of an event
};

// These are one processor's records, as far as they have been merged.
struct Stream {
  ProcessorId processor = 0;
  std::vector<Chunk> chunks;
  size_t chunk = 0;
  const uint64_t* at = nullptr;  // the record behind the item, or behind its group
  const uint64_t* end = nullptr;
  Item item;
  // The rest of a group.
  const Group* group = nullptr;  // nullptr: the item is the last one, or of no group
  uint32_t access = 0;           // the item's
  uint64_t iterations = 0;       // the present one and those behind it
  uint64_t addresses[raw::kMaxBases] = {};
  uint32_t calls_of_group = 0;
  uint32_t calls = 0;                    // that led to references which are in no group
  uint64_t own_private_references = 0;   // records of these, for the next item
  uint64_t left_private_references = 0;  // those of bursts before references that are in none
  uint64_t clock = 0;                    // the clock of the last item taken
  uint64_t next_clock = 0;               // the item's
  uint64_t private_references = 0;       // how many have not been reported yet
  uint64_t stack = 0;
  bool stack_is_shared = false;
  bool running = false;
};

Kind kind_of(uint64_t head) {
  return static_cast<Kind>(head >> 56);
}

}  // namespace

struct MergedTrace::Implementation {
  TraceHeader header;
  RecordingFacts facts;
  int chunks_fd = -1;
  const std::byte* file = nullptr;
  size_t file_bytes = 0;
  bool consume = false;
  bool is_merging = false;       // the records are read for the second time
  uint64_t reference_count = 0;  // of all records
  uint64_t stop_clock = ~uint64_t{0};
  Bursts bursts = {};
  uint64_t left_out = 0;  // references that are in no burst, of those that were recorded

  // Which calls lead to a function: one, and before it others.
  struct Calls {
    uint32_t before = 0;
    SiteId site = 0;
  };
  std::vector<Calls> calls;
  // The sites of the trace that are made of one of the program's with the calls that led there.
  std::unordered_map<uint64_t, SiteId> sites_in_calls;
  struct SiteInCalls {
    uint64_t key = 0;
    SiteId site = 0;
  };
  std::vector<SiteInCalls> recent_sites = std::vector<SiteInCalls>(size_t{1} << 12);

  std::vector<Group> groups;
  std::vector<Stream> streams;
  std::vector<Stream*> heap;  // ordered by next_clock, with the least in front
  Stacks stacks;
  Pages shared_pages;  // those to which a processor refers that does not have its own stack there
  std::unordered_map<std::string, uint32_t> names;
  std::unordered_map<SiteId, uint32_t> names_of_sites;
  std::unordered_map<ProcessorId, uint32_t> names_of_stacks;
  uint64_t merged = 0;
  uint64_t private_due = kPrivateInterval;
  bool ended = false;
  std::vector<Reference> references;
  std::vector<Event> events;

  Implementation() = default;
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() {
    if (file != nullptr) munmap(const_cast<std::byte*>(file), file_bytes);
    if (chunks_fd >= 0) close(chunks_fd);
  }

  Status read_descriptions(int descriptor);
  Status read_sites(const char* at, const char* end);
  Status read_groups(const char* at, const char* end);
  Status read_calls(const char* at, const char* end);
  SiteId site_in(SiteId site, uint32_t number);
  SiteId find_site_in(SiteId site, uint32_t number);
  Status map_chunks();
  void find_shared_pages();
  bool enter_chunk(Stream& stream);
  void leave_chunk(Stream& stream);
  bool advance(Stream& stream);
  bool advance_to_any(Stream& stream);
  bool is_in_burst(Stream& stream);
  bool advance_in_group(Stream& stream);
  bool read_record(Stream& stream);
  void step(Stream& stream);
  void report_private(Stream& stream);
  void emit(const Stream& stream, EventKind kind, uint64_t address, uint64_t value, SiteId site, uint32_t name);
  uint32_t name_of(SiteId site);
  uint32_t name_of_stack(ProcessorId processor);
  void finish();
};

// The runtime appends each description as a whole. A description that was being written when the program was killed is
// left out, which is safe, because no complete record has its sites.
Status MergedTrace::Implementation::read_descriptions(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) return fail_errno(errno, "cannot read the recorder's descriptions of sites");
  std::vector<char> text(static_cast<size_t>(status.st_size));
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = pread(descriptor, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail_errno(got < 0 ? errno : EIO, "cannot read the recorder's descriptions of sites");
    done += static_cast<size_t>(got);
  }
  header.sites.emplace_back();
  header.names.emplace_back();
  for (size_t offset = 0; offset + sizeof(raw::DescriptionHeader) <= text.size();) {
    raw::DescriptionHeader description;
    std::memcpy(&description, text.data() + offset, sizeof description);
    offset += sizeof description;
    if (description.bytes > text.size() - offset) break;
    const char* const at = text.data() + offset;
    offset += description.bytes;
    Status good;
    if (description.kind == raw::Description::kSites) good = read_sites(at, at + description.bytes);
    if (description.kind == raw::Description::kGroups) good = read_groups(at, at + description.bytes);
    if (description.kind == raw::Description::kCalls) good = read_calls(at, at + description.bytes);
    if (!good) return good;
  }
  return {};
}

namespace {

// Takes a number or a structure from the front of [at, end). Returns whether it is there.
template <typename T>
bool take(const char*& at, const char* end, T& value) {
  if (static_cast<size_t>(end - at) < sizeof value) return false;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return true;
}

}  // namespace

Status MergedTrace::Implementation::read_sites(const char* at, const char* end) {
  const auto string = [&at, end](std::string& value) {
    const auto* const zero = static_cast<const char*>(std::memchr(at, 0, static_cast<size_t>(end - at)));
    if (zero == nullptr) return false;
    value.assign(at, zero);
    at = zero + 1;
    return true;
  };
  uint32_t first = 0;
  uint32_t count = 0;
  bool good = take(at, end, first) && take(at, end, count) && first == header.sites.size();
  for (uint32_t i = 0; good && i < count; ++i) {
    Site site;
    std::string name;
    good = take(at, end, site.line) && string(site.file) && string(site.function) && string(name);
    if (!good) break;
    if (!name.empty()) {
      const auto [found, added] = names.try_emplace(name, static_cast<uint32_t>(header.names.size()));
      if (added) header.names.push_back(name);
      names_of_sites[static_cast<SiteId>(header.sites.size())] = found->second;
    }
    header.sites.push_back(std::move(site));
  }
  if (!good) return fail("the recorder's descriptions of sites are damaged after {} sites", header.sites.size() - 1);
  return {};
}

Status MergedTrace::Implementation::read_groups(const char* at, const char* end) {
  uint32_t first = 0;
  uint32_t count = 0;
  bool good = take(at, end, first) && take(at, end, count) && first == groups.size();
  for (uint32_t i = 0; good && i < count; ++i) {
    Group group;
    uint32_t numbers[4] = {};  // accesses, bases, whether it is a loop
    good = take(at, end, numbers) && take(at, end, group.private_references) && numbers[0] > 0 &&
           numbers[0] <= static_cast<size_t>(end - at) / sizeof(raw::AccessDescription) && numbers[1] <= raw::kMaxBases;
    if (!good) break;
    group.bases = numbers[1];
    group.is_loop = numbers[2] != 0;
    group.strides.resize(group.is_loop ? group.bases : 0);
    for (uint64_t& stride : group.strides) good = good && take(at, end, stride);
    group.accesses.resize(numbers[0]);
    for (raw::AccessDescription& access : group.accesses)
      good = good && take(at, end, access) && access.base < group.bases;
    if (good) groups.push_back(std::move(group));
  }
  if (!good) return fail("the recorder's descriptions of references are damaged after {} groups", groups.size());
  return {};
}

Status MergedTrace::Implementation::read_calls(const char* at, const char* end) {
  uint32_t numbers[3] = {};  // of these calls, of those before the last, its site
  if (calls.empty()) calls.emplace_back();
  if (!take(at, end, numbers) || numbers[0] != calls.size() || numbers[1] >= numbers[0])
    return fail("the recorder's descriptions of calls are damaged after {} calls", calls.size() - 1);
  calls.push_back({numbers[1], numbers[2] < header.sites.size() ? numbers[2] : 0});
  return {};
}

// Returns the site with the calls that led to it, which is in the header from now on.
SiteId MergedTrace::Implementation::site_in(SiteId site, uint32_t number) {
  if (number == 0 || number >= calls.size()) return site;
  const uint64_t key = uint64_t{number} << 32 | site;
  SiteInCalls& recent = recent_sites[(key * 0x9e3779b97f4a7c15u) >> 52];
  if (recent.key != key) recent = {key, find_site_in(site, number)};
  return recent.site;
}

SiteId MergedTrace::Implementation::find_site_in(SiteId site, uint32_t number) {
  const uint64_t key = uint64_t{number} << 32 | site;
  if (const auto found = sites_in_calls.find(key); found != sites_in_calls.end()) return found->second;
  // The callers come first; there are no more of them than functions, because recursion does not count (runtime/runtime.cpp).
  const SiteId caller = site_in(calls[number].site, calls[number].before);
  const auto added = static_cast<SiteId>(header.sites.size());
  Site with_caller = header.sites[site];
  with_caller.caller = caller;
  header.sites.push_back(std::move(with_caller));
  sites_in_calls[key] = added;
  return added;
}

Status MergedTrace::Implementation::map_chunks() {
  struct stat status = {};
  if (fstat(chunks_fd, &status) != 0) return fail_errno(errno, "cannot read the recorder's streams");
  file_bytes = static_cast<size_t>(status.st_size);
  if (file_bytes < raw::kChunkBytes) return fail("the recorder's streams have no header");
  void* const mapped = mmap(nullptr, file_bytes, PROT_READ, MAP_SHARED, chunks_fd, 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, "cannot map the recorder's streams");
  file = static_cast<const std::byte*>(mapped);
  raw::Control control;
  std::memcpy(&control, file, sizeof control);
  if (control.version != raw::kVersion) {
    return fail(
        "the program was built with another version of the recorder ({} instead of {}): build it again with "
        "this mgtrace",
        control.version, raw::kVersion);
  }
  if (control.processors > raw::kMaxProcessors) return fail("the recorder's streams have a damaged header");
  header.processors = control.processors;
  bursts = control.bursts;
  if (bursts.is_on() && (bursts.burst == 0 || bursts.burst > bursts.interval))
    return fail("the recorder's streams have a damaged header");
  facts.spins = control.spins;
  facts.dropped = control.dropped;
  if (control.error != 0) {
    stop_clock = control.stop_clock;
    if (control.error == EOVERFLOW) {
      facts.stopped = "the limit on references was reached";
    } else if (control.error == EUSERS) {
      facts.stopped = fmt::format("more than {} threads ran at once", raw::kMaxProcessors);
    } else {
      facts.stopped =
          fmt::format("no more records could be written: {}", std::generic_category().message(control.error));
    }
  }
  streams.resize(control.processors);
  for (size_t i = 0; i < streams.size(); ++i) streams[i].processor = static_cast<ProcessorId>(i);
  const uint64_t chunk_count = std::min<uint64_t>(control.chunks, file_bytes / raw::kChunkBytes - 1);
  for (uint64_t i = 0; i < chunk_count; ++i) {
    raw::ChunkHeader chunk;
    std::memcpy(&chunk, file + (i + 1) * raw::kChunkBytes, sizeof chunk);
    if (chunk.magic == 0) continue;  // the program took the chunk, and ended before it used it
    if (chunk.magic != raw::kChunkMagic || chunk.processor >= streams.size()) {
      return fail("chunk {} of the recorder's streams was overwritten by the program", i);
    }
    streams[chunk.processor].chunks.push_back({chunk.sequence, i, chunk.is_buffer != 0});
    facts.raw_bytes += raw::kChunkBytes;
  }
  for (Stream& stream : streams) {
    std::ranges::sort(stream.chunks, {}, [](const Chunk& chunk) { return std::pair(chunk.sequence, chunk.is_buffer); });
    // A buffer that was not emptied behind its copy has that one's number.
    const auto copied = std::ranges::unique(stream.chunks, {}, &Chunk::sequence);
    stream.chunks.erase(copied.begin(), copied.end());
  }
  find_shared_pages();
  if (bursts.is_on()) {
    facts.skipped_references = control.skipped + left_out;
    header.sampling = {.burst = bursts.burst,
                       .interval = bursts.interval,
                       .scale = reference_count == 0 ? 1
                                                     : 1 + static_cast<double>(facts.skipped_references) /
                                                               static_cast<double>(reference_count)};
  }
  is_merging = true;
  for (Stream& stream : streams) {
    if (enter_chunk(stream) && advance(stream)) heap.push_back(&stream);
  }
  return {};
}

// Which memory of a thread's stack other threads use is known only at the end, but the thread itself may have used it before.
// So this looks at all references once before they are merged.
void MergedTrace::Implementation::find_shared_pages() {
  for (const Stream& stream : streams) {
    Stream whole = stream;
    uint64_t low = 0;
    uint64_t bytes = 0;
    if (!enter_chunk(whole)) continue;
    while (advance(whole)) {
      const Item& item = whole.item;
      if (item.kind == Kind::kRead || item.kind == Kind::kWrite) {
        ++reference_count;
        if (item.address - low >= bytes) shared_pages.insert(item.address);
      } else if (item.kind == Kind::kStart) {
        low = item.address, bytes = item.value;
      }
      whole.clock = whole.next_clock;
      if (whole.clock > stop_clock) break;
    }
  }
}

bool MergedTrace::Implementation::enter_chunk(Stream& stream) {
  if (stream.chunk >= stream.chunks.size()) return false;
  const std::byte* const begin = file + (stream.chunks[stream.chunk].number + 1) * raw::kChunkBytes;
  stream.at = reinterpret_cast<const uint64_t*>(begin + sizeof(raw::ChunkHeader));
  stream.end = stream.at + raw::kWordsOfChunk;
  return true;
}

// Gives the space of the chunk that the stream has been through back, if that is wanted and everything has been looked at before.
void MergedTrace::Implementation::leave_chunk(Stream& stream) {
  if (consume && is_merging) {
    const auto offset = static_cast<off_t>((stream.chunks[stream.chunk].number + 1) * raw::kChunkBytes);
    // If the file system cannot do this, the space is freed when the file is closed.
    (void)fallocate(chunks_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, raw::kChunkBytes);
  }
  ++stream.chunk;
}

// Finds the stream's next item that is an event or in a burst, and its time. Returns false at the stream's end.
bool MergedTrace::Implementation::advance(Stream& stream) {
  while (advance_to_any(stream)) {
    if (!bursts.is_on() || stream.next_clock > stop_clock || is_in_burst(stream)) return true;
    stream.clock = stream.next_clock;
    ++left_out;
  }
  return false;
}

// Says whether the item is an event or in a burst, and takes those of its private references away that are in none.
bool MergedTrace::Implementation::is_in_burst(Stream& stream) {
  Item& item = stream.item;
  const bool is_reference = item.kind == Kind::kRead || item.kind == Kind::kWrite;
  // Each private reference has a tick, and these end where the item's begins.
  const uint64_t first = stream.clock;
  const uint64_t tick = first + item.private_references;
  const uint64_t before_item = bursts.before(tick);
  if (item.private_references != 0) stream.left_private_references += before_item - bursts.before(first);
  if (is_reference && bursts.before(tick + 1) == before_item) return false;
  item.private_references = std::exchange(stream.left_private_references, 0);
  return true;
}

// Finds the stream's next item, and its time. Returns false at its end.
bool MergedTrace::Implementation::advance_to_any(Stream& stream) {
  if (stream.group != nullptr && advance_in_group(stream)) return true;
  for (;;) {
    if (read_record(stream)) return true;
    leave_chunk(stream);
    if (!enter_chunk(stream)) return false;
  }
}

namespace {

// Makes the group's present access the stream's item, behind so many private references.
void next_is_access(Stream& stream, uint64_t private_references) {
  const raw::AccessDescription& access = stream.group->accesses[stream.access];
  stream.item = {.kind = static_cast<Kind>(access.kind),
                 .size = access.bytes,
                 .calls = stream.calls_of_group,
                 .site = access.site,
                 .address = stream.addresses[access.base] + static_cast<uint64_t>(access.offset),
                 .private_references = private_references};
  stream.next_clock = stream.clock + private_references + 1;
}

}  // namespace

// Finds the group's next item. Returns false behind its last one.
bool MergedTrace::Implementation::advance_in_group(Stream& stream) {
  const Group& group = *stream.group;
  uint64_t privates = 0;
  if (++stream.access == group.accesses.size()) {
    if (--stream.iterations == 0) {
      stream.group = nullptr;
      return false;
    }
    stream.access = 0;
    privates = group.private_references;
    for (uint32_t base = 0; base < group.bases; ++base) stream.addresses[base] += group.strides[base];
  }
  next_is_access(stream, privates);
  return true;
}

// Reads records of the chunk up to the next item. Returns false at the chunk's end.
bool MergedTrace::Implementation::read_record(Stream& stream) {
  while (stream.at < stream.end) {
    const uint64_t head = *stream.at;
    const Kind kind = kind_of(head);
    const auto has = [&](size_t words) { return static_cast<size_t>(stream.end - stream.at) >= words; };
    if (kind == Kind::kNone || !has(2)) return false;
    if (kind == Kind::kTime || kind == Kind::kPrivate || kind == Kind::kCalls) {
      if (kind == Kind::kTime)
        stream.clock = std::max(stream.clock, stream.at[1]);
      else if (kind == Kind::kPrivate)
        stream.own_private_references += stream.at[1];
      else
        stream.calls = static_cast<uint32_t>(stream.at[1] >> raw::kCallsShift);
      stream.at += 2;
      continue;
    }
    const uint64_t privates = std::exchange(stream.own_private_references, 0);
    if (kind == Kind::kGroup || kind == Kind::kLoop) {
      const uint64_t number = static_cast<uint32_t>(head);
      stream.calls_of_group = static_cast<uint32_t>(head >> raw::kCallsShift) & 0xffffff;
      if (number >= groups.size()) return false;
      const Group& group = groups[number];
      const size_t first = group.is_loop ? 2 : 1;
      if (group.is_loop != (kind == Kind::kLoop) || !has(first + group.bases)) return false;
      stream.iterations = group.is_loop ? stream.at[1] : 1;
      if (stream.iterations == 0) return false;
      for (uint32_t base = 0; base < group.bases; ++base) {
        stream.addresses[base] = stream.at[first + base];
        if (group.is_loop) stream.addresses[base] -= (stream.iterations - 1) * group.strides[base];
      }
      stream.at += first + group.bases;
      stream.group = &group;
      stream.access = 0;
      next_is_access(stream, privates + group.private_references);
      return true;
    }
    stream.item = {.kind = kind,
                   .size = static_cast<uint8_t>(head >> 48),
                   .calls = stream.calls,
                   .site = static_cast<SiteId>(stream.at[1]),
                   .address = head & raw::kAddressMask,
                   .private_references = privates + (stream.at[1] >> 32)};
    if (kind == Kind::kRead || kind == Kind::kWrite) {
      stream.next_clock = stream.clock + stream.item.private_references + 1;
      stream.at += raw::kWordsOfReference;
      return true;
    }
    if (!has(raw::kWordsOfEvent)) return false;
    stream.next_clock = std::max(stream.clock, stream.at[2]);
    stream.item.value = stream.at[3];
    stream.at += raw::kWordsOfEvent;
    return true;
  }
  return false;
}

void MergedTrace::Implementation::emit(const Stream& stream, EventKind kind, uint64_t address, uint64_t value,
                                       SiteId site, uint32_t name) {
  events.push_back({merged, address, value, name, site, stream.processor, kind});
}

void MergedTrace::Implementation::report_private(Stream& stream) {
  if (stream.private_references == 0) return;
  emit(stream, EventKind::kPrivate, 0, stream.private_references, 0, 0);
  facts.private_references += stream.private_references;
  stream.private_references = 0;
}

// An allocation without a variable gets the name of the function that asked for it.
uint32_t MergedTrace::Implementation::name_of(SiteId site) {
  const auto found = names_of_sites.find(site);
  if (found != names_of_sites.end()) return found->second;
  if (site == 0) return 0;
  const Site& where = header.sites[site];
  std::string name = where.function;
  if (name.empty()) name = where.file.substr(where.file.rfind('/') + 1);
  if (name.empty()) return 0;
  if (where.line != 0) name += fmt::format(":{}", where.line);
  const auto number = static_cast<uint32_t>(header.names.size());
  header.names.push_back(std::move(name));
  names_of_sites[site] = number;
  return number;
}

// All stacks that a processor has had have one name.
uint32_t MergedTrace::Implementation::name_of_stack(ProcessorId processor) {
  const auto [found, added] = names_of_stacks.try_emplace(processor, static_cast<uint32_t>(header.names.size()));
  if (added) header.names.push_back(fmt::format("stack of processor {}", processor));
  return found->second;
}

// Takes the stream's next item.
void MergedTrace::Implementation::step(Stream& stream) {
  const Item& item = stream.item;
  const Kind kind = item.kind;
  const uint64_t address = item.address;
  const SiteId site = item.site < header.sites.size() ? item.site : 0;
  stream.clock = stream.next_clock;
  stream.private_references += item.private_references;
  if (kind == Kind::kRead || kind == Kind::kWrite) {
    if (stacks.contain(address)) {
      if (!shared_pages.contains(address)) {
        ++stream.private_references;
        return;
      }
      ++facts.stack_references;
    }
    references.push_back({address, site_in(site, item.calls), stream.processor,
                          kind == Kind::kRead ? Access::kRead : Access::kWrite, item.size});
    ++merged;
    return;
  }
  switch (kind) {
    case Kind::kAllocate:
      emit(stream, EventKind::kAllocate, address, item.value, site, name_of(site));
      break;
    case Kind::kFree:
      emit(stream, EventKind::kFree, address, 0, 0, 0);
      break;
    case Kind::kAcquire:
      emit(stream, EventKind::kAcquire, address, 0, site, 0);
      break;
    case Kind::kRelease:
      emit(stream, EventKind::kRelease, address, 0, site, 0);
      break;
    case Kind::kBarrier:
      report_private(stream);
      emit(stream, EventKind::kBarrier, address, 0, site, 0);
      break;
    case Kind::kStart:
      stream.running = true;
      stream.stack = address;
      stacks.add(address, item.value);
      emit(stream, EventKind::kStart, 0, 0, 0, 0);
      stream.stack_is_shared = item.value != 0 && shared_pages.contains_any(address, address + item.value);
      if (stream.stack_is_shared)
        emit(stream, EventKind::kAllocate, address, item.value, 0, name_of_stack(stream.processor));
      break;
    case Kind::kEnd:
      report_private(stream);
      stacks.remove(stream.stack);
      if (stream.stack_is_shared) emit(stream, EventKind::kFree, stream.stack, 0, 0, 0);
      stream.running = false;
      emit(stream, EventKind::kEnd, 0, 0, 0, 0);
      break;
    default:
      break;
  }
}

// Some threads have no end in their streams, because the program was killed or called _exit. They end with the trace.
void MergedTrace::Implementation::finish() {
  ended = true;
  for (Stream& stream : streams) {
    report_private(stream);
    if (stream.running) emit(stream, EventKind::kEnd, 0, 0, 0, 0);
  }
}

MergedTrace::MergedTrace(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
MergedTrace::~MergedTrace() = default;

Result<std::unique_ptr<MergedTrace>> MergedTrace::open(int chunks, int descriptions, std::string program,
                                                       bool consume) {
  auto merge = std::make_unique<Implementation>();
  merge->chunks_fd = fcntl(chunks, F_DUPFD_CLOEXEC, 0);
  if (merge->chunks_fd < 0) return fail_errno(errno, "cannot read the recorder's streams");
  merge->consume = consume;
  merge->header.program = std::move(program);
  merge->header.recorder = "mgtrace record, compiled-in";
  if (auto status = merge->read_descriptions(descriptions); !status) return tl::unexpected(status.error());
  if (auto status = merge->map_chunks(); !status) return tl::unexpected(status.error());
  const auto later = [](const Stream* a, const Stream* b) {
    return a->next_clock != b->next_clock ? a->next_clock > b->next_clock : a->processor > b->processor;
  };
  std::make_heap(merge->heap.begin(), merge->heap.end(), later);
  merge->references.reserve(kBatch);
  return std::unique_ptr<MergedTrace>(new MergedTrace(std::move(merge)));
}

const TraceHeader& MergedTrace::header() const {
  return implementation_->header;
}
const RecordingFacts& MergedTrace::facts() const {
  return implementation_->facts;
}
uint64_t MergedTrace::capacity() const {
  return implementation_->reference_count;
}
void MergedTrace::set_dilation(double dilation) {
  implementation_->header.dilation = dilation;
}

Result<Batch> MergedTrace::next() {
  Implementation& merge = *implementation_;
  merge.references.clear();
  merge.events.clear();
  const uint64_t first = merge.merged;
  std::vector<Stream*>& heap = merge.heap;
  const auto before = [](const Stream* a, const Stream* b) {
    return a->next_clock != b->next_clock ? a->next_clock < b->next_clock : a->processor < b->processor;
  };
  while (!heap.empty() && merge.references.size() < kBatch && merge.events.size() < kBatch) {
    Stream& stream = *heap.front();
    if (stream.next_clock > merge.stop_clock) {
      heap.clear();
      break;
    }
    merge.step(stream);
    if (!merge.advance(stream)) {
      heap.front() = heap.back();
      heap.pop_back();
    }
    // The front may now be later than its children, and sinks to its place.
    for (size_t at = 0;;) {
      size_t least = at;
      for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap.size(); ++child) {
        if (before(heap[child], heap[least])) least = child;
      }
      if (least == at) break;
      std::swap(heap[at], heap[least]);
      at = least;
    }
  }
  if (merge.merged >= merge.private_due) {
    merge.private_due = merge.merged + kPrivateInterval;
    for (Stream& stream : merge.streams) merge.report_private(stream);
  }
  if (heap.empty() && !merge.ended) merge.finish();
  return Batch{first, merge.references, merge.events};
}

}  // namespace multigrain::trace
