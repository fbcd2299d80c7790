// This is the machine of sc_driver_world.h, and what it knows of the insides of its drivers.
//
//   sc_driver_world.cpp   makes the drivers
//   sc_world_checks.cpp   says what must hold, and which states are the same
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coherence/sc/driver.h"
#include "sc_driver_world.h"

namespace multigrain::sc::explored {

using exploring_pages::kMaxNodes;
using exploring_pages::kMaxPages;
using exploring_pages::kMaxWords;

// An access may fault on one page so often if no hold ends before the access is made: once; once more because the copy
// that it found was to go; and once more because another thread of the node asked for the page.
inline constexpr unsigned kMostFaults = 3;

// This shows the insides of a driver. It may be used while a thread stands in the middle of the driver.
struct DriverState {
  Driver& driver;

  [[nodiscard]] Record& record(unsigned page) const { return driver.records_[PageId(page)]; }
  [[nodiscard]] Page page(unsigned number) const {
    const Record& of = record(number);
    of.lock.assume_held();
    return driver.records_.page_of(of);
  }
  [[nodiscard]] const void* listed() const { return &driver.listed_; }
  [[nodiscard]] uint64_t first_listed() const { return driver.listed_.load(); }
  [[nodiscard]] int64_t missing() const { return driver.missing_.load(); }
  // These are all parts of it that change, as bytes.
  struct Saved {
    std::array<std::array<std::byte, sizeof(Record)>, kMaxPages> records;
    std::array<std::array<std::byte, sizeof(Outstanding)>, kMaxPages> outstanding;
    uint32_t first_free = 0;
    uint32_t used = 0;
    uint64_t listed = 0;
    int64_t missing = 0;
    std::array<std::byte, sizeof(EventCount)> discarded;
  };
  void save(Saved& saved) const {
    Records& records = driver.records_;
    for (unsigned p = 0; p < kMaxPages; ++p) {
      std::memcpy(saved.records[p].data(), static_cast<const void*>(&record(p)), sizeof(Record));
      std::memcpy(saved.outstanding[p].data(), static_cast<const void*>(&records.outstanding_[p]), sizeof(Outstanding));
    }
    saved.first_free = records.first_free_;
    saved.used = records.used_;
    saved.listed = driver.listed_.load();
    saved.missing = driver.missing_.load();
    std::memcpy(saved.discarded.data(), static_cast<const void*>(&driver.discarded_), sizeof(EventCount));
  }
  void put_back(const Saved& saved) const {
    Records& records = driver.records_;
    for (unsigned p = 0; p < kMaxPages; ++p) {
      std::memcpy(static_cast<void*>(&record(p)), saved.records[p].data(), sizeof(Record));
      std::memcpy(static_cast<void*>(&records.outstanding_[p]), saved.outstanding[p].data(), sizeof(Outstanding));
    }
    records.first_free_ = saved.first_free;
    records.used_ = saved.used;
    driver.listed_.store(saved.listed);
    driver.missing_.store(saved.missing);
    std::memcpy(static_cast<void*>(&driver.discarded_), saved.discarded.data(), sizeof(EventCount));
  }
  // Returns what a thread that has faulted on the page waits for. For page kMaxPages this is about the end of a
  // discard. nullptr: the driver has forgotten what waits for the page.
  [[nodiscard]] const EventCount* granted(unsigned page, bool is_write) const {
    if (page == kMaxPages) return &driver.discarded_;
    const uint32_t number = record(page).outstanding;
    if (number == 0) return nullptr;
    const Outstanding& outstanding = driver.records_.outstanding_[number - 1];
    return is_write ? &outstanding.writers : &outstanding.readers;
  }
  void prefetch(unsigned first, unsigned count, bool is_write) const {
    driver.prefetch({.at = PageId(first),
                     .from = PageId(uint64_t{first} - 1),
                     .stride = 1,
                     .count = count,
                     .is_write = is_write,
                     .is_certain = true});
  }
  // Makes it as if it had just been made.
  void clear(bool expects_writes) const {
    Records& records = driver.records_;
    records.first_free_ = records.used_ = 0;
    for (unsigned p = 0; p < kMaxPages; ++p) {
      std::construct_at(&records.outstanding_[p]);
      std::construct_at(&record(p));
      if (expects_writes) record(p).migrates = Driver::kMigrates;
    }
    driver.listed_.store(0);
    driver.missing_.store(0);
    std::construct_at(&driver.discarded_);
  }
  template <typename Add>
  void serialise(unsigned pages, Add&& add) const {
    add(driver.listed_.load());
    add(static_cast<uint64_t>(driver.missing_.load()));
    for (unsigned n = 0; n < pages; ++n) {
      const Record& of = record(n);
      const Page p = page(n);
      add(p.begun | uint64_t{p.owner.value} << 1 | p.sharers.bits() << 8 |
          uint64_t{static_cast<uint8_t>(p.state)} << 16 | uint64_t{static_cast<uint8_t>(p.pending)} << 20 |
          uint64_t{p.replied} << 24 | uint64_t{p.held} << 25 | uint64_t{p.has_forwarded_write} << 26 |
          uint64_t{p.has_invalidation} << 27 | uint64_t{static_cast<uint16_t>(p.acks)} << 28 |
          uint64_t{static_cast<uint8_t>(of.right)} << 48 | uint64_t{of.is_listed} << 52 |
          uint64_t{of.is_prefetched} << 53 | uint64_t{of.for_reader} << 54 | uint64_t{of.migrates} << 55);
      add(p.waiting_to_read | uint64_t{p.waiting_to_write} << 8 | uint64_t{p.returning} << 16 |
          p.forwarded_reads.bits() << 24 | (p.has_forwarded_write ? uint64_t{p.forwarded_write.value} << 32 : 0) |
          (p.has_forwarded_write ? uint64_t{p.forwarded_acks} << 40 : 0) |
          (p.has_invalidation ? uint64_t{p.invalidation.value} << 48 : 0) | p.discarders.bits() << 56);
      add(of.is_listed && of.outstanding != 0 ? driver.records_.outstanding_[of.outstanding - 1].next_listed : 0);
    }
  }
};

class Machine final : public exploring_pages::MachineOf<Driver, DriverState> {
 public:
  explicit Machine(const Scenario& scenario);

  [[nodiscard]] const EventCount* granted(unsigned node, unsigned page, bool is_write) const override {
    return state(node).granted(page, is_write);
  }
  [[nodiscard]] std::optional<uint64_t> first_of_list(unsigned node, const void* address) const override {
    if (address != state(node).listed()) return std::nullopt;
    return state(node).first_listed();
  }
  void save(unsigned node, Saved& saved) const override;
  void put_back(unsigned node, const Saved& saved) override;
  void clear(unsigned node) override { state(node).clear(expects_writes_); }
  void serialise(unsigned node, std::vector<uint64_t>& out) const override {
    state(node).serialise(pages(), [&out](uint64_t value) { out.push_back(value); });
  }
  [[nodiscard]] std::string in_words(const exploring_pages::Packet& packet) const override;
  void carry_out(const Op& op) override;
  [[nodiscard]] std::string check() const override;
  [[nodiscard]] std::string check_end() const override;
  [[nodiscard]] unsigned holder(unsigned page) const override;

 private:
  const bool expects_writes_;
};

}  // namespace multigrain::sc::explored
