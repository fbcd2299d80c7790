// Globals that are shared (mg_share_globals()): as a program of threads has them. Every kind of variable, written by
// every processor; one that shares its page with the loader's slots; memory that system calls write; children that the
// program forks.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "own_library.h"
#include "program.h"

namespace {

constexpr size_t kTable = 300000;
constexpr unsigned kRounds = 20;

int initialised = 41;
int zero;
double table[kTable];             // many pages
char untouched[size_t{1} << 30];  // costs nothing until it is written
char text[100];
long* block;
int (*function)(const char*) = nullptr;
thread_local int own = 5;
// Several pages of initial values.
constexpr size_t kNumbers = 20000;
std::array<unsigned, kNumbers> numbers = [] {
  std::array<unsigned, kNumbers> made{};
  for (size_t i = 0; i < kNumbers; ++i) made[i] = static_cast<unsigned>(i * i + 1);
  return made;
}();

mg_lock_t lock;
mg_barrier_t barrier;
long sum;

int& static_local() {
  static int value = 7;
  return value;
}

double expected(size_t i, unsigned round) {
  return static_cast<double>(i) + 1000.0 * round;
}

// Each processor writes every P-th entry, so pages are written by several nodes at a time.
void write_table(unsigned round) {
  for (size_t i = mg_processor(); i < kTable; i += mg_processors()) table[i] = expected(i, round);
}

void check_table(unsigned round) {
  for (size_t i = 0; i < kTable; ++i) REQUIRE(table[i] == expected(i, round));
}

// Takes the pages of the initial values out of the page tables, as they are if the executable is not in the page cache:
// the kernel maps such a page when it is touched.
void leave_numbers_in_the_file() {
  const auto page = static_cast<uintptr_t>(4096);
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(numbers.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(numbers.data() + kNumbers) / page * page;
  REQUIRE(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) == 0);
}

void check_numbers() {
  for (size_t i = 0; i < kNumbers; ++i) REQUIRE(numbers[i] == static_cast<unsigned>(i * i + 1));
}

void use_system_calls() {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  static char from[] = "what a pipe carries";
  REQUIRE(write(pipe_ends[1], from, sizeof from) == sizeof from);
  static char to[sizeof from];
  REQUIRE(read(pipe_ends[0], to, sizeof to) == sizeof to && std::strcmp(from, to) == 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  static timespec now;
  REQUIRE(clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_sec != 0);
}

void fork_a_child() {
  std::fflush(stdout);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The child has what was there, and what it writes stays its own.
    const bool same = initialised == 42 && table[kTable / 2] == expected(kTable / 2, 1) && static_local() == 8;
    initialised = 0;
    table[kTable / 2] = 0;
    _exit(same ? 3 : 4);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
  REQUIRE(initialised == 42 && table[kTable / 2] == expected(kTable / 2, 1));
}

void slave(void*) {
  const unsigned last = mg_processors() - 1;
  // What main() wrote.
  REQUIRE(initialised == 42 && zero == 1 && static_local() == 8 && own == 5);
  REQUIRE(library_counter == 12 && library_setting() == 13);
  check_table(1);
  check_numbers();
  if (mg_nodes() > 1) REQUIRE(mg_share_globals() == (mg_node() == 0 ? -EBUSY : -EPERM));
  REQUIRE(std::strcmp(text, "main was here") == 0 && function("17") == 17);
  own += static_cast<int>(mg_processor());
  mg_barrier(barrier);

  for (unsigned round = 2; round <= kRounds; ++round) {
    write_table(round);
    mg_lock(lock);
    sum += mg_processor() + 1;
    mg_unlock(lock);
    mg_barrier(barrier);
    if (round % 5 == 0) check_table(round);
    mg_barrier(barrier);
  }
  // What the last processor writes, which is on another node than processor 0 if there is one.
  if (mg_processor() == last) {
    initialised = 100;
    zero = 200;
    static_local() = 300;
    library_counter = 400;
    library_setting() = 500;
    std::snprintf(text, sizeof text, "processor %u was here", last);
    block = program::shared<long>(10);
    block[9] = 99;
    untouched[sizeof untouched / 2] = 'u';
    function = &std::atoi;
  }
  mg_barrier(barrier);
  REQUIRE(initialised == 100 && zero == 200 && static_local() == 300);
  REQUIRE(library_counter == 400 && library_setting() == 500);
  REQUIRE(block != nullptr && block[9] == 99 && untouched[sizeof untouched / 2] == 'u' && function("18") == 18);
  REQUIRE(own == 5 + static_cast<int>(mg_processor()));
  for (unsigned p = 0; p < mg_processors(); ++p) {
    if (p == mg_processor()) use_system_calls();
    mg_barrier(barrier);
  }
}

}  // namespace

int main() {
  initialised = 42;
  zero = 1;
  static_local() = 8;
  library_counter = 12;
  library_setting() = 13;
  std::strcpy(text, "main was here");
  function = &std::atoi;
  lock = mg_lock_create();
  barrier = mg_barrier_create(mg_processors());
  for (size_t i = 0; i < kTable; ++i) table[i] = expected(i, 1);

  if (mg_nodes() > 1 && mg_page_size() != 4096) {
    REQUIRE(mg_share_globals() == -ENOTSUP && std::strstr(mg_error(), "pages of 4096 bytes") != nullptr);
    REQUIRE(initialised == 42 && table[kTable / 2] == expected(kTable / 2, 1));
    return 0;
  }
  leave_numbers_in_the_file();
  REQUIRE(mg_share_globals() == 0);
  REQUIRE(mg_share_globals() == 0);
  if (mg_nodes() > 1) fork_a_child();
  REQUIRE(mg_spawn_all(slave, nullptr) == 0);
  const long processors = mg_processors();
  REQUIRE(sum == (kRounds - 1) * processors * (processors + 1) / 2);
  REQUIRE(std::strstr(text, "was here") != nullptr && initialised == 100 && block[9] == 99);

  // A second start of the processors finds what the first has left.
  const auto again = [](void*) { REQUIRE(initialised == 1000 && zero == 200); };
  initialised = 1000;
  REQUIRE(mg_spawn_all(again, nullptr) == 0);
  std::printf("globals are shared\n");
  return 0;
}
