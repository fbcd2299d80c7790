#include "races/compiled/compiled_detector.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <optional>

#include "base/futex.h"

namespace multigrain::races {

constinit thread_local Owner* t_owner = nullptr;
constinit CompiledDetector* g_compiled_detector = nullptr;

namespace {

constexpr unsigned parts_of(Parts parts) {
  return parts == Parts::kHalves ? 2 : 8;
}
constexpr unsigned class_of(Parts parts) {
  return static_cast<unsigned>(std::countr_zero(parts_of(parts) * sizeof(Location) / RaceMemory::kUnit));
}
bool is_split(const Location& whole) {
  return (whole.write & Cell::kSplit) != 0;
}
bool is_known(const Location& cell) {
  return cell.write != 0 || cell.read != 0;
}
constexpr uint64_t kWholeLine = ~uint64_t{0};

// Calls visit(line, bits) for each line of memory that has some of the bytes, with the bits of those (recent.h).
template <typename Visit>
void for_each_part(uint64_t address, uint64_t bytes, Visit&& visit) {
  while (bytes != 0) {
    const unsigned first = address % Recent::kLineBytes;
    const uint64_t part = std::min<uint64_t>(bytes, Recent::kLineBytes - first);
    visit(address - first, Recent::bits(first, part));
    address += part;
    bytes -= part;
  }
}

void become(Owner* owner) {
  t_owner = owner;
  if (&on_changed_owner != nullptr) on_changed_owner(owner);
}

}  // namespace

// The cells of a line, and their lock, which is held shorter than a microsecond.
class CompiledDetector::LockedLine {
 public:
  explicit LockedLine(CellLine& line) : line_(line), lock_(line.cells[0].write) {
    uint64_t write = 0;
    for (unsigned tries = 1;; ++tries) {
      write = lock_.load(std::memory_order_relaxed);
      if ((write & CellLine::kLocked) == 0 &&
          lock_.compare_exchange_weak(write, write | CellLine::kLocked, std::memory_order_acquire))
        break;
      if (tries % 64 == 0)
        sched_yield();
      else
        cpu_relax();
    }
    first_ = line.cells[0];
    first_.write = write & ~CellLine::kSeparate;
    is_separate_ = (write & CellLine::kSeparate) != 0;
  }
  ~LockedLine() {
    line_.cells[0].write_place = first_.write_place;
    line_.cells[0].read = first_.read;
    line_.cells[0].read_place = first_.read_place;
    lock_.store(first_.write | (is_separate_ ? CellLine::kSeparate : 0), std::memory_order_release);
  }
  LockedLine(const LockedLine&) = delete;
  LockedLine& operator=(const LockedLine&) = delete;

  // Whether each cell is for its own bytes; otherwise the first one is for all.
  [[nodiscard]] bool is_separate() const { return is_separate_; }
  void set_separate(bool is_separate) { is_separate_ = is_separate; }
  [[nodiscard]] Location& cell(unsigned index) { return index == 0 ? first_ : line_.cells[index]; }

 private:
  CellLine& line_;
  std::atomic_ref<uint64_t> lock_;
  bool is_separate_ = false;
  Location first_;  // the cell with the lock in it, as a value
};

// Races that one access has found. The first few are enough to say which places race.
struct CompiledDetector::Found {
  // Few accesses find one, and each of them makes room for it: so the room is not filled before.
  union Room {
    Room() {}
    Race race;
  };
  std::array<Room, 8> room;
  size_t count = 0;

