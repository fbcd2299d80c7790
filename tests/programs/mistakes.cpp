// mg_spawn and mg::run_on_all refuse some arguments because another node would see something else there, and must not
// refuse others. The first argument of this program chooses mistakes that end the run, for tests of the sentence that
// it ends with.
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <multigrain/multigrain.hpp>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "program.h"

namespace {

mg_barrier_t barrier;
mg_flag_t go_on;
long* result;

struct Arguments {
  long number;
  int id;
};
Arguments filled_before[64];
Arguments filled_while_spawning[64];
int own_of_each_node = 1;
long histogram[256];

bool fails_with(int status, const char* words) {
  if (status == -EINVAL && std::strstr(mg_error(), words) != nullptr) return true;
  std::fprintf(stderr, "%d: %s\n", status, mg_error());
  return false;
}

void store_number(void* argument) {
  mg_flag_wait(go_on, 1);
  result[mg_processor()] = static_cast<Arguments*>(argument)->number;
}

void change_own(void* argument) {
  // This does not use a mutex of the node, because that might be locked on node 0 when it is copied.
  std::atomic_ref(*static_cast<int*>(argument)) += 1 + static_cast<int>(mg_node());
  result[mg_processor()] = 7;
}

void store_integer(void* argument) {
  mg_flag_wait(go_on, 1);
  result[mg_processor()] = static_cast<long>(reinterpret_cast<intptr_t>(argument));
}

void compare_text(void* argument) {
  mg_flag_wait(go_on, 1);
  result[mg_processor()] = std::strcmp(static_cast<const char*>(argument), "a literal") == 0 ? 9 : 0;
}

// The processors of node 1 stay busy until go_on, so that the second is started on a node that runs.
void spawn_arguments() {
  const unsigned first = mg_processors_per_node(), second = first + 1;

  // A local variable is of no use to another node, but good enough for this one.
  Arguments local{5, 1};
  REQUIRE(fails_with(mg_spawn(first, store_number, &local), "is a local variable of node 0"));
  if (mg_processors_per_node() > 1) {
    mg_flag_set(go_on, 1);
    REQUIRE(mg_spawn(1, store_number, &local) == 0);
    REQUIRE(mg_join(1) == 0);
    REQUIRE(result[1] == 5);
    mg_flag_set(go_on, 0);
  }

  // This is filled in before the first spawn, though variables beside it have changed since.
  for (int i = 0; i < 64; ++i) filled_before[i] = {i + 100, i};
  REQUIRE(mg_spawn(first, store_number, &filled_before[first]) == 0);
  filled_before[second + 1].number = 1;
  REQUIRE(mg_spawn(second, store_number, &filled_before[second]) == 0);
  mg_flag_set(go_on, 1);
  REQUIRE(mg_join(first) == 0 && mg_join(second) == 0);
  REQUIRE(result[first] == 100 + first && result[second] == 100 + second);
  mg_flag_set(go_on, 0);

  // This is filled in between the spawns: it is refused with a sentence that names the variable, and the processor can
  // still be started.
  filled_while_spawning[first] = {first, 1};
  REQUIRE(mg_spawn(first, store_number, &filled_while_spawning[first]) == 0);
  filled_while_spawning[second] = {second, 2};
  REQUIRE(fails_with(mg_spawn(second, store_number, &filled_while_spawning[second]), "filled_while_spawning"));
  auto* const on_heap = new Arguments{77, 3};
  REQUIRE(fails_with(mg_spawn(second, store_number, on_heap), "a block of malloc"));
  auto* const shared = program::shared<Arguments>(1);
  *shared = {78, 3};
  REQUIRE(mg_spawn(second, store_number, shared) == 0);
  mg_flag_set(go_on, 1);
  REQUIRE(mg_join(first) == 0 && mg_join(second) == 0);
  REQUIRE(result[first] == first && result[second] == 78);
  mg_flag_set(go_on, 0);

  // This was on the heap before the copy.
  REQUIRE(mg_spawn(first, store_number, on_heap) == 0);
  auto* const also = on_heap;
  REQUIRE(mg_spawn(second, store_number, also) == 0);
  mg_flag_set(go_on, 1);
  REQUIRE(mg_join(first) == 0 && mg_join(second) == 0);
  REQUIRE(result[second] == 77);
  mg_flag_set(go_on, 0);
  delete on_heap;

  // These are private memory that every node has for itself and changes, numbers that are no addresses, and constants.
  for (int round = 0; round < 3; ++round) {
    for (unsigned p = 1; p < mg_processors(); ++p) REQUIRE(mg_spawn(p, change_own, &own_of_each_node) == 0);
    std::atomic_ref(own_of_each_node) += 1000;
    REQUIRE(mg_join_all() == 0);
  }
  for (const intptr_t number : {intptr_t{1}, intptr_t{4096}, intptr_t{-1}, intptr_t{0x12345678}}) {
    REQUIRE(mg_spawn(first, store_integer, nullptr) == 0);
    REQUIRE(mg_spawn(second, store_integer, reinterpret_cast<void*>(number)) == 0);
    mg_flag_set(go_on, 1);
    REQUIRE(mg_join_all() == 0);
    REQUIRE(result[second] == number);
    mg_flag_set(go_on, 0);
  }
  REQUIRE(mg_spawn(first, store_integer, nullptr) == 0);
  REQUIRE(mg_spawn(second, compare_text, const_cast<char*>("a literal")) == 0);
  mg_flag_set(go_on, 1);
  REQUIRE(mg_join_all() == 0);
  REQUIRE(result[second] == 9);
}

template <typename Callable>
bool is_refused(const Callable& callable) {
  try {
    mg::run_on_all(callable);
  } catch (const std::system_error& error) {
    return error.code().value() == EINVAL &&
           std::string_view(error.what()).find("by reference") != std::string_view::npos;
  }
  return false;
}

void captures() {
  const auto array = mg::make_shared_array<long>(mg_processors());
  long number = 6;
  const double half = 0.5;
  REQUIRE(is_refused([&](unsigned me) { array[me] = number; }));
  REQUIRE(
      is_refused([half, &number, data = array.data()](unsigned me) { data[me] = number + static_cast<long>(half); }));
  long* const pointer = &number;
  REQUIRE(is_refused([pointer](unsigned) { *pointer = 0; }));
  try {
    mg::spawn(mg_processors() - 1, [&number] { number = 0; });
    REQUIRE(mg_processors_per_node() == mg_processors());
  } catch (const std::system_error&) {
  }
  mg::run_on_all([number, half, data = array.data()](unsigned me) { data[me] = number + static_cast<long>(2 * half); });
  for (const long value : array) REQUIRE(value == 7);
  static long global = 5;
  mg::run_on_all([data = array.data(), global_address = &global](unsigned me) { data[me] = *global_address; });
  for (const long value : array) REQUIRE(value == 5);
  mg::run_on_all([] {});
  // The caller's variables are there on its own node.
  if (mg_processors_per_node() > 1) {
    mg::spawn(1, [&number] { number = 11; });
    mg::join(1);
    REQUIRE(number == 11);
  }
}

struct Everything {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  pthread_rwlock_t read_write;
  pthread_barrier_t barrier;
  pthread_spinlock_t spin;
  sem_t semaphore;
  mtx_t c11_mutex;
  cnd_t c11_condition;
  std::mutex cpp;
};

// Each of these is in shared memory. They work on one node.
void lock_things(std::string_view which, Everything& all) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (which == "mutex") {
    REQUIRE(pthread_mutex_lock(&all.mutex) == 0);
    pthread_mutex_unlock(&all.mutex);
  } else if (which == "trylock") {
    REQUIRE(pthread_mutex_trylock(&all.mutex) == 0);
    pthread_mutex_unlock(&all.mutex);
  } else if (which == "std") {
    const std::lock_guard guard(all.cpp);
  } else if (which == "cond") {
    pthread_cond_broadcast(&all.condition);
  } else if (which == "rwlock") {
    REQUIRE(pthread_rwlock_rdlock(&all.read_write) == 0);
    pthread_rwlock_unlock(&all.read_write);
  } else if (which == "barrier") {
    pthread_barrier_init(&all.barrier, nullptr, 1);
    pthread_barrier_wait(&all.barrier);
  } else if (which == "semaphore") {
    sem_init(&all.semaphore, 0, 1);
    REQUIRE(sem_wait(&all.semaphore) == 0);
  } else if (which == "c11") {
    mtx_init(&all.c11_mutex, mtx_plain);
    REQUIRE(mtx_lock(&all.c11_mutex) == thrd_success);
    mtx_unlock(&all.c11_mutex);
  } else {
    REQUIRE(false);
  }
}

