/// \file
/// Multigrain: tasks, small pieces of work that the processors of all nodes take from each other.
///
///   mg::run_tasks([data](mg::tasks& tasks) {            // on processor 0, while no other processor runs
///     tasks.spawn([data](mg::tasks& t) { left(data, t); });    // another processor may take it, on any node
///     right(data, tasks);
///   });                                                 // returns when all tasks have ended
///
/// Each processor has a queue in shared memory, with a lock of Multigrain's. It puts its tasks there and takes the
/// latest first; a processor that has nothing takes the oldest of another's: of its own node first. The lock brings the
/// queue and everything that was written before a task was spawned along to the node that takes it, under every protocol.
/// A processor that finds nothing leaves a note in each queue, and sleeps until one of those processors has a task for it.
///
/// What is seen: a task sees what was written before it was spawned; after group.wait() the caller sees what the tasks of
/// the group wrote; after run_tasks, what all wrote. Tasks that write the same data at the same time need a lock.
///
/// A task is a callable that is copied byte by byte, of at most 104 bytes: it captures numbers, pointers and spans into
/// shared memory by value. It takes an mg::tasks&, or nothing. An exception that leaves it ends the program. It may wait for
/// groups, locks and whatever else will come, but not for a barrier of all processors. Not for signal handlers.
///
/// Spawning a task takes a lock that its node mostly has. A task that moves to another node costs what a lock from there
/// and some pages cost (mgbench): let it be work for several times as long.
#ifndef MULTIGRAIN_TASKS_HPP
#define MULTIGRAIN_TASKS_HPP

#include <multigrain/multigrain.hpp>

