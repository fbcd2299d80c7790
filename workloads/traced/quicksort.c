/* p-qsort: quicksort with one thread a partition (section 2.2.12). As under Presto those are threads of the program's
 * own, far more than processors: a processor takes the next one that is ready, whatever its part of the array is.
 * Partitions of ten and fewer elements are bubble-sorted. */
#include "traced.h"

static int32_t* array;

struct partition {
  int begin;
  int end;
  struct partition* next;
};
static struct partition* ready;
static int unfinished;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void start(int begin, int end) {
  if (end - begin < 2) return;
  struct partition* partition = malloc(sizeof *partition);
  if (partition == NULL) exit(1);
  pthread_mutex_lock(&lock);
  *partition = (struct partition){begin, end, ready};
  ready = partition;
  ++unfinished;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
}

static void swap(int i, int j) {
  const int32_t other = array[i];
  array[i] = array[j];
  array[j] = other;
}

static void sort_partition(int begin, int end) {
  if (end - begin <= 10) {
    for (int last = end - 1; last > begin; --last) {
      for (int i = begin; i < last; ++i) {
        if (array[i] > array[i + 1]) swap(i, i + 1);
      }
    }
    return;
  }
  const int32_t pivot = array[begin + (end - begin) / 2];
  int low = begin;
  int high = end - 1;
  while (low <= high) {
    while (array[low] < pivot) ++low;
    while (array[high] > pivot) --high;
    if (low <= high) swap(low++, high--);
  }
  start(begin, high + 1);
  start(low, end);
}

static void work(int id) {
  (void)id;
  for (;;) {
    pthread_mutex_lock(&lock);
    while (ready == NULL && unfinished != 0) pthread_cond_wait(&changed, &lock);
    struct partition* partition = ready;
    if (partition != NULL) ready = partition->next;
    pthread_mutex_unlock(&lock);
    if (partition == NULL) return;
    sort_partition(partition->begin, partition->end);
    free(partition);
    pthread_mutex_lock(&lock);
    if (--unfinished == 0) pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
  }
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 20000, 1, "");
  const int size = options.size;
  array = allocate((size_t)size * sizeof *array);
  int64_t sum = 0;
  for (int i = 0; i < size; ++i) sum += array[i] = (int32_t)(random_of((uint64_t)i) >> 33);
  start(0, size);
  run_threads(work);
  int good = 1;
  double checksum = 0;
  for (int i = 0; i < size; ++i) {
    good &= i == 0 || array[i - 1] <= array[i];
    sum -= array[i];
    checksum += (double)array[i] * (i % 7);
  }
  good &= sum == 0;
  free(array);
  return report("quicksort", good, checksum);
}
