// A program whose accesses to shared memory are known, line by line. caches_test.py compiles it with -fmultigrain-count=memory and
// compares times with and without caches. Processor 0 prints what each section took, in nanoseconds.
#include <multigrain/multigrain.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLine = 16, kLines = 64, kSections = 9 };

static char* g_pages;  // a page for each section
static uint64_t g_took[kSections];
static volatile uint64_t g_private[kLines * kLine / 8];
static mg_barrier_t g_barrier;

static char* page(unsigned section) {
  return g_pages + section * mg_page_size();
}

static void run(unsigned section) {
  char* const at = page(section);
  switch (section) {
    case 0:
      for (unsigned i = 0; i < kLines; ++i) (void)*(volatile uint64_t*)(at + i * kLine);
      return;
    case 1:
      for (unsigned i = 0; i < kLines; ++i) *(volatile uint64_t*)(at + i * kLine) = i;
      return;
    case 2:  // each line twice, once for each of its words
      for (unsigned i = 0; i < 2 * kLines; ++i) (void)*(volatile uint64_t*)(at + i * kLine / 2);
      return;
    case 3:  // read, then written
      for (unsigned i = 0; i < kLines; ++i) *(volatile uint64_t*)(at + i * kLine) += 1;
      return;
    case 4:
      for (unsigned i = 0; i < kLines; ++i) atomic_fetch_add((_Atomic uint64_t*)(at + i * kLine), 1);
      return;
    case 5:
      memset(at, 1, kLines * kLine);
      return;
    case 6:
      memcpy((void*)g_private, at, kLines * kLine);
      return;
    case 7:  // across two lines
      for (unsigned i = 0; i < kLines; i += 2) {
        uint64_t word;
        __builtin_memcpy(&word, at + i * kLine + 12, sizeof word);
        g_private[i] = word;
      }
      return;
    case 8:
      for (unsigned i = 0; i < kLines; ++i) g_private[2 * i] = i;
      return;
  }
}

int main(void) {
  g_pages = mg_alloc(kSections * mg_page_size(), 0);
  g_barrier = mg_barrier_create(0);
  if (g_pages == NULL) return 1;
  for (unsigned section = 0; section < kSections; ++section) {
    // The page is writable from here on; its last line is in no section.
    *(volatile char*)(page(section) + mg_page_size() - 1) = 1;
    const uint64_t start = mg_time_ns();
    run(section);
    g_took[section] = mg_time_ns() - start;
  }
  for (unsigned section = 0; section < kSections; ++section) printf("%llu\n", (unsigned long long)g_took[section]);
  return 0;
}
