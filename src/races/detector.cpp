#include "races/detector.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "memory/diff.h"
#include "status/node_status.h"

namespace multigrain::races {

// A part of an access: what it touches of the shared region.
struct Detector::Part {
  PageId page;
  uint64_t offset = 0;  // from the start of the region
  uint64_t bytes = 0;
  bool is_write = false;
  bool crosses = false;  // it goes on in the next page
};

namespace {

using Way = WatchedRights::Way;
using Ability = WatchedRights::Ability;

constexpr greg_t kTrapFlag = 0x100;

// The instruction that the calling thread executes alone.
struct Step {
  bool is_under_way = false;
  uint8_t entered = 0;
  std::array<PageId, 2> page{};
  std::array<Way, 2> way{};
  std::array<uint64_t, 2> distance{};
  DecodedInstruction decoded{};
  Registers moved{};
  uint64_t mask = 0;  // the signals that the program had blocked
  WatchedRights* rights = nullptr;
};

// The last accesses of the calling thread that were told, so that a loop does not tell the same again and again.
struct Told {
  uint64_t pc = 0;
  uint64_t address = 0;
  uint64_t section = 0;
  uint32_t bytes = 0;
  bool is_write = false;
};
constexpr size_t kTold = 32;

// Of the initial-exec kind, because the fault handler uses them, where a first access must not allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local Step t_step;
[[gnu::tls_model("initial-exec")]] constinit thread_local Told t_told[kTold];

ucontext_t& context_of(void* context) {
  return *static_cast<ucontext_t*>(context);
}

// The kernel's signal mask is a word, after which the context that it passes to a handler ends (the C library's type is wider).
uint64_t exchange_mask(ucontext_t& context, uint64_t mask) {
  uint64_t before = 0;
  std::memcpy(&before, &context.uc_sigmask, sizeof before);
  std::memcpy(&context.uc_sigmask, &mask, sizeof mask);
  return before;
}

// All signals but those that an instruction raises itself. No handler of the program runs between the fault and the end of the
// step: it would find registers that were moved.
constexpr uint64_t kAsynchronous = [] {
  uint64_t mask = ~uint64_t{0};
  for (const int synchronous : {SIGSEGV, SIGBUS, SIGTRAP, SIGILL, SIGFPE}) mask &= ~(uint64_t{1} << (synchronous - 1));
  return mask;
}();

// Returns whether the address is in the program's own file.
bool is_in_program(uint64_t address) {
  dl_find_object found;
  return _dl_find_object(reinterpret_cast<void*>(address), &found) == 0 && found.dlfo_link_map->l_name[0] == '\0';
}

// The code of the C library, and the part of it that copies memory.
struct CodeOfLibrary {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t copies = 0;
};
constexpr uint64_t kCopyingCode = 1024;  // bytes

CodeOfLibrary code_of_c_library() {
  dl_find_object found;
  // The functions that programs call are chosen when the program is loaded, by what the processor can do.
  auto* const copies = dlsym(RTLD_DEFAULT, "memcpy");
  auto* const inside = dlsym(RTLD_DEFAULT, "strlen");
  if (inside == nullptr || _dl_find_object(inside, &found) != 0) return {};
  return {.begin = reinterpret_cast<uint64_t>(found.dlfo_map_start),
          .end = reinterpret_cast<uint64_t>(found.dlfo_map_end),
          .copies = reinterpret_cast<uint64_t>(copies)};
}

constinit CodeOfLibrary g_c_library;

// The code of Multigrain's own libraries. They access shared memory for POSIX objects and for teams of OpenMP's threads, in ways
// that are right without being ordered, and for the program's atomics, which they order.
struct OwnCode {
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  std::array<Range, 4> ranges;
  size_t count = 0;
  [[nodiscard]] bool contains(uint64_t pc) const {
    for (size_t i = 0; i < count; ++i)
      if (pc >= ranges[i].begin && pc < ranges[i].end) return true;
    return false;
  }
};
constinit OwnCode g_own_code;

void find_own_code() {
  g_own_code.count = 0;
  const auto visit = [](dl_phdr_info* file, size_t, void*) {
    if (std::strstr(file->dlpi_name, "/libmultigrain") == nullptr) return 0;
    for (const ElfW(Phdr) & segment : std::span(file->dlpi_phdr, file->dlpi_phnum)) {
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || g_own_code.count == g_own_code.ranges.size())
        continue;
      const uint64_t begin = file->dlpi_addr + segment.p_vaddr;
      g_own_code.ranges[g_own_code.count++] = {begin, begin + segment.p_memsz};
    }
    return 0;
  };
  dl_iterate_phdr(visit, nullptr);
}

// Returns whether an instruction may read more than the program has asked for: functions for strings in the C library read
// whole vectors, and then look where the string ends.
bool may_read_too_much(uint64_t pc, uint64_t bytes) {
  constexpr uint64_t kVector = 16;
  return bytes >= kVector && pc - g_c_library.begin < g_c_library.end - g_c_library.begin &&
         pc - g_c_library.copies >= kCopyingCode;
}

// Returns where the call returns to by which the program has come to an instruction of a library; 0 if that is not seen. The
// functions that copy memory keep nothing on the stack; others have a frame.
uint64_t caller_of(const Registers& registers) {
  const ProcessorStatus* const status = this_status();
  if (status == nullptr) return 0;
  const uint64_t low = status->stack_low.load(std::memory_order_relaxed);
  const uint64_t high = status->stack_high.load(std::memory_order_relaxed);
  const auto word_at = [&](uint64_t address) -> uint64_t {
    if (address < low || address % sizeof(uint64_t) != 0 || address + sizeof(uint64_t) > high) return 0;
    return *reinterpret_cast<const uint64_t*>(address);
  };
  if (const uint64_t top = word_at(static_cast<uint64_t>(registers[REG_RSP])); top != 0 && is_in_program(top))
    return top;
  uint64_t frame = static_cast<uint64_t>(registers[REG_RBP]);
  for (unsigned depth = 0; depth < 4 && frame != 0; ++depth) {
    const uint64_t returns_to = word_at(frame + sizeof(uint64_t));
    if (returns_to != 0 && is_in_program(returns_to)) return returns_to;
    const uint64_t next = word_at(frame);
    if (next <= frame) break;
    frame = next;
  }
  return 0;
}

uint32_t this_processor() {
  const ProcessorStatus* const status = this_status();
  const NodeStatus* const node = node_status();
  if (status == nullptr || node == nullptr) return Access::kNoProcessor;
  return node->first_processor + static_cast<uint32_t>(status - node->processor);
}

void leave_pages(Step& step) {
  for (; step.entered != 0; --step.entered) step.rights->leave(step.page[step.entered - 1], step.way[step.entered - 1]);
}

// Puts registers and signals back as the program had them, and leaves the pages. `is_executed` says whether the instruction
// has been executed. Returns false if the calling thread was executing none.
bool leave_step(void* context, bool is_executed) {
  Step& step = t_step;
  if (!step.is_under_way) return false;
  step.is_under_way = false;
  ucontext_t& interrupted = context_of(context);
  Registers& registers = interrupted.uc_mcontext.gregs;
  move_registers_back(registers, step.decoded, step.distance, step.moved, is_executed);
  registers[REG_EFL] &= ~kTrapFlag;
  exchange_mask(interrupted, step.mask);
  leave_pages(step);
  return true;
}

uint64_t site_of_call() {
  return reinterpret_cast<uint64_t>(noted_call_site());
}

}  // namespace

