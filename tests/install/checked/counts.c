#include "counts.h"

#include <stdatomic.h>

void count_up(_Atomic(long)* counts, int first, int last) {
  for (int i = first; i < last; ++i) atomic_fetch_add_explicit(&counts[i], 1, memory_order_relaxed);
}

long sum(_Atomic(long)* counts, int n) {
  long all = 0;
  for (int i = 0; i < n; ++i) all += atomic_load(&counts[i]);
  return all;
}
