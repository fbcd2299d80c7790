// These test both mechanisms against the contract of access_rights.h. The fault handler is as small as can be: it
// grants what the access asked for.
#include "memory/access_rights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/spin_lock.h"
#include "memory/userfault/userfault_rights.h"
#include "memory_test_support.h"

namespace multigrain {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kRegionSize = uint64_t{64} << 30;

// The handler needs this, and notes here what it saw.
struct World {
  AccessRights* rights = nullptr;
  SpinLock lock;  // serialises rights changes, as the contract asks of callers
  std::atomic<bool> hold{false};
  std::atomic<int> read_faults{0};
  std::atomic<int> write_faults{0};
  std::atomic<std::byte*> address{nullptr};
  // A thread goes on here after a fault that is not ours. Only one thread does that.
  std::atomic<bool> expects_foreign{false};
  sigjmp_buf after_foreign;
};
World* world = nullptr;

void on_fault(int signal, siginfo_t* info, void* context) {
  World& w = *world;
  const std::optional<Fault> fault = w.rights->decode(signal, info, context);
  if (!fault) {
    if (w.expects_foreign.exchange(false)) siglongjmp(w.after_foreign, signal);
    ::signal(signal, SIG_DFL);  // the access is repeated and ends the test, as it deserves
    return;
  }
  w.address = fault->address;
  (fault->is_write ? w.write_faults : w.read_faults).fetch_add(1);
  while (true) {
    while (w.hold.load()) sched_yield();
    w.lock.lock();
    if (!w.hold.load()) break;
    w.lock.unlock();
  }
  if (fault->is_write) {
    w.rights->grant_write(fault->page, 1);
  } else if (!kernel_can_read(fault->address)) {
    // Otherwise another thread has been first, perhaps with a right to write, which grant_read may not meet.
    w.rights->grant_read(fault->page, 1);
  }
  w.lock.unlock();
}

std::byte load(const std::byte* at) {
  return *const_cast<const volatile std::byte*>(at);
}
void store(std::byte* at, int value) {
  *const_cast<volatile std::byte*>(at) = static_cast<std::byte>(value);
}

// Makes a wild pointer that the compiler does not see through.
std::byte* pointer(uintptr_t address) {
  volatile uintptr_t hidden = address;
  return reinterpret_cast<std::byte*>(hidden);
}

// The undefined-behaviour sanitizer would look for a type before the function.
#if defined(__clang__)
[[clang::no_sanitize("function")]]
#endif
void jump_to(std::byte* at) {
  reinterpret_cast<void (*)()>(at)();
}

using Parameters = std::tuple<AccessMechanism, size_t>;

class AccessRightsTest : public ::testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override { start(kRegionSize); }

  void start(uint64_t region_size) {
    const auto [mechanism, page_size] = GetParam();
    if (mechanism == AccessMechanism::kUserfault)
      if (const Status status = userfault::available(); !status) GTEST_SKIP() << status.error().message;
    Result<Region> region = Region::create(region_size, page_size);
    ASSERT_TRUE(region.has_value()) << region.error().message;
    region_ = std::make_unique<Region>(std::move(*region));
    Result<std::unique_ptr<AccessRights>> rights = choose(mechanism, *region_);
    ASSERT_TRUE(rights.has_value()) << rights.error().message;
    rights_ = std::move(*rights);
    world_ = std::make_unique<World>();
    world_->rights = rights_.get();
    world = world_.get();
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(sigaction(SIGSEGV, &action, &old_segv_), 0);
    ASSERT_EQ(sigaction(SIGBUS, &action, &old_bus_), 0);
    installed_ = true;
  }

  void TearDown() override { stop(); }

  void stop() {
    if (installed_) {
      sigaction(SIGSEGV, &old_segv_, nullptr);
      sigaction(SIGBUS, &old_bus_, nullptr);
      installed_ = false;
    }
    rights_.reset();
    region_.reset();
  }