Detector::Detector(Fabric& fabric, Region& region, WatchedRights& rights, DecodeInstruction decode)
    : fabric_(fabric), region_(region), rights_(rights), decode_(decode), stream_(fabric) {
  g_c_library = code_of_c_library();
  find_own_code();
  slots_.find();
  const LockGuard hold(sections_lock_);
  begin_section(true);
}

// --- Sections

void Detector::end_section() {
  if (!protocol_->is_clean()) protocol_->release();
}

// R3: the judge knows of the section before any thread can be in it, and other nodes learn that the one before has ended
// when that is so.
void Detector::begin_section(bool is_episode) {
  learn_suspects();
  rights_.begin_section(is_episode);
  const uint16_t self = fabric_.self().value;
  const uint64_t number = clock_[self] + 1;
  clock_[self] = number;
  stream_.append(Entry::of(number, site_of_call(), ClockView(clock_).first(fabric_.nodes())));
  section_.store(number, std::memory_order_release);
  for (uint16_t n = 0; n < fabric_.nodes(); ++n)
    if (n != self)
      fabric_.fetch_and_set(fabric_.self(), SegmentId::kWords, words::kRaceClock + n * sizeof(uint64_t), clock_[n]);
  // A node that reads this entry may read the others before: they are in place by then.
  fabric_.fetch_and_set(fabric_.self(), SegmentId::kWords, words::kRaceClock + self * sizeof(uint64_t), number);
}

void Detector::learn_suspects() {
  const uint64_t end = fabric_.load_own(SegmentId::kWords, words::kRaceSuspectsEnd);
  if (end - suspects_read_ > words::kRaceSuspectCount) suspects_read_ = end - words::kRaceSuspectCount;
  for (; suspects_read_ != end; ++suspects_read_) {
    const uint64_t word = fabric_.load_own(
        SegmentId::kWords, words::kRaceSuspects + suspects_read_ % words::kRaceSuspectCount * sizeof(uint64_t));
    const uint64_t page = word >> 8;
    if (page < region_.page_count()) rights_.watch(PageId(page), static_cast<Level>(word & 0xff));
  }
}

