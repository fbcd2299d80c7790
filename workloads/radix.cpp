// Radix: integers sorted digit by digit ([GeNIMA], section III.C; Blelloch and others, "A comparison of
// sorting algorithms for the Connection Machine CM-2"; Woo and others, "The SPLASH-2 programs").
//
// For each digit, from the lowest: a processor counts the digits of its part of the keys; a prefix tree over the
// processors tells each where its keys with each digit go; all keys go there; a barrier. The tree is synchronised by
// flags between parents and children. The permutation is all to all, and the parts of a page that keys go to belong to
// many processors: fine-grain sharing, many writers a page.
//
// Variants. By default a key is written to its place as it comes, so writes are scattered. `local-buffer` first sorts
// the part by the digit into private memory and then copies stretches of equal digits, each to neighbouring places
// (the paper's radixL, after Jiang, Shan and Singh, "Application restructuring and performance portability across
// shared virtual memory and hardware-coherent multiprocessors").
#include <algorithm>
#include <vector>

#include "common.h"
#include "sort.h"

namespace {

using namespace workloads;
using namespace workloads::sort;

using Count = uint32_t;

// Written by main() before the processors start.
size_t n;
unsigned key_bits;
unsigned digit_bits;
size_t digits;  // values that one has
unsigned iterations;
uint64_t seed;
bool local_buffer;
Key* keys[2];        // they take turns
Count* counts;       // of each processor: how many keys with each digit its part of the tree has
Count* places;       // of each processor: where those go
size_t tree_stride;  // from processor to processor in counts and places, at home on its node
mg_flag_t* counted;  // of each processor: how many digits it has counted
mg_flag_t* placed;   // of each processor: of how many digits its places are there
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

// What is one processor's, in private memory.
struct Part {
  Range range;                           // of keys
  std::vector<Count> next;               // its counts, then its places
  std::vector<Key> buffer;               // local-buffer: its keys in the order of the digit
  std::vector<std::vector<Count>> left;  // by level of the tree: the counts of the left child
  uint32_t passes = 0;                   // digits done in all iterations
};

// The processors below a processor in the tree are those that follow it: one from its left child at level l, the one
// that is 2^l further, for every level up to that at which it is itself a right child.
bool is_right_child(unsigned processor, unsigned level) {
  return (processor >> level & 1) != 0;
}

// From the counts of all parts to the places of the caller's. All processors call it together.
void sum_prefixes(Part& part) {
  const unsigned processor = mg_processor();
  const unsigned processors = mg_processors();
  const uint32_t pass = ++part.passes;
  std::vector<Count>& sum = part.next;
  unsigned level = 0;
  for (; (1u << level) < processors && !is_right_child(processor, level); ++level) {
    if (part.left.size() <= level) part.left.emplace_back(digits);
    part.left[level] = sum;
    const unsigned child = processor + (1u << level);
    if (child >= processors) continue;
    mg_flag_wait(counted[child], pass);
    const Count* const right = counts + child * tree_stride;
    for (size_t d = 0; d < digits; ++d) sum[d] += right[d];
  }
  if (processor != 0) {
    std::copy(sum.begin(), sum.end(), counts + processor * tree_stride);
    mg_flag_set(counted[processor], pass);
    mg_flag_wait(placed[processor], pass);
    std::copy_n(places + processor * tree_stride, digits, sum.begin());
  } else {
    Count before = 0;
    for (Count& place : sum) {
      const Count here = place;
      place = before;
      before += here;
    }
  }
  // `sum` is now where the keys of the whole subtree go; those of the left child go first.
  while (level-- > 0) {
    const unsigned child = processor + (1u << level);
    if (child >= processors) continue;
    Count* const right = places + child * tree_stride;
    for (size_t d = 0; d < digits; ++d) right[d] = sum[d] + part.left[level][d];
    mg_flag_set(placed[child], pass);
  }
}

void sort_by_digit(const Key* from, Key* to, unsigned shift, Part& part) {
  const Key* const mine = from + part.range.first;
  const size_t count = part.range.last - part.range.first;
  std::fill(part.next.begin(), part.next.end(), 0);
  for (size_t j = 0; j < count; ++j) ++part.next[digit_of(mine[j], shift, digit_bits)];
  if (!local_buffer) {
    sum_prefixes(part);
    permute(mine, count, shift, digit_bits, part.next.data(), to);
  } else {
    // Where each digit begins in the buffer, and one more: permute() moves each to the next one's.
    std::vector<Count> begin(digits + 1);
    for (size_t d = 0; d < digits; ++d) begin[d + 1] = begin[d] + part.next[d];
    std::vector<Count> next(begin.begin(), begin.end() - 1);
    sum_prefixes(part);
    permute(mine, count, shift, digit_bits, next.data(), part.buffer.data());
    for (size_t d = 0; d < digits; ++d)
      std::copy(part.buffer.begin() + begin[d], part.buffer.begin() + begin[d + 1], to + part.next[d]);
  }
  mg_barrier(barrier);
}

unsigned passes_of_sort() {
  return (key_bits + digit_bits - 1) / digit_bits;
}

void slave(void*) {
  Part part{share_of(mg_processor(), n), std::vector<Count>(digits), {}, {}};
  if (local_buffer) part.buffer.resize(part.range.last - part.range.first);
  const uint64_t time = measure_together(
      barrier, iterations,
      [&part] {
        for (size_t j = part.range.first; j < part.range.last; ++j) {
          keys[0][j] = input_key(seed, key_bits, j);
          keys[1][j] = 0;
        }
      },
      [&part] {
        for (unsigned pass = 0; pass < passes_of_sort(); ++pass)
          sort_by_digit(keys[pass % 2], keys[(pass + 1) % 2], pass * digit_bits, part);
      });
  if (mg_processor() == 0) elapsed = time;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("A radix sort of integers on Multigrain", "radix");
  size_t given_n = 0;
  add_keys(app, given_n, key_bits);
  digit_bits = 0;
  app.add_number("--digit-bits", digit_bits, "log2 of the radix (test 8, otherwise 10)", 1, 16);
  std::string variant;
  add_variants(app, variant, {"local-buffer"});
  const Options options = parse_command_line(app, argc, argv, kSplash2Paper);
  n = choose_count(options, given_n);
  digit_bits = choose(options, digit_bits, 8u, 10u, 10u);
  digits = size_t{1} << digit_bits;
  iterations = choose(options, options.iterations, 1u, 1u, 1u);
  seed = options.seed;
  local_buffer = variant == "local-buffer";
  const unsigned processors = mg_processors();
  for (Key*& array : keys) array = allocate_shared<Key>(n, MG_HOME_BLOCKED);
  tree_stride = whole_pages<Count>(digits);
  counts = allocate_shared<Count>(processors * tree_stride, MG_HOME_BLOCKED);
  places = allocate_shared<Count>(processors * tree_stride, MG_HOME_BLOCKED);
  std::vector<mg_flag_t> flags(size_t{2} * processors);
  for (mg_flag_t& flag : flags) flag = mg_flag_create();
  counted = flags.data();
  placed = flags.data() + processors;
  barrier = mg_barrier_create(0);

  print_header("radix", variant + ", " + std::to_string(n) + " keys of " + std::to_string(key_bits) + " bits, radix " +
                            std::to_string(digits) + ", " + std::to_string(iterations) + " iterations");
  run_on_all(slave);
  const Key* const result = keys[passes_of_sort() % 2];
  print_parallel(elapsed, checksum(result, n));

  if (options.speedup) print_speedup(time_sequential(seed, key_bits, digit_bits, n, iterations), elapsed);
  const int status = options.check ? check(result, seed, key_bits, n) : 0;
  mg_barrier_destroy(barrier);
  for (const mg_flag_t flag : flags) mg_flag_destroy(flag);
  mg_free(places);
  mg_free(counts);
  for (Key* const array : keys) mg_free(array);
  return status;
}
