// Samplesort: integers sorted by way of samples ([GeNIMA], section III.C; Blelloch and others, "A
// comparison of sorting algorithms for the Connection Machine CM-2").
//
// A processor sorts its part of the keys, and takes samples of it at equal distances. From all samples every processor
// finds the same splitters, which cut the keys into as many buckets as there are processors, about equally large. It
// looks where its part is cut; then each fetches its bucket's stretches from all parts, sorts them, and writes them to
// their final places. Two local sorts and one all-to-all communication of stretches: keys are read from afar in order,
// where radix writes them in none, which is why the paper's restructured programs have it beside radix.
#include <algorithm>
#include <vector>

#include "common.h"
#include "sort.h"

namespace {

using namespace workloads;
using namespace workloads::sort;

// The radix of local sorts.
constexpr unsigned kDigitBits = 10;

// Written by main() before the processors start.
size_t n;
size_t samples_of_processor;
unsigned key_bits;
unsigned iterations;
uint64_t seed;
Key* keys;
Key* sorted;
Key* samples;          // samples_of_processor from each
uint64_t* cuts;        // of each processor's part: where each bucket begins, and the end
size_t sample_stride;  // from processor to processor, at home on its node
size_t cut_stride;
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

void sort_locally(Key* first, size_t count, std::vector<Key>& spare) {
  spare.resize(std::max(spare.size(), count));
  radix_sort(first, spare.data(), count, key_bits, kDigitBits);
}

// The keys before which buckets 1, 2, ... begin: the same on all processors.
std::vector<Key> find_splitters(std::vector<Key>& spare) {
  const unsigned processors = mg_processors();
  std::vector<Key> all(processors * samples_of_processor);
  for (unsigned p = 0; p < processors; ++p)
    std::copy_n(samples + p * sample_stride, samples_of_processor, all.begin() + p * samples_of_processor);
  sort_locally(all.data(), all.size(), spare);
  std::vector<Key> splitters;
  for (unsigned p = 1; p < processors; ++p) splitters.push_back(all[p * samples_of_processor]);
  return splitters;
}

// All processors call it together.
void sort_all(std::vector<Key>& bucket, std::vector<Key>& spare) {
  const unsigned me = mg_processor();
  const unsigned processors = mg_processors();
  const Range mine = share_of(me, n);
  const size_t count = mine.last - mine.first;
  Key* const part = keys + mine.first;
  sort_locally(part, count, spare);
  // A processor without keys has samples that say nothing: the least key.
  for (size_t s = 0; s < samples_of_processor; ++s)
    samples[me * sample_stride + s] = count == 0 ? 0 : part[count * s / samples_of_processor];
  mg_barrier(barrier);

  const std::vector<Key> splitters = find_splitters(spare);
  uint64_t* const my_cuts = cuts + me * cut_stride;
  my_cuts[0] = 0;
  for (unsigned b = 1; b < processors; ++b)
    my_cuts[b] = static_cast<uint64_t>(std::lower_bound(part, part + count, splitters[b - 1]) - part);
  my_cuts[processors] = count;
  mg_barrier(barrier);

  // What goes before the caller's bucket is what all parts have before their cuts.
  size_t place = 0;
  size_t size = 0;
  for (unsigned p = 0; p < processors; ++p) {
    place += cuts[p * cut_stride + me];
    size += cuts[p * cut_stride + me + 1] - cuts[p * cut_stride + me];
  }
  bucket.resize(std::max(bucket.size(), size));
  // Beginning with its own, so that processors do not all fetch from the same one.
  size_t got = 0;
  for (unsigned k = 0; k < processors; ++k) {
    const unsigned p = (me + k) % processors;
    const Key* const theirs = keys + share_of(p, n).first;
    const uint64_t* const cut = cuts + p * cut_stride + me;
    std::copy(theirs + cut[0], theirs + cut[1], bucket.begin() + static_cast<ptrdiff_t>(got));
    got += cut[1] - cut[0];
  }
  sort_locally(bucket.data(), size, spare);
  std::copy_n(bucket.begin(), size, sorted + place);
  mg_barrier(barrier);
}

void slave(void*) {
  const Range mine = share_of(mg_processor(), n);
  std::vector<Key> bucket(2 * (mine.last - mine.first));
  std::vector<Key> spare(bucket.size());
  const uint64_t time = measure_together(
      barrier, iterations,
      [mine] {
        for (size_t j = mine.first; j < mine.last; ++j) {
          keys[j] = input_key(seed, key_bits, j);
          sorted[j] = 0;
        }
      },
      [&] { sort_all(bucket, spare); });
  if (mg_processor() == 0) elapsed = time;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("A sample sort of integers on Multigrain", "samplesort");
  size_t given_n = 0;
  add_keys(app, given_n, key_bits);
  size_t given_samples = 0;
  app.add_number("--samples", given_samples, "samples of each processor (test 32, otherwise 128)", 1, 65536);
  const Options options = parse_command_line(app, argc, argv, "as many keys as radix");
  n = choose_count(options, given_n);
  samples_of_processor = choose<size_t>(options, given_samples, 32, 128, 128);
  iterations = choose(options, options.iterations, 1u, 1u, 1u);
  seed = options.seed;
  const unsigned processors = mg_processors();
  keys = allocate_shared<Key>(n, MG_HOME_BLOCKED);
  sorted = allocate_shared<Key>(n, MG_HOME_BLOCKED);
  sample_stride = whole_pages<Key>(samples_of_processor);
  samples = allocate_shared<Key>(processors * sample_stride, MG_HOME_BLOCKED);
  cut_stride = whole_pages<uint64_t>(processors + 1);
  cuts = allocate_shared<uint64_t>(processors * cut_stride, MG_HOME_BLOCKED);
  barrier = mg_barrier_create(0);

  print_header("samplesort", std::to_string(n) + " keys of " + std::to_string(key_bits) + " bits, " +
                                 std::to_string(samples_of_processor) + " samples of each processor, " +
                                 std::to_string(iterations) + " iterations");
  run_on_all(slave);
  print_parallel(elapsed, checksum(sorted, n));

  if (options.speedup) print_speedup(time_sequential(seed, key_bits, kDigitBits, n, iterations), elapsed);
  const int status = options.check ? check(sorted, seed, key_bits, n) : 0;
  mg_barrier_destroy(barrier);
  mg_free(cuts);
  mg_free(samples);
  mg_free(sorted);
  mg_free(keys);
  return status;
}
