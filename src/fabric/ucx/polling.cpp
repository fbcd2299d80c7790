#include "fabric/ucx/polling.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/keep_errno.h"
#include "fabric/ucx/descriptors.h"
#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

constexpr Nanoseconds kNever = Dispatcher::kNever;
// Waits that follow each other within kPollingPhaseGap make a polling phase, in which the service thread polls every
// kPollInterval. A shorter interval takes the core from processors that poll (page faults over TCP took 40 us with half
// of this one, and take 20 us with this one); a longer one lets a request wait that comes when the phase is over.
constexpr Nanoseconds kPollingPhaseGap = 200'000;
constexpr Nanoseconds kPollInterval = 100'000;
constexpr Nanoseconds kTimerWorthSleeping = 20'000;  // the service thread spins if it would sleep for less

}  // namespace

Status Polling::open() {
  const ucs_status_t status = ucp_worker_get_efd(parts_.worker.worker(), &ucx_fd_);
  if (status != UCS_OK)
    return fail_ucx("the transports that UCX chose (see UCX_TLS) cannot wake a sleeping node", status);
  event_fd_ = ucx_descriptors::keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_fd_ = ucx_descriptors::keep(epoll_create1(EPOLL_CLOEXEC));
  if (event_fd_ < 0 || epoll_fd_ < 0) return fail_errno(errno, "cannot create an event descriptor");
  epoll_event event{};
  event.data.fd = ucx_fd_;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, ucx_fd_, &event) != 0)
    return fail_errno(errno, "cannot wait for UCX's descriptor");
  event.events = EPOLLIN;
  event.data.fd = event_fd_;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, event_fd_, &event) != 0)
    return fail_errno(errno, "cannot wait for an event descriptor");
  return {};
}

void Polling::close() {
  if (event_fd_ >= 0) ::close(event_fd_);
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
}

// --- Progress

bool Polling::progress() {
  UcxLock lock(parts_, std::try_to_lock);
  return lock.locked() && lock.progress() != 0;
}

void Polling::begin_progress() {
  if (progressing_.fetch_add(1, std::memory_order_seq_cst) != 0) return;
  if (!listening_.load(std::memory_order_seq_cst)) return;  // a polling phase, or another thread mutes it
  const UcxLock lock(parts_);
  if (progressing_.load(std::memory_order_seq_cst) != 0) mute();
}

void Polling::end_progress() {
  const uint32_t left = progressing_.fetch_sub(1, std::memory_order_seq_cst) - 1;
  MG_CHECK(left != ~uint32_t{0});
  if (left != 0) return;
  const Nanoseconds now = monotonic_ns();
  const Nanoseconds before = last_end_.exchange(now, std::memory_order_relaxed);
  if (now - before < kPollingPhaseGap) {
    if (polling_phase_.load(std::memory_order_seq_cst)) return;
    polling_phase_.store(true, std::memory_order_seq_cst);
    wake();
    return;
  }
  UcxLock lock(parts_);
  while (progressing_.load(std::memory_order_seq_cst) == 0 && !listening_.load(std::memory_order_relaxed)) {
    if (!try_listen()) lock.progress();
  }
}

void Polling::listen(bool on) {
  epoll_event event{};
  event.events = on ? uint32_t{EPOLLIN} : 0;
  event.data.fd = ucx_fd_;
  MG_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, ucx_fd_, &event) == 0, static_cast<uint64_t>(errno));
  listening_.store(on, std::memory_order_seq_cst);
}

void Polling::mute() {
  if (listening_.load(std::memory_order_relaxed)) listen(false);
}

// Asks UCX to make its descriptor readable at the next arrival, and lets that wake the service thread. Returns false if
// there is an arrival already.
bool Polling::try_listen() {
  const ucs_status_t status = ucp_worker_arm(parts_.worker.worker());
  if (status == UCS_ERR_BUSY) return false;
  if (status != UCS_OK) panic("UCX cannot wait for messages; its status is minus", static_cast<uint64_t>(-status));
  if (!listening_.load(std::memory_order_relaxed)) listen(true);
  return true;
}

// --- Handling messages

