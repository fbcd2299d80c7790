/* OpenMP's ways to wait: what is written before each is read after it. */
#include <omp.h>
#include <stdlib.h>

int* slots;       /* by phase of a barrier: all write, then all read */
int* log_of_lock; /* in the order of a critical section */
int* by_task;     /* each task writes its element; one thread reads all after it has waited for them */
int* by_region;   /* written before a region, read in it */
int entries;

int main(void) {
  enum { kThreads = 4, kPhases = 10, kTasks = 40 };
  slots = malloc(kPhases * kThreads * sizeof(int));
  log_of_lock = malloc(kThreads * 50 * sizeof(int));
  by_task = malloc(kTasks * sizeof(int));
  by_region = malloc(kThreads * sizeof(int));
  if (!slots || !log_of_lock || !by_task || !by_region) return 1;
  long sum = 0;
  omp_set_dynamic(0);
  for (int i = 0; i < kThreads; ++i) by_region[i] = i;
#pragma omp parallel num_threads(kThreads) reduction(+ : sum)
  {
    const int own = omp_get_thread_num();
    sum += by_region[own];
    for (int phase = 0; phase < kPhases; ++phase) {
      slots[phase * kThreads + own] = own;
#pragma omp barrier
      for (int i = 0; i < kThreads; ++i) sum += slots[phase * kThreads + i];
#pragma omp barrier
    }
    for (int i = 0; i < 50; ++i) {
#pragma omp critical
      log_of_lock[entries++] = own;
    }
#pragma omp single
    {
      for (int i = 0; i < kTasks; ++i) {
#pragma omp task firstprivate(i)
        by_task[i] = i;
      }
#pragma omp taskwait
      for (int i = 0; i < kTasks; ++i) sum += by_task[i];
    }
  }
  return sum == 6 + kPhases * kThreads * 6 + 780 ? 0 : 1;
}
