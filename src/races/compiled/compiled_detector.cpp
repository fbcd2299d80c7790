#include "races/compiled/compiled_detector.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "base/futex.h"

namespace multigrain::races {

constinit thread_local Owner* t_owner = nullptr;
constinit CompiledDetector* g_compiled_detector = nullptr;

namespace {

// A cell as a value, and its lock, which lives shorter than a microsecond.
class LockedCell {
 public:
  explicit LockedCell(Cell& cell) : cell_(cell) {
    for (unsigned tries = 1;; ++tries) {
      location.write = cell.write.load(std::memory_order_relaxed);
      if ((location.write & Cell::kLocked) == 0 &&
          cell.write.compare_exchange_weak(location.write, location.write | Cell::kLocked, std::memory_order_acquire))
        break;
      if (tries % 64 == 0)
        sched_yield();
      else
        cpu_relax();
    }
    location.write_place = cell.write_place;
    location.read = cell.read.load(std::memory_order_relaxed);
    location.read_place = cell.read_place;
  }
  ~LockedCell() {
    cell_.write_place = location.write_place;
    cell_.read.store(location.read, std::memory_order_relaxed);
    cell_.read_place = location.read_place;
    cell_.write.store(location.write, std::memory_order_release);
  }
  LockedCell(const LockedCell&) = delete;
  LockedCell& operator=(const LockedCell&) = delete;

  Location location;

