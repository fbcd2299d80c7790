/* See kernels.h. C: every width, alignment and kind of access. */
#include "kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAG 0xfff5a35bu

static uint32_t mix(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* --- Widths ------------------------------------------------------------------------------------------------------- */

#define WIDTH(name, type)                                                                   \
  static void name(unsigned char* memory) {                                                 \
    type* const a = (type*)memory;                                                          \
    const size_t n = KERNEL_BYTES / sizeof(type);                                           \
    uint32_t state = 7;                                                                     \
    for (size_t t = 0; t < 3000; ++t) {                                                     \
      const size_t i = mix(&state) % n, j = mix(&state) % n;                                \
      a[i] = (type)(a[j] + (type)t);                                                        \
      if (t % 3 == 0) a[j] = (type)(a[i] ^ a[j]);                                           \
    }                                                                                       \
  }
WIDTH(width_8, uint8_t)
WIDTH(width_16, uint16_t)
WIDTH(width_32, uint32_t)
WIDTH(width_64, uint64_t)
WIDTH(width_s8, int8_t)
WIDTH(width_s16, int16_t)
WIDTH(width_128, unsigned __int128)

/* Numbers, not what happened to be in memory: nothing here may be a signalling NaN. */
#define FLOATING(name, type)                                                                \
  static void name(unsigned char* memory) {                                                 \
    type* const a = (type*)memory;                                                          \
    const size_t n = KERNEL_BYTES / sizeof(type);                                           \
    uint32_t state = 9;                                                                     \
    memset(memory, 0, KERNEL_BYTES);                                                        \
    for (size_t i = 0; i < n; ++i) a[i] = (type)(int)(mix(&state) % 1000);                  \
    for (size_t t = 0; t < 3000; ++t) {                                                     \
      const size_t i = mix(&state) % n, j = mix(&state) % n, k = mix(&state) % n;           \
      a[i] = (a[j] + a[k]) / 2;                                                             \
      if (a[i] > 500) a[k] -= 1;                                                            \
    }                                                                                       \
  }
FLOATING(floating_32, float)
FLOATING(floating_64, double)
FLOATING(floating_80, long double)

static void boolean(unsigned char* memory) {
  bool* const a = (bool*)memory;
  for (size_t i = 0; i < KERNEL_BYTES; ++i) memory[i] &= 1;
  uint32_t state = 3;
  for (size_t t = 0; t < 3000; ++t) {
    const size_t i = mix(&state) % KERNEL_BYTES;
    a[i] = !a[i];
    if (a[(i + 1) % KERNEL_BYTES]) a[(i + 2) % KERNEL_BYTES] = true;
  }
}

struct fields {
  unsigned a : 3, b : 13, c : 16;
  int64_t d : 40;
  unsigned char e : 7;
};
static void bit_fields(unsigned char* memory) {
  struct fields* const f = (struct fields*)memory;
  for (size_t i = 0; i < KERNEL_BYTES / sizeof *f; ++i) {
    f[i].a += 1;
    f[i].b ^= f[i].c;
    f[i].d -= f[i].b;
    f[i].e = (unsigned char)(f[i].a & 3);
  }
}

/* The program's own data are the flag value: a false miss. */
static void flag_values(unsigned char* memory) {
  uint32_t* const a = (uint32_t*)memory;
  for (size_t i = 0; i < 2000; ++i) {
    if (i % 3 == 0) a[i] = FLAG;
    if (a[i] == FLAG) a[i + 1] += 1;
  }
  double not_a_number;
  const uint64_t bits = ((uint64_t)FLAG << 32) | FLAG;
  memcpy(&not_a_number, &bits, 8);
  double* const d = (double*)(memory + 16384);
  for (size_t i = 0; i < 1000; ++i) {
    d[i] = i % 5 == 0 ? not_a_number : (double)i;
    if (d[i] != d[i]) d[i + 1] = 1;
  }
}

/* --- Vectors ------------------------------------------------------------------------------------------------------ */

typedef float v2f __attribute__((vector_size(8)));
typedef float v4f __attribute__((vector_size(16)));
typedef double v4d __attribute__((vector_size(32)));
typedef uint8_t v16b __attribute__((vector_size(16)));
typedef int64_t v8l __attribute__((vector_size(64)));
typedef uint32_t v4u __attribute__((vector_size(16), aligned(4)));
typedef uint8_t v16u __attribute__((vector_size(16), aligned(1)));

static void vectors(unsigned char* memory) {
  for (size_t i = 0; i < KERNEL_BYTES / 4; ++i) ((float*)memory)[i] = (float)(i % 97);
  v4f* const f = (v4f*)memory;
  v2f* const h = (v2f*)(memory + 8192);
  for (size_t i = 1; i < 500; ++i) f[i] = f[i - 1] * 0.5f + f[i];
  for (size_t i = 1; i < 500; ++i) h[i] += h[i - 1];
  for (size_t i = 0; i < 512; ++i) ((double*)(memory + 16384))[i] = (double)i;
  v4d* const d = (v4d*)(memory + 16384);
  for (size_t i = 1; i < 100; ++i) d[i] += d[i - 1];
  v16b* const b = (v16b*)(memory + 32768);
  for (size_t i = 1; i < 500; ++i) b[i] ^= b[i - 1] + 3;
  v8l* const l = (v8l*)(memory + 49152);
  for (size_t i = 1; i < 100; ++i) l[i] += l[i - 1];
}

static void unaligned_vectors(unsigned char* memory) {
  for (size_t i = 0; i < 1000; ++i) {
    v4u* const words = (v4u*)(memory + 12 * i);
    *words += 5;
    v16u* const bytes = (v16u*)(memory + 20000 + 19 * i);
    *bytes ^= 0x5a;
  }
}

struct __attribute__((packed)) packed {
  char c;
  int64_t l;
  int32_t i;
  int16_t s;
  double d;
  float f;
};
static void unaligned(unsigned char* memory) {
  struct packed* const p = (struct packed*)memory;
  const size_t n = KERNEL_BYTES / sizeof *p;
  for (size_t i = 0; i < n; ++i) p[i].d = 1.5, p[i].f = 2.5f;
  for (size_t i = 1; i < n; ++i) {
    p[i].l += p[i - 1].l;
    p[i].i ^= p[i - 1].i;
    p[i].s = (int16_t)(p[i].s + p[i - 1].s);
    p[i].d += p[i - 1].d;
    p[i].f -= p[i - 1].f;
    p[i].c = (char)(p[i].c + 1);
  }
}

/* --- Structures, arguments, jumps --------------------------------------------------------------------------------- */

struct large {
  int64_t values[25];
};
struct small {
  int32_t a, b, c;
};
__attribute__((noinline)) static int64_t by_value(struct large l, int i, struct small s) {
  return l.values[i % 25] + s.a - s.c;
}
__attribute__((noinline)) static struct large returned(const struct large* from, int64_t add) {
  struct large result = *from;
  result.values[3] += add;
  return result;
}
static void structures(unsigned char* memory) {
  struct large* const l = (struct large*)memory;
  struct small* const s = (struct small*)(memory + 32768);
  for (int i = 1; i < 150; ++i) {
    l[i].values[i % 25] += by_value(l[i - 1], i, s[i]);
    l[i - 1] = returned(&l[i], i);
    s[i] = s[i - 1];
    s[i].b++;
  }
}

__attribute__((noinline)) static int64_t sum_of(int count, ...) {
  va_list arguments;
  va_start(arguments, count);
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += va_arg(arguments, int64_t);
    sum += (int64_t)va_arg(arguments, double);
    sum += va_arg(arguments, struct small).b;
  }
  va_end(arguments);
  return sum;
}
static void variable_arguments(unsigned char* memory) {
  int64_t* const a = (int64_t*)memory;
  double* const d = (double*)(memory + 16384);
  struct small* const s = (struct small*)(memory + 32768);
  for (size_t i = 0; i < 1000; ++i) d[i] = (double)(i % 10);
  for (size_t i = 1; i < 1000; ++i) a[i] = sum_of(2, a[i], d[i], s[i], a[i - 1], d[i - 1], s[i - 1]);
}