void Detector::raise_from(NodeId node) {
  Clock theirs{};
  const std::span<uint64_t> read = std::span(theirs).first(fabric_.nodes());
  fabric_.get(node, SegmentId::kWords, words::kRaceClock, std::as_writable_bytes(read));
  theirs[fabric_.self().value] = 0;
  raise(clock_, read);
}

void Detector::raise_from_all(uint64_t offset, uint64_t stride) {
  Clock theirs{};
  std::array<Completion, kMaxOwners> gets{};
  const auto is_other = [this](size_t n) { return n != fabric_.self().value; };
  for (uint16_t n = 0; n < fabric_.nodes(); ++n)
    if (is_other(n))
      gets[n] = fabric_.start_get(NodeId(n), SegmentId::kWords, offset + n * stride,
                                  std::as_writable_bytes(std::span(&theirs[n], 1)));
  for (uint16_t n = 0; n < fabric_.nodes(); ++n)
    if (is_other(n)) fabric_.wait(gets[n]);
  raise(clock_, theirs);
}

void Detector::release() {
  const LockGuard hold(sections_lock_);
  end_section();
  begin_section(false);
}

// What comes before an acquire is not ordered by it, so it is a section of its own.
void Detector::acquire(NodeId from) {
  if (from == fabric_.self()) return;
  const LockGuard hold(sections_lock_);
  end_section();
  protocol_->acquire(from);
  raise_from(from);
  begin_section(false);
}

void Detector::acquire_all() {
  const LockGuard hold(sections_lock_);
  end_section();
  protocol_->acquire_all();
  raise_from_all(words::kRaceClock, sizeof(uint64_t));
  begin_section(false);
}

// To catch up orders nothing: the program has not asked for it.
void Detector::catch_up() {
  protocol_->catch_up();
  const LockGuard hold(sections_lock_);
  learn_suspects();
  rights_.begin_section(false);
}

// The judge has read all that came before, and has told the nodes which pages to watch, before any of them leaves the barrier.
void Detector::release_at_barrier() {
  {
    const LockGuard hold(sections_lock_);
    protocol_->release_at_barrier();
    begin_section(false);
    const uint64_t barrier = arrived_.fetch_add(1, std::memory_order_release);
    fabric_.fetch_and_set(fabric_.self(), SegmentId::kWords, barrier_word(barrier), clock_[fabric_.self().value]);
  }
  stream_.wait_until_read();
}

// What other nodes have done since they left the barrier comes after it, though this node may leave it late.
void Detector::acquire_at_barrier() {
  const LockGuard hold(sections_lock_);
  const uint64_t arrived = arrived_.load(std::memory_order_acquire);
  if (left_ == arrived) return;
  protocol_->acquire_at_barrier();
  raise_from_all(barrier_word(arrived - 1), 0);
  begin_section(true);
  left_ = arrived;
}

void Detector::finish() {
  release();
}

// --- Accesses

void Detector::on_diff(PageId page, const std::byte* frame, std::byte* twin) {
  constexpr unsigned kMostRuns = 128;
  unsigned runs = 0;
  const uint64_t start = page.value << region_.page_shift();
  const SectionId section{fabric_.self().value, section_.load(std::memory_order_acquire)};
  static_cast<void>(for_each_change(frame, twin, region_.page_size(), false, [&](size_t at, size_t length) {
    if (++runs > kMostRuns || slots_.contains(reinterpret_cast<uint64_t>(region_.view(page)) + at)) return;
    stream_.append(Entry::of(Access{.address = start + at,
                                    .section = section,
                                    .bytes = static_cast<uint32_t>(length),
                                    .processor = Access::kNoProcessor,
                                    .is_write = true}));
  }));
}

void Detector::tell(const Registers& registers, uint64_t offset, uint64_t bytes, bool is_write) {
  const auto pc = static_cast<uint64_t>(registers[REG_RIP]);
  if ((!is_write && may_read_too_much(pc, bytes)) || g_own_code.contains(pc)) return;
  const uint64_t section = section_.load(std::memory_order_acquire);
  Told& told = t_told[(pc ^ offset >> 2) % kTold];
  if (told.pc == pc && told.address == offset && told.section == section && told.bytes >= bytes &&
      told.is_write == is_write)
    return;
  told = {pc, offset, section, static_cast<uint32_t>(bytes), is_write};
  stream_.append(Entry::of(Access{.address = offset,
                                  .pc = pc,
                                  .caller = is_in_program(pc) ? 0 : caller_of(registers),
                                  .section = {fabric_.self().value, section},
                                  .bytes = static_cast<uint32_t>(bytes),
                                  .processor = this_processor(),
                                  .is_write = is_write}));
}