void Polling::begin_polling() {
  pollers_.fetch_add(1, std::memory_order_seq_cst);
  begin_progress();
}

void Polling::end_polling() {
  const uint32_t left = pollers_.fetch_sub(1, std::memory_order_seq_cst) - 1;
  MG_CHECK(left != ~uint32_t{0});
  end_progress();
  wake_unless_polled();
}

void Polling::wake_unless_polled() {
  if (!parts_.dispatcher.has_messages() || pollers_.load(std::memory_order_seq_cst) != 0) return;
  if (!waking_.exchange(true, std::memory_order_seq_cst)) wake();
}

void Polling::wake() {
  const KeepErrno keep;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
}

// --- The service thread

void Polling::serve() {
  if (!precise_timers_) {
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    precise_timers_ = true;
  }
  while (true) {
    waking_.store(false, std::memory_order_seq_cst);
    if (stop_serving_.exchange(false, std::memory_order_seq_cst)) return;
    parts_.failures.check_heartbeats();
    Nanoseconds when = kNever;
    if (handle_unless_polled(when)) return;
    if (when == 0) continue;
    const Nanoseconds nap = prepare_to_sleep();
    if (nap == 0) continue;
    const Nanoseconds now = monotonic_ns();
    const Nanoseconds until = std::min({when, parts_.failures.next_check(), nap == kNever ? kNever : now + nap});
    if (until <= now) continue;
    if (when != kNever && until - now < kTimerWorthSleeping) {
      cpu_relax();
      continue;
    }
    sleep(until == kNever ? kNever : until - now);
  }
}

// Handles messages, if no other thread polls. Returns whether there were any. If there were none, `next_work` receives
// when there will be.
bool Polling::handle_unless_polled(Nanoseconds& next_work) {
  uint32_t none = 0;
  if (!pollers_.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) return false;
  unsigned handled = 0;
  while (const unsigned batch = parts_.dispatcher.poll()) {
    handled += batch;
    // A processor that has begun to wait handles the rest itself.
    if (pollers_.load(std::memory_order_relaxed) > 1) break;
  }
  const uint32_t left = pollers_.fetch_sub(1, std::memory_order_seq_cst) - 1;
  if (left == 0) next_work = parts_.dispatcher.next_work();
  return handled != 0;
}

// Sees to it that arrivals are noticed while the service thread sleeps, and returns for how long it may sleep at most;
// 0: there is something to do first.
Nanoseconds Polling::prepare_to_sleep() {
  UcxLock lock(parts_);
  lock.will_handle_messages();
  if (polling_phase_.load(std::memory_order_seq_cst)) {
    const Nanoseconds since = monotonic_ns() - last_end_.load(std::memory_order_relaxed);
    if (progressing_.load(std::memory_order_seq_cst) != 0) {
      mute();
      if (since < kPollingPhaseGap) return kPollInterval;
    } else if (since < kPollInterval && !listening_.load(std::memory_order_relaxed)) {
      return kPollInterval - since;
    }
    // The polling phase is over. A thread that ends its scope from now on sees that; this thread sees below if another
    // has ended its scope before.
    polling_phase_.store(false, std::memory_order_seq_cst);
  }
  if (progressing_.load(std::memory_order_seq_cst) != 0) {
    mute();
    return kNever;
  }
  if (!try_listen()) {
    lock.progress();
    return 0;
  }
  return kNever;
}

// Sleeps for at most this long, or until another thread or an arrival wakes this one.
void Polling::sleep(Nanoseconds longest) {
  const timespec limit{static_cast<time_t>(longest / kSecond), static_cast<long>(longest % kSecond)};
  std::array<epoll_event, 2> events{};
  const int count = epoll_pwait2(epoll_fd_, events.data(), static_cast<int>(events.size()),
                                 longest == kNever ? nullptr : &limit, nullptr);
  for (int i = 0; i < count; ++i) {
    uint64_t value = 0;
    if (events[static_cast<size_t>(i)].data.fd == event_fd_)
      if (read(event_fd_, &value, sizeof value) < 0) continue;
  }
}

void Polling::wake_service() {
  stop_serving_.store(true, std::memory_order_seq_cst);
  wake();
}

}  // namespace multigrain::ucx
