// Loops that store to lines that other nodes want at the same time, and read pages that other nodes have written: so a
// thread waits for a page, with the loop hazard published, while messages about lines and pages arrive from one node in
// one queue. What they compute is compared with what one processor computes alone.
//
//   page_faults_in_loops ROUNDS LINES PAGES   LINES: shasta or dszoom; PAGES: mgs or hlrc
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROCESSORS 8  // words of a line of 64 bytes
#define WORDS 4096        // of the lines; and of the pages of each processor
#define FRESH 4096        // words between two first touches in a round

static int rounds;
static unsigned processors;
static unsigned long *lines, *pages, *fresh;
static mg_barrier_t barrier;

// The loads of `from` fault, under the hazard of the stores. So does the load of `untouched`, a page of lines.
__attribute__((noinline)) static void mix(unsigned long* restrict to, const unsigned long* restrict from,
                                          const unsigned long* restrict untouched, unsigned me, unsigned round) {
  for (unsigned i = 0; i < WORDS; i += 8) {
    unsigned long sum = round;
    for (unsigned k = 0; k < 8; ++k) sum += from[(i + k) * 67 % (WORDS * processors)];
    if (untouched != NULL && i == WORDS / 2) sum += untouched[me];
    to[i + me] = to[i + me] * 5 + sum;
  }
}
__attribute__((noinline)) static void change(unsigned long* restrict mine, unsigned me) {
  for (unsigned i = 0; i < WORDS; ++i) mine[i] = mine[i] * 3 + i + me;
}

static void run(void* unused) {
  (void)unused;
  const unsigned me = (unsigned)mg_processor();
  for (int r = 0; r < rounds; ++r) {
    mix(lines, pages, fresh + (size_t)r * FRESH, me, (unsigned)r);
    mg_barrier(barrier);
    change(pages + (size_t)me * WORDS, me);
    mg_barrier(barrier);
  }
}

static void* shared(size_t words, mg_protocol protocol, mg_home home) {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.protocol = protocol;
  options.home = home;
  void* const memory = mg_alloc(words * sizeof(unsigned long), &options);
  if (memory == NULL) {
    fprintf(stderr, "%s\n", mg_error());
    exit(1);
  }
  return memory;
}

int main(int argc, char** argv) {
  processors = (unsigned)mg_processors();
  if (argc != 4 || processors > MAX_PROCESSORS) return 2;
  rounds = atoi(argv[1]);
  const mg_protocol by_lines = strcmp(argv[2], "shasta") == 0 ? MG_PROTOCOL_SHASTA : MG_PROTOCOL_DSZOOM;
  const mg_protocol by_pages = strcmp(argv[3], "hlrc") == 0        ? MG_PROTOCOL_HLRC
                               : strcmp(argv[3], "sc") == 0        ? MG_PROTOCOL_SC
                               : strcmp(argv[3], "placement") == 0 ? MG_PROTOCOL_PLACEMENT
                                                                   : MG_PROTOCOL_MGS;
  lines = shared(WORDS, by_lines, MG_HOME_DEFAULT);
  fresh = shared((size_t)rounds * FRESH, by_lines, MG_HOME_FIRST_TOUCH);
  pages = shared((size_t)WORDS * processors, by_pages, MG_HOME_DEFAULT);
  barrier = mg_barrier_create(processors);
  mg_spawn_all(run, NULL);
  mg_join_all();

  unsigned long* const same_lines = calloc(WORDS, sizeof *same_lines);
  unsigned long* const same_pages = calloc((size_t)WORDS * processors, sizeof *same_pages);
  if (same_lines == NULL || same_pages == NULL) return 1;
  for (int r = 0; r < rounds; ++r) {
    for (unsigned p = 0; p < processors; ++p) mix(same_lines, same_pages, NULL, p, (unsigned)r);
    for (unsigned p = 0; p < processors; ++p) change(same_pages + (size_t)p * WORDS, p);
  }
  for (unsigned i = 0; i < WORDS * processors; ++i) {
    if (pages[i] != same_pages[i] || (i < WORDS && lines[i] != same_lines[i])) {
      fprintf(stderr, "word %u is wrong\n", i);
      return 1;
    }
  }
  return 0;
}