  [[nodiscard]] std::byte* view(uint64_t page) const { return region_->view(PageId(page)); }
  [[nodiscard]] std::byte* alias(uint64_t page) const { return region_->alias(PageId(page)); }
  [[nodiscard]] size_t page_size() const { return region_->page_size(); }
  [[nodiscard]] int faults() const { return world_->read_faults.load() + world_->write_faults.load(); }

  // Runs an access that must raise a signal which is not ours; returns the signal, 0 if there was none.
  template <typename Access>
  int foreign_signal(Access&& access) {
    world_->expects_foreign = true;
    const int signal = sigsetjmp(world_->after_foreign, 1);
    if (signal == 0) access();
    world_->expects_foreign = false;
    return signal;
  }

  std::unique_ptr<Region> region_;
  std::unique_ptr<AccessRights> rights_;
  std::unique_ptr<World> world_;
  struct sigaction old_segv_{};
  struct sigaction old_bus_{};
  bool installed_ = false;
};

TEST_P(AccessRightsTest, FaultsOnceForReadingAndOnceForWriting) {
  std::memset(alias(5), 0x5a, page_size());
  EXPECT_EQ(load(view(5) + 123), std::byte{0x5a});
  EXPECT_EQ(world_->read_faults.load(), 1);
  EXPECT_EQ(world_->write_faults.load(), 0);
  EXPECT_EQ(world_->address.load(), view(5) + 123);
  for (size_t i = 0; i < page_size(); i += 512) EXPECT_EQ(load(view(5) + i), std::byte{0x5a});
  EXPECT_EQ(faults(), 1);

  store(view(5) + page_size() - 1, 7);
  EXPECT_EQ(world_->write_faults.load(), 1);
  EXPECT_EQ(world_->address.load(), view(5) + page_size() - 1);
  for (size_t i = 0; i < page_size(); i += 512) store(view(5) + i, 8);
  EXPECT_EQ(faults(), 2);
  EXPECT_EQ(*alias(5), std::byte{8});
  EXPECT_EQ(alias(5)[page_size() - 1], std::byte{7});
}

TEST_P(AccessRightsTest, AWriteToAPageWithoutRightsFaultsOnce) {
  store(view(9) + 40, 3);
  EXPECT_EQ(world_->write_faults.load(), 1);
  EXPECT_EQ(load(view(9) + 40), std::byte{3});
  EXPECT_EQ(load(view(9) + page_size() - 1), std::byte{0});
  EXPECT_EQ(faults(), 1);
}

TEST_P(AccessRightsTest, AnAtomicReadModifyWriteIsAWrite) {
  auto* const word = reinterpret_cast<uint64_t*>(view(3));
  // The access is relaxed. For stronger orders the thread sanitizer holds a lock across the access, which our handler
  // then takes, too.
  rights_->grant_read(PageId(3), 1);
  EXPECT_EQ(__atomic_fetch_add(word, 5, __ATOMIC_RELAXED), 0u);
  EXPECT_EQ(world_->write_faults.load(), 1);
  EXPECT_EQ(world_->read_faults.load(), 0);
  EXPECT_EQ(__atomic_load_n(word, __ATOMIC_RELAXED), 5u);
}

TEST_P(AccessRightsTest, RightsAreWhatThePrimitivesSay) {
  const PageId page(20);
  std::byte* const at = view(20) + 77;
  EXPECT_FALSE(kernel_can_read(at));
  rights_->grant_read(page, 1);
  EXPECT_TRUE(kernel_can_read(at));
  EXPECT_FALSE(kernel_can_write(at));
  rights_->grant_read(page, 1);
  EXPECT_TRUE(kernel_can_read(at));
  EXPECT_FALSE(kernel_can_write(at));
  rights_->upgrade(page, 1);
  EXPECT_TRUE(kernel_can_write(at));
  rights_->grant_write(page, 1);
  EXPECT_TRUE(kernel_can_write(at));
  rights_->revoke_write(page, 1);
  EXPECT_TRUE(kernel_can_read(at));
  EXPECT_FALSE(kernel_can_write(at));
  rights_->revoke_write(page, 1);
  EXPECT_FALSE(kernel_can_write(at));
  rights_->grant_write(page, 1);
  EXPECT_TRUE(kernel_can_write(at));
  rights_->revoke(page, 1);
  EXPECT_FALSE(kernel_can_read(at));
  EXPECT_FALSE(kernel_can_write(at));
  rights_->revoke(page, 1);
  EXPECT_FALSE(kernel_can_read(at));
  // When the rights to a read-only page (which userfaultfd marks) have been revoked, a grant means the same as ever.
  rights_->grant_read(page, 1);
  rights_->revoke(page, 1);
  rights_->grant_write(page, 1);
  EXPECT_TRUE(kernel_can_write(at));
  rights_->revoke(page, 1);
  rights_->grant_read(page, 1);
  EXPECT_TRUE(kernel_can_read(at));
  EXPECT_FALSE(kernel_can_write(at));
  EXPECT_EQ(faults(), 0);
}