 private:
  Cell& cell_;
};

constexpr unsigned parts_of(Parts parts) {
  return parts == Parts::kHalves ? 2 : 8;
}
constexpr unsigned class_of(Parts parts) {
  return static_cast<unsigned>(std::countr_zero(parts_of(parts) * sizeof(Location) / RaceMemory::kUnit));
}
bool is_split(const Location& whole) {
  return (whole.write & Cell::kSplit) != 0;
}

// Races that one access has found. The first few are enough to say which places race.
struct Found {
  std::array<Race, 8> race;
  size_t count = 0;
};

}  // namespace

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
  void* const memory =
      mmap(nullptr, sizeof(Owner), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    die(1, "--check-races: there is no memory for a thread's clock; errno:", static_cast<uint64_t>(errno));
  auto* const owner = new (memory) Owner;
  owners_[number].store(owner, std::memory_order_release);
  return *owner;
}

void CompiledDetector::begin_processor(unsigned number) {
  Owner& owner = make_owner(number);
  owner.calls.depth = 0;
  owner.calls.context = 0;
  order_.begin(owner, number);
  t_owner = &owner;
}

void CompiledDetector::begin_beside(uint64_t key) {
  RaceMemory::Head& head = memory_.head();
  for (unsigned number = machine_.processors; number < order_.owners(); ++number) {
    uint32_t free = 0;
    if (!head.owner_in_use[number].compare_exchange_strong(free, 1, std::memory_order_acquire)) continue;
    Owner& owner = make_owner(number);
    owner.calls.depth = 0;
    owner.calls.context = 0;
    owner.clock = {};
    owner.clock[number] = head.owner_time[number].load(std::memory_order_relaxed);
    owner.has_release_fence = owner.has_relaxed_loads = false;
    order_.begin(owner, number);
    t_owner = &owner;
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
  t_owner = nullptr;
  head.owner_in_use[number].store(0, std::memory_order_release);
}

void CompiledDetector::leave() {
  t_owner = nullptr;
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

void CompiledDetector::clear(Cell& cell) {
  LockedCell locked(cell);
  forget_parts(locked.location);
}

void CompiledDetector::allocate(const void* begin, size_t bytes, uint64_t site) {
  forget(begin, bytes);
  memory_.note_block({.begin = reinterpret_cast<uint64_t>(begin),
                      .bytes = bytes,
                      .made = site,
                      .made_by = t_owner != nullptr ? t_owner->number : 0});
}

// Visits, as visit(cell, address), the cells of [begin, end) of which anything is known. `begin` is where a cell's bytes begin.
template <typename Visit>
void CompiledDetector::for_each_known(uint64_t begin, uint64_t end, Visit&& visit) {
  constexpr uint64_t kPage = uint64_t{1} << RaceMemory::kPageShift;
  for (uint64_t at = begin, next; at < end; at = next) {
    next = std::min(end, (at / kPage + 1) * kPage);
    if (!memory_.has_cells(at)) continue;
    for (uint64_t of = at; of < next; of += 8)
      if (Cell& cell = memory_.cell_of(of);
          cell.write.load(std::memory_order_relaxed) != 0 || cell.read.load(std::memory_order_relaxed) != 0)
        visit(cell, of);
  }
}

void CompiledDetector::forget(const void* begin, size_t bytes) {
  const auto first = reinterpret_cast<uint64_t>(begin);
  for_each_known(first & ~uint64_t{7}, first + bytes, [this](Cell& cell, uint64_t) { clear(cell); });
}

void CompiledDetector::free(const void* begin, size_t bytes, uint64_t site) {
  if (t_owner == nullptr) return;
  const auto first = reinterpret_cast<uint64_t>(begin);
  for_each_known(first, first + bytes, [&](Cell&, uint64_t at) {
    access(*t_owner, at, std::min<uint64_t>(8, first + bytes - at), true, false, site);
  });
}

// --- Accesses

bool CompiledDetector::covers_elsewhere(uint64_t address) const {
  for (const Part& part : parts_)
    if (address - part.begin < part.bytes) return true;
  return region_.contains(reinterpret_cast<const void*>(address));
}

void CompiledDetector::access(Owner& me, uint64_t address, uint64_t bytes, bool is_write, bool is_atomic,
                              uintptr_t code) {
  const AccessNow now{
      .epoch = Epoch(me.number, me.clock[me.number], is_atomic), .place = place(me, code), .is_write = is_write};
  while (bytes != 0) {
    const uint64_t part = std::min(bytes, 8 - address % 8);
    Cell& cell = memory_.cell_of(address);
    if (!(is_write ? is_known<true>(me, cell) : is_known<false>(me, cell)))
      touch(me, cell, address, static_cast<unsigned>(part), now);
    address += part;
    bytes -= part;
  }
}

// What is known of the whole holds for each of its parts. The first of them takes the whole's list.
void CompiledDetector::copy_into(const Location& whole, std::span<Location> parts) {
  for (Location& part : parts) {
    part = whole;
    if (&part == &parts.front() || (whole.read & Location::kList) == 0) continue;
    const uint64_t list = whole.read & ~Location::kList;
    const auto size_class = static_cast<unsigned>(list >> 32);
    const uint64_t copy = uint64_t{size_class} << 32 | memory_.make(size_class);
    std::ranges::copy(memory_.entries(list), memory_.entries(copy).begin());
    part.read = Location::kList | copy;
  }
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

void CompiledDetector::touch(Owner& me, Cell& cell, uint64_t address, unsigned bytes, const AccessNow& now) {
  Found all;
  {
    LockedCell locked(cell);
    Location& whole = locked.location;
    const auto first = static_cast<unsigned>(address % 8);
    const auto look = [&](Location& location, uint64_t at) {
      access_location(location, memory_, order_.clock_of(me), now, [&](const AccessRecord& earlier, bool was_write) {
        if (all.count == all.race.size()) return;
        all.race[all.count++] = {
            .now = {now.place, me.number, now.is_write, now.epoch.is_atomic()},
            .earlier = {earlier.place, earlier.epoch.owner(), was_write, earlier.epoch.is_atomic()},
            .address = at,
            .bytes = bytes};
      });
    };
    if (!is_split(whole) && bytes != 8) split(whole, first % 4 == 0 && bytes == 4 ? Parts::kHalves : Parts::kBytes);
    if (!is_split(whole)) {
      look(whole, address);
    } else {
      if (static_cast<Parts>(whole.read_place) == Parts::kHalves && (first % 4 != 0 || bytes % 4 != 0))
        split_halves(whole);
      const auto parts = static_cast<Parts>(whole.read_place);
      const unsigned size = 8 / parts_of(parts);
      Location* const part = memory_.at<Location>(static_cast<uint32_t>(whole.write));
      for (unsigned i = first / size; i * size < first + bytes; ++i) look(part[i], address - first + size_t{i} * size);
      // All parts are alike now.
      if (now.is_write && bytes == 8 && part[0].write == now.epoch.bits()) {
        const Location one = part[0];
        memory_.drop(static_cast<uint32_t>(whole.write), class_of(parts));
        whole = one;
      }
    }
  }
  for (size_t i = 0; i < all.count; ++i) found(all.race[i]);
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
