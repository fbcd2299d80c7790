/* Every page is touched by all processors at once, right behind a barrier: so the processors of its home touch it while
   others ask for its lines already. Some then store to words of their own, which are looked at in the end.

     first_touch PAGES ROUNDS [first-touch] */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kDistance = 64 };

static char* memory;
static long pages, rounds;
static size_t page_size;
static mg_barrier_t barrier;

static int stores(unsigned processor) {
  return processor % 3 == 0;
}

static long* word_of(long page, unsigned processor) {
  return (long*)(memory + (size_t)page * page_size + (processor + 1) * kDistance);
}

static void require(int condition, const char* what, long page) {
  if (condition) return;
  fprintf(stderr, "processor %u, page %ld: %s\n", mg_processor(), page, what);
  fflush(stderr);
  _Exit(1);
}

static void slave(void* unused) {
  (void)unused;
  const unsigned me = mg_processor();
  for (long page = 0; page < pages * rounds; ++page) {
    mg_barrier(barrier);
    /* Not all at exactly the same moment. */
    for (volatile unsigned i = 0; i < (me * 37 + (unsigned)page * 13) % 60; i = i + 1) {
    }
    const long first = *(volatile long*)(memory + (size_t)page * page_size);
    require(first == 0, "the first word of an untouched page is not 0", page);
    if (stores(me)) *word_of(page, me) = page + me + 1;
  }
  mg_barrier(barrier);
  for (long page = 0; page < pages * rounds; ++page)
    for (unsigned p = 0; p < mg_processors(); ++p)
      require(*word_of(page, p) == (stores(p) ? page + p + 1 : 0), "a store is lost", page);
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  pages = atol(arguments[1]);
  rounds = atol(arguments[2]);
  page_size = mg_page_size();
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  if (count > 3 && strcmp(arguments[3], "first-touch") == 0) options.home = MG_HOME_FIRST_TOUCH;
  memory = mg_alloc((size_t)(pages * rounds) * page_size, &options);
  if (memory == NULL || (mg_processors() + 1) * kDistance > page_size) return 2;
  barrier = mg_barrier_create(0);
  return mg_spawn_all(slave, NULL);
}
