// FFT: a one-dimensional fast Fourier transform of n complex numbers, by the six-step algorithm ([MGS], section 5.2;
// Bailey, "FFTs in external or hierarchical memories").
//
// The n = rows x columns numbers are a matrix: transpose, transform each row, multiply with the roots of unity,
// transpose, transform each row, transpose. A processor owns a band of rows, at home on its node, and only the
// transposes read what others own: coarse-grain sharing, all to all, and each word has one writer.
//
// Variants. By default a processor begins a transpose with the band of its right neighbour, as the SPLASH-2 program
// does, so the processors of a node want the same pages from the same node at about the same time. `staggered` spreads
// the processors of a node over the other nodes ([GeNIMA], section III: FFTst). `balanced` also has them compete less for the
// pages that they fetch (section V.A): each fetches an equal share of the other nodes' bands for its node, and reads the
// shares of the others in the order in which those fetch them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common.h"

namespace {

using namespace workloads;

struct Complex {
  double re, im;
};
Complex operator+(Complex a, Complex b) {
  return {a.re + b.re, a.im + b.im};
}
Complex operator-(Complex a, Complex b) {
  return {a.re - b.re, a.im - b.im};
}
Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
Complex conjugate(Complex a) {
  return {a.re, -a.im};
}
double distance(Complex a, Complex b) {
  return std::hypot(a.re - b.re, a.im - b.im);
}

// Written by main() before the processors start.
size_t n;
size_t rows;     // of the input, a power of two: the smaller factor of n
size_t columns;  // of the input, a power of two
unsigned iterations;
uint64_t seed;
enum class Order : uint8_t { kByNumber, kStaggered, kBalanced } order_of_reading;  // of a transpose's bands
Complex* values;  // rows x columns, or columns x rows between the transposes; the result is in `others`
Complex* others;
std::vector<Complex> roots;  // exp(-2 pi i k / columns), k < columns / 2
mg_barrier_t barrier;
uint64_t elapsed;  // processor 0's, on main()'s node

// exp(-2 pi i k / of); exact index arithmetic, since k may be a product of two indices.
Complex root(size_t k, size_t of) {
  const double angle = -2 * M_PI * static_cast<double>(k % of) / static_cast<double>(of);
  return {std::cos(angle), std::sin(angle)};
}

Complex input(size_t j) {
  return {2 * random_unit(seed, 2 * j) - 1, 2 * random_unit(seed, 2 * j + 1) - 1};
}

// In place, of a power of two of numbers not above `columns`; radix 2, decimation in time.
void transform_row(Complex* row, size_t length, bool inverse) {
  for (size_t i = 1, reversed = 0; i < length; ++i) {
    size_t bit = length / 2;
    for (; reversed & bit; bit /= 2) reversed ^= bit;
    reversed ^= bit;
    if (i < reversed) std::swap(row[i], row[reversed]);
  }
  // Where they are is looked up once: for all that the compiler knows, the stores below might change it.
  const Complex* const powers = roots.data();
  for (size_t half = 1; half < length; half *= 2) {
    const size_t step = columns / (2 * half);
    for (size_t first = 0; first < length; first += 2 * half) {
      for (size_t k = 0; k < half; ++k) {
        const Complex factor = inverse ? conjugate(powers[k * step]) : powers[k * step];
        const Complex odd = factor * row[first + half + k];
        const Complex even = row[first + k];
        row[first + k] = even + odd;
        row[first + half + k] = even - odd;
      }
    }
  }
}

// to[c][r] = from[r][c] for a block of `from`; `from_rows` x `from_columns` is the whole of it. In tiles of two cache
// lines a row, so that a line that is read or written is used up before it leaves the cache.
void transpose_block(Complex* to, const Complex* from, size_t from_rows, size_t from_columns, Range r, Range c) {
  constexpr size_t kTile = 8;
  for (size_t r0 = r.first; r0 < r.last; r0 += kTile) {
    for (size_t c0 = c.first; c0 < c.last; c0 += kTile) {
      const size_t r1 = std::min(r0 + kTile, r.last);
      const size_t c1 = std::min(c0 + kTile, c.last);
      for (size_t i = r0; i < r1; ++i)
        for (size_t j = c0; j < c1; ++j) to[j * from_rows + i] = from[i * from_columns + j];
    }
  }
}

// The bands in the order in which this processor reads them in a transpose, its own last.
std::vector<unsigned> order_of_bands() {
  const unsigned processors = mg_processors();
  const unsigned on_node = mg_processors_per_node();
  const unsigned me = mg_processor();
  std::vector<unsigned> order;
  if (order_of_reading == Order::kByNumber) {
    for (unsigned k = 1; k <= processors; ++k) order.push_back((me + k) % processors);
    return order;
  }
  // Each processor of the node begins at another place of the circle of bands that are elsewhere: at its share of them.
  const unsigned place = me % on_node;
  const unsigned after_node = me - place + on_node;
  const unsigned share = (processors - on_node) / on_node;
  const auto add = [&](unsigned whose, unsigned which) {
    order.push_back((after_node + whose % on_node * share + which) % processors);
  };
  if (order_of_reading == Order::kStaggered) {
    for (unsigned k = 0; k < on_node; ++k)
      for (unsigned i = 0; i < share; ++i) add(place + k, i);
  } else {
    for (unsigned i = 0; i < share; ++i) add(place, i);
    for (unsigned i = 0; i < share; ++i)
      for (unsigned k = 1; k < on_node; ++k) add(place + k, i);
  }
  for (unsigned k = 1; k <= on_node; ++k) order.push_back(me - place + (place + k) % on_node);
  return order;
}

// What is one processor's: its bands of both shapes of the matrix, and its roots of unity of order n.
struct Part {
  unsigned processors;
  Range of_rows;     // when there are `rows`
  Range of_columns;  // when there are `columns` rows
  std::vector<unsigned> bands;
  std::vector<Complex> twiddles;  // of_columns x rows
};

void fill_twiddles(Part& part) {
  part.twiddles.resize((part.of_columns.last - part.of_columns.first) * rows);
  auto next = part.twiddles.begin();
  for (size_t j = part.of_columns.first; j < part.of_columns.last; ++j)
    for (size_t k = 0; k < rows; ++k) *next++ = root(j * k, n);
}

// The caller's rows of the transpose; `mine` are rows of `to`.
void transpose(Complex* to, const Complex* from, size_t from_rows, size_t from_columns, const Part& part, Range mine) {
  for (const unsigned band : part.bands) {
    const Range theirs = {from_rows * band / part.processors, from_rows * (band + 1) / part.processors};
    transpose_block(to, from, from_rows, from_columns, theirs, mine);
  }
}

void synchronise(const Part& part) {
  if (part.processors > 1) mg_barrier(barrier);
}

// One transform from `x` to `y`, whose contents change both. All processors call it together.
void transform(Complex* x, Complex* y, const Part& part, bool inverse) {
  transpose(y, x, rows, columns, part, part.of_columns);
  auto twiddle = part.twiddles.begin();
  for (size_t j = part.of_columns.first; j < part.of_columns.last; ++j) {
    Complex* const row = y + j * rows;
    transform_row(row, rows, inverse);
    for (size_t k = 0; k < rows; ++k, ++twiddle) row[k] = row[k] * (inverse ? conjugate(*twiddle) : *twiddle);
  }
  synchronise(part);
  transpose(x, y, columns, rows, part, part.of_rows);
  const double scale = inverse ? 1.0 / static_cast<double>(n) : 1.0;
  for (size_t i = part.of_rows.first; i < part.of_rows.last; ++i) {
    Complex* const row = x + i * columns;
    transform_row(row, columns, inverse);
    for (size_t k = 0; k < columns; ++k) row[k] = {scale * row[k].re, scale * row[k].im};
  }
  synchronise(part);
  transpose(y, x, rows, columns, part, part.of_columns);
  synchronise(part);
}

// Forth and back in turn, so that numbers keep their size. The result is in `y` after an odd number, else in `x`.
void transform_all(Complex* x, Complex* y, const Part& part) {
  for (unsigned t = 0; t < iterations; ++t) transform(t % 2 == 0 ? x : y, t % 2 == 0 ? y : x, part, t % 2 != 0);
}

void slave(void*) {
  Part part{mg_processors(), share_of(mg_processor(), rows), share_of(mg_processor(), columns), order_of_bands(), {}};
  fill_twiddles(part);
  for (size_t j = part.of_rows.first * columns; j < part.of_rows.last * columns; ++j) values[j] = input(j);
  // The first touch of a page is no part of a transform.
  for (size_t j = part.of_columns.first * rows; j < part.of_columns.last * rows; ++j) others[j] = {};
  const uint64_t start = start_measuring(barrier);
  transform_all(values, others, part);
  if (mg_processor() == 0) elapsed = stop_measuring(start);
}

// The same on private memory. Returns the time of the transforms.
uint64_t run_sequentially(std::vector<Complex>& x, std::vector<Complex>& y) {
  Part part{1, {0, rows}, {0, columns}, {0}, {}};
  fill_twiddles(part);
  for (size_t j = 0; j < n; ++j) x[j] = input(j);
  const uint64_t start = mg_time_ns();
  transform_all(x.data(), y.data(), part);
  return mg_time_ns() - start;
}

double checksum(const Complex* result) {
  double sum = 0;
  for (size_t k = 0; k < n; ++k) sum += (result[k].re - 0.5 * result[k].im) * static_cast<double>(1 + k % 7);
  return sum;
}

// How far the result is, at most, from what the definition of the transform says, at some points of a forward
// transform; after an even number of transforms, how far it is from the input anywhere.
double error_of(const Complex* result) {
  double error = 0;
  // Negated, so that what is not a number counts as wrong.
  const auto note = [&error](double one) {
    if (!(one <= error)) error = one;
  };
  if (iterations % 2 == 0) {
    for (size_t j = 0; j < n; ++j) note(distance(result[j], input(j)));
    return error;
  }
  constexpr size_t kPoints = 16;
  for (size_t point = 0; point < kPoints; ++point) {
    const size_t k = (point * n / kPoints + point * point) % n;
    Complex sum{};
    for (size_t j = 0; j < n; ++j) sum = sum + input(j) * root(j * k, n);
    note(distance(result[k], sum) / std::sqrt(static_cast<double>(n)));
  }
  return error;
}

int check(const Complex* result, const Complex* expected) {
  // Errors grow with the number of stages only; the constant leaves room for the sum of the definition itself.
  const double bound = 1e-13 * std::sqrt(static_cast<double>(n)) * iterations;
  const double error = error_of(result);
  char text[200];
  if (std::memcmp(result, expected, n * sizeof(Complex)) != 0)
    return print_check(false, "the result differs from the sequential run's");
  std::snprintf(text, sizeof text, "equal to the sequential run's, error %.1e against %s", error,
                iterations % 2 == 0 ? "the input" : "the definition at 16 points");
  return print_check(error < bound, text);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("The six-step fast Fourier transform on Multigrain", "fft");
  unsigned given_log = 0;
  app.add_number("-m,--log-points", given_log, "log2 of the number of points (test 12, paper 15, large 20)", 2, 30);
  std::string variant;
  add_variants(app, variant, {"staggered", "balanced"});
  const Options options = parse_command_line(app, argc, argv);
  const unsigned log = choose(options, given_log, 12u, 15u, 20u);
  n = size_t{1} << log;
  rows = size_t{1} << log / 2;
  columns = n / rows;
  iterations = choose(options, options.iterations, 1u, 1u, 1u);
  seed = options.seed;
  order_of_reading = variant == "staggered"  ? Order::kStaggered
                     : variant == "balanced" ? Order::kBalanced
                                             : Order::kByNumber;
  for (size_t k = 0; k < columns / 2; ++k) roots.push_back(root(k, columns));
  values = allocate_shared<Complex>(n, MG_HOME_BLOCKED);
  others = allocate_shared<Complex>(n, MG_HOME_BLOCKED);
  barrier = mg_barrier_create(0);

  print_header("fft", std::to_string(n) + " points, " + std::to_string(iterations) + " iterations" +
                          (order_of_reading == Order::kByNumber ? "" : ", " + variant + " transposes"));
  run_on_all(slave);
  const Complex* const result = iterations % 2 == 0 ? values : others;
  print_parallel(elapsed, checksum(result));

  int status = 0;
  if (options.speedup || options.check) {
    std::vector<Complex> x(n);
    std::vector<Complex> y(n);
    const uint64_t sequential = run_sequentially(x, y);
    if (options.speedup) print_speedup(sequential, elapsed);
    if (options.check) status = check(result, iterations % 2 == 0 ? x.data() : y.data());
  }
  mg_barrier_destroy(barrier);
  mg_free(others);
  mg_free(values);
  return status;
}
