// Explicit tasks: recursion, tasks that wait for tasks, groups, orders by depend, loops of tasks, reductions, events, and
// C++ objects inside of tasks. Tasks that are shared between nodes use variables of tasks on other nodes.
#include "program.h"

namespace {

long fibonacci(int n) {
  if (n < 2) return n;
  long a = 0, b = 0;
#pragma omp task shared(a) final(n < 8)
  a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 3)
  b = fibonacci(n - 2);
#pragma omp taskwait
  return a + b;
}

void recursion() {
  long result = 0;
#pragma omp parallel
#pragma omp single
  result = fibonacci(18);
  REQUIRE(result == 2584);
}

void tasks_of_all_threads() {
  static int done[64][50];
  memset(done, 0, sizeof done);
#pragma omp parallel
  {
    const int me = omp_get_thread_num();
    for (int i = 0; i < 50; ++i) {
#pragma omp task firstprivate(i)
      {
        REQUIRE(omp_in_parallel() == (omp_get_num_threads() > 1));
        ++done[me][i];
      }
    }
#pragma omp barrier
    for (int i = 0; i < 50; ++i) REQUIRE(done[(me + 1) % omp_get_num_threads()][i] == 1);
  }
}

// A group's end waits for the tasks of its tasks; taskwait does not.
void groups() {
  int inner = 0, outer = 0;
#pragma omp parallel
#pragma omp single
  {
#pragma omp taskgroup
    for (int i = 0; i < 10; ++i) {
#pragma omp task
      {
#pragma omp critical
        ++outer;
        for (int j = 0; j < 10; ++j) {
#pragma omp task
          {
#pragma omp critical
            ++inner;
          }
        }
      }
    }
    REQUIRE(outer == 10 && inner == 100);
  }
}

void orders() {
  int x = 0, y = 0;
#pragma omp parallel
#pragma omp single
  for (int i = 0; i < 20; ++i) {
#pragma omp task depend(out : x) shared(x) firstprivate(i)
    x = i;
#pragma omp task depend(in : x) depend(inout : y) shared(x, y) firstprivate(i)
    {
      REQUIRE(x == i);
      y += x;
    }
  }
  REQUIRE(y == 190);
}

void loops_of_tasks() {
  static int count[500];
  int last = 0;
  long sum = 0;
#pragma omp parallel
#pragma omp single
  {
#pragma omp taskloop grainsize(7) lastprivate(last)
    for (int i = 499; i >= 0; --i) {
      ++count[i];
      last = i;
    }
#pragma omp taskloop num_tasks(9) reduction(+ : sum)
    for (int i = 0; i < 500; ++i) sum += count[i] * i;
#pragma omp taskloop grainsize(strict : 100)
    for (int i = 0; i < 500; ++i) ++count[i];
  }
  for (const int c : count) REQUIRE(c == 2);
  REQUIRE(last == 0 && sum == 124750);
}

void reductions_of_tasks() {
  long sum = 0, of_region = 0;
#pragma omp parallel
#pragma omp single
  {
#pragma omp taskgroup task_reduction(+ : sum)
    for (int i = 1; i <= 100; ++i) {
#pragma omp task in_reduction(+ : sum) firstprivate(i)
      sum += i;
    }
    REQUIRE(sum == 5050);
  }
#pragma omp parallel reduction(task, + : of_region)
  {
#pragma omp task in_reduction(+ : of_region)
    of_region += 2;
  }
  REQUIRE(of_region == 2L * omp_get_max_threads());
}

void events() {
  int finished = 0, after = 0;
#pragma omp parallel
#pragma omp single
  {
    omp_event_handle_t event;
#pragma omp task detach(event) depend(out : finished) shared(finished)
    finished = 1;
#pragma omp task firstprivate(event)
    omp_fulfill_event(event);
#pragma omp task depend(in : finished) shared(finished, after)
    after = finished;
#pragma omp taskwait
    REQUIRE(finished == 1 && after == 1);
  }
}

void untied_tasks() {
  int count = 0;
#pragma omp parallel
#pragma omp single
  for (int i = 0; i < 10; ++i) {
#pragma omp task untied
    {
#pragma omp critical
      ++count;
#pragma omp taskyield
#pragma omp task
      {
#pragma omp critical
        ++count;
      }
#pragma omp taskwait
#pragma omp critical
      ++count;
    }
  }
  REQUIRE(count == 30);
}

struct Counted {
  static int& alive() {
    static int count;
    return count;
  }
  Counted() { note(1); }
  Counted(const Counted&) { note(1); }
  Counted& operator=(const Counted&) = default;
  ~Counted() { note(-1); }
  static void note(int change) {
#pragma omp critical(counted)
    alive() += change;
  }
  long value = 42;
};

void objects() {
  {
    Counted object;
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < 20; ++i) {
#pragma omp task firstprivate(object)
      REQUIRE(object.value == 42);
    }
  }
  REQUIRE(Counted::alive() == 0);
}

// Other threads have time to take some of these.
void tasks_that_are_long() {
  static long results[64];
  memset(results, 0, sizeof results);
#pragma omp parallel
#pragma omp single
  for (int i = 0; i < 64; ++i) {
#pragma omp task firstprivate(i)
    {
      long sum = 0;
      for (long k = 0; k < 200000; ++k) sum += k % (i + 1);
      results[i] = sum;
    }
  }
  for (int i = 0; i < 64; ++i) {
    long sum = 0;
    for (long k = 0; k < 200000; ++k) sum += k % (i + 1);
    REQUIRE(results[i] == sum);
  }
}

}  // namespace

static void run(int, char**) {
  recursion();
  tasks_of_all_threads();
  groups();
  orders();
  loops_of_tasks();
  reductions_of_tasks();
  events();
  untied_tasks();
  objects();
  tasks_that_are_long();
}
