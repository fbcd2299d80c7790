/// \file
/// Multigrain: mg::thread and mg::jthread, functions that run on other processors, in the shape of std::thread.
///
/// A thread is a processor that runs the callable: there are at most mg::processors() - 1 at a time beside main(). It has
/// the processor from its start until it is joined, so that no other mg::thread is started there, also if the callable has
/// returned meanwhile. Threads are started and joined on node 0, by any of its processors, as mg::spawn and mg::join are;
/// a program does not use those for a processor that a thread has.
///
/// The callable and its arguments are copied byte by byte, so what mg::spawn says of callables is so for all of them:
/// numbers, pointers and spans into shared memory, mg::mutex_ref. Starting is a release, joining an acquire. An exception
/// that leaves the callable ends the program. A thread cannot be detached.
///
/// No function here is for signal handlers; different threads may use different objects at the same time.
#ifndef MULTIGRAIN_THREAD_HPP
#define MULTIGRAIN_THREAD_HPP

#include <multigrain/multigrain.hpp>

#if __cplusplus >= 202002L  // multigrain.hpp says so otherwise

#include <atomic>
#include <cerrno>
#include <exception>
#include <functional>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

namespace mg {

namespace detail {

/// Whether a thread has the processor. Private to node 0, where alone it is used.
inline std::atomic<bool>& has_thread(unsigned processor) {
  static const std::unique_ptr<std::atomic<bool>[]> all(new std::atomic<bool>[processors()]());
  return all[processor];
}

}  // namespace detail

/// Names the processor on which a thread is to run.
struct on_processor {
  unsigned number;
};

/// A callable that runs on another processor. Move-only; a thread that is not joined when it is destroyed ends the program,
/// as std::thread does.
class thread {
 public:
  /// No thread.
  thread() noexcept = default;

  /// Calls `callable(arguments...)` on the idle processor with the lowest number. Throws std::system_error:
  /// resource_unavailable_try_again (EAGAIN) if all processors have something to do, EPERM on another node than 0, EINVAL
  /// if something of it is a local variable's address and the processor is on another node; std::bad_alloc.
  template <typename Callable, typename... Arguments>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, thread> &&
             !std::is_same_v<std::remove_cvref_t<Callable>, on_processor>)
  explicit thread(Callable&& callable, Arguments&&... arguments) {
    const auto work = packed(std::forward<Callable>(callable), std::forward<Arguments>(arguments)...);
    for (unsigned p = 1; p < processors(); ++p)
      if (start_on(p, work)) return;
    throw std::system_error(EAGAIN, std::generic_category(),
                            "mg::thread: all " + std::to_string(processors()) +
                                " processors have something to do (mgrun --nodes, --procs-per-node)");
  }

  /// The same on that processor. EAGAIN if it has something to do, EINVAL if there is no such processor.
  template <typename Callable, typename... Arguments>
  explicit thread(on_processor where, Callable&& callable, Arguments&&... arguments) {
    const auto work = packed(std::forward<Callable>(callable), std::forward<Arguments>(arguments)...);
    if (where.number >= processors())
      throw std::system_error(EINVAL, std::generic_category(),
                              "mg::thread: there is no processor " + std::to_string(where.number) +
                                  ": the machine has " + std::to_string(processors()));
    if (!start_on(where.number, work))
      throw std::system_error(EAGAIN, std::generic_category(),
                              "mg::thread: processor " + std::to_string(where.number) + " has something to do");
  }

  thread(thread&& other) noexcept : processor_(std::exchange(other.processor_, 0)) {}
  thread& operator=(thread&& other) noexcept {
    if (joinable()) std::terminate();
    processor_ = std::exchange(other.processor_, 0);
    return *this;
  }
  thread(const thread&) = delete;
  thread& operator=(const thread&) = delete;
  ~thread() {
    if (joinable()) std::terminate();
  }
  void swap(thread& other) noexcept { std::swap(processor_, other.processor_); }

  [[nodiscard]] bool joinable() const noexcept { return processor_ != 0; }
  /// The number of its processor; 0, main()'s, if this is no thread.
  [[nodiscard]] unsigned processor() const noexcept { return processor_; }
  /// Waits until the callable has returned, and gives the processor back. An acquire. Throws std::system_error: EINVAL if
  /// it is not joinable, or is the caller itself; EPERM on another node than 0.
  void join() {
    if (!joinable()) detail::check(-EINVAL, "mg::thread::join: there is no thread");
    detail::check(mg_join(processor_), "mg::thread::join");
    detail::has_thread(std::exchange(processor_, 0)) = false;
  }
  /// How many processors there are, main()'s included.
  [[nodiscard]] static unsigned hardware_concurrency() noexcept { return processors(); }

 private:
  template <typename Callable, typename... Arguments>
  static auto packed(Callable&& callable, Arguments&&... arguments) {
    static_assert(std::is_trivially_copyable_v<std::decay_t<Callable>> &&
                      (std::is_trivially_copyable_v<std::decay_t<Arguments>> && ...),
                  "a callable and its arguments are copied to another node byte by byte: pass numbers, pointers and "
                  "spans into shared memory, and mg::mutex_ref");
    static_assert(std::is_invocable_v<std::decay_t<Callable>&, std::decay_t<Arguments>&...>);
    return [callable = std::decay_t<Callable>(std::forward<Callable>(callable)),
            ... arguments = std::decay_t<Arguments>(std::forward<Arguments>(arguments))]() mutable {
      std::invoke(callable, arguments...);
    };
  }

  /// Returns whether the thread runs there now; false if the processor has something to do.
  template <typename Work>
  bool start_on(unsigned processor, const Work& work) {
    if (node() != 0) detail::check(mg_spawn(processor, nullptr, nullptr), "mg::thread");  // EPERM, with its sentence
    std::atomic<bool>& is_taken = detail::has_thread(processor);
    if (is_taken.exchange(true)) return false;
    int status = -EBUSY;
    try {
      status = detail::start(processor, work, "mg::thread");
    } catch (...) {
      is_taken = false;
      throw;
    }
    if (status == 0) {
      processor_ = processor;
      return true;
    }
    is_taken = false;
    if (status != -EBUSY) detail::check(status, "mg::thread");
    return false;
  }

  unsigned processor_ = 0;
};

/// A thread that joins itself when it is destroyed, or something else is moved to it.
class jthread {
 public:
  jthread() noexcept = default;
  /// As thread's.
  template <typename... Arguments>
    requires(sizeof...(Arguments) > 0 && !(std::is_same_v<std::remove_cvref_t<Arguments>, jthread> || ...))
  explicit jthread(Arguments&&... arguments) : thread_(std::forward<Arguments>(arguments)...) {}
  jthread(jthread&&) noexcept = default;
  jthread& operator=(jthread&& other) {
    if (this == &other) return *this;
    if (joinable()) join();
    thread_ = std::move(other.thread_);
    return *this;
  }
  jthread(const jthread&) = delete;
  jthread& operator=(const jthread&) = delete;
  ~jthread() {
    if (joinable()) join();
  }
  void swap(jthread& other) noexcept { thread_.swap(other.thread_); }
  [[nodiscard]] bool joinable() const noexcept { return thread_.joinable(); }
  [[nodiscard]] unsigned processor() const noexcept { return thread_.processor(); }
  void join() { thread_.join(); }
  [[nodiscard]] static unsigned hardware_concurrency() noexcept { return processors(); }

 private:
  thread thread_;
};

}  // namespace mg

#endif
#endif