TEST_P(AccessRightsTest, NeighboursKeepTheirRights) {
  rights_->grant_write(PageId(100), 10);
  rights_->revoke_write(PageId(103), 2);
  rights_->revoke(PageId(107), 1);
  for (uint64_t page = 99; page <= 110; ++page) {
    SCOPED_TRACE(page);
    const bool readable = page >= 100 && page < 110 && page != 107;
    EXPECT_EQ(kernel_can_read(view(page)), readable);
    EXPECT_EQ(kernel_can_read(view(page) + page_size() - 1), readable);
    EXPECT_EQ(kernel_can_write(view(page) + page_size() - 1), readable && page != 103 && page != 104);
  }
  // This grants a range in which some pages have the right already.
  rights_->grant_write(PageId(98), 14);
  for (uint64_t page = 97; page <= 112; ++page) {
    EXPECT_EQ(kernel_can_write(view(page)), page >= 98 && page < 112) << page;
    EXPECT_EQ(kernel_can_write(view(page) + page_size() - 1), page >= 98 && page < 112) << page;
  }
  EXPECT_EQ(faults(), 0);
}

TEST_P(AccessRightsTest, APartOfTheViewThatIsElsewhereHasThem) {
  const size_t size = 4 * page_size();
  void* const reserved = mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  const uintptr_t elsewhere = (reinterpret_cast<uintptr_t>(reserved) + size - 1) / size * size;
  std::memset(alias(98), 0x5a, 8 * page_size());
  ASSERT_TRUE(region_->move_view(PageId(100), 4, elsewhere, Region::Occupied::kReplaced));
  rights_->open_moved(PageId(100), 4);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(view(101)), elsewhere + page_size());
  EXPECT_FALSE(kernel_can_read(view(101)));
  // A fault there is one of the page's.
  EXPECT_EQ(std::byte(*static_cast<volatile std::byte*>(view(101) + 7)), std::byte{0x5a});
  EXPECT_EQ(world_->read_faults.load(), 1);
  EXPECT_EQ(static_cast<void*>(world_->address.load()), view(101) + 7);
  // Ranges may begin and end beside it.
  rights_->grant_write(PageId(98), 8);
  for (uint64_t page = 98; page < 106; ++page) EXPECT_TRUE(kernel_can_write(view(page))) << page;
  rights_->revoke_write(PageId(98), 8);
  for (uint64_t page = 98; page < 106; ++page) EXPECT_FALSE(kernel_can_write(view(page))) << page;
  rights_->upgrade(PageId(99), 6);
  for (uint64_t page = 98; page < 106; ++page)
    EXPECT_EQ(kernel_can_write(view(page)), page >= 99 && page < 105) << page;
  rights_->revoke(PageId(99), 3);
  for (uint64_t page = 98; page < 106; ++page) EXPECT_EQ(kernel_can_read(view(page)), page < 99 || page >= 102) << page;
  *view(100) = std::byte{1};
  EXPECT_EQ(*alias(100), std::byte{1});
}