static _Thread_local jmp_buf jump_target;
__attribute__((noinline)) static void maybe_jump(int64_t* a, int i) {
  a[i] += 3;
  if (a[i] & 1) longjmp(jump_target, i + 1);
  a[i + 1] ^= a[i];
}
static void long_jumps(unsigned char* memory) {
  int64_t* const a = (int64_t*)memory;
  volatile int next = 0;
  const int landed = setjmp(jump_target);
  if (landed != 0) {
    a[landed] += landed;
    next = landed;
  }
  for (; next < 1000; next = next + 1) maybe_jump(a, next);
}

/* --- The C library ------------------------------------------------------------------------------------------------ */

static int by_number(const void* a, const void* b) {
  const uint32_t left = *(const uint32_t*)a, right = *(const uint32_t*)b;
  return left < right ? -1 : left > right;
}
static void library(unsigned char* memory) {
  uint32_t state = 1;
  for (int t = 0; t < 300; ++t) {
    const size_t from = mix(&state) % 30000, to = mix(&state) % 30000, size = mix(&state) % 3000;
    switch (t % 3) {
      case 0:
        memmove(memory + to, memory + from, size);
        break;
      case 1:
        memcpy(memory + 33000 + to / 2, memory + from / 2, size);
        break;
      default:
        memset(memory + to, t, size);
    }
    if (memcmp(memory + from, memory + to, size) > 0) memory[from]++;
    const void* const found = memchr(memory + from, 'x', size);
    if (found != NULL) memory[to] = (unsigned char)((const unsigned char*)found - memory);
  }
  char* const text = (char*)memory + 50000;
  snprintf(text, 100, "%d bytes of %s", 12, "text");
  strcpy(text + 200, text + 3);
  strcat(text + 200, " and more");
  strncpy(text + 400, text + 200, 50);
  text[500] = (char)('0' + strlen(text + 200) % 10);
  text[501] = (char)('0' + (strcmp(text + 200, text + 400) == 0));
  text[502] = (char)('0' + (strncmp(text + 200, "bytes", 5) == 0));
  text[503] = *strchr(text, 'b');
  text[504] = *strrchr(text, 't');
  text[505] = *strstr(text, "of");
  snprintf(text + 600, 200, "%s|%-5d|%s", text, atoi(text), text + 200);
  sprintf(text + 900, "%s", text + 600);
  char* const copy = strdup(text + 900);
  memcpy(text + 1200, copy, strlen(copy) + 1);
  free(copy);
  qsort(memory + 1024, 2000, 4, by_number);
}