#if __cplusplus >= 202002L  // multigrain.hpp says so otherwise

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace mg {

class tasks;

namespace detail {

/// What a task group consists of, in shared memory; used under its lock. `waiter` is 1 + the processor that sleeps until
/// no task of the group is left; 0: none does.
struct task_group_state {
  mutex guard;
  std::uint64_t pending = 0;
  unsigned waiter = 0;
};

struct task {
  static constexpr std::size_t capacity = 104;
  void (*run)(void* callable, tasks& on);
  task_group_state* group;  // null if it belongs to none
  alignas(16) unsigned char callable[capacity];
};

/// A processor's queue. All but its owner's semaphore is used under its lock.
///
///  Q1  first <= last. Tasks `first` up to `last`, by number, are in the ring; the others are over, or some processor has
///      taken them.
///  Q2  balance is how many tasks this processor has spawned minus how many it has ended (it may be negative: tasks that it
///      took). Each task counts from before it is in a queue until it has ended. So, while all queues are locked, the sum
///      is the number of tasks that have not ended, and once that is 0 with the first task ended, no task can come.
///  Q3  A processor that sleeps has, since it last found any task, seen each other queue empty and set its note there under
///      the same lock. So whoever puts a task into a queue afterwards finds the note, takes it away, and wakes it.
struct task_queue {
  static constexpr std::uint64_t capacity = 512;
  static constexpr unsigned most_processors = 16384;

  mutex guard;
  counting_semaphore wake{0};  // of the owner
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::int64_t balance = 0;
  bool is_over = false;     // no task will come
  std::uint32_t notes = 0;  // how many notes there are
  std::uint64_t note[most_processors / 64] = {};
  task ring[capacity];
};

struct task_pool {
  task_queue** queues;  // of each processor, at its node
  unsigned processors;
};

}  // namespace detail

/// The processor's way to the tasks of one run_tasks. A task gets it as its argument, and neither keeps it nor hands it to
/// another task.
class tasks {
 public:
  /// Lets `callable` be called once, on any processor, as callable(tasks&) or callable(). run_tasks returns after it has ended.
  /// If 512 tasks of this processor wait already, it is called at once. Throws std::system_error (EINVAL) if it has captured a
  /// local variable's address, in runs of several nodes.
  template <typename Callable>
  void spawn(Callable callable) {
    spawn_in(nullptr, std::move(callable));
  }

  tasks(const tasks&) = delete;
  tasks& operator=(const tasks&) = delete;

 private:
  friend class task_group;
  template <typename Callable>
  friend void run_tasks(Callable callable);

  tasks(detail::task_pool* pool, unsigned me) : pool_(*pool), me_(me), own_(*pool->queues[me]) {}

  template <typename Callable>
  static void call(Callable& callable, tasks& on) {
    if constexpr (std::is_invocable_v<Callable&, tasks&>)
      callable(on);
    else
      callable();
  }

  template <typename Callable>
  void spawn_in(detail::task_group_state* group, Callable callable) {
    static_assert(std::is_invocable_v<Callable&, tasks&> || std::is_invocable_v<Callable&>,
                  "a task is called with an mg::tasks&, or without an argument");
    static_assert(
        std::is_trivially_copyable_v<Callable> && std::is_trivially_destructible_v<Callable>,
        "a task is copied to another node byte by byte: capture numbers, pointers and spans into shared memory");
    static_assert(sizeof(Callable) <= detail::task::capacity && alignof(Callable) <= 16,
                  "a task has at most 104 bytes: put more into shared memory and capture a pointer");
    if (nodes() > 1) detail::refuse_locals(callable, "mg::tasks::spawn");
    if (group != nullptr) {
      const std::lock_guard held(group->guard);
      ++group->pending;
    }
    unsigned sleeper = 0;
    {
      const std::lock_guard held(own_.guard);
      ++own_.balance;
      if (own_.last - own_.first == detail::task_queue::capacity) {
        sleeper = pool_.processors;  // there is no room
      } else {
        detail::task& place = own_.ring[own_.last++ % detail::task_queue::capacity];
        place.run = [](void* copy, tasks& on) { call(*std::launder(static_cast<Callable*>(copy)), on); };
        place.group = group;
        ::new (static_cast<void*>(place.callable)) Callable(callable);
        sleeper = take_note();
      }
    }
    if (sleeper == pool_.processors) {
      call(callable, *this);
      end(group);
    } else if (sleeper != me_) {
      pool_.queues[sleeper]->wake.release();
    }
  }

  /// Takes the note of one processor out of the own queue, under its lock: of one behind this, as a neighbour often is. Returns the
  /// processor; its own number if there is none.
  unsigned take_note() {
    if (own_.notes == 0) return me_;
    for (unsigned i = 1; i < pool_.processors; ++i) {
      const unsigned p = (me_ + i) % pool_.processors;
      std::uint64_t& word = own_.note[p / 64];
      const std::uint64_t bit = std::uint64_t{1} << p % 64;
      if ((word & bit) == 0) continue;
      word &= ~bit;
      --own_.notes;
      return p;
    }
    return me_;
  }

  /// A task has ended.
  void end(detail::task_group_state* group) {
    if (group != nullptr) {
      const std::lock_guard held(group->guard);
      if (--group->pending == 0 && group->waiter != 0)
        pool_.queues[std::exchange(group->waiter, 0) - 1]->wake.release();
    }
    const std::lock_guard held(own_.guard);
    --own_.balance;
  }

  /// Takes a task out of a queue, under its lock.
  static bool take(detail::task_queue& queue, bool latest, detail::task& taken) {
    if (queue.first == queue.last) return false;
    taken = queue.ring[(latest ? --queue.last : queue.first++) % detail::task_queue::capacity];
    return true;
  }

  void execute(detail::task& taken) {
    taken.run(taken.callable, *this);
    end(taken.group);
  }

  /// Executes one task, if there is one. If there is none, this processor's note is in each other queue afterwards.
  bool execute_one() {
    detail::task taken;
    {
      const std::lock_guard held(own_.guard);
      if (!take(own_, true, taken)) taken.run = nullptr;
    }
    // The processors of the own node, and then those behind it, each beginning behind this.
    const unsigned of_node = processors_per_node();
    const unsigned node = me_ / of_node;
    for (unsigned n = 0; taken.run == nullptr && n < pool_.processors / of_node; ++n)
      for (unsigned i = 0; taken.run == nullptr && i < of_node; ++i) {
        const unsigned victim = (node + n) % (pool_.processors / of_node) * of_node + (me_ + i) % of_node;
        if (victim == me_) continue;
        detail::task_queue& queue = *pool_.queues[victim];
        const std::lock_guard held(queue.guard);
        if (take(queue, false, taken)) break;
        std::uint64_t& word = queue.note[me_ / 64];
        const std::uint64_t bit = std::uint64_t{1} << me_ % 64;
        if ((word & bit) == 0) ++queue.notes;
        word |= bit;
      }
    if (taken.run == nullptr) return false;
    execute(taken);
    return true;
  }

  /// Returns whether no task is left anywhere (Q2). Then every processor will find so, and those that sleep are woken.
  bool is_over() {
    {
      const std::lock_guard held(own_.guard);
      if (own_.is_over) return true;
    }
    std::int64_t left = 0;
    for (unsigned p = 0; p < pool_.processors; ++p) pool_.queues[p]->guard.lock();
    for (unsigned p = 0; p < pool_.processors; ++p) left += pool_.queues[p]->balance;
    for (unsigned p = 0; p < pool_.processors; ++p) {
      if (left == 0) pool_.queues[p]->is_over = true;
      pool_.queues[p]->guard.unlock();
    }
    if (left != 0) return false;
    for (unsigned p = 0; p < pool_.processors; ++p)
      if (p != me_) pool_.queues[p]->wake.release();
    return true;
  }

  /// Executes tasks until none is left.
  void work() {
    while (true) {
      if (execute_one()) continue;
      if (is_over()) return;
      own_.wake.acquire();
    }
  }

  /// Executes tasks until none of the group is left.
  void work_for(detail::task_group_state& group) {
    while (true) {
      {
        const std::lock_guard held(group.guard);
        group.waiter = 0;
        if (group.pending == 0) return;
      }
      if (execute_one()) continue;
      {
        const std::lock_guard held(group.guard);
        if (group.pending == 0) return;
        group.waiter = me_ + 1;
      }
      own_.wake.acquire();
    }
  }

  detail::task_pool& pool_;
  const unsigned me_;
  detail::task_queue& own_;
};

/// Tasks that one waits for together: those of a fork and join. It belongs to the task that made it, which waits for it before
/// it ends (the destructor waits, too), and alone waits for it; any task that has been handed its address may not use it.
class task_group {
 public:
  /// Throws std::bad_alloc.
  explicit task_group(tasks& on) : tasks_(on), state_(make_unique<detail::task_group_state>()) {}
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;
  ~task_group() { wait(); }

  /// As tasks::spawn.
  template <typename Callable>
  void spawn(Callable callable) {
    tasks_.spawn_in(state_.get(), std::move(callable));
  }
  /// Until all tasks of the group have ended. Meanwhile the processor executes tasks, those of others, too, so that the stack
  /// grows with their number. An acquire of what they wrote.
  void wait() { tasks_.work_for(*state_); }

 private:
  tasks& tasks_;
  unique_ptr<detail::task_group_state> state_;
};

/// Calls `callable(tasks&)` on processor 0, and the tasks that it spawns, and those that they spawn, on all processors. Returns
/// when all have ended. Called on processor 0 while no other processor runs; `callable` is copied as mg::run_on_all does it.
/// Throws what mg::run_on_all throws, and std::bad_alloc.
template <typename Callable>
void run_tasks(Callable callable) {
  static_assert(std::is_invocable_v<Callable&, tasks&>, "mg::run_tasks calls it with an mg::tasks&");
  static_assert(std::is_trivially_copyable_v<Callable> && std::is_trivially_destructible_v<Callable>);
  const unsigned all = processors();
  if (all > detail::task_queue::most_processors) detail::check(-EINVAL, "mg::run_tasks: too many processors");
  const auto queues = make_shared_array<detail::task_queue*>(all);
  struct destroy_queues {
    std::span<detail::task_queue*> queues;
    ~destroy_queues() {
      for (detail::task_queue* const queue : queues)
        if (queue != nullptr) deleter<detail::task_queue>()(queue);
    }
  } const owner{queues.span()};
  for (unsigned p = 0; p < all; ++p) {
    alloc_options placed;
    placed.home = MG_HOME_NODE;
    placed.node = p / processors_per_node();
    void* const block = allocate_bytes(sizeof(detail::task_queue), placed);
    try {
      queues[p] = ::new (block) detail::task_queue;
    } catch (...) {
      mg_free(block);
      throw;
    }
  }
  const auto pool = make_unique<detail::task_pool>(queues.data(), all);
  queues[0]->balance = 1;  // the first task
  struct first_task {
    detail::task_pool* pool;
    [[no_unique_address]] Callable callable;
    void operator()(unsigned me) {
      tasks here(pool, me);
      if (me == 0) {
        callable(here);
        here.end(nullptr);
      }
      here.work();
    }
  };
  run_on_all(first_task{pool.get(), callable});
}

}  // namespace mg

#endif
#endif