  void add(const Race& race) {
    if (count != room.size()) new (&room[count++].race) Race(race);
  }
};

CompiledDetector::CompiledDetector(RaceMemory memory, const Region& region, Machine machine, std::vector<Part> parts,
                                   Tell tell)
    : memory_(memory),
      order_(memory_, machine.processors + machine.beside),
      contexts_(memory_),
      region_(region),
      view_(reinterpret_cast<uint64_t>(region.base())),
      view_bytes_(region.size()),
      machine_(machine),
      parts_(std::move(parts)),
      tell_(tell) {}

// --- Threads

// An owner's memory must outlive copies of the program's heap, and is needed by few runs.
Owner& CompiledDetector::make_owner(unsigned number) {
  if (Owner* const owner = owners_[number].load(std::memory_order_acquire)) return *owner;
  struct Both {
    Owner owner;
    Recent recent;
  };
  void* const memory =
      mmap(nullptr, sizeof(Both), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    die(1, "--check-races: there is no memory for a thread's clock; errno:", static_cast<uint64_t>(errno));
  auto* const both = new (memory) Both;
  Owner* const owner = &both->owner;
  owner->recent = &both->recent;
  owners_[number].store(owner, std::memory_order_release);
  return *owner;
}

void CompiledDetector::begin_processor(unsigned number) {
  Owner& owner = make_owner(number);
  owner.calls.depth = owner.calls.numbered = 0;
  order_.begin(owner, number);
  become(&owner);
}

void CompiledDetector::begin_beside(uint64_t key) {
  RaceMemory::Head& head = memory_.head();
  for (unsigned number = machine_.processors; number < order_.owners(); ++number) {
    uint32_t free = 0;
    if (!head.owner_in_use[number].compare_exchange_strong(free, 1, std::memory_order_acquire)) continue;
    Owner& owner = make_owner(number);
    owner.calls.depth = owner.calls.numbered = 0;
    owner.clock = {};
    owner.clock[number] = head.owner_time[number].load(std::memory_order_relaxed);
    owner.has_release_fence = owner.has_relaxed_loads = false;
    order_.begin(owner, number);
    become(&owner);
    acquire(key);
    return;
  }
  die(1,
      "--check-races has clocks for so many threads beside processors at a time (more processors, by --nodes or "
      "--procs-per-node, leave fewer of them):",
      machine_.beside);
}

void CompiledDetector::end_beside() {
  if (t_owner == nullptr || t_owner->number < machine_.processors) return;
  RaceMemory::Head& head = memory_.head();
  const unsigned number = t_owner->number;
  head.owner_time[number].store(t_owner->clock[number], std::memory_order_relaxed);
  become(nullptr);
  head.owner_in_use[number].store(0, std::memory_order_release);
}

void CompiledDetector::leave() {
  become(nullptr);
  g_compiled_detector = nullptr;
}

// --- What orders

void CompiledDetector::release(uint64_t key, Order::Mode mode) {
  if (t_owner != nullptr) order_.release(*t_owner, key, mode);
}

void CompiledDetector::acquire(uint64_t key) {
  if (t_owner != nullptr) order_.acquire(*t_owner, key);
}

Order::Arrival CompiledDetector::arrive(uint64_t barrier, unsigned count) {
  return t_owner != nullptr ? order_.arrive(*t_owner, barrier, count) : Order::Arrival{};
}

void CompiledDetector::leave_barrier(const Order::Arrival& arrival) {
  if (t_owner != nullptr) order_.leave(*t_owner, arrival);
}

// --- Memory

void CompiledDetector::forget_parts(Location& location) {
  if (is_split(location)) {
    const auto block = static_cast<uint32_t>(location.write);
    const auto parts = static_cast<Parts>(location.read_place);
    for (Location& part : std::span(memory_.at<Location>(block), parts_of(parts))) forget_parts(part);
    memory_.drop(block, class_of(parts));
  } else if ((location.read & Location::kList) != 0) {
    memory_.drop(location.read & ~Location::kList);
  }
  location = {};
}

void CompiledDetector::allocate(const void* begin, size_t bytes, uint64_t site) {
  forget(begin, bytes);
  memory_.note_block({.begin = reinterpret_cast<uint64_t>(begin),
                      .bytes = bytes,
                      .made = site,
                      .made_by = t_owner != nullptr ? t_owner->number : 0});
}

// Visits, as visit(address, bytes), the parts of [begin, end) in lines that have cells.
template <typename Visit>
void CompiledDetector::for_each_line(uint64_t begin, uint64_t end, Visit&& visit) {
  constexpr uint64_t kPage = uint64_t{1} << RaceMemory::kPageShift;
  for (uint64_t at = begin, next; at < end; at = next) {
    if (!memory_.has_cells(at)) {
      next = (at / kPage + 1) * kPage;
      continue;
    }
    next = std::min(end, (at / Recent::kLineBytes + 1) * Recent::kLineBytes);
    visit(at, next - at);
  }
}

void CompiledDetector::forget(const void* begin, size_t bytes) {
  const auto first = reinterpret_cast<uint64_t>(begin);
  for_each_line(first, first + bytes, [this](uint64_t at, uint64_t part) {
    LockedLine line(memory_.line_of(at));
    if (!line.is_separate()) {
      if (part == Recent::kLineBytes) return forget_parts(line.cell(0));
      if (!is_known(line.cell(0))) return;
      separate(line);
    }
    for (uint64_t cell = at / 8; cell <= (at + part - 1) / 8; ++cell) forget_parts(line.cell(cell % CellLine::kCells));
  });
  if (t_owner != nullptr) t_owner->recent->forget(first, bytes);
}

void CompiledDetector::free(const void* begin, size_t bytes, uint64_t site) {
  if (t_owner == nullptr) return;
  const auto first = reinterpret_cast<uint64_t>(begin);
  const AccessNow write = now(*t_owner, true, false, site);
  for_each_line(first, first + bytes, [&](uint64_t at, uint64_t part) {
    const unsigned in_line = at % Recent::kLineBytes;
    touch(*t_owner, at - in_line, Recent::bits(in_line, part), write, Which::kKnown);
  });
  t_owner->recent->forget(first, bytes);
}

// --- Accesses

bool CompiledDetector::covers_elsewhere(uint64_t address) const {
  for (const Part& part : parts_)
    if (address - part.begin < part.bytes) return true;
  return region_.contains(reinterpret_cast<const void*>(address));
}

void CompiledDetector::access(Owner& me, uint64_t address, uint64_t bytes, bool is_write, bool is_atomic,
                              uintptr_t code) {
  const AccessNow access = now(me, is_write, is_atomic, code);
  for_each_part(address, bytes, [&](uint64_t line, uint64_t bits) {
    const Recent::Bytes known = touch(me, line, bits, access);
    if (!is_atomic) me.recent->note(line, known);
  });
  if (is_atomic) me.recent->forget(address, bytes);
}

class CompiledDetector::NewAccess {
 public:
  NewAccess(Owner& me, bool is_write, uintptr_t code, uint64_t other_lines = 0)
      : me_(me), code_(code), other_lines_(other_lines), is_write_(is_write) {}
  [[nodiscard]] Owner& me() const { return me_; }
  [[nodiscard]] bool is_write() const { return is_write_; }
  [[nodiscard]] const AccessNow& now(const CompiledDetector& detector) {
    if (!now_) {
      now_ = detector.now(me_, is_write_, false, code_);
      if (other_lines_ != 0) detector.memory_.note_lines(Contexts::place(code_, 0), other_lines_);
    }
    return *now_;
  }

 private:
  Owner& me_;
  const uintptr_t code_;
  const uint64_t other_lines_;
  const bool is_write_;
  std::optional<AccessNow> now_;
};

void CompiledDetector::tell_line(NewAccess& access, uint64_t line, uint64_t bits) {
  Recent& recent = *access.me().recent;
  if (recent.knows(line, bits, access.is_write())) return;
  recent.note(line, touch(access.me(), line, bits, access.now(*this)));
}

void CompiledDetector::tell_new(Owner& me, uint64_t address, uint64_t bytes, bool is_write, uintptr_t code) {
  if (!covers(address)) {
    // Of memory that is not looked at, long ranges are not noted, since that takes longer than to see that it is not.
    if (bytes <= Recent::kLineBytes)
      for_each_part(address, bytes, [&](uint64_t line, uint64_t bits) { me.recent->note(line, bits, is_write); });
    return;
  }
  NewAccess access(me, is_write, code);
  for_each_part(address, bytes, [&](uint64_t line, uint64_t bits) { tell_line(access, line, bits); });
}

// Pieces in one line are told together: all of them are accesses of one place.
void CompiledDetector::tell_strided(Owner& me, uint64_t address, uint64_t bytes, int64_t stride, uint64_t count,
                                    bool is_write, uintptr_t code, uint64_t other_lines) {
  constexpr uint64_t kBytes = Recent::kLineBytes;
  const auto step = static_cast<uint64_t>(stride);
  if (!covers(address)) {
    for (; count != 0; --count, address += step) tell_plain(me, address, bytes, is_write, code);
    return;
  }
  NewAccess access(me, is_write, code, other_lines);
  uint64_t line = address & ~(kBytes - 1), bits = 0;
  const auto add = [&](uint64_t in_line, uint64_t more) {
    if (in_line != line && bits != 0) {
      tell_line(access, line, bits);
      bits = 0;
    }
    line = in_line;
    bits |= more;
  };
  for (; count != 0; --count, address += step) for_each_part(address, bytes, add);
  if (bits != 0) tell_line(access, line, bits);
}

Location CompiledDetector::copy_of(const Location& location) {
  Location copy = location;
  if ((location.read & Location::kList) == 0) return copy;
  const uint64_t list = location.read & ~Location::kList;
  const auto size_class = static_cast<unsigned>(list >> 32);
  const uint64_t other = uint64_t{size_class} << 32 | memory_.make(size_class);
  std::ranges::copy(memory_.entries(list), memory_.entries(other).begin());
  copy.read = Location::kList | other;
  return copy;
}

// What is known of the whole holds for each of its parts. The first of them takes the whole's list.
void CompiledDetector::copy_into(const Location& whole, std::span<Location> parts) {
  for (Location& part : parts) part = &part == &parts.front() ? whole : copy_of(whole);
}

void CompiledDetector::separate(LockedLine& line) {
  for (unsigned i = 1; i < CellLine::kCells; ++i) line.cell(i) = copy_of(line.cell(0));
  line.set_separate(true);
}

void CompiledDetector::split(Location& whole, Parts parts) {
  const uint32_t block = memory_.make(class_of(parts));
  copy_into(whole, {memory_.at<Location>(block), parts_of(parts)});
  whole = {.write = Cell::kSplit | block, .write_place = 0, .read = 0, .read_place = static_cast<uint64_t>(parts)};
}

void CompiledDetector::split_halves(Location& whole) {
  const auto halves = static_cast<uint32_t>(whole.write);
  const uint32_t block = memory_.make(class_of(Parts::kBytes));
  const std::span bytes(memory_.at<Location>(block), parts_of(Parts::kBytes));
  copy_into(memory_.at<Location>(halves)[0], bytes.first(4));
  copy_into(memory_.at<Location>(halves)[1], bytes.last(4));
  memory_.drop(halves, class_of(Parts::kHalves));
  whole.write = Cell::kSplit | block;
  whole.read_place = static_cast<uint64_t>(Parts::kBytes);
}

void CompiledDetector::look(Location& location, uint64_t address, unsigned bytes, const AccessNow& now, ClockView clock,
                            Found& found) {
  access_location(location, memory_, clock, now, [&](const AccessRecord& earlier, bool was_write) {
    found.add({.now = {now.place, now.epoch.owner(), now.is_write, now.epoch.is_atomic()},
               .earlier = {earlier.place, earlier.epoch.owner(), was_write, earlier.epoch.is_atomic()},
               .address = address,
               .bytes = bytes});
  });
}

void CompiledDetector::touch_cell(Location& cell, uint64_t address, unsigned bytes, const AccessNow& now,
                                  ClockView clock, Found& found) {
  const auto first = static_cast<unsigned>(address % 8);
  if (!is_split(cell)) {
    if (bytes == 8) [[likely]]
      return look(cell, address, bytes, now, clock, found);
    split(cell, first % 4 == 0 && bytes == 4 ? Parts::kHalves : Parts::kBytes);
  }
  if (static_cast<Parts>(cell.read_place) == Parts::kHalves && (first % 4 != 0 || bytes % 4 != 0)) split_halves(cell);
  const auto parts = static_cast<Parts>(cell.read_place);
  const unsigned size = 8 / parts_of(parts);
  Location* const part = memory_.at<Location>(static_cast<uint32_t>(cell.write));
  for (unsigned i = first / size; i * size < first + bytes; ++i)
    look(part[i], address - first + size_t{i} * size, bytes, now, clock, found);
  // All parts are alike now.
  if (now.is_write && bytes == 8 && part[0].write == now.epoch.bits()) {
    const Location one = part[0];
    memory_.drop(static_cast<uint32_t>(cell.write), class_of(parts));
    cell = one;
  }
}

// With the line's lock.
Recent::Bytes CompiledDetector::known_of(LockedLine& line, const AccessNow& now) {
  const auto of_cell = [&now](const Location& cell, uint64_t bits) -> Recent::Bytes {
    // Where the cell is split these are no epochs.
    const uint64_t plain = Epoch(now.epoch.owner(), now.epoch.time()).bits();
    return {.read = cell.read == plain ? bits : 0, .written = cell.write == plain ? bits : 0};
  };
  if (!line.is_separate()) return of_cell(line.cell(0), kWholeLine);
  Recent::Bytes known;
  for (unsigned i = 0; i < CellLine::kCells; ++i) {
    const Recent::Bytes more = of_cell(line.cell(i), Recent::bits(8 * i, 8));
    known.read |= more.read;
    known.written |= more.written;
  }
  return known;
}

Recent::Bytes CompiledDetector::touch(const Owner& me, uint64_t line_address, uint64_t bits, const AccessNow& now,
                                      Which which) {
  const ClockView clock = order_.clock_of(me);
  Recent::Bytes known{.read = bits, .written = now.is_write ? bits : 0};
  Found all;
  {
    LockedLine line(memory_.line_of(line_address));
    const auto first = static_cast<unsigned>(std::countr_zero(bits)) / 8;
    // The owner's note of the line has made room for another one: then it is made again, of all that the line's cells say.
    if (!now.epoch.is_atomic() && is_known_now(line.cell(line.is_separate() ? first : 0), now)) {
      const Recent::Bytes noted = known_of(line, now);
      bits &= ~(now.is_write ? noted.written : noted.read | noted.written);
      known.read |= noted.read;
      known.written |= noted.written;
    }
    if (bits != 0 && !line.is_separate()) {
      if (which == Which::kKnown && !is_known(line.cell(0))) return known;
      if (bits == kWholeLine) {
        look(line.cell(0), line_address, Recent::kLineBytes, now, clock, all);
        bits = 0;
      } else {
        separate(line);
      }
    }
    const bool is_whole = bits == kWholeLine;
    for (uint64_t rest = bits; rest != 0;) {
      const auto at = static_cast<unsigned>(std::countr_zero(rest));
      const auto bytes = std::min(static_cast<unsigned>(std::countr_one(rest >> at)), 8 - at % 8);
      Location& cell = line.cell(at / 8);
      if (which == Which::kAll || is_known(cell)) touch_cell(cell, line_address + at, bytes, now, clock, all);
      rest &= ~Recent::bits(at, bytes);
    }
    if (is_whole) {
      // One cell may do again, if it says all that the others say.
      const Location& one = line.cell(0);
      bool are_alike = !is_split(one) && (one.read & Location::kList) == 0;
      for (unsigned i = 1; are_alike && i < CellLine::kCells; ++i) are_alike = line.cell(i) == one;
      line.set_separate(!are_alike);
    }
  }
  for (size_t i = 0; i < all.count; ++i) found(all.room[i].race);
  return known;
}

void CompiledDetector::found(const Race& race) {
  RaceMemory::Head& head = memory_.head();
  head.found.fetch_add(1, std::memory_order_relaxed);
  const auto key_of = [](const Race::Access& access) {
    return Contexts::place(access.place, 0) << 1 | uint64_t{access.is_write};
  };
  const uint64_t a = key_of(race.now), b = key_of(race.earlier);
  // Two pairs with one number are as good as impossible; then the second would only be counted.
  const uint64_t key = (std::min(a, b) * 0x9e3779b97f4a7c15u + std::max(a, b)) * 0xff51afd7ed558ccdu | 1;
  for (size_t i = 0; i < RaceMemory::kPairs; ++i) {
    std::atomic<uint64_t>& told = head.told[((key >> 32) + i) & (RaceMemory::kPairs - 1)];
    uint64_t known = told.load(std::memory_order_relaxed);
    if (known == key) return;
    if (known == 0 && told.compare_exchange_strong(known, key, std::memory_order_relaxed)) {
      head.pairs.fetch_add(1, std::memory_order_relaxed);
      tell_(race, contexts_);
      return;
    }
    if (known == key) return;
  }
  head.not_told.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace multigrain::races
