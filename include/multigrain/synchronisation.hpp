/// \file
/// Multigrain: a reader-writer lock, a latch and call_once, for the processors of all nodes, under every protocol.
///
/// What each of these consists of is in a block of shared memory that the object owns, and is changed under a lock of
/// Multigrain's, which brings it along. So the object itself may be anywhere where its users find it: in shared memory
/// (mg::make_unique), or in a global or on the heap of main() before processors are started. It is made in main() or
/// later, it is neither copied nor moved, and one node destroys it, when nobody uses it any more.
///
/// Constructors throw std::bad_alloc when there is no room for another lock or for its memory. All other functions may be
/// called from any processor or thread, and from no signal handler; what they throw is said with them.
#ifndef MULTIGRAIN_SYNCHRONISATION_HPP
#define MULTIGRAIN_SYNCHRONISATION_HPP

#include <multigrain/multigrain.hpp>

#if __cplusplus >= 202002L  // multigrain.hpp says so otherwise

#include <cstddef>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace mg {

namespace detail {

struct shared_mutex_state {
  mutex guard;  // of what follows
  condition_variable changed;
  unsigned readers = 0;
  unsigned writers_waiting = 0;
  bool is_written = false;

  [[nodiscard]] bool may_read() const { return !is_written && writers_waiting == 0; }
  [[nodiscard]] bool may_write() const { return !is_written && readers == 0; }
};

/// The members of a shared_mutex and of a reference to one.
template <typename Derived>
class shared_mutex_operations : public timed_lock<Derived> {
 public:
  /// Waits until no reader and no other writer has it. An acquire.
  void lock() {
    shared_mutex_state& it = state();
    std::unique_lock held(it.guard);
    ++it.writers_waiting;
    it.changed.wait(held, [&it] { return it.may_write(); });
    --it.writers_waiting;
    it.is_written = true;
  }
  /// Takes it if that is possible at once. An acquire, if so.
  [[nodiscard]] bool try_lock() {
    shared_mutex_state& it = state();
    const std::lock_guard held(it.guard);
    if (!it.may_write()) return false;
    it.is_written = true;
    return true;
  }
  /// A release.
  void unlock() {
    shared_mutex_state& it = state();
    const std::lock_guard held(it.guard);
    it.is_written = false;
    it.changed.notify_all();
  }

  /// Waits until no writer has it or waits for it. An acquire. A processor that reads already must not call it again:
  /// it would wait for a writer that waits for it.
  void lock_shared() {
    shared_mutex_state& it = state();
    std::unique_lock held(it.guard);
    it.changed.wait(held, [&it] { return it.may_read(); });
    ++it.readers;
  }
  [[nodiscard]] bool try_lock_shared() {
    shared_mutex_state& it = state();
    const std::lock_guard held(it.guard);
    if (!it.may_read()) return false;
    ++it.readers;
    return true;
  }
  /// A release.
  void unlock_shared() {
    shared_mutex_state& it = state();
    const std::lock_guard held(it.guard);
    if (--it.readers == 0) it.changed.notify_all();
  }
  /// As try_lock_for and try_lock_until, for readers.
  template <typename Rep, typename Period>
  [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& length) {
    return try_lock_shared_until(after(length));
  }
  template <typename Clock, typename Duration>
  [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& limit) {
    return try_until(limit, [this] { return try_lock_shared(); });
  }

 private:
  [[nodiscard]] shared_mutex_state& state() const { return static_cast<const Derived*>(this)->shared_state(); }
};

}  // namespace detail

/// A lock that one writer or many readers have: std::unique_lock, std::lock_guard and std::shared_lock work. Writers come
/// before readers that come later, and readers wait as long as writers keep coming. Not recursive. Each lock
/// and unlock takes an mg::mutex for a moment: it pays where readers keep it for long.
class shared_mutex : public detail::shared_mutex_operations<shared_mutex> {
 public:
  shared_mutex() : state_(make_unique<detail::shared_mutex_state>()) {}
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;

 private:
  friend class detail::shared_mutex_operations<shared_mutex>;
  friend class shared_mutex_ref;
  [[nodiscard]] detail::shared_mutex_state& shared_state() const { return *state_; }