static void short_copies(unsigned char* memory) {
  for (size_t i = 0; i + 256 < KERNEL_BYTES; i += 61) {
    memcpy(memory + i, memory + i + 64, 3);
    memcpy(memory + i + 4, memory + i + 100, 12);
    memcpy(memory + i + 16, memory + i + 120, 16);
    memcpy(memory + i + 33, memory + i + 140, 24);
    memset(memory + i + 60, 0x5b, 20);
    *(struct small*)(memory + (i & ~(size_t)3)) = *(struct small*)(memory + (i & ~(size_t)3) + 128);
  }
}

/* --- Atomics ------------------------------------------------------------------------------------------------------ */

#define ATOMIC(name, type)                                                                  \
  static void name(unsigned char* memory) {                                                 \
    _Atomic(type)* const a = (_Atomic(type)*)memory;                                        \
    const size_t n = KERNEL_BYTES / sizeof(type);                                           \
    uint32_t state = 5;                                                                     \
    for (size_t t = 0; t < 2000; ++t) {                                                     \
      _Atomic(type)* const x = &a[mix(&state) % n];                                         \
      _Atomic(type)* const y = &a[mix(&state) % n];                                         \
      atomic_fetch_add_explicit(x, (type)t, memory_order_relaxed);                          \
      atomic_fetch_sub(y, atomic_load_explicit(x, memory_order_relaxed));                   \
      atomic_fetch_and_explicit(x, (type)~t, memory_order_release);                         \
      atomic_fetch_or(x, (type)3);                                                          \
      atomic_fetch_xor(y, atomic_exchange(x, (type)(t * 3)));                               \
      type expected = atomic_load_explicit(y, memory_order_acquire);                        \
      if (t % 2) expected++;                                                                \
      if (!atomic_compare_exchange_strong(y, &expected, (type)7)) atomic_store(x, expected); \
      __atomic_fetch_nand((type*)y, (type)t, __ATOMIC_ACQ_REL);                             \
      atomic_store_explicit(y, (type)(atomic_load(y) + 1), memory_order_relaxed);           \
    }                                                                                       \
  }
