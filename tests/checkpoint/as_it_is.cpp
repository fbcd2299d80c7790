// A program that knows nothing of checkpoints. Its result depends on all that a processor has: shared memory, malloc's memory,
// globals, thread-local variables, frames of its stack with pointers into it, registers, the arguments of main(), and locks,
// semaphores and flags, and random numbers. It prints a number.
//
//   as_it_is STEPS KIB [ms a step takes [STEP FILE [open|lock|thread]]]
//
// In STEP the last node dies, if FILE is not there, and makes it. All the time the program has a file open, or holds a lock at
// barriers, or has started a thread.
#include <fcntl.h>
#include <multigrain/multigrain.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

uint64_t mixed(uint64_t value) {
  value ^= value >> 31;
  value *= 0x7fb5'd329'728e'a185;
  return value ^ value >> 27;
}

struct Shared {
  uint64_t sum;  // guarded by `lock`
  uint64_t* table;
  uint64_t of_processor[1024];
};

// Each node has these for itself, as node 0 had them when its first processor started.
Shared* shared;
uint64_t words;
uint64_t steps;
uint64_t milliseconds;
uint64_t last_step = ~uint64_t{0};
std::string marker;
std::string mischief;
mg_barrier_t barrier;
mg_lock_t lock;
mg_sem_t semaphore;
mg_flag_t flag;
uint64_t big[10'000];  // in pages of zeros but for some
thread_local uint64_t of_thread = 17;
thread_local uint64_t* pointer_to_it = nullptr;

void take_time() {
  const timespec time{.tv_sec = static_cast<time_t>(milliseconds / 1000),
                      .tv_nsec = static_cast<long>(milliseconds % 1000 * 1'000'000)};
  if (milliseconds != 0) nanosleep(&time, nullptr);
}

void die_once(uint64_t step) {
  if (step != last_step || mg_processor() + 1 != mg_processors() || access(marker.c_str(), F_OK) == 0) return;
  close(open(marker.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  std::raise(SIGKILL);
}

// Calls itself, so that frames of several calls are on the stack at each barrier, and pointers to them.
uint64_t deeper(uint64_t step, uint64_t depth, const uint64_t* above, std::vector<uint64_t>& numbers) {
  uint64_t here = mixed(*above + depth);
  if (depth != 0) return here + deeper(step, depth - 1, &here, numbers);
  mg_barrier(barrier);
  numbers.push_back(here + *above);
  return here;
}

void compute(void*) {
  const uint64_t self = mg_processor();
  const uint64_t processors = mg_processors();
  // These are in registers and on the stack when a checkpoint is written.
  std::map<uint64_t, std::string> names;
  std::vector<uint64_t> numbers;
  double fraction = 1.0 + static_cast<double>(self);
  pointer_to_it = &of_thread;
  for (uint64_t step = 0; step < steps; ++step) {
    for (uint64_t i = self; i < words; i += processors) shared->table[i] = mixed(shared->table[i] + step + i);
    names[mixed(step + self)] = "step " + std::to_string(step);
    if (names.size() > 20) names.erase(names.begin());
    *pointer_to_it = mixed(of_thread + step);
    big[(step * 611 + self) % 10'000] += self + 1;
    fraction = fraction * 1.25 + 0.5;
    if (fraction > 1e6) fraction /= 1e6;
    mg_lock(lock);
    shared->sum += of_thread;
    mg_unlock(lock);
    if (self == 0) mg_sem_post(semaphore);
    // The other processors of the node would take numbers of the same sequence in any order.
    if (self % mg_processors_per_node() == 0)
      numbers.push_back(static_cast<uint64_t>(random()) + static_cast<uint64_t>(drand48() * 1e6));
    take_time();
    numbers.push_back(deeper(step, 3, &step, numbers));
    if (self == 0 && mg_flag_get(flag) != step)
      std::printf("the flag is %u in step %llu\n", mg_flag_get(flag), static_cast<unsigned long long>(step));
    mg_barrier(barrier);
    if (self == 0) mg_flag_set(flag, static_cast<uint32_t>(step + 1));
    die_once(step);
  }
  // What was thrown before a barrier is caught behind it.
  try {
    throw std::string("thrown by processor " + std::to_string(self));
  } catch (const std::string& thrown) {
    mg_barrier(barrier);
    numbers.push_back(thrown.size());
  }
  uint64_t result = static_cast<uint64_t>(fraction * 1e6);
  for (const auto& [key, name] : names)
    result = mixed(result + key + name.size() + static_cast<unsigned char>(name.back()));
  for (const uint64_t number : numbers) result = mixed(result + number);
  if (self == 0 || mg_processors_per_node() == 1)
    for (const uint64_t number : big) result = mixed(result + number % 4096);
  shared->of_processor[self] = result + of_thread;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  steps = std::strtoull(argv[1], nullptr, 10);
  words = std::strtoull(argv[2], nullptr, 10) * 128;
  milliseconds = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (argc > 5) {
    last_step = std::strtoull(argv[4], nullptr, 10);
    marker = argv[5];
    mischief = argc > 6 ? argv[6] : "";
  }
  shared = static_cast<Shared*>(mg_alloc(sizeof(Shared), nullptr));
  shared->table = static_cast<uint64_t*>(mg_alloc(words * sizeof(uint64_t), nullptr));
  barrier = mg_barrier_create(0);
  mg_lock_destroy(mg_lock_create());
  lock = mg_lock_create();
  semaphore = mg_sem_create(3);
  flag = mg_flag_create();
  const uint64_t began = mg_time_ns();
  srandom(5);
  const mg_lock_t of_main = mg_lock_create();
  if (mischief == "lock") mg_lock(of_main);
  const int file = mischief == "open" ? open("/proc/self/maps", O_RDONLY | O_CLOEXEC) : -1;
  if (mischief == "thread") std::thread([] {}).join();
  std::printf("begins\n");
  if (mg_spawn_all(&compute, nullptr) != 0) {
    std::fprintf(stderr, "as_it_is: %s\n", mg_error());
    return 1;
  }
  if (mischief == "lock") mg_unlock(of_main);
  if (file >= 0) close(file);
  uint64_t sum = shared->sum;
  for (uint64_t i = 0; i < words; ++i) sum = mixed(sum + shared->table[i]);
  for (const uint64_t one : shared->of_processor) sum = mixed(sum + one);
  while (mg_sem_trywait(semaphore) != 0) sum = mixed(sum + 1);
  // Objects that are made now have other handles than those that there are.
  const mg_lock_t another = mg_lock_create();
  if (another == lock) std::printf("a lock was given out twice\n");
  mg_lock(another);
  mg_unlock(another);
  if (mg_time_ns() < began) std::printf("time went backwards\n");
  std::printf("result %016llx %s %s\n", static_cast<unsigned long long>(sum), argv[1], argv[2]);
  return 0;
}