  unique_ptr<detail::shared_mutex_state> state_;
};

/// The same lock by value, owned by somebody else: trivially copyable, for callables that are sent to other processors.
class shared_mutex_ref : public detail::shared_mutex_operations<shared_mutex_ref> {
 public:
  shared_mutex_ref(const shared_mutex& owner) noexcept : state_(owner.state_.get()) {}

 private:
  friend class detail::shared_mutex_operations<shared_mutex_ref>;
  [[nodiscard]] detail::shared_mutex_state& shared_state() const { return *state_; }

  detail::shared_mutex_state* state_;
};

/// Counts down to 0 once; who waits goes on then. Not used again.
class latch {
 public:
  /// `count` is how often it is counted down, at least 0.
  explicit latch(std::ptrdiff_t count) : state_(make_unique<state>()) {
    state_->left = count;
    if (count == 0) state_->is_down.set();
  }
  latch(const latch&) = delete;
  latch& operator=(const latch&) = delete;

  /// A release: those who have waited see what was written before each call. By no more in all than the count.
  void count_down(std::ptrdiff_t by = 1) {
    const std::lock_guard held(state_->guard);
    state_->left -= by;
    // Under the lock, so that the object may be destroyed as soon as a wait has returned and this call has.
    if (by != 0 && state_->left == 0) state_->is_down.set();
  }
  /// Whether it has come to 0. An acquire.
  [[nodiscard]] bool try_wait() const { return state_->is_down.get() != 0; }
  /// Until it has come to 0. An acquire.
  void wait() const { state_->is_down.wait(); }
  /// Until then, but not longer than that. Returns whether it has come to 0.
  template <typename Rep, typename Period>
  [[nodiscard]] bool wait_for(const std::chrono::duration<Rep, Period>& length) const {
    return state_->is_down.wait_for(1, length);
  }
  void arrive_and_wait(std::ptrdiff_t by = 1) {
    count_down(by);
    wait();
  }

 private:
  struct state {
    mutex guard;
    flag is_down;
    std::ptrdiff_t left = 0;
  };
  unique_ptr<state> state_;
};

class once_flag;
template <typename Callable, typename... Arguments>
void call_once(once_flag& once, Callable&& callable, Arguments&&... arguments);

/// Says whether a call_once with it has been done. Unlike std::once_flag it is made in main() or later.
class once_flag {
 public:
  once_flag() : state_(make_unique<state>()) {}
  once_flag(const once_flag&) = delete;
  once_flag& operator=(const once_flag&) = delete;

 private:
  template <typename Callable, typename... Arguments>
  friend void call_once(once_flag& once, Callable&& callable, Arguments&&... arguments);

  enum class stage { never, runs, done };
  struct state {
    mutex guard;
    condition_variable changed;
    stage now = stage::never;
  };
  unique_ptr<state> state_;
};

/// Calls the callable, on the calling processor, if no call with this flag has returned yet, on any node; if one runs,
/// waits for it. Afterwards the caller sees what the callable wrote to shared memory: an acquire. What it wrote to globals
/// stays on its node. Each call takes a lock for a moment. An exception of the callable comes out of the call that ran
/// it, and leaves the flag as it was: the next caller tries. The callable must not use the same flag.
template <typename Callable, typename... Arguments>
void call_once(once_flag& once, Callable&& callable, Arguments&&... arguments) {
  once_flag::state& it = *once.state_;
  using stage = once_flag::stage;
  {
    std::unique_lock held(it.guard);
    it.changed.wait(held, [&it] { return it.now != stage::runs; });
    if (it.now == stage::done) return;
    it.now = stage::runs;
  }
  struct set_stage {
    once_flag::state& it;
    stage next = stage::never;
    ~set_stage() {
      const std::lock_guard held(it.guard);
      it.now = next;
      it.changed.notify_all();
    }
  } afterwards{it};
  std::invoke(std::forward<Callable>(callable), std::forward<Arguments>(arguments)...);
  afterwards.next = stage::done;
}

}  // namespace mg

#endif
#endif