// The same objects in private memory work everywhere, waits with time limits included.
void private_things(void*) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec = (until.tv_nsec + 1'000'000) % 1'000'000'000;
  REQUIRE(pthread_mutex_lock(&mutex) == 0);
  REQUIRE(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT);
  REQUIRE(pthread_mutex_unlock(&mutex) == 0);
  std::atomic<int> turns{0};
  bool done = false;
  std::thread other([&] {
    pthread_mutex_lock(&mutex);
    while (!done) pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    ++turns;
  });
  pthread_mutex_lock(&mutex);
  done = true;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&mutex);
  other.join();
  REQUIRE(turns == 1);
  sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  sem_post(&semaphore);
  REQUIRE(sem_wait(&semaphore) == 0);
}

void count_in_a_global(void*) {
  for (int i = 0; i < 1000; ++i) ++histogram[i % 256];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  barrier = mg_barrier_create(0);
  go_on = mg_flag_create();
  result = program::shared<long>(mg_processors());
  if (what == "spawn") {
    spawn_arguments();
  } else if (what == "captures") {
    captures();
  } else if (what == "lock") {
    lock_things(argv[2], *program::shared<Everything>(1));
  } else if (what == "private") {
    program::run_on_all(private_things);
  } else if (what == "threads") {
    std::thread([] { histogram[0] = 1; }).join();
  } else if (what == "global") {
    program::run_on_all(count_in_a_global);
  } else if (what != "nothing") {
    return 1;
  }
  return 0;
}
