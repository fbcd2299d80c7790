/// \file
/// Multigrain's C++ interface: the C interface (multigrain.h) with ownership, exceptions and standard shapes.
///
/// Everything here is a thin inline layer; multigrain.h says what the machine, a processor, a release and an acquire
/// are, and what each operation costs. The rules that C++ adds:
///
///  Where objects live   Only what is in shared memory is shared: objects made by mg::make_unique or
///            mg::make_shared_array, or allocated by mg::allocator. A container that several nodes use must itself be
///            in shared memory, not only its elements: mg::make_unique<std::vector<int, mg::allocator<int>>>().
///            Globals and the private heap are copied to another node when processors start there, and part ways then.
///  Who destroys         mg::mutex, barrier, ... own their resource as std::unique_ptr does. A copy that another node
///            got of a private one names the same lock and may use it, but only one node may run the destructor: in a
///            program whose objects belong to main() that comes by itself. Handles hold no address and no thread
///            identity, so the objects may be members of structures in shared memory.
///            Create them in main() or later, not in constructors of globals: those run before the runtime is up.
///  Failure   std::bad_alloc when shared memory or the table of locks is used up; std::system_error, whose text
///            includes mg_error(), for everything else. Operations on locks, barriers and flags do not throw.
///  Virtual functions work in shared objects: every node runs the same executable at the same addresses.
///
/// Thread safety is that of the C functions: everything may be called from any processor, nothing from signal handlers.
#ifndef MULTIGRAIN_MULTIGRAIN_HPP
#define MULTIGRAIN_MULTIGRAIN_HPP

// One sentence rather than the errors of all that an older standard does not know: the rest is left out.
#if __cplusplus < 202002L
#error \
    "multigrain.hpp needs C++20: compile with -std=c++20 (in CMake: target_compile_features(program PRIVATE cxx_std_20))"
#else

#include <multigrain/multigrain.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace mg {

namespace detail {

/// Throws std::system_error for the negative errno value of a C function; nothing if it is 0.
inline void check(int status, const char* what) {
  if (status == 0) return;
  throw std::system_error(-status, std::generic_category(), std::string(what) + ": " + mg_error());
}

/// Creation fails only when the machine has no room for another lock, barrier, ...
template <typename Handle>
Handle created(Handle handle) {
  if (handle == 0) throw std::bad_alloc();
  return handle;
}

/// Owns one handle of the C interface. Neither copied nor moved: others hold its value.
template <typename Handle, void (*Destroy)(Handle)>
class owned_handle {
 public:
  using native_handle_type = Handle;

  explicit owned_handle(Handle handle) : handle_(created(handle)) {}
  owned_handle(const owned_handle&) = delete;
  owned_handle& operator=(const owned_handle&) = delete;
  ~owned_handle() { Destroy(handle_); }

  /// The C handle, for use with the C functions; this object still owns it.
  [[nodiscard]] Handle native_handle() const noexcept { return handle_; }

 private:
  Handle handle_;
};

}  // namespace detail

// --- The machine ------------------------------------------------------------------------------------------------

/// The calling processor, the number of them, the caller's node, the number of nodes, processors of each node (C).
[[nodiscard]] inline unsigned processor() noexcept {
  return mg_processor();
}
[[nodiscard]] inline unsigned processors() noexcept {
  return mg_processors();
}
[[nodiscard]] inline unsigned node() noexcept {
  return mg_node();
}
[[nodiscard]] inline unsigned nodes() noexcept {
  return mg_nodes();
}
[[nodiscard]] inline unsigned processors_per_node() noexcept {
  return mg_processors_per_node();
}
/// Bytes: the unit of page-grain coherence.
[[nodiscard]] inline std::size_t page_size() noexcept {
  return mg_page_size();
}
/// Whether the object's address is in shared memory.
template <typename T>
[[nodiscard]] bool is_shared(const T* object) noexcept {
  return mg_is_shared(object) != 0;
}

/// Time since the run began; a Clock in the standard's sense, the same on all nodes of one machine.
struct clock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::duration<rep, period>;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept { return time_point(duration(static_cast<rep>(mg_time_ns()))); }
};

