// This tests shared_mutex, latch, call_once, waits with time limits and threads. The argument is the number of rounds.
#include <multigrain/synchronisation.hpp>
#include <multigrain/thread.hpp>
#include <stdexcept>
#include <vector>

#include "program.h"

namespace {

using namespace std::chrono_literals;

struct Shared {
  mg::mutex mutex;
  mg::condition_variable changed;
  mg::counting_semaphore semaphore{0};
  mg::flag flag;
  mg::barrier barrier;
  mg::shared_mutex table_lock;
  uint64_t table[600] = {};  // spans pages
  uint64_t reads = 0;
  uint64_t value = 0;
  unsigned inside = 0;  // readers, under `mutex`
  unsigned most_inside = 0;
};

template <typename Function>
int code_of(Function&& function) {
  try {
    function();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

// Writers leave all entries equal, so a reader that finds two that differ has met a writer.
void readers_and_writers(Shared& it, unsigned me, unsigned rounds) {
  mg::shared_mutex_ref lock(it.table_lock);
  for (unsigned i = 0; i < rounds; ++i) {
    if ((i + me) % 4 == 0) {
      const std::unique_lock writing(lock);
      const uint64_t next = it.table[0] + 1;
      for (uint64_t& entry : it.table) {
        REQUIRE(entry == next - 1);
        entry = next;
      }
    } else {
      const std::shared_lock reading(it.table_lock);
      const uint64_t now = it.table[0];
      for (const uint64_t& entry : it.table) REQUIRE(entry == now);
      const std::lock_guard held(it.mutex);
      ++it.reads;
    }
  }
  it.barrier.arrive_and_wait();
  REQUIRE(it.table[7] + it.reads == uint64_t{rounds} * mg::processors());
  it.barrier.arrive_and_wait();
}

// All readers are inside together: each waits there for the others.
void readers_are_together(Shared& it) {
  {
    const std::shared_lock reading(it.table_lock);
    std::unique_lock held(it.mutex);
    it.most_inside = std::max(it.most_inside, ++it.inside);
    it.changed.notify_all();
    it.changed.wait(held, [&it] { return it.most_inside == mg::processors(); });
    --it.inside;
    REQUIRE(!it.table_lock.try_lock());
  }
  it.barrier.arrive_and_wait();
}

// A writer is not kept out by readers that come after it.
void writer_comes_first(Shared& it, unsigned me) {
  if (mg::processors() < 2) return;
  if (me == 0) it.table_lock.lock_shared();
  it.barrier.arrive_and_wait();
  if (me == 1) {
    it.table_lock.lock();
    it.value = 1;
    it.table_lock.unlock();
  } else if (me == 0) {
    // Until the writer waits, readers come in.
    while (it.table_lock.try_lock_shared()) it.table_lock.unlock_shared();
    REQUIRE(it.value == 0);
    it.table_lock.unlock_shared();
    it.table_lock.lock_shared();
    it.table_lock.unlock_shared();
  }
  it.barrier.arrive_and_wait();
  REQUIRE(it.value == 1);
  it.barrier.arrive_and_wait();
  if (me == 0) it.value = 0;
  it.barrier.arrive_and_wait();
}

void latches(Shared& it, mg::latch** made, unsigned me, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    if (me == 0) *made = new (mg_alloc(sizeof(mg::latch), nullptr)) mg::latch(mg::processors());
    it.table[8 * me] = i + 1;
    it.barrier.arrive_and_wait();
    mg::latch& latch = **made;
    if (i % 2 == 0) {
      latch.arrive_and_wait();
    } else {
      it.table[8 * me] = i + 2;
      latch.count_down();
      REQUIRE(i % 4 == 1 || latch.wait_for(1h));
      latch.wait();
    }
    REQUIRE(latch.try_wait());
    for (unsigned p = 0; p < mg::processors(); ++p) REQUIRE(it.table[8 * p] == i + 1 + i % 2);
    it.barrier.arrive_and_wait();
    if (me == 0) {
      std::destroy_at(*made);
      mg_free(*made);
    }
  }
}

void once(Shared& it, mg::once_flag* flags, unsigned me, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    // Half of them throw the first time, on whichever processor that is.
    bool threw = false;
    try {
      mg::call_once(flags[i], [&it, i] {
        if (it.table[i]++ == 0 && i % 2 == 0) throw std::runtime_error("the first time");
        it.reads = i;
      });
    } catch (const std::runtime_error&) {
      threw = true;
      mg::call_once(flags[i], [&it, i](unsigned value) { it.table[i] = 2, it.reads = value; }, i);
    }
    (void)threw;
    REQUIRE(it.table[i] == 1 + (i + 1) % 2 && it.reads == i);
    it.barrier.arrive_and_wait();
  }
  (void)me;
}

// Takes longer than `least`, and returns whether it was true.
template <typename Function>
bool lasts(std::chrono::nanoseconds least, Function&& function) {
  const auto before = mg::clock::now();
  const bool result = function();
  REQUIRE(mg::clock::now() - before >= least);
  return result;
}

void time_limits(Shared& it, unsigned me, unsigned rounds) {
  const unsigned all = mg::processors();
  if (me == 0) it.mutex.lock();
  it.barrier.arrive_and_wait();
  // What is not to be had.
  if (me != 0) REQUIRE(!lasts(5ms, [&it] { return it.mutex.try_lock_for(5ms); }));
  REQUIRE(!lasts(3ms, [&it] { return it.semaphore.try_acquire_for(3ms); }));
  REQUIRE(!it.semaphore.try_acquire_until(mg::clock::now() - 1s));
  REQUIRE(!lasts(3ms, [&it] { return it.flag.wait_for(4, 3ms); }));
  it.barrier.arrive_and_wait();
  if (me == 0) it.mutex.unlock();
  {
    std::unique_lock held(it.mutex, 1h);
    REQUIRE(held.owns_lock());
    REQUIRE(!it.changed.wait_for(held, 2ms, [] { return false; }) && held.owns_lock());
    while (it.changed.wait_until(held, mg::clock::now() - 1ns) != std::cv_status::timeout) {
    }
    const auto limit = std::chrono::steady_clock::now() + 2ms;
    while (it.changed.wait_until(held, limit) != std::cv_status::timeout) {
    }
    REQUIRE(std::chrono::steady_clock::now() >= limit);
    REQUIRE(it.changed.wait_for(held, std::chrono::hours::max(), [] { return true; }));
  }
  it.barrier.arrive_and_wait();
  // What comes in time, in turn: each hands on to the next, waiting in one way or another.
  for (unsigned i = 0; i < rounds; ++i) {
    for (unsigned turn = 0; turn < all; ++turn) {
      const uint32_t number = i * all + turn + 1;
      if (turn == me) {
        std::unique_lock held(it.mutex, std::chrono::steady_clock::now() + 1h);
        it.value = number;
        held.unlock();
        it.changed.notify_all();
        it.flag.set(number);
        it.semaphore.release(all - 1);
      } else if ((i + me) % 3 == 0) {
        std::unique_lock held(it.mutex);
        REQUIRE(it.changed.wait_for(held, 1h, [&it, number] { return it.value == number; }));
        held.unlock();
        REQUIRE(it.semaphore.try_acquire_for(1h));
      } else if ((i + me) % 3 == 1) {
        REQUIRE(it.flag.wait_for(number, 1h));
        it.semaphore.acquire();
      } else {
        std::unique_lock held(it.mutex);
        it.changed.wait(held, [&it, number] { return it.value == number; });
        held.unlock();
        REQUIRE(it.semaphore.try_acquire_until(std::chrono::system_clock::now() + 1h));
      }
      it.barrier.arrive_and_wait();
    }
  }
  // Try-locks with a time limit, of all at once, while others hold it for a moment.
  for (unsigned i = 0; i < rounds; ++i) {
    if (!it.table_lock.try_lock_for(1h)) std::abort();
    ++it.table[0];
    it.table_lock.unlock();
    REQUIRE(it.table_lock.try_lock_shared_for(1h));
    it.table_lock.unlock_shared();
    mg::mutex_ref lock(it.mutex);
    REQUIRE(lock.try_lock_until(std::chrono::steady_clock::now() + 1h));
    ++it.value;
    lock.unlock();
  }
  it.barrier.arrive_and_wait();
}

void threads(Shared& it, unsigned rounds) {
  const unsigned others = mg::processors() - 1;
  uint64_t* const sum = &it.value;
  *sum = 0;
  mg::mutex_ref lock(it.mutex);
  REQUIRE(!mg::thread().joinable() && !mg::jthread().joinable());
  REQUIRE(code_of([] { mg::thread().join(); }) == EINVAL);
  for (unsigned i = 0; i < rounds; ++i) {
    std::vector<mg::thread> all;
    for (unsigned t = 0; t < others; ++t)
      all.emplace_back(
          [sum, lock](unsigned number, long factor) mutable {
            const std::lock_guard held(lock);
            *sum += number * static_cast<uint64_t>(factor);
          },
          t + 1, 10L);
    // All processors have a thread, also those whose callable has returned.
    REQUIRE(code_of([] { mg::thread none([] {}); }) == EAGAIN);
    if (others != 0) REQUIRE(code_of([others] { mg::thread none(mg::on_processor{others}, [] {}); }) == EAGAIN);
    for (unsigned t = 0; t < others; ++t) {
      REQUIRE(all[t].joinable() && all[t].processor() == t + 1);
      all[t].join();
      REQUIRE(!all[t].joinable());
    }
    REQUIRE(*sum == (i + 1) * 10ul * others * (others + 1) / 2);
  }
  REQUIRE(code_of([others] { mg::thread none(mg::on_processor{others + 1}, [] {}); }) == EINVAL);
  if (others == 0) return;
  {
    mg::jthread first([sum] { *sum = 1; });
    mg::jthread second = std::move(first);
    REQUIRE(!first.joinable() && second.joinable());
    second = mg::jthread();
    REQUIRE(*sum == 1);
    const mg::jthread last(mg::on_processor{others}, [](uint64_t& at) { at = 2; }, std::ref(*sum));
    REQUIRE(last.processor() == others);
  }
  REQUIRE(*sum == 2);
  // A local variable is refused where other nodes would look for it on their own stack.
  if (mg::nodes() > 1) {
    int local = 0;
    REQUIRE(code_of([&local, others] { mg::thread none(mg::on_processor{others}, [&local] { ++local; }); }) == EINVAL);
    mg::thread(mg::on_processor{others}, [sum] {
      *sum = static_cast<uint64_t>(code_of([] { mg::thread none([] {}); }));
    }).join();
    REQUIRE(*sum == EPERM);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 8;
  {
    const auto shared = mg::make_unique<Shared>();
    const auto made = mg::make_unique<mg::latch*>();
    const auto flags = mg::make_shared_array<mg::once_flag>(rounds);
    REQUIRE(rounds <= 600 && mg::processors() <= 75);
    Shared* const it = shared.get();
    threads(*it, rounds);
    it->value = 0;
    mg::run_on_all([it, made = made.get(), flags = flags.data(), rounds](unsigned me) {
      readers_and_writers(*it, me, rounds);
      readers_are_together(*it);
      writer_comes_first(*it, me);
      latches(*it, made, me, rounds);
      it->barrier.arrive_and_wait();
      if (me == 0)
        for (uint64_t& entry : it->table) entry = 0;
      it->barrier.arrive_and_wait();
      once(*it, flags, me, rounds);
      time_limits(*it, me, rounds);
    });
    mg::latch none(0);
    none.wait();
    REQUIRE(none.try_wait());
  }
  return 0;
}
