#include "fake_line_protocol.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "coherence/hazard.h"

namespace multigrain::testing {

FakeLineProtocol::FakeLineProtocol(size_t bytes, unsigned line_shift, FakeOptions options)
    : options_(options),
      bytes_(bytes),
      shift_(line_shift),
      lines_(bytes >> line_shift),
      elsewhere_(bytes),
      locks_(std::make_unique<std::mutex[]>(lines_)) {
  void* const at = reinterpret_cast<void*>(MG_FINE_VIEW_BASE);
  MG_CHECK(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
  *reinterpret_cast<uint64_t*>(MG_FINE_SHIFT_ADDRESS) = line_shift;
  for (uint64_t line = 0; line < lines_; ++line) word(line).store(MG_FINE_EXCLUSIVE);
  set_line_protocol(this);
}

FakeLineProtocol::~FakeLineProtocol() {
  if (adversary_.joinable()) dismiss();
  set_line_protocol(nullptr);
  for (uint64_t line = 0; line < lines_; ++line) word(line).store(0);
  munmap(memory(), bytes_);
}

void FakeLineProtocol::join() {
  const size_t mine = joined_.fetch_add(1);
  MG_CHECK(mine < kThreads);
  __multigrain_hazards = reinterpret_cast<uint64_t*>(hazards_[mine].data());
}

void FakeLineProtocol::make_valid(uint64_t line, bool writable) {
  if ((word(line).load() & MG_FINE_READABLE) == 0) {
    misses_.fetch_add(1);
    missed_.store(line, std::memory_order_relaxed);
    // Copies words, the last one first: docs/internals/fine-grain.md says why.
    for (size_t i = line_bytes() / 8; i-- > 0;) {
      uint64_t value;
      std::memcpy(&value, &elsewhere_[(line << shift_) + 8 * i], 8);
      frame(line, i).store(value, std::memory_order_relaxed);
    }
    if (!writable) word(line).store(MG_FINE_READABLE);
  }
  if (writable) word(line).store(MG_FINE_EXCLUSIVE);
}

void FakeLineProtocol::load(uintptr_t address, std::span<std::byte> out) {
  MG_CHECK(line_of(address) == line_of(address + out.size() - 1));
  const uint64_t line = line_of(address);
  const std::lock_guard lock(locks_[line]);
  make_valid(line, word(line).load() == MG_FINE_EXCLUSIVE);
  std::memcpy(out.data(), reinterpret_cast<const void*>(address), out.size());
}

void FakeLineProtocol::begin_store(uintptr_t address) {
  const uint64_t line = line_of(address);
  const std::lock_guard lock(locks_[line]);
  // The line is filled before the word announces it. The adversary waits with the lock, so no hazard is published over
  // the line now.
  std::atomic_ref<uint64_t>(__multigrain_hazards[0]).exchange(make_hazard(line, 1, true));
  make_valid(line, true);
}

bool FakeLineProtocol::store(uintptr_t address, std::span<const std::byte> value) {
  if (!options_.takes_stores || stores_offered_.fetch_add(1) % 4 == 3) return LineProtocol::store(address, value);
  MG_CHECK(!value.empty() && value.size() <= 16 && line_of(address) == line_of(address + value.size() - 1));
  const uint64_t line = line_of(address);
  const std::lock_guard lock(locks_[line]);
  make_valid(line, true);
  std::memcpy(reinterpret_cast<void*>(address), value.data(), value.size());
  stores_taken_.fetch_add(1);
  return true;
}

void FakeLineProtocol::take_away(uintptr_t address) {
  const uint64_t line = line_of(address);
  const std::lock_guard lock(locks_[line]);
  take(line, true);
}

void FakeLineProtocol::fetch_lines(uintptr_t begin, uintptr_t end, bool to_store) {
  for (uint64_t line = line_of(begin); line <= line_of(end - 1); ++line) {
    if (line >= lines_) continue;  // of a loop that ends with the memory, the check may look a little beyond it
    const std::lock_guard lock(locks_[line]);
    make_valid(line, to_store || word(line).load() == MG_FINE_EXCLUSIVE);
  }
}

uint64_t FakeLineProtocol::fresh_rights_epoch() {
  static std::atomic<uint64_t> last{0};
  return (last.fetch_add(1) + 1) << 2;
}

void FakeLineProtocol::forget() {
  if ((epoch_.load() & MG_FINE_EPOCH_CACHED) == 0) return;
  epoch_.exchange(fresh_rights_epoch());
  forgotten_.fetch_add(1);
}

void FakeLineProtocol::wait_for_hazards(uint64_t line, bool also_loads) {
  for (size_t thread = 0; thread < joined_.load(); ++thread) {
    for (auto& hazard : hazards_[thread]) {
      const uint64_t open = hazard.load();
      if (!covers(open, line, also_loads)) continue;
      begin_to_wait();
      // A hazard that has changed was published after the line had been taken.
      for (unsigned spins = 0; hazard.load() == open; ++spins)
        if (spins > 100) std::this_thread::yield();
    }
  }
}

void FakeLineProtocol::take(uint64_t line, bool also_valid) {
  const uint64_t had = word(line).load();
  if (had == 0 || (had == MG_FINE_READABLE && !also_valid)) return;
  taken_.fetch_add(1);
  word(line).exchange(also_valid ? 0 : MG_FINE_READABLE);
  forget();
  wait_for_hazards(line, also_valid);
  // The line is on its way now. A thread that relies on what it knew before the line was taken is found out.
  if (taken_.load() % 16 == 0)
    for (unsigned spins = 0; spins < 400; ++spins) cpu_relax();
  if (had == MG_FINE_EXCLUSIVE) std::memcpy(&elsewhere_[line << shift_], memory() + (line << shift_), line_bytes());
  if (!also_valid) return;
  for (size_t i = 0; i < line_bytes() / 8; ++i) frame(line, i).store(MG_FINE_FLAG64, std::memory_order_relaxed);
}

uint64_t FakeLineProtocol::line_in_use(uint64_t number) const {
  const auto& hazards = hazards_[number % std::max<size_t>(joined_.load(), 1)];
  const uint64_t open = hazards[number / kThreads % MG_FINE_HAZARDS].load();
  if (open == 0 || (open & MG_FINE_HAZARD_ALL) != 0) return (missed_.load() + number / 1024 % 8) % lines_;
  const uint64_t lines = (open & ~MG_FINE_HAZARD_STORES) / MG_FINE_HAZARD_LINE;
  return ((open & (MG_FINE_HAZARD_LINE - 1)) + number / 1024 % lines) % lines_;
}

void FakeLineProtocol::spend_time(uint64_t seed, uint64_t* counter) {
  std::mt19937_64 random(seed);
  const uint64_t counted = counter == nullptr ? lines_ : line_of(reinterpret_cast<uintptr_t>(counter));
  while (!stop_.load()) {
    // The adversary takes sometimes a few lines here and there, sometimes a whole stretch, and sometimes the line of a
    // hazard that is published, so that the line goes away the moment that the hazard is cleared.
    uint64_t line = random() % 2 == 0 ? random() % lines_ : line_in_use(random());
    const uint64_t count = random() % 4 == 0 ? random() % 64 : 1;
    for (uint64_t i = 0; i < count; ++i, line = (line + 1) % lines_) {
      const std::lock_guard lock(locks_[line]);
      take(line, random() % 3 != 0);
    }
    if (counted < lines_ && random() % 4 == 0) {
      const std::lock_guard lock(locks_[counted]);
      take(counted, true);
      uint64_t value;
      unsigned char* const at = &elsewhere_[reinterpret_cast<uintptr_t>(counter) - MG_FINE_VIEW_BASE];
      std::memcpy(&value, at, 8);
      ++value;
      std::memcpy(at, &value, 8);
      ++written_;
    }
    if (random() % 64 == 0) std::this_thread::yield();
    // The pause is long enough for whole pages to come back, and to be cached.
    if (random() % 128 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
}

void FakeLineProtocol::unleash(uint64_t seed, uint64_t* counter) {
  stop_.store(false);
  written_ = 0;
  adversary_ = std::thread([this, seed, counter] { spend_time(seed, counter); });
}

uint64_t FakeLineProtocol::dismiss() {
  stop_.store(true);
  adversary_.join();
  for (uint64_t line = 0; line < lines_; ++line) {
    const std::lock_guard lock(locks_[line]);
    make_valid(line, true);
  }
  return written_;
}

}  // namespace multigrain::testing
