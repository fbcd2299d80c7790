// A program with OpenMP for one machine, which knows nothing of Multigrain: its threads share memory of malloc, local
// variables of the function around a region, and globals. It prints what does not depend on the number of threads.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 120, kTimes = 5 };

static int histogram[16];
static int failed;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "wrong: %s\n", what);
  failed = 1;
}

static int per_thread;
#pragma omp threadprivate(per_thread)

static long fibonacci(int n) {
  if (n < 2) return n;
  long a = 0, b = 0;
#pragma omp task shared(a) if (n > 8)
  a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 8)
  b = fibonacci(n - 2);
#pragma omp taskwait
  return a + b;
}

// The rows are local variables of the function, and their length is known when it runs.
static double relax(int rows, double from[rows][rows], double to[rows][rows]) {
  double change = 0;
#pragma omp parallel for reduction(+ : change) schedule(static)
  for (int i = 1; i < rows - 1; ++i)
    for (int j = 1; j < rows - 1; ++j) {
      to[i][j] = (from[i - 1][j] + from[i + 1][j] + from[i][j - 1] + from[i][j + 1]) / 4;
      change += to[i][j] > from[i][j] ? to[i][j] - from[i][j] : from[i][j] - to[i][j];
    }
  return change;
}

int main(void) {
  double a[kRows][kRows], b[kRows][kRows];
  memset(a, 0, sizeof a);
  memset(b, 0, sizeof b);
  for (int i = 0; i < kRows; ++i) a[0][i] = b[0][i] = i;
  double change = 0;
  for (int i = 0; i < kTimes; ++i) change = relax(kRows, i % 2 == 0 ? a : b, i % 2 == 0 ? b : a);
  printf("change %.9f\n", change);

  int* const numbers = malloc(10000 * sizeof *numbers);
  long sum = 0, atomic_sum = 0, critical_sum = 0;
  int threads = 0, first = -1;
#pragma omp parallel
  {
#pragma omp single
    threads = omp_get_num_threads();
#pragma omp for schedule(dynamic, 7)
    for (int i = 0; i < 10000; ++i) numbers[i] = i;
#pragma omp for schedule(guided) reduction(+ : sum)
    for (int i = 0; i < 10000; ++i) sum += numbers[i];
#pragma omp for
    for (int i = 0; i < 10000; i += 10) {
#pragma omp atomic
      atomic_sum += numbers[i];
#pragma omp atomic
      ++histogram[numbers[i] % 16];
    }
#pragma omp critical
    {
      critical_sum += omp_get_thread_num();
      if (first < 0) first = omp_get_thread_num();
    }
  }
  check(critical_sum == (long)threads * (threads - 1) / 2, "a sum under critical");
  check(first >= 0 && first < threads, "the first thread");
  printf("sums %ld %ld\n", sum, atomic_sum);
  for (int i = 0; i < 16; ++i) printf("%d ", histogram[i]);
  printf("\n");

  per_thread = 7;
  int wrong = 0;
#pragma omp parallel copyin(per_thread) reduction(+ : wrong)
  {
    wrong += per_thread != 7;
    per_thread = omp_get_thread_num();
#pragma omp barrier
    wrong += per_thread != omp_get_thread_num();
#pragma omp for ordered schedule(static, 1)
    for (int i = 0; i < 50; ++i) {
#pragma omp ordered
      {
        wrong += numbers[i] != i;
        numbers[i + 1] = i + 1;
      }
    }
  }
  check(wrong == 0, "thread-private variables, and an ordered loop");

  long result = 0;
#pragma omp parallel
#pragma omp single
  result = fibonacci(16);
  printf("fibonacci %ld\n", result);

  omp_lock_t lock;
  omp_init_lock(&lock);
  int under_lock = 0;
#pragma omp parallel num_threads(2)
  for (int i = 0; i < 100; ++i) {
    omp_set_lock(&lock);
    ++under_lock;
    omp_unset_lock(&lock);
  }
  check(under_lock == 100 || under_lock == 200, "a count under a lock");
  omp_destroy_lock(&lock);
  free(numbers);
  printf("%s\n", failed ? "wrong" : "right");
  return failed;
}