TEST_P(AccessRightsTest, EmptyRangesAreAllowed) {
  rights_->grant_read(PageId(4), 0);
  rights_->grant_write(PageId(4), 0);
  rights_->upgrade(PageId(4), 0);
  rights_->revoke_write(PageId(4), 0);
  rights_->revoke(PageId(4), 0);
  EXPECT_FALSE(kernel_can_read(view(4)));
}

TEST_P(AccessRightsTest, RevocationKeepsTheFrame) {
  std::memset(view(2), 0x11, page_size());
  rights_->revoke(PageId(2), 1);
  const int before = faults();
  EXPECT_EQ(alias(2)[page_size() / 2], std::byte{0x11});
  std::memset(alias(2), 0x22, page_size());  // a fresh copy arrives
  EXPECT_EQ(load(view(2)), std::byte{0x22});
  EXPECT_EQ(load(view(2) + page_size() - 1), std::byte{0x22});
  EXPECT_EQ(faults(), before + 1);
}

// These are frames whose memory exists in part only: the last page of a transfer, or a page that was discarded.
TEST_P(AccessRightsTest, GrantsFramesThatNobodyTouched) {
  alias(30)[page_size() - 1] = std::byte{1};
  rights_->grant_read(PageId(29), 3);
  for (size_t i = 0; i < 3 * page_size() - 1; i += 1024) ASSERT_EQ(load(view(29) + i), std::byte{0}) << i;
  EXPECT_EQ(load(view(30) + page_size() - 1), std::byte{1});
  EXPECT_EQ(faults(), 0);
  rights_->revoke(PageId(29), 3);
  region_->discard_frames(PageId(30), 1);
  rights_->grant_write(PageId(29), 3);
  EXPECT_EQ(load(view(30) + page_size() - 1), std::byte{0});
  store(view(30), 4);
  EXPECT_EQ(*alias(30), std::byte{4});
  EXPECT_EQ(faults(), 0);
}

// Frames are made where there are none, and others keep what they hold.
TEST_P(AccessRightsTest, TheFirstGrantToWriteKeepsTheFramesThatThereAre) {
  for (const uint64_t page : {21, 22, 27}) std::memset(alias(page), 0x5a, page_size());
  rights_->grant_write_first(PageId(20), 10);
  for (uint64_t page = 20; page < 30; ++page) {
    const auto held = page == 21 || page == 22 || page == 27 ? std::byte{0x5a} : std::byte{0};
    for (size_t i = 0; i < page_size(); i += 512) {
      EXPECT_EQ(load(view(page) + i), held) << page;
      store(view(page) + i, 3);
      EXPECT_EQ(alias(page)[i], std::byte{3}) << page;
    }
  }
  EXPECT_EQ(faults(), 0);
  rights_->revoke(PageId(20), 10);
  rights_->grant_write_first(PageId(20), 10);
  for (uint64_t page = 20; page < 30; ++page) EXPECT_EQ(load(view(page)), std::byte{3});
  EXPECT_EQ(faults(), 0);
}

TEST_P(AccessRightsTest, FaultsInsideMemcpy) {
  const size_t length = 5 * page_size() + 100;
  std::vector<std::byte> data(length);
  for (size_t i = 0; i < length; ++i) data[i] = static_cast<std::byte>(i * 7);
  std::memcpy(view(40) + 61, data.data(), length);
  EXPECT_EQ(std::memcmp(alias(40) + 61, data.data(), length), 0);
  EXPECT_GE(world_->write_faults.load(), 6);
  // This copies from shared memory to shared memory: reads and writes fault in one call, at unaligned page crossings.
  rights_->revoke(PageId(40), 6);
  std::memcpy(view(50) + 13, view(40) + 61, length);
  EXPECT_EQ(std::memcmp(alias(50) + 13, data.data(), length), 0);
  EXPECT_GE(world_->read_faults.load(), 6);
}