ATOMIC(atomic_8, uint8_t)
ATOMIC(atomic_16, uint16_t)
ATOMIC(atomic_32, uint32_t)
ATOMIC(atomic_64, uint64_t)

/* --- Loops -------------------------------------------------------------------------------------------------------- */

enum { kSide = 40 };

static void fill(double* a, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = (double)(i % 31) - 15;
}
static void loop_axpy(unsigned char* memory) {
  double* const x = (double*)memory;
  double* const y = (double*)(memory + KERNEL_BYTES / 2) + 1;
  const size_t n = KERNEL_BYTES / 16 - 2;
  fill((double*)memory, KERNEL_BYTES / 8);
  for (int t = 0; t < 5; ++t)
    for (size_t i = 0; i < n; ++i) y[i] += 0.5 * x[i];
}
static void loop_reduce(unsigned char* memory) {
  const uint32_t* const a = (const uint32_t*)memory;
  uint64_t* const out = (uint64_t*)(memory + KERNEL_BYTES - 64);
  const size_t n = KERNEL_BYTES / 4 - 16;
  uint64_t sum = 0;
  uint32_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += a[i];
    most = a[i] > most ? a[i] : most;
  }
  out[0] = sum;
  out[1] = most;
}
static void loop_stencil(unsigned char* memory) {
  double* const a = (double*)memory;
  double* const b = (double*)(memory + KERNEL_BYTES / 2);
  fill(a, KERNEL_BYTES / 8);
  for (int t = 0; t < 4; ++t) {
    double* const from = t % 2 ? b : a;
    double* const to = t % 2 ? a : b;
    for (size_t i = 1; i < kSide - 1; ++i)
      for (size_t j = 1; j < kSide - 1; ++j)
        to[i * kSide + j] = 0.25 * (from[(i - 1) * kSide + j] + from[(i + 1) * kSide + j] + from[i * kSide + j - 1] +
                                    from[i * kSide + j + 1]);
  }
}
__attribute__((noinline)) static void multiply(double* restrict c, const double* restrict a, const double* restrict b,
                                               size_t n, size_t stride) {
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < n; ++k)
      for (size_t j = 0; j < n; ++j) c[i * stride + j] += a[i * stride + k] * b[k * stride + j];
}
static void loop_multiply(unsigned char* memory) {
  double* const a = (double*)memory;
  fill(a, KERNEL_BYTES / 8);
  multiply(a, a + kSide * kSide, a + 2 * kSide * kSide, kSide - 1, kSide);
}
__attribute__((noinline)) static void factor(double* d, size_t n, size_t stride) {
  for (size_t k = 0; k < n; ++k)
    for (size_t i = k + 1; i < n; ++i) {
      const double multiple = d[i * stride + k] /= d[k * stride + k];
      for (size_t j = k + 1; j < n; ++j) d[i * stride + j] -= multiple * d[k * stride + j];
    }
}
static void loop_triangle(unsigned char* memory) {
  double* const a = (double*)memory;
  fill(a, KERNEL_BYTES / 8);
  for (size_t i = 0; i < kSide; ++i) a[i * kSide + i] = 100;
  factor(a, kSide - 1, kSide);
}
static void loop_backwards(unsigned char* memory) {
  int32_t* const a = (int32_t*)memory;
  for (size_t i = KERNEL_BYTES / 4 - 1; i-- > 0;) a[i] = (int32_t)((uint32_t)a[i] + (uint32_t)a[i + 1]);
  for (int i = 4000; i >= 0; i -= 3) a[i] ^= i;
}
static void loop_strided(unsigned char* memory) {
  uint16_t* const a = (uint16_t*)memory;
  for (size_t s = 1; s < 300; s = s * 2 + 1)
    for (size_t i = 0; i < KERNEL_BYTES / 2; i += s) a[i] = (uint16_t)(a[i] + s);
  for (size_t j = 0; j < 64; ++j)
    for (size_t i = 0; i < 64; ++i) a[i * 256 + j] ^= a[j * 256 + i];
}
static void loop_conditions(unsigned char* memory) {
  int32_t* const a = (int32_t*)memory;
  for (size_t i = 0; i < KERNEL_BYTES / 4 - 1; ++i) {
    if (a[i] & 4) a[i + 1] = (int32_t)((uint32_t)a[i + 1] + 1);
    if (i > 0 && a[i - 1] > 0) a[i] ^= 1;
  }
  size_t at = 0;
  while (at < 10000 && (a[at] & 0xff) != 0x77) ++at;
  a[at] = (int32_t)at;
}
static void loop_indirect(unsigned char* memory) {
  uint32_t* const index = (uint32_t*)memory;
  uint32_t* const data = (uint32_t*)(memory + KERNEL_BYTES / 2);
  const size_t n = KERNEL_BYTES / 8;
  for (size_t i = 0; i < n; ++i) index[i] %= n;
  for (size_t i = 0; i < n; ++i) data[index[i]] += (uint32_t)i;
  for (size_t i = 0; i < n; ++i) index[i] = data[index[i]] ^ index[n - 1 - i];
}
/* Trip counts of 0, 1, 2, ...; ends that are not multiples of anything. */
__attribute__((noinline)) static void add_to(uint8_t* a, const uint8_t* b, int n, int step) {
  for (int i = 0; i < n; i += step) a[i] = (uint8_t)(a[i] + b[i]);
}
static void loop_short(unsigned char* memory) {
  for (int n = 0; n < 120; ++n) add_to(memory + 3 * n, memory + 30000 + n, n, 1 + n % 4);
  for (int n = 0; n < 60; ++n)
    for (int m = 0; m < n; ++m) ((int16_t*)memory)[n * 100 + m] = (int16_t)(m + memory[n]);
}