/// Makes the caller's earlier writes visible to later acquires of any processor.
inline void release() noexcept {
  mg_release();
}

// --- Shared memory ----------------------------------------------------------------------------------------------

/// How to allocate: the members of mg_alloc_options, with the same defaults.
struct alloc_options {
  std::size_t alignment = 0;  ///< a power of two, or 0 for the default
  mg_home home = MG_HOME_DEFAULT;
  unsigned node = 0;  ///< for MG_HOME_NODE
  mg_protocol protocol = MG_PROTOCOL_DEFAULT;
  std::size_t block_size = 0;           ///< bytes, under shasta; 0 for the default
  mg_place place = MG_PLACE_BY_POLICY;  ///< under placement
};

/// `bytes` of zeroed shared memory. Throws std::bad_alloc when there is no room and std::system_error (EINVAL) for
/// options that cannot be. Freed with mg_free.
[[nodiscard]] inline void* allocate_bytes(std::size_t bytes, const alloc_options& options = {}) {
  mg_alloc_options c_options = MG_ALLOC_OPTIONS_INIT;
  c_options.alignment = options.alignment;
  c_options.home = options.home;
  c_options.node = options.node;
  c_options.protocol = options.protocol;
  c_options.block_size = options.block_size;
  c_options.place = options.place;
  void* const block = mg_alloc(bytes, &c_options);
  if (block == nullptr) {
    const int code = errno;
    if (code == ENOMEM) throw std::bad_alloc();
    detail::check(-code, "mg_alloc");
  }
  return block;
}

/// A standard allocator of shared memory. Stateless: all are equal, and any frees what any other allocated, on any
/// node. `Home` places the pages of large blocks; small blocks share pages and their placement is a hint.
template <typename T, mg_home Home = MG_HOME_DEFAULT>
class allocator {
 public:
  static_assert(Home != MG_HOME_NODE, "a stateless allocator cannot carry a node number: use make_shared_array");

  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using propagate_on_container_move_assignment = std::true_type;
  using is_always_equal = std::true_type;
  template <typename U>
  struct rebind {
    using other = allocator<U, Home>;
  };

  constexpr allocator() noexcept = default;
  template <typename U, mg_home OtherHome>
  constexpr allocator(const allocator<U, OtherHome>&) noexcept {}

  /// Throws std::bad_array_new_length or std::bad_alloc.
  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    alloc_options options;
    options.home = Home;
    if constexpr (alignof(T) > 16) options.alignment = alignof(T);
    return static_cast<T*>(allocate_bytes(count * sizeof(T), options));
  }
  void deallocate(T* block, std::size_t) noexcept { mg_free(block); }

  template <typename U, mg_home OtherHome>
  constexpr bool operator==(const allocator<U, OtherHome>&) const noexcept {
    return true;
  }
};

/// Destroys an object in shared memory and frees it.
template <typename T>
struct deleter {
  void operator()(T* object) const noexcept {
    std::destroy_at(object);
    mg_free(object);
  }
};

/// A pointer to an object in shared memory, destroyed with it. Other processors use get().
template <typename T>
using unique_ptr = std::unique_ptr<T, deleter<T> >;

/// Constructs a T in shared memory. Throws what allocate_bytes and T's constructor throw.
template <typename T, typename... Arguments>
[[nodiscard]] unique_ptr<T> make_unique(Arguments&&... arguments) {
  alloc_options options;
  if constexpr (alignof(T) > 16) options.alignment = alignof(T);
  void* const block = allocate_bytes(sizeof(T), options);
  try {
    return unique_ptr<T>(::new (block) T(std::forward<Arguments>(arguments)...));
  } catch (...) {
    mg_free(block);
    throw;
  }
}

/// Owns an array in shared memory: move-only, a contiguous range, so it converts to std::span. What other processors
/// take is span() or data(): the span stays good while the owner lives.
template <typename T>
class shared_array {
 public:
  using value_type = T;

