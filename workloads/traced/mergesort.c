/* bsort and kmerge (section 2.2.4): every thread sorts its piece by heapsort; then the pieces are merged in phases,
 * from one array to the other. In bsort (--variant pairs) one thread merges two pieces, and half of the threads drop
 * out with every phase; in kmerge (--variant split) all threads of a pair share the merging, each a part of the result.
 * The number of threads must be a power of two. */
#include "traced.h"

static uint32_t* array[2];
static int size;

static int piece(int number) {
  return band_begin(number, size);
}

static void sift(uint32_t* heap, int at, int count) {
  for (int child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && heap[child + 1] > heap[child]) ++child;
    if (heap[at] >= heap[child]) return;
    const uint32_t other = heap[at];
    heap[at] = heap[child];
    heap[child] = other;
  }
}

static void heapsort_piece(uint32_t* from, int count) {
  for (int i = count / 2 - 1; i >= 0; --i) sift(from, i, count);
  for (int i = count - 1; i > 0; --i) {
    const uint32_t largest = from[0];
    from[0] = from[i];
    from[i] = largest;
    sift(from, 0, i);
  }
}

/* How many of the first `count` of the merge of two sorted runs come from the first. */
static int split(const uint32_t* a, int a_count, const uint32_t* b, int b_count, int count) {
  int low = count > b_count ? count - b_count : 0;
  int high = count < a_count ? count : a_count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (a[middle] <= b[count - middle - 1]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Elements [begin, end) of the merge. */
static void merge(const uint32_t* a, int a_count, const uint32_t* b, int b_count, uint32_t* to, int begin, int end) {
  int i = split(a, a_count, b, b_count, begin);
  int j = begin - i;
  for (int k = begin; k < end; ++k) to[k] = j >= b_count || (i < a_count && a[i] <= b[j]) ? a[i++] : b[j++];
}

static void sort(int id) {
  const int all = strcmp(options.variant, "split") == 0;
  heapsort_piece(array[0] + piece(id), piece(id + 1) - piece(id));
  wait_for_all();
  int from = 0;
  for (int width = 1; width < options.threads; width *= 2, from = 1 - from) {
    const int first = id / (2 * width) * (2 * width);
    const int begin = piece(first);
    const int middle = piece(first + width);
    const int end = piece(first + 2 * width);
    const int total = end - begin;
    if (all || id == first) {
      const int part = all ? id - first : 0;
      const int parts = all ? 2 * width : 1;
      merge(array[from] + begin, middle - begin, array[from] + middle, end - middle, array[1 - from] + begin,
            (int)((int64_t)total * part / parts), (int)((int64_t)total * (part + 1) / parts));
    }
    wait_for_all();
  }
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 16384, 1, "pairs");
  if (strcmp(options.variant, "pairs") != 0 && strcmp(options.variant, "split") != 0) {
    fprintf(stderr, "%s: --variant must be pairs or split\n", argv[0]);
    return 2;
  }
  if ((options.threads & (options.threads - 1)) != 0) {
    fprintf(stderr, "%s: --threads must be a power of two\n", argv[0]);
    return 2;
  }
  size = options.size;
  for (int i = 0; i < 2; ++i) array[i] = allocate((size_t)size * sizeof *array[i]);
  uint64_t sum = 0;
  for (int i = 0; i < size; ++i) sum += array[0][i] = (uint32_t)random_of((uint64_t)i);
  run_threads(sort);
  int phases = 0;
  for (int width = 1; width < options.threads; width *= 2) ++phases;
  const uint32_t* sorted = array[phases % 2];
  int good = 1;
  double checksum = 0;
  for (int i = 0; i < size; ++i) {
    good &= i == 0 || sorted[i - 1] <= sorted[i];
    sum -= sorted[i];
    checksum += (double)sorted[i] * (i % 7);
  }
  good &= sum == 0;
  free(array[0]);
  free(array[1]);
  return report("mergesort", good, checksum);
}
