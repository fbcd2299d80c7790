/* Gfetch: fetches from shared memory, and does nothing else (section 3.2.2). Before that all threads write every page in
 * turn, a word each, so that a policy that limits how often a page moves has it in global memory. */
#include "traced.h"

enum { kWords = 4096 / sizeof(int32_t) }; /* of a page */
enum { kRounds = 2 };

static int32_t* words;
static int64_t* sums; /* of the threads, a page each */

static int32_t value_of(int page, int word) {
  return (int32_t)(random_of((uint64_t)page * kWords + (uint64_t)word) % 1000);
}

static void fetch(int id) {
  for (int round = 0; round < kRounds; ++round) {
    for (int turn = 0; turn < options.threads; ++turn) {
      if (turn == id)
        for (int page = 0; page < options.size; ++page)
          for (int word = id; word < kWords; word += options.threads)
            words[page * kWords + word] = value_of(page, word);
      wait_for_all();
    }
  }
  int64_t sum = 0;
  for (int step = 0; step < options.steps; ++step)
    for (int i = 0; i < options.size * kWords; ++i) sum += words[i];
  sums[id * kWords / 2] = sum;
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 8, 50, "");
  if (options.size > 4096) options.size = 4096;
  words = allocate((size_t)options.size * kWords * sizeof *words);
  sums = allocate((size_t)options.threads * kWords / 2 * sizeof *sums);
  run_threads(fetch);
  if (options.unchecked) return report_unchecked("gfetch");
  int64_t expected = 0;
  for (int page = 0; page < options.size; ++page)
    for (int word = 0; word < kWords; ++word) expected += value_of(page, word);
  int good = 1;
  for (int id = 0; id < options.threads; ++id) good &= sums[id * kWords / 2] == expected * options.steps;
  free(words);
  free(sums);
  return report("gfetch", good, (double)expected);
}
