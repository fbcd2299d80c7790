#include "emulation/cache_model.h"

#include <algorithm>
#include <utility>

namespace multigrain {

CacheModel::CacheModel(const CacheDescription& description, unsigned processors, uint64_t memory, size_t page_size,
                       Directory directory)
    : description_(description),
      processors_(processors),
      pointers_(description.pointers == 0 ? processors : std::min(description.pointers, processors)),
      memory_(memory),
      lines_per_page_(std::max<uint64_t>(1, page_size / description.line)),
      sets_(description.size / description.line / description.ways),
      ways_(processors * sets_ * description.ways),
      directory_(std::move(directory)) {}

Result<CacheModel> CacheModel::create(const CacheDescription& description, unsigned processors, uint64_t memory,
                                      size_t page_size) {
  MG_CHECK(processors >= 1 && processors <= Config::kMaxProcessorsPerNode, processors);
  const uint64_t leaves = memory / description.line / Directory::kPerLeaf + 1;
  auto numbers = SparseTable<uint32_t>::create(leaves, "lines of the emulated caches");
  if (!numbers) return tl::unexpected(numbers.error());
  auto entries = SparseTable<Entry>::create(std::min(leaves, Directory::kMostLeaves) * Directory::kPerLeaf,
                                            "directory entries of the emulated caches");
  if (!entries) return tl::unexpected(entries.error());
  return CacheModel(description, processors, memory, page_size,
                    {.numbers = std::move(*numbers), .entries = std::move(*entries)});
}

CacheModel::Entry& CacheModel::Directory::operator[](uint64_t line) {
  uint32_t& number = numbers[line / kPerLeaf];
  if (number == 0) {
    if (used == kMostLeaves)
      die(1, {"--caches on: the program uses more shared memory than the model of the caches has room for"});
    number = ++used;
  }
  return entries[(number - uint64_t{1}) * kPerLeaf + line % kPerLeaf];
}

CacheModel::Entry* CacheModel::Directory::find(uint64_t line) const {
  const uint32_t number = numbers[line / kPerLeaf];
  return number == 0 ? nullptr : &entries[(number - uint64_t{1}) * kPerLeaf + line % kPerLeaf];
}

unsigned CacheModel::home_of(uint64_t line) const {
  return static_cast<unsigned>(line / lines_per_page_ % processors_);
}

CacheModel::Way* CacheModel::set_of(unsigned processor, uint64_t line) {
  return &ways_[(processor * sets_ + line % sets_) * description_.ways];
}

CacheModel::Way* CacheModel::find(unsigned processor, uint64_t line) {
  return const_cast<Way*>(std::as_const(*this).find(processor, line));
}

const CacheModel::Way* CacheModel::find(unsigned processor, uint64_t line) const {
  const Way* const set = &ways_[(processor * sets_ + line % sets_) * description_.ways];
  const Way* const end = set + description_.ways;
  const Way* const found = std::find_if(set, end, [&](const Way& way) { return way.line_plus_one == line + 1; });
  return found == end ? nullptr : found;
}

// The processor has the line from now on. A line that goes for it is written back if it was written.
void CacheModel::take(unsigned processor, uint64_t line, bool writes) {
  Way* way = find(processor, line);
  if (way == nullptr) {
    Way* const set = set_of(processor, line);
    // Empty ways have the least time.
    way = std::min_element(set, set + description_.ways, [](const Way& a, const Way& b) { return a.since < b.since; });
    if (way->is_written) {
      Entry& old = *directory_.find(way->line_plus_one - 1);
      old = {};
    }
    *way = {.line_plus_one = line + 1, .since = now_, .is_written = false};
  }
  if (description_.replacement == CacheDescription::Replacement::kLru) way->since = now_;
  way->is_written = writes;
}

void CacheModel::drop(unsigned processor, uint64_t line) {
  if (Way* const way = find(processor, line)) *way = {};
}

// The directory points to everybody who has the line, so what has to be done follows from it.
Miss CacheModel::read(unsigned processor, uint64_t line, Entry& entry) {
  const unsigned home = home_of(line);
  Miss miss = processor == home ? Miss::kLocal : Miss::kRemote;
  if (entry.owner_plus_one != 0) {
    const unsigned owner = entry.owner_plus_one - 1u;
    miss = owner == home || processor == home ? Miss::kTwoParty : Miss::kThreeParty;
    find(owner, line)->is_written = false;
    entry.owner_plus_one = 0;
  }
  if (entry.sharers[processor]) return miss;
  entry.sharers.set(processor);
  if (entry.pointers < pointers_) {
    ++entry.pointers;
    return miss;
  }
  entry.has_overflowed = true;
  entry.pointers = 0;
  return Miss::kSoftware;
}

Miss CacheModel::write(unsigned processor, uint64_t line, Entry& entry) {
  const unsigned home = home_of(line);
  Miss miss = processor == home ? Miss::kLocal : Miss::kRemote;
  for (unsigned other = 0; other < processors_; ++other) {
    if (other == processor || !entry.sharers[other]) continue;
    drop(other, line);
    const Miss farther = other == home || processor == home ? Miss::kTwoParty : Miss::kThreeParty;
    miss = std::max(miss, farther);
  }
  if (entry.has_overflowed) miss = Miss::kSoftware;
  entry = {};
  entry.sharers.set(processor);
  entry.pointers = 1;
  entry.owner_plus_one = static_cast<uint16_t>(processor + 1);
  return miss;
}

Miss CacheModel::access(unsigned processor, uint64_t address, bool writes) {
  MG_CHECK(processor < processors_ && address < memory_, processor, address);
  ++now_;
  const uint64_t line = address / description_.line;
  Way* const way = find(processor, line);
  if (way != nullptr && (!writes || way->is_written)) {
    if (description_.replacement == CacheDescription::Replacement::kLru) way->since = now_;
    return Miss::kNone;
  }
  Entry& entry = directory_[line];
  const Miss miss = writes ? write(processor, line, entry) : read(processor, line, entry);
  take(processor, line, writes);
  return miss;
}

Picoseconds CacheModel::access(unsigned processor, uint64_t address, uint64_t length, bool writes) {
  if (length == 0 || address >= memory_) return 0;
  const uint64_t last = address + std::min(length, memory_ - address) - 1;
  Picoseconds sum = 0;
  for (uint64_t line = address / description_.line; line <= last / description_.line; ++line)
    sum += price(access(processor, line * description_.line, writes), writes);
  return sum;
}

Picoseconds CacheModel::price(Miss miss, bool writes) const {
  const auto of = [writes](const CacheDescription::Price& price) { return writes ? price.write : price.read; };
  switch (miss) {
    case Miss::kNone:
      return 0;
    case Miss::kLocal:
      return of(description_.local);
    case Miss::kRemote:
      return of(description_.remote);
    case Miss::kTwoParty:
      return of(description_.two_party);
    case Miss::kThreeParty:
      return of(description_.three_party);
    case Miss::kSoftware:
      return of(description_.software);
  }
  return 0;
}

void CacheModel::purge(uint64_t address, uint64_t length) {
  if (length == 0 || address >= memory_) return;
  const uint64_t last = (address + std::min(length, memory_ - address) - 1) / description_.line;
  for (uint64_t line = address / description_.line; line <= last; ++line) {
    Entry* const entry = directory_.find(line);
    if (entry == nullptr || entry->sharers.none()) continue;
    for (unsigned processor = 0; processor < processors_; ++processor)
      if (entry->sharers[processor]) drop(processor, line);
    *entry = {};
  }
}

CacheModel::State CacheModel::state(unsigned processor, uint64_t address) const {
  const Way* const way = find(processor, address / description_.line);
  if (way == nullptr) return State::kAbsent;
  return way->is_written ? State::kWritten : State::kShared;
}

bool CacheModel::is_pointed_to(unsigned processor, uint64_t address) const {
  const Entry* const entry = directory_.find(address / description_.line);
  return entry != nullptr && entry->sharers[processor];
}

unsigned CacheModel::pointers_in_use(uint64_t address) const {
  const Entry* const entry = directory_.find(address / description_.line);
  return entry == nullptr ? 0 : entry->pointers;
}

}  // namespace multigrain