  shared_array() noexcept = default;
  shared_array(shared_array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  shared_array& operator=(shared_array&& other) noexcept {
    shared_array taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  shared_array(const shared_array&) = delete;
  shared_array& operator=(const shared_array&) = delete;
  ~shared_array() {
    if (data_ == nullptr) return;
    std::destroy_n(data_, size_);
    mg_free(data_);
  }

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T& operator[](std::size_t index) const noexcept { return data_[index]; }
  [[nodiscard]] T* begin() const noexcept { return data_; }
  [[nodiscard]] T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] std::span<T> span() const noexcept { return {data_, size_}; }

  /// Takes over `size` constructed elements at `data`, a block from mg_alloc.
  [[nodiscard]] static shared_array adopt(T* data, std::size_t size) noexcept {
    shared_array array;
    array.data_ = data;
    array.size_ = size;
    return array;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// `count` value-initialised elements in shared memory. Elements of trivial types are zero without being touched, so
/// first-touch placement and untouched memory stay what they were. Throws what allocate_bytes and T() throw.
template <typename T>
[[nodiscard]] shared_array<T> make_shared_array(std::size_t count, alloc_options options = {}) {
  if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
  if constexpr (alignof(T) > 16) options.alignment = std::max(options.alignment, alignof(T));
  T* const data = static_cast<T*>(allocate_bytes(count * sizeof(T), options));
  // A null pointer to member is not all zeros, the one trivial type for which fresh memory will not do.
  if constexpr (!std::is_trivially_default_constructible_v<T> || std::is_member_pointer_v<T>) {
    try {
      std::uninitialized_value_construct_n(data, count);
    } catch (...) {
      mg_free(data);
      throw;
    }
  }
  return shared_array<T>::adopt(data, count);
}

// --- Synchronisation ----------------------------------------------------------------------------------------------

// Waits with a time limit. Their limits are of any clock (std::chrono::steady_clock, mg::clock, ...). The waiter looks
// again after 20 microseconds, after 40, ..., and then each millisecond: so it comes late by up to a millisecond, and
// costs a look a millisecond, which for a lock or a semaphore that another node has is a message or two. Waits
// without a limit sleep until they are woken. Where a limit is for what should not happen, long ones cost nothing more.

namespace detail {

/// Sleeps between looks: in steps, so that the intervals of a thread that waits long are long. Not beyond the limit.
class nap {
 public:
  explicit nap(std::chrono::nanoseconds first = std::chrono::microseconds(20)) : step_(first) {}
  /// Returns whether there is time left, after it has slept for some of it.
  template <typename Clock, typename Duration>
  bool until(const std::chrono::time_point<Clock, Duration>& limit) {
    const auto now = Clock::now();
    if (now >= limit) return false;
    // Long limits do not fit into nanoseconds.
    const auto left = limit - now;
    std::this_thread::sleep_for(left < step_ ? std::chrono::duration_cast<std::chrono::nanoseconds>(left) : step_);
    step_ = std::min<std::chrono::nanoseconds>(2 * step_, std::chrono::milliseconds(1));
    return true;
  }

 private:
  std::chrono::nanoseconds step_;
};

/// Tries until `try_it()` returns true, or the time has come; at least once. Returns whether it has.
template <typename Clock, typename Duration, typename Try>
bool try_until(const std::chrono::time_point<Clock, Duration>& limit, Try&& try_it) {
  nap between;
  do {
    if (try_it()) return true;
  } while (between.until(limit));
  return false;
}

/// The moment at which a wait of that length ends; the last one there is, if it is so long.
template <typename Rep, typename Period>
clock::time_point after(const std::chrono::duration<Rep, Period>& length) {
  const auto now = clock::now();
  // In double precision, since what the caller's unit can say may be too long for nanoseconds.
  using seconds = std::chrono::duration<double>;
  if (seconds(length) >= seconds(clock::time_point::max() - now)) return clock::time_point::max();
  return now + std::chrono::ceil<clock::duration>(length);
}

/// The members of a lock that have a time limit, made of try_lock.
template <typename Lock>
class timed_lock {
 public:
  /// Waits for the lock, but not longer than that. Returns whether the caller has it: then it is an acquire. A try may
  /// fail while other nodes keep asking for the lock, so use lock() where fairness matters.
  template <typename Rep, typename Period>
  [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& length) {
    return try_lock_until(after(length));
  }
  template <typename Clock, typename Duration>
  [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& limit) {
    return try_until(limit, [this] { return static_cast<Lock*>(this)->try_lock(); });
  }
};

}  // namespace detail

/// A lock that every node can take: TimedLockable, so std::lock_guard, std::unique_lock and std::scoped_lock work. Not
/// recursive. unlock is a release, lock and a successful try_lock are acquires.
class mutex : public detail::owned_handle<mg_lock_t, mg_lock_destroy>, public detail::timed_lock<mutex> {
 public:
  mutex() : owned_handle(mg_lock_create()) {}
  void lock() noexcept { mg_lock(native_handle()); }
  [[nodiscard]] bool try_lock() noexcept { return mg_trylock(native_handle()) != 0; }
  void unlock() noexcept { mg_unlock(native_handle()); }
};

/// The same lock by value, owned by somebody else: trivially copyable, so that it can be captured by a callable that is
/// sent to another processor, or stored by the thousand. TimedLockable too.
class mutex_ref : public detail::timed_lock<mutex_ref> {
 public:
  explicit mutex_ref(mg_lock_t handle) noexcept : handle_(handle) {}
  mutex_ref(const mutex& owner) noexcept : handle_(owner.native_handle()) {}
  void lock() noexcept { mg_lock(handle_); }
  [[nodiscard]] bool try_lock() noexcept { return mg_trylock(handle_) != 0; }
  void unlock() noexcept { mg_unlock(handle_); }
  [[nodiscard]] mg_lock_t native_handle() const noexcept { return handle_; }

 private:
  mg_lock_t handle_;
};

/// Waits with a std::unique_lock of mutex or mutex_ref that is locked. No spurious wake-ups, but another processor may
/// have changed the condition between the signal and the lock: use the form with a predicate, or a loop.
class condition_variable : public detail::owned_handle<mg_cond_t, mg_cond_destroy> {
 public:
  condition_variable() : owned_handle(mg_cond_create()) {}
  template <typename Mutex>
  void wait(std::unique_lock<Mutex>& lock) noexcept {
    mg_cond_wait(native_handle(), lock.mutex()->native_handle());
  }
  template <typename Mutex, typename Predicate>
  void wait(std::unique_lock<Mutex>& lock, Predicate until) {
    while (!until()) wait(lock);
  }
  /// Waits until `until()` is true, but not longer than that; returns `until()`. It needs no notification: it gives up
  /// the lock for a nap, and looks again. A notify_one wakes a processor that waits without a limit, if there is one.
  template <typename Mutex, typename Rep, typename Period, typename Predicate>
  bool wait_for(std::unique_lock<Mutex>& lock, const std::chrono::duration<Rep, Period>& length, Predicate until) {
    return wait_until(lock, detail::after(length), std::move(until));
  }
  template <typename Mutex, typename Clock, typename Duration, typename Predicate>
  bool wait_until(std::unique_lock<Mutex>& lock, const std::chrono::time_point<Clock, Duration>& limit,
                  Predicate until) {
    detail::nap between;
    while (!until()) {
      lock.unlock();
      const bool in_time = between.until(limit);
      lock.lock();
      if (!in_time) return until();
    }
    return true;
  }
  /// One nap of those: returns no_timeout within a millisecond, notified or not, and timeout once the time has come. For
  /// loops that look at their condition themselves.
  template <typename Mutex, typename Rep, typename Period>
  std::cv_status wait_for(std::unique_lock<Mutex>& lock, const std::chrono::duration<Rep, Period>& length) {
    return wait_until(lock, detail::after(length));
  }
  template <typename Mutex, typename Clock, typename Duration>
  std::cv_status wait_until(std::unique_lock<Mutex>& lock, const std::chrono::time_point<Clock, Duration>& limit) {
    lock.unlock();
    const bool in_time = detail::nap(std::chrono::microseconds(200)).until(limit);
    lock.lock();
    return in_time ? std::cv_status::no_timeout : std::cv_status::timeout;
  }
  void notify_one() noexcept { mg_cond_signal(native_handle()); }
  void notify_all() noexcept { mg_cond_broadcast(native_handle()); }
};

/// A barrier of `count` processors; 0 means all.
class barrier : public detail::owned_handle<mg_barrier_t, mg_barrier_destroy> {
 public:
  explicit barrier(unsigned count = 0) : owned_handle(mg_barrier_create(count)) {}
  /// A release, then an acquire.
  void arrive_and_wait() noexcept { mg_barrier(native_handle()); }
};

/// A counting semaphore. release is a release, acquire and a successful try_acquire are acquires.
class counting_semaphore : public detail::owned_handle<mg_sem_t, mg_sem_destroy> {
 public:
  explicit counting_semaphore(unsigned value) : owned_handle(mg_sem_create(value)) {}
  void acquire() noexcept { mg_sem_wait(native_handle()); }
  [[nodiscard]] bool try_acquire() noexcept { return mg_sem_trywait(native_handle()) != 0; }
  /// Waits for one, but not longer than that. Returns whether the caller has taken one.
  template <typename Rep, typename Period>
  [[nodiscard]] bool try_acquire_for(const std::chrono::duration<Rep, Period>& length) {
    return try_acquire_until(detail::after(length));
  }
  template <typename Clock, typename Duration>
  [[nodiscard]] bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& limit) {
    return detail::try_until(limit, [this] { return try_acquire(); });
  }
  void release(unsigned count = 1) noexcept {
    for (; count != 0; --count) mg_sem_post(native_handle());
  }
};

/// A value that starts at 0, that set() changes and that others wait for. set is a release, get and wait are acquires.
class flag : public detail::owned_handle<mg_flag_t, mg_flag_destroy> {
 public:
  flag() : owned_handle(mg_flag_create()) {}
  void set(std::uint32_t value = 1) noexcept { mg_flag_set(native_handle(), value); }
  [[nodiscard]] std::uint32_t get() const noexcept { return mg_flag_get(native_handle()); }
  /// Until the value equals `value`.
  void wait(std::uint32_t value = 1) const noexcept { mg_flag_wait(native_handle(), value); }
  /// Until the value equals `value`, but not longer than that. Returns whether it has been seen to: a value that the flag
  /// has for less than a millisecond may be missed.
  template <typename Rep, typename Period>
  [[nodiscard]] bool wait_for(std::uint32_t value, const std::chrono::duration<Rep, Period>& length) const {
    return wait_until(value, detail::after(length));
  }
  template <typename Clock, typename Duration>
  [[nodiscard]] bool wait_until(std::uint32_t value, const std::chrono::time_point<Clock, Duration>& limit) const {
    return detail::try_until(limit, [this, value] { return get() == value; });
  }
};

// --- Processors ----------------------------------------------------------------------------------------------------

namespace detail {

template <typename Callable>
void call(Callable& callable) {
  if constexpr (std::is_invocable_v<Callable&, unsigned>)
    callable(mg_processor());
  else
    callable();
}

/// What a callable must be to be copied to another node byte by byte. A by-reference capture passes this test;
/// refuse_locals() finds it.
template <typename Callable>
concept sendable = std::is_trivially_copyable_v<Callable> && std::is_trivially_destructible_v<Callable> &&
                   (std::is_invocable_v<Callable&> || std::is_invocable_v<Callable&, unsigned>);

/// Throws if the callable holds the address of a local variable of the caller: a capture by reference, or a pointer or
/// a span that was captured by value. Other nodes have another stack there. Such an address is a word of the callable:
/// no number that programs use looks like one. Only in callables of up to 256 bytes: larger ones have arrays in them,
/// perhaps with bytes that nobody has written.
template <typename Callable>
void refuse_locals([[maybe_unused]] Callable callable, [[maybe_unused]] const char* what) {
  if constexpr (!std::is_empty_v<Callable> && alignof(Callable) >= alignof(void*) && sizeof(Callable) <= 256) {
#if __has_builtin(__builtin_clear_padding)
    // Between members there may be anything, such as what was once an address.
    __builtin_clear_padding(&callable);
#endif
    for (std::size_t at = 0; at < sizeof(Callable); at += sizeof(void*)) {
      const void* word;
      std::memcpy(&word, reinterpret_cast<const char*>(&callable) + at, sizeof word);
      if (mg_is_on_stack(word) == 0) continue;
      throw std::system_error(
          EINVAL, std::generic_category(),
          std::string(what) +
              ": the callable has captured a local variable of the caller by reference, or its address (" + "bytes " +
              std::to_string(at) + " to " + std::to_string(at + sizeof word - 1) + " of its " +
              std::to_string(sizeof(Callable)) + "), and other nodes have another stack there: capture it by value, " +
              "or put it into shared memory (mg::make_unique, mg::make_shared_array) and capture a pointer or span");
    }
  }
}

template <typename Callable>
Callable* send(const Callable& callable) {
  alloc_options options;
  if constexpr (alignof(Callable) > 16) options.alignment = alignof(Callable);
  return ::new (allocate_bytes(sizeof(Callable), options)) Callable(callable);
}

/// Starts a copy of the callable on the processor, and returns what mg_spawn does. `what` is the caller, for the sentence
/// about a captured local variable.
template <typename Callable>
int start(unsigned processor, const Callable& callable, const char* what) {
  if (processor / processors_per_node() != node()) refuse_locals(callable, what);
  Callable* const block = send(callable);
  const int status = mg_spawn(
      processor,
      [](void* argument) noexcept {
        Callable mine(*static_cast<Callable*>(argument));
        mg_free(argument);
        call(mine);
      },
      block);
  if (status != 0) mg_free(block);
  return status;
}

}  // namespace detail

/// Starts `callable` on an idle processor; join() waits for it. Called on node 0. The callable, with what it captured
/// by value, is copied into a block of shared memory, from which the processor takes a copy of its own: so it must be
/// trivially copyable and may capture pointers into shared memory, numbers and mutex_refs, but neither containers by
/// value nor anything of the caller's stack by reference. If it accepts an unsigned it gets the processor's number.
/// An exception that leaves it ends the program. Throws std::system_error: EINVAL, EBUSY, EPERM as mg_spawn; EINVAL
/// also for a capture of a local variable by reference, unless the processor is on the caller's node.
template <detail::sendable Callable>
void spawn(unsigned processor, Callable callable) {
  detail::check(detail::start(processor, callable, "mg::spawn"), "mg::spawn");
}

/// Runs a copy of `callable` on every processor, the caller included, and returns when all have ended. Called on
/// processor 0 while no other processor runs. The rules for callables are those of spawn.
template <detail::sendable Callable>
void run_on_all(Callable callable) {
  if (nodes() > 1) detail::refuse_locals(callable, "mg::run_on_all");
  Callable* const block = detail::send(callable);
  const int status = mg_spawn_all(
      [](void* argument) noexcept {
        Callable mine(*static_cast<Callable*>(argument));
        detail::call(mine);
      },
      block);
  mg_free(block);
  detail::check(status, "mg::run_on_all");
}

/// Makes the program's globals shared memory (mg_share_globals). Called on node 0 before other processors run. Throws
/// std::system_error: EBUSY, EPERM, ENOTSUP.
inline void share_globals() {
  detail::check(mg_share_globals(), "mg::share_globals");
}

/// Waits until the processor is idle. An acquire. Called on node 0. Throws std::system_error: EINVAL, EPERM.
inline void join(unsigned processor) {
  detail::check(mg_join(processor), "mg::join");
}
/// Waits for all processors but the caller.
inline void join_all() {
  detail::check(mg_join_all(), "mg::join_all");
}

}  // namespace mg

#endif
#endif
