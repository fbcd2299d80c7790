/* e-fft: the Fourier transform of a square of complex numbers (section 2.2.1), forth and back, in the style of EPEX: a
 * parallel loop over the rows and one over the columns, adjacent iterations by one processor. What a loop works with is
 * declared private: the line, which it copies there, transforms, and puts back, and the roots of unity, so that most
 * references are to memory of one's own. --size is a side of the square, a power of two. */
#include <math.h>

#include "traced.h"

enum { kMostSize = 1024 };

struct number {
  float re;
  float im;
};

static struct number* square;
static struct number* roots; /* of unity: number k is exp(-2 pi i k / size) */
static int size;

static struct number original(int i) {
  return (struct number){(float)random_unit(2 * (uint64_t)i) - 0.5f, (float)random_unit(2 * (uint64_t)i + 1) - 0.5f};
}

static void transform(struct number* line, const struct number* own_roots, int back) {
  for (int i = 1, j = 0; i < size; ++i) {
    int bit = size / 2;
    for (; (j & bit) != 0; bit /= 2) j ^= bit;
    j ^= bit;
    if (i >= j) continue;
    const struct number other = line[i];
    line[i] = line[j];
    line[j] = other;
  }
  for (int half = 1; half < size; half *= 2) {
    for (int first = 0; first < size; first += 2 * half) {
      for (int i = 0; i < half; ++i) {
        const struct number root = own_roots[size / (2 * half) * i];
        const float im = back ? -root.im : root.im;
        const struct number low = line[first + i];
        const struct number high = line[first + i + half];
        const struct number turned = {high.re * root.re - high.im * im, high.re * im + high.im * root.re};
        line[first + i] = (struct number){low.re + turned.re, low.im + turned.im};
        line[first + i + half] = (struct number){low.re - turned.re, low.im - turned.im};
      }
    }
  }
}

/* Transforms all rows (the next element is `stride` = 1 away, the next line `apart` = size) or all columns. */
static void transform_lines(int stride, int apart, int back) {
  const float scale = back ? 1.0f / (float)size : 1.0f;
#pragma omp parallel num_threads(options.threads) firstprivate(stride, apart, back, scale)
  {
    struct number line[kMostSize];
    struct number own_roots[kMostSize / 2];
    memcpy(own_roots, roots, (size_t)size / 2 * sizeof *roots);
#pragma omp for schedule(static)
    for (int number = 0; number < size; ++number) {
      for (int i = 0; i < size; ++i) line[i] = square[number * apart + i * stride];
      transform(line, own_roots, back);
      for (int i = 0; i < size; ++i)
        square[number * apart + i * stride] = (struct number){line[i].re * scale, line[i].im * scale};
    }
  }
}

int main(int argc, char** argv) {
  parse_options(argc, argv, 64, 1, "");
  size = options.size;
  if (size < 2 || size > kMostSize || (size & (size - 1)) != 0) {
    fprintf(stderr, "%s: --size must be a power of two from 2 to %d\n", argv[0], kMostSize);
    return 2;
  }
  square = allocate((size_t)size * (size_t)size * sizeof *square);
  roots = allocate((size_t)size / 2 * sizeof *roots);
  for (int i = 0; i < size / 2; ++i) {
    const double angle = -2 * 3.14159265358979323846 * i / size;
    roots[i] = (struct number){(float)cos(angle), (float)sin(angle)};
  }
  for (int i = 0; i < size * size; ++i) square[i] = original(i);
  double checksum = 0;
  for (int step = 0; step < options.steps; ++step) {
    transform_lines(1, size, 0);
    transform_lines(size, 1, 0);
    checksum = (double)square[0].re; /* the sum of all */
    transform_lines(size, 1, 1);
    transform_lines(1, size, 1);
  }
  if (options.unchecked) return report_unchecked("fft");
  double error = 0, expected = 0;
#pragma omp parallel for num_threads(options.threads) schedule(static) reduction(+ : error, expected)
  for (int i = 0; i < size * size; ++i) {
    const struct number was = original(i);
    expected += (double)was.re;
    error += fabs((double)(square[i].re - was.re)) + fabs((double)(square[i].im - was.im));
  }
  const int good = error < 1e-6 * options.steps * size * size && fabs(checksum - expected) < 1e-3 * size;
  free(square);
  free(roots);
  return report("fft", good, nearbyint(expected * 1e3) / 1e3);
}
