/* Loops and nests of loops that tell of what they access before they run (src/races/pass/ranges.cpp), for mgrun --check-races: one
 * processor runs the nest, the other one accesses an element that the nest accesses too, or comes near to it.
 *
 * range_cases NAME race|near    ends with 0; with 66 if the detector has found a race */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <string.h>

enum { kSide = 16 };

static double *a, *b, *c;
static int wants_race;

/* The loops are the compiler's to see, and how often they run is not. */
#define NOINLINE __attribute__((noinline))
static long hidden(long number) {
  __asm__("" : "+r"(number));
  return number;
}

/* into += left * right, by columns of `rows`; loops whose number of rounds may be 0 have guards, which are the same in all rounds of the outer ones. */
static NOINLINE void multiply(double* into, const double* left, const double* right, long rows, long columns,
                              long inner, long stride) {
  for (long k = 0; k < inner; ++k)
    for (long j = 0; j < columns; ++j) {
      const double factor = right[k + j * stride];
      for (long i = 0; i < rows; ++i) into[i + j * stride] += factor * left[i + k * stride];
    }
}
static NOINLINE void set_falling(long rows, long columns, long stride) {
  for (long j = columns; j-- > 0;)
    for (long i = rows; i-- > 0;) c[i + j * stride] = 1;
}
/* A condition that is not the same in all rounds. */
static NOINLINE void set_some(long rows, long columns, long stride) {
  for (long j = 0; j < columns; ++j)
    if (j % 2 == 0)
      for (long i = 0; i < rows; ++i) c[i + j * stride] = 1;
}
/* Parts of lines, at a distance that is no multiple of theirs. */
static NOINLINE void set_every_third(long count) {
  for (long i = 0; i < count; ++i) c[3 * i] = 1;
}
static NOINLINE void set_triangle(long side, long stride) {
  for (long j = 0; j < side; ++j)
    for (long i = 0; i < j; ++i) c[i + j * stride] = 1;
}

/* Neighbours in two lines of the source, which are told of together. */
static NOINLINE void set_pairs(long count) {
  for (long i = 0; i < count; ++i) {
    c[2 * i] = 1;
    c[2 * i + 1] = 2;
  }
}

static void run_whole(void) {
  multiply(c, a, b, hidden(kSide), hidden(kSide), hidden(kSide), hidden(kSide));
}
static void run_rows(void) {
  multiply(c, a, b, hidden(8), hidden(kSide), hidden(4), hidden(kSide));
}
static void run_no_rows(void) {
  multiply(c, a, b, hidden(0), hidden(kSide), hidden(kSide), hidden(kSide));
}
static void run_falling(void) {
  set_falling(hidden(8), hidden(kSide), hidden(kSide));
}
static void run_some(void) {
  set_some(hidden(kSide), hidden(kSide), hidden(kSide));
}
static void run_thirds(void) {
  set_every_third(hidden(40));
}
static void run_pairs(void) {
  set_pairs(hidden(kSide));
}
static void run_triangle(void) {
  set_triangle(hidden(kSide), hidden(kSide));
}

/* What the other processor writes: a race, and what is none. */
static const struct Case {
  const char* name;
  void (*run)(void);
  double** race;
  long race_at;
  double** near;
  long near_at;
} kCases[] = {
    {"whole", run_whole, &c, kSide* kSide - 1, &c, kSide* kSide},
    {"read", run_whole, &a, 17, &a, kSide* kSide},
    {"rows", run_rows, &c, 7 + 15 * kSide, &c, 8 + 15 * kSide},
    {"columns", run_rows, &b, 3 + 15 * kSide, &b, 4 + 15 * kSide},
    {"strips", run_rows, &a, 7 + 3 * kSide, &a, 4 * kSide},
    /* Of a loop that does not run nothing is told. */
    {"no_rows", run_no_rows, NULL, 0, &c, 0},
    {"falling", run_falling, &c, 0, &c, 8},
    {"some", run_some, &c, 2 * kSide, &c, kSide},
    {"thirds", run_thirds, &c, 39 * 3, &c, 39 * 3 - 1},
    {"pairs", run_pairs, &c, 3, &c, 2 * kSide},
    {"triangle", run_triangle, &c, 14 + 15 * kSide, &c, 15 + 15 * kSide},
};
static const struct Case* chosen;

static void work(void* unused) {
  (void)unused;
  if (mg_processor() == 0)
    chosen->run();
  else
    *(volatile double*)(wants_race ? *chosen->race + chosen->race_at : *chosen->near + chosen->near_at) = 2;
}

int main(int argc, char** argv) {
  for (size_t i = 0; argc == 3 && i < sizeof kCases / sizeof *kCases; ++i)
    if (strcmp(kCases[i].name, argv[1]) == 0) chosen = &kCases[i];
  if (chosen == NULL || mg_processors() != 2) {
    fprintf(stderr, "range_cases NAME race|near, on two processors\n");
    return 2;
  }
  wants_race = strcmp(argv[2], "race") == 0 && chosen->race != NULL;
  /* A row more than the loops use. */
  for (double** each = &a;; each = each == &a ? &b : &c) {
    *each = mg_alloc((kSide + 1) * kSide * sizeof **each, NULL);
    if (each == &c) break;
  }
  return mg_spawn_all(work, NULL) == 0 ? 0 : 1;
}