std::optional<Detector::Part> Detector::part_of(const MemoryAccess& access) const {
  const auto* const address = reinterpret_cast<const std::byte*>(access.address);
  if (access.bytes == 0 || !region_.contains(address)) return std::nullopt;
  const uint64_t offset = region_.offset_of(address);
  const PageId page = region_.page_of(address);
  return Part{page, offset, access.bytes, access.writes,
              offset + access.bytes > (page.value + 1) << region_.page_shift()};
}

// The instruction cannot be followed, but the byte that has faulted is known.
bool Detector::make_open(const Fault& fault, const Registers& registers) {
  const bool was_missing = !rights_.has_right(fault.page, fault.is_write);
  if (was_missing && !protocol_->on_fault(fault.page, fault.is_write)) return false;
  tell(registers, region_.offset_of(fault.address), 1, fault.is_write);
  static_cast<void>(rights_.enter(fault.page, fault.is_write, Ability::kNone, was_missing));
  return true;
}

bool Detector::on_access(const Fault& fault, void* context) {
  Registers& registers = context_of(context).uc_mcontext.gregs;
  Step& step = t_step;
  const auto* const code = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  // The next page of code may not be there.
  constexpr size_t kLongest = 15;
  const size_t in_page = 4096 - reinterpret_cast<uintptr_t>(code) % 4096;
  bool is_known = decode_(registers, code, std::min(kLongest, in_page), step.decoded);
  if (!is_known && in_page < kLongest) is_known = decode_(registers, code, kLongest, step.decoded);
  std::array<std::optional<Part>, 2> parts;
  std::optional<size_t> faulted;
  for (size_t i = 0; is_known && i < step.decoded.count; ++i) {
    parts[i] = part_of(step.decoded.access[i]);
    if (!parts[i]) continue;
    const uint64_t at = region_.offset_of(fault.address) - parts[i]->offset;
    if (at >= parts[i]->bytes || (faulted && (!fault.is_write || !parts[i]->is_write))) continue;
    faulted = i;
  }
  if (!faulted) return make_open(fault, registers);

  const uint32_t cost = heat_.cost_of(static_cast<uint64_t>(registers[REG_RIP]));
  // The page that has faulted comes first: after it the others are likely to be there.
  step.rights = &rights_;
  step.entered = 0;
  step.distance = {};
  for (size_t k = 0; k < step.decoded.count; ++k) {
    const size_t i = (*faulted + k) % step.decoded.count;
    if (!parts[i]) continue;
    const Part& part = *parts[i];
    const MemoryAccess& access = step.decoded.access[i];
    const PageId page = k == 0 ? fault.page : part.page;
    const bool is_write = part.is_write || (k == 0 && fault.is_write);
    const bool was_missing = !rights_.has_right(page, is_write);
    if (was_missing) {
      // The protocol may have to wait, and another thread may wait for this one to leave.
      leave_pages(step);
      if (!protocol_->on_fault(page, is_write)) return k != 0;
      if (k != 0) return true;
    }
    if (!slots_.contains(access.address)) tell(registers, part.offset, part.bytes, part.is_write);
    const uint64_t distance = reinterpret_cast<uint64_t>(region_.alias(part.page)) + part.offset -
                              (part.page.value << region_.page_shift()) - access.address;
    const bool can_move = access.base >= 0 && static_cast<int64_t>(distance) % access.scale == 0;
    const Ability ability = part.crosses ? Ability::kNone : can_move ? Ability::kAlias : Ability::kForMoment;
    const Way way = rights_.enter(page, is_write, ability, was_missing, cost);
    if (way == Way::kMissing) {
      leave_pages(step);
      return true;
    }
    if (way == Way::kOpen) continue;
    step.page[step.entered] = page;
    step.way[step.entered++] = way;
    if (way == Way::kAlias) step.distance[i] = distance;
  }
  if (step.entered == 0) return true;
  move_registers(registers, step.decoded, step.distance);
  std::memcpy(&step.moved, &registers, sizeof registers);
  registers[REG_EFL] |= kTrapFlag;
  step.mask = exchange_mask(context_of(context), kAsynchronous);
  step.is_under_way = true;
  return true;
}

void Detector::abandon_step(void* context) {
  leave_step(context, false);
}

bool Detector::end_step(void* context) {
  return leave_step(context, true);
}

}  // namespace multigrain::races