TEST_P(AccessRightsTest, TwoThreadsFaultOnOnePage) {
  constexpr int kRounds = 200;
  std::barrier together(2);
  std::array<std::atomic<int>, 2> wrong{};
  const auto run = [&](int id) {
    for (int round = 0; round < kRounds; ++round) {
      together.arrive_and_wait();
      // The first thread reads before it writes, so that it may come with a read fault while the second has the right
      // to write.
      std::byte* const mine = view(1) + id;
      if (id == 0 && load(mine) != static_cast<std::byte>(round)) ++wrong[0];
      store(mine, round + 1);
      together.arrive_and_wait();
      if (load(view(1) + (1 - id)) != static_cast<std::byte>(round + 1)) ++wrong[static_cast<size_t>(id)];
      together.arrive_and_wait();
      if (id == 0) rights_->revoke(PageId(1), 1);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(wrong[0].load(), 0);
  EXPECT_EQ(wrong[1].load(), 0);
  EXPECT_GE(world_->write_faults.load(), kRounds);
}

// Rights are taken before data: from the return of a revocation on, the frame does not change, although other threads
// of this process are writing the page all the time.
TEST_P(AccessRightsTest, NothingIsWrittenAfterRevocation) {
  constexpr int kThreads = 2;
  constexpr int kRounds = 40;
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int id = 0; id < kThreads; ++id)
    writers.emplace_back([&, id] {
      // There is one word at each end of the page, so that threads write a wide page in different hardware pages.
      auto* const word = reinterpret_cast<uint64_t*>(id == 0 ? view(6) : view(7) - 64);
      while (!stop.load(std::memory_order_relaxed)) __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
    });
  const auto word_of = [&](int id) {
    return __atomic_load_n(reinterpret_cast<uint64_t*>(id == 0 ? alias(6) : alias(7) - 64), __ATOMIC_RELAXED);
  };
  int changed = 0;
  for (int round = 0; round < kRounds; ++round) {
    // Both threads have written since the last round.
    for (int id = 0; id < kThreads; ++id) {
      const uint64_t seen = word_of(id);
      while (word_of(id) == seen) sched_yield();
    }
    world_->lock.lock();
    world_->hold = true;
    if (round % 2 == 0) {
      rights_->revoke(PageId(6), 1);
    } else if (kernel_can_read(view(6))) {
      rights_->revoke_write(PageId(6), 1);
    }
    std::array<uint64_t, kThreads> frozen{};
    for (int id = 0; id < kThreads; ++id) frozen[static_cast<size_t>(id)] = word_of(id);
    world_->lock.unlock();
    for (int look = 0; look < 20; ++look) {
      sched_yield();
      for (int id = 0; id < kThreads; ++id) changed += word_of(id) != frozen[static_cast<size_t>(id)];
    }
    world_->hold = false;
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(changed, 0);
}

TEST_P(AccessRightsTest, DifferentPagesChangeAtTheSameTime) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 300;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int id = 0; id < kThreads; ++id)
    threads.emplace_back([&, id] {
      const auto number = static_cast<uint64_t>(200 + id);
      for (int round = 0; round < kRounds; ++round) {
        rights_->grant_write(PageId(number), 1);
        store(view(number), round);
        rights_->revoke_write(PageId(number), 1);
        if (load(view(number)) != static_cast<std::byte>(round)) wrong.fetch_add(1);
        rights_->revoke(PageId(number), 1);
        if (*alias(number) != static_cast<std::byte>(round)) wrong.fetch_add(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(faults(), 0);
}

TEST_P(AccessRightsTest, TheLargestRegionCostsOnlyWhatIsTouched) {
  stop();
  start(layout::kMaxRegionSize);
  const uint64_t before = resident_set_bytes();
  constexpr uint64_t kTouched = 128;
  const uint64_t stride = region_->page_count() / kTouched;
  for (uint64_t i = 0; i < kTouched; ++i) store(view((i + 1) * stride - 1) + 99, 1);
  EXPECT_EQ(faults(), static_cast<int>(kTouched));
  EXPECT_EQ(load(region_->base() + region_->size() - page_size() + 99), std::byte{1});
  // A grant of a wide page brings all of it in; mprotect's leaves the rest for later.
  EXPECT_LE(region_->resident_bytes(), kTouched * page_size());
  // The limit is generous, for the page tables and a sanitizer's shadow. One huge page a touch would already be 256
  // MiB.
  EXPECT_LT(resident_set_bytes() - before, 2 * kTouched * page_size() + (64u << 20));
}

TEST_P(AccessRightsTest, LeavesForeignFaultsAlone) {
  EXPECT_EQ(foreign_signal([] { load(pointer(8)); }), SIGSEGV);
  EXPECT_EQ(foreign_signal([&] { load(region_->base() + region_->size()); }), SIGSEGV);
  EXPECT_EQ(foreign_signal([&] { store(region_->base() - 1, 1); }), SIGSEGV);
  // The address is not canonical: the kernel gives no address with the signal.
  EXPECT_EQ(foreign_signal([] { load(pointer(uintptr_t{0xdead} << 48)); }), SIGSEGV);
  // This is a mapped file that ends before its mapping does, so the signal is SIGBUS.
  const int fd = memfd_create("empty", MFD_CLOEXEC);
  void* const empty = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(empty, MAP_FAILED);
  EXPECT_EQ(foreign_signal([&] { load(static_cast<std::byte*>(empty)); }), SIGBUS);
  munmap(empty, 4096);
  close(fd);
  EXPECT_EQ(faults(), 0);
  // A jump into shared data is a bug that no grant mends. Userfaultfd takes the fetch for a read at first; once the
  // page is readable, the processor refuses to execute it.
  EXPECT_EQ(foreign_signal([&] { jump_to(view(3)); }), SIGSEGV);
  EXPECT_EQ(faults(), rights_->fault_signal() == SIGBUS ? 1 : 0);
}

TEST_P(AccessRightsTest, IgnoresSignalsThatProcessesSend) {
  siginfo_t info{};
  ucontext_t context{};
  info.si_addr = view(1);
  info.si_code = SI_USER;
  EXPECT_FALSE(rights_->decode(rights_->fault_signal(), &info, &context).has_value());
  EXPECT_FALSE(rights_->decode(SIGILL, &info, &context).has_value());
}

TEST_P(AccessRightsTest, LeavesErrnoAlone) {
  errno = 4711;
  rights_->grant_read(PageId(1), 1);
  rights_->grant_read(PageId(1), 1);
  rights_->grant_write(PageId(1), 2);
  rights_->upgrade(PageId(1), 2);
  rights_->revoke_write(PageId(1), 2);
  rights_->revoke(PageId(1), 2);
  EXPECT_EQ(errno, 4711);
}

TEST_P(AccessRightsTest, TheEndTakesAllRights) {
  rights_->grant_write(PageId(1), 1);
  EXPECT_TRUE(kernel_can_write(view(1)));
  rights_.reset();
  EXPECT_FALSE(kernel_can_read(view(1)));
  EXPECT_FALSE(kernel_can_read(view(2)));
}

TEST_P(AccessRightsTest, NamesItselfAndItsSignal) {
  const bool userfault = std::get<0>(GetParam()) == AccessMechanism::kUserfault;
  EXPECT_EQ(rights_->name(), userfault ? "userfault" : "mprotect");
  EXPECT_EQ(rights_->fault_signal(), userfault ? SIGBUS : SIGSEGV);
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, AccessRightsTest,
                         ::testing::Combine(::testing::Values(AccessMechanism::kUserfault, AccessMechanism::kMprotect),
                                            ::testing::Values(size_t{4096}, size_t{65536})),
                         [](const ::testing::TestParamInfo<Parameters>& parameters) {
                           return fmt::format(
                               "{}{}K",
                               std::get<0>(parameters.param) == AccessMechanism::kUserfault ? "Userfault" : "Mprotect",
                               std::get<1>(parameters.param) / 1024);
                         });

// Runs `body` in a child process and returns what it wrote to standard output and standard error, and how it ended.
struct Ending {
  std::string output;
  int status = -1;
};
Ending in_child(const std::function<int()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    const int status = body();
    std::fflush(stdout);
    _exit(status);
  }
  close(ends[1]);
  Ending ending;
  char part[4096];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
    ending.output.append(part, static_cast<size_t>(got));
  close(ends[0]);
  int status = -1;
  if (waitpid(child, &status, 0) == child && WIFEXITED(status)) ending.status = WEXITSTATUS(status);
  return ending;
}

constexpr int kCannotTest = 77;

// Makes the system call userfaultfd fail with `code` from here on, as a container's profile does.
bool deny_userfaultfd(unsigned code) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Choose, FallsBackAndSaysWhyWhereUserfaultfdIsForbidden) {
  for (const unsigned code : {unsigned{EPERM}, unsigned{ENOSYS}}) {
    const Ending ending = in_child([code] {
      if (!deny_userfaultfd(code)) return kCannotTest;
      Result<Region> region = Region::create(kRegionSize, 4096);
      if (!region) return 1;
      std::string reason;
      Result<std::unique_ptr<AccessRights>> automatic = choose(AccessMechanism::kAutomatic, *region, &reason);
      if (!automatic || (*automatic)->name() != "mprotect") return 2;
      std::printf("%s\n", reason.c_str());
      automatic->reset();
      Result<std::unique_ptr<AccessRights>> asked = choose(AccessMechanism::kUserfault, *region);
      if (asked) return 3;
      std::printf("%s\n", asked.error().message.c_str());
      return 0;
    });
    if (ending.status == kCannotTest) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(ending.status, 0) << ending.output;
    EXPECT_THAT(ending.output, HasSubstr("access rights by mprotect, because userfaultfd is "));
    EXPECT_THAT(ending.output, HasSubstr(code == EPERM ? "seccomp" : "not built into this kernel"));
    EXPECT_THAT(ending.output, HasSubstr("use --access mprotect or automatic"));
  }
}

TEST(Choose, UserfaultNeedsNoPrivileges) {
  if (const Status status = userfault::available(); !status) GTEST_SKIP() << status.error().message;
  const Ending ending = in_child([] {
    if (geteuid() == 0 && setuid(65534) != 0) return kCannotTest;
    const Status status = userfault::available();
    if (!status) std::printf("%s\n", status.error().message.c_str());
    return status ? 0 : 1;
  });
  if (ending.status == kCannotTest) GTEST_SKIP() << "cannot drop privileges here";
  EXPECT_EQ(ending.status, 0) << ending.output;
}

TEST(Choose, DoesWhatItIsAskedAndSaysSo) {
  Result<Region> region = Region::create(kRegionSize, 4096);
  ASSERT_TRUE(region.has_value()) << region.error().message;
  std::string reason;
  Result<std::unique_ptr<AccessRights>> rights = choose(AccessMechanism::kMprotect, *region, &reason);
  ASSERT_TRUE(rights.has_value());
  EXPECT_EQ((*rights)->name(), "mprotect");
  EXPECT_EQ(reason, "access rights by mprotect, as asked for");
  rights->reset();
  rights = choose(AccessMechanism::kAutomatic, *region, &reason);
  ASSERT_TRUE(rights.has_value());
  EXPECT_EQ((*rights)->name(), userfault::available() ? "userfault" : "mprotect");
  EXPECT_THAT(reason, HasSubstr((*rights)->name() == "mprotect" ? "because" : "userfaultfd"));
}

TEST(Mprotect, NamesTheLimitOnMappingsThatItRunsInto) {
  uint64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 1'100'000) GTEST_SKIP() << "vm.max_map_count is " << limit << ": too many to run into";
  const Ending ending = in_child([limit] {
    Result<Region> region = Region::create(kRegionSize, 4096);
    if (!region) return 2;
    Result<std::unique_ptr<AccessRights>> rights = choose(AccessMechanism::kMprotect, *region);
    if (!rights) return 3;
    for (uint64_t page = 0; page <= 2 * limit; page += 2) (*rights)->grant_read(PageId(page), 1);
    return 4;
  });
  EXPECT_EQ(ending.status, 1) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("vm.max_map_count"));
}

}  // namespace
}  // namespace multigrain