struct link {
  struct link* next;
  int32_t value;
  float weight;
  uint8_t small;
};
static void list(unsigned char* memory) {
  struct link* const links = (struct link*)memory;
  const size_t n = KERNEL_BYTES / sizeof *links;
  for (size_t i = 0; i < n; ++i) {
    links[i].next = i * 7 % n == 0 ? NULL : &links[i * 7 % n];
    links[i].weight = (float)i;
  }
  int64_t steps = 0;
  for (struct link* at = &links[1]; at != NULL && steps < 5000; at = at->next, ++steps) {
    at->value += (int32_t)steps;
    at->weight += 1;
    at->small++;
    if (at->next != NULL) at->next->value ^= at->value;
  }
  /* Pointers differ from build to build. */
  for (size_t i = 0; i < n; ++i) links[i].next = NULL;
}

void count_up(unsigned long* counter, int times) {
  _Atomic(unsigned long)* const both = (_Atomic(unsigned long)*)counter;
  for (int i = 0; i < times; ++i) {
    atomic_fetch_add_explicit(&both[0], 1, memory_order_relaxed);
    unsigned long old = atomic_load_explicit(&both[1], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&both[1], &old, old + 1, memory_order_relaxed, memory_order_relaxed)) {
    }
  }
}

const struct kernel c_kernels[] = {{"width_8", width_8},
                                   {"width_16", width_16},
                                   {"width_32", width_32},
                                   {"width_64", width_64},
                                   {"width_s8", width_s8},
                                   {"width_s16", width_s16},
                                   {"width_128", width_128},
                                   {"floating_32", floating_32},
                                   {"floating_64", floating_64},
                                   {"floating_80", floating_80},
                                   {"boolean", boolean},
                                   {"bit_fields", bit_fields},
                                   {"flag_values", flag_values},
                                   {"vectors", vectors},
                                   {"unaligned_vectors", unaligned_vectors},
                                   {"unaligned", unaligned},
                                   {"structures", structures},
                                   {"variable_arguments", variable_arguments},
                                   {"long_jumps", long_jumps},
                                   {"library", library},
                                   {"short_copies", short_copies},
                                   {"atomic_8", atomic_8},
                                   {"atomic_16", atomic_16},
                                   {"atomic_32", atomic_32},
                                   {"atomic_64", atomic_64},
                                   {"loop_axpy", loop_axpy},
                                   {"loop_reduce", loop_reduce},
                                   {"loop_stencil", loop_stencil},
                                   {"loop_multiply", loop_multiply},
                                   {"loop_triangle", loop_triangle},
                                   {"loop_backwards", loop_backwards},
                                   {"loop_strided", loop_strided},
                                   {"loop_conditions", loop_conditions},
                                   {"loop_indirect", loop_indirect},
                                   {"loop_short", loop_short},
                                   {"list", list},
                                   {NULL, NULL}};
