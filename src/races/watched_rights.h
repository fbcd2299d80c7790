// The access rights of a node whose pages may be watched. The protocol grants and takes rights here as it does elsewhere;
// this keeps what it has granted in mind, and withholds it from the application where a page is watched. So the protocol
// works as ever, and each access to a watched page is a fault.
//
// W1  A page is *open* if the application has the right that the protocol has granted. It never has more.
// W2  A thread that accesses a closed page through the alias is counted in `inside` while it does, and has the protocol's
//     right then. A revocation returns when no such thread is left: rights before data, as for any mechanism.
// W3  A page that is not watched is open whenever the protocol has granted a right.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/spin_lock.h"
#include "memory/access_rights.h"
#include "memory/sparse_table.h"
#include "races/suspects.h"

namespace multigrain::races {

class WatchedRights final : public AccessRights {
 public:
  // Wraps a mechanism. `region` outlives this object. Errors: tables that cannot be reserved.
  static Result<std::unique_ptr<WatchedRights>> create(std::unique_ptr<AccessRights> rights, const Region& region);

  // --- As the protocol sees it.
  void grant_read(PageId first, uint64_t count) override;
  void grant_write(PageId first, uint64_t count) override;
  void upgrade(PageId first, uint64_t count) override;
  void revoke_write(PageId first, uint64_t count) override;
  void revoke(PageId first, uint64_t count) override;
  void watch_again(PageId first, uint64_t count) override { rights_->watch_again(first, count); }
  void open_moved(PageId first, uint64_t count) override { rights_->open_moved(first, count); }
  void let_others_map() override { rights_->let_others_map(); }
  void let_pages_be_elsewhere() override { rights_->let_pages_be_elsewhere(); }
  [[nodiscard]] std::string_view name() const override { return rights_->name(); }
  [[nodiscard]] int fault_signal() const override { return rights_->fault_signal(); }
  [[nodiscard]] std::optional<Fault> decode(int signal, const siginfo_t* info, const void* context) const override {
    return rights_->decode(signal, info, context);
  }

  // --- As the detector sees it. All of this is async-signal-safe.

  // Returns whether the protocol has granted the right that an access needs.
  [[nodiscard]] bool has_right(PageId page, bool is_write);

  enum class Way : uint8_t {
    kMissing,   // the protocol has not granted the right, or has taken it meanwhile
    kOpen,      // the application may access the page: the access is made again
    kAlias,     // the thread accesses the page through the alias, and calls leave() then
    kForMoment  // the page is open until the thread calls leave(); other threads can slip by meanwhile
  };
  // How the thread can make the access if the page is closed.
  enum class Ability : uint8_t { kAlias, kForMoment, kNone };
  // Decides how a thread makes an access that has faulted. With Ability::kNone a page that is closed is opened.
  // `was_granted`: the protocol has been asked for the right for this very access, so an open page need not be granted
  // once more. `cost` is what the access takes of what the page may be looked at.
  Way enter(PageId page, bool is_write, Ability ability, bool was_granted, uint32_t cost = 1);
  // `way` is what enter() returned: kAlias or kForMoment. Waits for no thread that has not left.
  void leave(PageId page, Way way);

  // The page is watched from now on at least as closely as `level` says.
  void watch(PageId page, Level level);
  // A section has begun: pages that are watched and were opened are closed again. `is_episode`: the processors have met at a
  // barrier, so that each page may be looked at as often as at first. One thread at a time.
  void begin_section(bool is_episode);

  // How many pages were open at the beginning of a section because the list of them was full.
  [[nodiscard]] uint64_t left_open() const { return left_open_.load(std::memory_order_relaxed); }

 private:
  enum class Right : uint8_t { kNone, kRead, kWrite };
  struct Page {
    SpinLock lock;
    std::atomic<uint32_t> inside;  // threads that access the page through the alias
    uint32_t credit;               // what accesses may cost together before the page is opened
    uint32_t episode;              // in which the page was looked at last
    uint32_t section;              // likewise
    Right right;                   // what the protocol has granted
    Level level;
    bool is_open;
    bool is_listed;           // in opened_
    bool is_open_for_moment;  // for some thread that is inside
  };
  static_assert(sizeof(Page) <= 28);
  static constexpr size_t kMostOpened = 16384;
  static constexpr uint64_t kGroup = 64;  // pages that are locked together, in ascending order

  WatchedRights(std::unique_ptr<AccessRights> rights, SparseTable<Page> pages, SparseTable<PageId> opened)
      : rights_(std::move(rights)), pages_(std::move(pages)), opened_(std::move(opened)) {}

  void grant(PageId first, uint64_t count, Right right);
  void really_grant(PageId page, Page& record, uint64_t count = 1);
  void close(PageId page, Page& record);
  template <typename Change>
  void for_each_group(PageId first, uint64_t count, Change&& change);
  void open(PageId page, Page& record);
  void refill(Page& record) const;
  static void wait_until_left(Page& record);

  std::unique_ptr<AccessRights> rights_;
  SparseTable<Page> pages_;
  std::atomic<uint32_t> episode_{1};
  std::atomic<uint32_t> section_{1};
  SpinLock list_lock_;
  SparseTable<PageId> opened_;  // pages that are watched, and were opened
  size_t opened_count_ MG_GUARDED_BY(list_lock_) = 0;
  std::atomic<uint64_t> left_open_{0};
};

}  // namespace multigrain::races
