/* See kernels.h. C: every width, alignment and kind of access. */
#include "kernels.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAG 0xfffdfffdu
const unsigned flag_of_kernels = FLAG;

static uint32_t mix(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* --- Widths ------------------------------------------------------------------------------------------------------- */

#define WIDTH(name, type)                                    \
  static void name(unsigned char* memory) {                  \
    type* const a = (type*)memory;                           \
    const size_t n = KERNEL_BYTES / sizeof(type);            \
    uint32_t state = 7;                                      \
    for (size_t t = 0; t < 3000; ++t) {                      \
      const size_t i = mix(&state) % n, j = mix(&state) % n; \
      a[i] = (type)(a[j] + (type)t);                         \
      if (t % 3 == 0) a[j] = (type)(a[i] ^ a[j]);            \
    }                                                        \
  }
WIDTH(width_8, uint8_t)
WIDTH(width_16, uint16_t)
WIDTH(width_32, uint32_t)
WIDTH(width_64, uint64_t)
WIDTH(width_s8, int8_t)
WIDTH(width_s16, int16_t)
WIDTH(width_128, unsigned __int128)

/* Numbers, not what happened to be in memory: nothing here may be a signalling NaN. */
#define FLOATING(name, type)                                                      \
  static void name(unsigned char* memory) {                                       \
    type* const a = (type*)memory;                                                \
    const size_t n = KERNEL_BYTES / sizeof(type);                                 \
    uint32_t state = 9;                                                           \
    memset(memory, 0, KERNEL_BYTES);                                              \
    for (size_t i = 0; i < n; ++i) a[i] = (type)(int)(mix(&state) % 1000);        \
    for (size_t t = 0; t < 3000; ++t) {                                           \
      const size_t i = mix(&state) % n, j = mix(&state) % n, k = mix(&state) % n; \
      a[i] = (a[j] + a[k]) / 2;                                                   \
      if (a[i] > 500) a[k] -= 1;                                                  \
    }                                                                             \
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

/* Bytes and halves that might be parts of it, at every place of a word, and loads of several that are no word. */
struct __attribute__((packed)) pair_of_bytes {
  uint8_t low, high;
};
static void parts_of_flag_values(unsigned char* memory) {
  static const uint8_t bytes[] = {0xfd, 0xff, 0xfe, 0xfc, 0x7f, 0xfd, 0xfd, 0x00, 0xff, 0xff};
  for (size_t i = 0; i < 8192; ++i) memory[i] = bytes[i * 7 % sizeof bytes];
  uint16_t* const halves = (uint16_t*)(memory + 8192);
  for (size_t i = 0; i < 4096; ++i) halves[i] = i % 3 == 0 ? 0xfffd : (uint16_t)(0xfffd + i % 5 - 2);
  uint32_t state = 5;
  unsigned char* const out = memory + 32768;
  for (size_t t = 0; t < 6000; ++t) {
    const size_t i = mix(&state) % 16000;
    struct pair_of_bytes pair;
    uint32_t word;
    uint64_t both;
    memcpy(&pair, memory + i, sizeof pair);
    memcpy(&word, memory + i + 2, sizeof word);
    memcpy(&both, memory + i + 5, sizeof both);
    out[t] =
        (uint8_t)(memory[i + 3] + (pair.low ^ pair.high) + (word >> 7) + (both >> 29) + (uint16_t)halves[i % 4096]);
    if (t % 5 == 0) memory[i] = (uint8_t)(out[t] | 0xfc);
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

/* What reads text, where the text and the results may be shared. */
struct __attribute__((aligned(8))) read_in {
  double d;
  long double big;
  char word[40];
  long l;
  int i, used;
  float f;
  short s;
  unsigned char tiny;
  char letters[5];
  char* end;
};
static void text(unsigned char* memory) {
  char* const input = (char*)memory;
  struct read_in* const all = (struct read_in*)(memory + 16384);
  memset(memory, 0, KERNEL_BYTES);
  for (int i = 0; i < 150; ++i) {
    struct read_in* const to = &all[i];
    int private_one = 0;
    snprintf(input, 200, "%d %s%d abcde%.3f 0x%x [%d] %d %d tail", i, "a-word-of-some-length", i, i / 7.0, i, i * i,
             i % 100, i);
    const int count = sscanf(input, "%d %39s %5c%lf %li [%hd] %hhu%n %d", &to->i, to->word, to->letters, &to->d, &to->l,
                             &to->s, &to->tiny, &to->used, &private_one);
    to->i += count * 1000 + private_one;
    /* A match that fails half-way leaves the rest as it is. */
    to->f = 5;
    if (sscanf(input + 1, "%*s%f", &to->f) == 1) to->i++;
    snprintf(input + 300, 100, "%.4Lf%%rest %d,word", (long double)i / 3, i);
    to->big = strtold(input + 300, &to->end);
    to->used += (int)(to->end - input);
    if (sscanf(to->end, "%%%[a-z]%*d,%s", to->word + 10, to->word + 20) != 2) to->i = -1;
    to->l += strtol(input, &to->end, 10) + (long)strtoull("18446744073709551615", NULL, 0) + (long)(to->end - input);
    to->d += strtod(input + 300, NULL) + (double)strtof("1.5", &to->end);
    /* Differs from build to build. */
    to->end = NULL;
    memset((char*)&to->big + 10, 0, 6);
  }
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

#define ATOMIC(name, type)                                                                   \
  static void name(unsigned char* memory) {                                                  \
    _Atomic(type)* const a = (_Atomic(type)*)memory;                                         \
    const size_t n = KERNEL_BYTES / sizeof(type);                                            \
    uint32_t state = 5;                                                                      \
    for (size_t t = 0; t < 2000; ++t) {                                                      \
      _Atomic(type)* const x = &a[mix(&state) % n];                                          \
      _Atomic(type)* const y = &a[mix(&state) % n];                                          \
      atomic_fetch_add_explicit(x, (type)t, memory_order_relaxed);                           \
      atomic_fetch_sub(y, atomic_load_explicit(x, memory_order_relaxed));                    \
      atomic_fetch_and_explicit(x, (type)~t, memory_order_release);                          \
      atomic_fetch_or(x, (type)3);                                                           \
      atomic_fetch_xor(y, atomic_exchange(x, (type)(t * 3)));                                \
      type expected = atomic_load_explicit(y, memory_order_acquire);                         \
      if (t % 2) expected++;                                                                 \
      if (!atomic_compare_exchange_strong(y, &expected, (type)7)) atomic_store(x, expected); \
      __atomic_fetch_nand((type*)y, (type)t, __ATOMIC_ACQ_REL);                              \
      atomic_store_explicit(y, (type)(atomic_load(y) + 1), memory_order_relaxed);            \
    }                                                                                        \
  }
ATOMIC(atomic_8, uint8_t)
ATOMIC(atomic_16, uint16_t)
ATOMIC(atomic_32, uint32_t)
ATOMIC(atomic_64, uint64_t)
ATOMIC(atomic_128, unsigned __int128)

/* Objects that no instruction changes as a whole: the compiler calls its library, and so for a size that it does not
 * know or an object that is not aligned. They cross lines. */
struct three {
  uint32_t a, b, c;
};
struct five {
  uint64_t values[5];
};
static void atomic_structures(unsigned char* memory) {
  struct three* const threes = (struct three*)memory;
  struct five* const fives = (struct five*)(memory + 20480);
  const size_t n = 1000;
  uint32_t state = 11;
  for (size_t t = 0; t < 2000; ++t) {
    struct three* const x = &threes[mix(&state) % n];
    struct three* const y = &threes[mix(&state) % n];
    struct three value, expected;
    __atomic_load(x, &value, __ATOMIC_RELAXED);
    value.b += (uint32_t)t;
    __atomic_store(y, &value, __ATOMIC_RELEASE);
    __atomic_exchange(x, &value, &expected, __ATOMIC_SEQ_CST);
    expected.c += t % 2;
    if (!__atomic_compare_exchange(y, &expected, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) y->a ^= expected.a;
    /* What is expected, and what is loaded, may be shared as well. */
    struct five* const v = &fives[mix(&state) % n];
    struct five* const w = &fives[mix(&state) % n];
    __atomic_load(v, w, __ATOMIC_ACQUIRE);
    v->values[t % 5] += t;
    if (__atomic_compare_exchange(v, w, &fives[t % n], true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) w->values[0]++;
    struct five private_one = {{t, 1, 2, 3, 4}};
    __atomic_exchange(&private_one, v, w, __ATOMIC_SEQ_CST);
    w->values[1] += private_one.values[2];
  }
}

struct __attribute__((packed)) off_by_one {
  char c;
  uint64_t l;
};
static void atomic_unaligned(unsigned char* memory) {
  struct off_by_one* const all = (struct off_by_one*)memory;
  const size_t n = KERNEL_BYTES / sizeof *all;
  for (size_t i = 1; i < n; ++i) {
    uint64_t value = __atomic_load_n(&all[i].l, __ATOMIC_RELAXED);
    __atomic_store_n(&all[i - 1].l, value + i, __ATOMIC_RELEASE);
    value ^= __atomic_fetch_sub(&all[i].l, 7, __ATOMIC_SEQ_CST);
    all[i].c = (char)(all[i].c + (__atomic_fetch_and(&all[i - 1].l, ~value, __ATOMIC_ACQ_REL) != value));
    if (i % 2) value++;
    if (!__atomic_compare_exchange_n(&all[i].l, &value, i, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) all[i - 1].c++;
    value += __atomic_exchange_n(&all[i - 1].l, value, __ATOMIC_SEQ_CST);
    /* As large as it is, across two elements. */
    struct off_by_one both;
    __atomic_load((struct off_by_one*)((char*)&all[i - 1] + 3), &both, __ATOMIC_SEQ_CST);
    both.l += value;
    __atomic_store((struct off_by_one*)((char*)&all[i - 1] + 3), &both, __ATOMIC_SEQ_CST);
  }
}

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

/* Steps that nobody knows before, up to ends that the sum jumps over, the greatest number among them. */
__attribute__((noinline)) static void step_at_least_once(uint32_t* a, size_t begin, size_t end, size_t step) {
  size_t i = begin;
  do {
    a[i - begin] += 3;
  } while ((i += step) < end);
}
__attribute__((noinline)) static void step_64(uint32_t* a, size_t begin, size_t end, size_t step) {
  for (size_t i = begin; i < end; i += step) a[i - begin] += 5;
}
__attribute__((noinline)) static void step_signed(uint32_t* a, int64_t begin, int64_t end, int64_t step) {
  for (int64_t i = begin; i < end; i += step) a[i - begin] += 7;
}
/* Blocks of a transform, as of Fourier's: each stage's step is twice the one before. */
__attribute__((noinline)) static void butterflies(double* row, size_t length, const double* factors) {
  for (size_t half = 1; half < length; half *= 2)
    for (size_t first = 0; first < length; first += 2 * half)
      for (size_t k = 0; k < half; ++k) {
        const double odd = factors[k * (length / 2 / half)] * row[first + half + k];
        const double even = row[first + k];
        row[first + k] = even + odd;
        row[first + half + k] = even - odd;
      }
}
static void loop_steps(unsigned char* memory) {
  uint32_t* const words = (uint32_t*)memory;
  step_at_least_once(words + 300, 10, 5, 3);
  step_at_least_once(words + 300, 0, 0, 0);
  step_at_least_once(words + 300, SIZE_MAX - 5, 100, 20); /* beyond all numbers, and on from 0 */
  step_64(words + 300, 5, 10, SIZE_MAX);                  /* backwards, until it is */
  for (size_t step = 1; step < 40; step += 3) {
    step_64(words + 64, 10, 10 + 500 + step, step);
    step_64(words + 64, SIZE_MAX - 100, SIZE_MAX - step, step);
    step_signed(words + 700, -30, 300, (int64_t)step);
    step_signed(words + 700, INT64_MAX - 90, INT64_MAX - (int64_t)step, (int64_t)step);
    step_signed(words + 700, 5, 5 - (int64_t)step, (int64_t)step);
  }
  double* const row = (double*)(memory + 16384);
  fill(row, 1024);
  butterflies(row, 512, row + 512);
}
/* Tiles of a matrix: parts of rows that are far from each other, in either direction, and tiles that are empty. */
__attribute__((noinline)) static void turn_tiles(uint64_t* to, const uint32_t* from, size_t rows, size_t columns,
                                                 size_t tile) {
  for (size_t r = 0; r < rows; r += tile)
    for (size_t c = 0; c < columns; c += tile) {
      const size_t r_end = r + tile < rows ? r + tile : rows, c_end = c + tile < columns ? c + tile : columns;
      for (size_t i = r; i < r_end; ++i)
        for (size_t j = c; j < c_end; ++j) to[j * rows + i] += from[i * columns + j];
    }
}
__attribute__((noinline)) static void add_rows(uint32_t* a, ptrdiff_t stride, long rows, long columns) {
  for (long j = 0; j < columns; ++j)
    for (long i = 0; i < rows; ++i) a[i * stride + j] += (uint32_t)(i * 100 + j);
}
static void loop_tiles(unsigned char* memory) {
  turn_tiles((uint64_t*)(memory + 24576), (const uint32_t*)memory, 60, 75, 8);
  turn_tiles((uint64_t*)(memory + 24576), (const uint32_t*)memory, 60, 75, 19);
  turn_tiles((uint64_t*)(memory + 32768), (const uint32_t*)memory, 64, 64, 8); /* rows are whole lines apart */
  turn_tiles((uint64_t*)(memory + 32768 + 40), (const uint32_t*)(memory + 20), 64, 62, 9);
  uint32_t* const words = (uint32_t*)memory;
  add_rows(words + 40, 200, 40, 23);
  add_rows(words + 9000, -150, 50, 16);
  add_rows(words + 500, 1, 30, 30);
  add_rows(words + 500, 0, 30, 30);
  for (long n = -2; n < 4; ++n) add_rows(words + 12000, 333, n, 9);
  for (long n = -2; n < 4; ++n) add_rows(words + 12000, -333, 9, n);
}

/* Blocks of a matrix. The inner loops' guards test what is known before the nest, in other words than the loops' ends do: the
 * end of one is half of what its guard tests, that of another is hidden as a long expression. */
static void add_rows_of(double* to, const double* from, long n, double factor) {
  for (long i = 0; i < n; ++i) to[i] += factor * from[i];
}
__attribute__((noinline)) static void guarded_block(double* to, const double* from, long rows, long columns, long bits,
                                                    long stride) {
  const long n = (1L << bits) / 2;
  for (long k = 0; k < rows; ++k)
    for (long j = 0; j < columns; ++j) add_rows_of(to + j * stride, from + k * stride, n, 0.25 * (double)(k + j));
}
__attribute__((noinline)) static void last_blocks(double* a, long n, long size, long stride) {
  for (long at = 0; at < n; at += size) {
    const long rows = at + size > n ? n - at : size;
    for (long k = 0; k < rows; ++k)
      for (long j = k + 1; j < rows; ++j)
        add_rows_of(a + at + (at + j) * stride + k, a + at + (at + k) * stride + k, rows - k - 1, 0.5);
  }
}
static void loop_guards(unsigned char* memory) {
  double* const a = (double*)memory;
  double* const b = (double*)(memory + 16384);
  for (long i = 0; i < 4096; ++i) a[i] = (double)(i % 17);
  for (long bits = 0; bits < 6; ++bits) guarded_block(a, b, 9, 11, bits, 37);
  guarded_block(a, b, 0, 5, 4, 32);
  guarded_block(a, b, 5, 0, 4, 32);
  guarded_block(a, b, 3, 3, 3, -8 + 16);
  last_blocks(a, 39, 16, 40);
  last_blocks(a, 3, 16, 40);
}

/* --- Loops that use the loop hazard, and arguments that are private in all calls ---------------------------------- */

/* Stores all over the place, some of several words, with calls, inner loops and private memory in between. */
__attribute__((noinline)) static void bump(uint32_t* counter) {
  if (*counter % 3 == 0) *counter += 1;
}
static void hold_scatter(unsigned char* memory) {
  uint32_t* const keys = (uint32_t*)memory;
  uint32_t* const sorted = (uint32_t*)(memory + KERNEL_BYTES / 2);
  const size_t n = KERNEL_BYTES / 8;
  uint32_t next[257] = {0};
  for (size_t i = 0; i < n; ++i) ++next[(keys[i] >> 8 & 0xff) + 1];
  for (size_t d = 0; d < 256; ++d) next[d + 1] += next[d];
  for (size_t i = 0; i < n; ++i) sorted[next[keys[i] >> 8 & 0xff]++] = keys[i];
}
struct triple {
  uint64_t a, b, c;
};
static void hold_between(unsigned char* memory) {
  struct triple* const all = (struct triple*)memory;
  const size_t n = KERNEL_BYTES / sizeof *all;
  uint32_t state = 11, counter = 0;
  for (size_t t = 0; t < 2500; ++t) {
    struct triple* const one = &all[mix(&state) % n];
    struct triple* const other = &all[mix(&state) % n];
    one->a += t;
    one->b ^= one->a;
    one->c = other->b;
    if (t % 5 == 0) bump((uint32_t*)&other->a);
    if (t % 7 == 0) bump(&counter);
    if (t % 11 == 0) {
      uint64_t sum = 0;
      for (const struct triple* at = all; at < one; at += 1 + at->a % 16) sum += at->c;
      other->c = sum + counter;
    }
    if (t % 13 == 0)
      for (size_t i = 0; i < mix(&state) % 40; ++i) all[i].b += i;
  }
}
/* Again and again over the same lines under one hazard: a transform in place, whose first step exchanges numbers that
 * are found bit by bit, and a row that is subtracted from all others. */
struct pair {
  uint64_t a, b;
};
__attribute__((noinline)) static void transform_row(struct pair* row, size_t length, const uint64_t* factors) {
  for (size_t i = 1, reversed = 0; i < length; ++i) {
    size_t bit = length / 2;
    for (; reversed & bit; bit /= 2) reversed ^= bit;
    reversed ^= bit;
    if (i < reversed) {
      const struct pair other = row[i];
      row[i] = row[reversed];
      row[reversed] = other;
    }
  }
  for (size_t half = 1; half < length; half *= 2)
    for (size_t first = 0; first < length; first += 2 * half)
      for (size_t k = 0; k < half; ++k) {
        const struct pair odd = {row[first + half + k].a * factors[k], row[first + half + k].b ^ factors[k]};
        const struct pair even = row[first + k];
        row[first + k] = (struct pair){even.a + odd.a, even.b - odd.b};
        row[first + half + k] = (struct pair){even.a - odd.a, even.b + odd.b};
      }
}
static void hold_stages(unsigned char* memory) {
  struct pair* const rows = (struct pair*)memory;
  const uint64_t* const factors = (const uint64_t*)(memory + 49152);
  for (size_t r = 0; r < 24; ++r) {
    transform_row(rows + 128 * r, 128, factors + r);
    for (size_t k = 0; k < 128; ++k) rows[128 * r + k].a *= 3;
  }
  transform_row(rows + 77, 1024, factors + 300); /* of other lines than the rows' */
}
static void hold_pivot(unsigned char* memory) {
  enum { kRows = 64 };
  uint64_t* const matrix = (uint64_t*)memory;
  for (size_t k = 0; k + 1 < kRows; k += 9)
    for (size_t i = k + 1; i < kRows; ++i) {
      const uint64_t* const pivot = matrix + k * kRows;
      uint64_t* const row = matrix + (i * 29 % kRows == k ? k + 1 : i * 29 % kRows) * kRows;
      const uint64_t multiple = row[k] ^ pivot[k];
      row[k] = multiple;
      for (size_t j = k + 1; j < kRows; ++j) row[j] -= multiple * pivot[j];
    }
}
/* Rows that lie over each other, partly, some only loaded and some stored to as well. */
__attribute__((noinline)) static void combine_rows(uint64_t* to, const uint64_t* one, const uint64_t* other, size_t n) {
  for (size_t j = 0; j < n; ++j) to[j] = one[j] * 3 + other[j];
}
static void hold_overlap(unsigned char* memory) {
  uint64_t* const all = (uint64_t*)memory;
  uint32_t state = 17;
  const size_t n = KERNEL_BYTES / sizeof *all - 512;
  for (size_t t = 0; t < 1500; ++t) {
    uint64_t* const row = all + mix(&state) % n;
    const uint64_t* const one = row + mix(&state) % 200;
    const size_t before = mix(&state) % 60, length = 20 + mix(&state) % 200;
    const uint64_t* const other = one - (before < (size_t)(one - all) ? before : 0);
    for (size_t j = 0; j < length; ++j) row[j] = one[j] * 3 + other[j];
    if (t % 4 == 0) combine_rows(row + 20, row, row + 60, length);
    all[mix(&state) % n] += t;
  }
}
/* Loops whose objects are private or shared, as their callers have it: they have versions. */
__attribute__((noinline)) static void permute_by(const uint32_t* from, size_t n, unsigned shift, uint32_t* next,
                                                 uint32_t* to) {
  for (size_t j = 0; j < n; ++j) to[next[from[j] >> shift & 15]++] = from[j];
}
/* Two ways out, values that are used behind it, pointers that move, and one to the middle of an object. */
__attribute__((noinline)) static uint32_t replace_until(uint32_t* at, const uint32_t* end, uint32_t* seen,
                                                        uint32_t stop) {
  uint32_t sum = 0;
  uint32_t* const middle = seen + 8;
  while (at != end) {
    const uint32_t value = *at;
    if (value == stop) return sum ^ (uint32_t)(end - at);
    middle[(int)(value & 15) - 8] += value;
    *at++ = value * 5 + sum;
    sum += value;
  }
  return sum;
}
static void versions(unsigned char* memory) {
  uint32_t* const all = (uint32_t*)memory;
  const size_t n = KERNEL_BYTES / sizeof *all / 4;
  uint32_t* const shared_next = all + 3 * n;
  uint32_t private_next[16];
  static __thread uint32_t private_to[KERNEL_BYTES / sizeof(uint32_t) / 4];
  for (unsigned round = 0; round < 16; ++round) {
    uint32_t* const next = round % 2 == 0 ? private_next : shared_next;
    uint32_t* const to = round / 2 % 2 == 0 ? all + n : private_to;
    const unsigned shift = 4 * (round / 4);
    for (unsigned d = 0; d < 16; ++d) next[d] = 0;
    for (size_t j = 0; j < n; ++j) ++next[all[j] >> shift & 15];
    uint32_t before = 0;
    for (unsigned d = 0; d < 16; ++d) {
      const uint32_t here = next[d];
      next[d] = before;
      before += here;
    }
    permute_by(all, n, shift, next, to);
    all[2 * n + round] = replace_until(to + round, to + n - round, next, to[n / 2]);
    for (size_t j = 0; j < n; ++j) all[j] ^= to[n - 1 - j] + next[j & 15];
  }
}
/* A pointer that is always one to a local, by way of recursion, and one that is so only at first. */
__attribute__((noinline)) static uint64_t descend(const struct triple* from, uint64_t* sum, int depth) {
  struct triple mine = *from;
  mine.a += (uint64_t)depth;
  mine.b ^= mine.a << 3;
  *sum += mine.b;
  if (depth == 0) return mine.b;
  return descend(&mine, sum, depth - 1) + mine.c;
}
__attribute__((noinline)) static void add_triple(struct triple* to, const struct triple* from) {
  to->a += from->a, to->b ^= from->b, to->c -= from->c;
}
static void private_arguments(unsigned char* memory) {
  struct triple* const all = (struct triple*)memory;
  const size_t n = KERNEL_BYTES / sizeof *all;
  struct triple total = {1, 2, 3};
  for (size_t i = 0; i < 400; ++i) {
    const struct triple copy = all[i * 37 % n];
    uint64_t sum = 0;
    all[i].a = descend(&copy, &sum, (int)(i % 9));
    all[i].b += sum;
    add_triple(&total, &all[i]);
    if (i % 4 == 0) add_triple(&all[i * 5 % n], &total);
  }
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

/* What is stored to is found by way of pointers that are shared themselves, and is not looked at before. */
static void through_pointers(unsigned char* memory) {
  struct link** const table = (struct link**)memory;
  struct link* const links = (struct link*)(memory + 32768);
  uint32_t state = 13;
  memset(memory, 0, KERNEL_BYTES);
  for (size_t i = 0; i < 1000; ++i) {
    table[2 * i] = &links[i * 7 % 1000];
    table[2 * i + 1] = &links[i * 11 % 1000];
  }
  for (int t = 0; t < 4000; ++t) {
    table[mix(&state) % 2000]->value = t;
    struct link* const both = table[mix(&state) % 2000];
    both->small = (uint8_t)t;
    both->weight = (float)t;
    __atomic_fetch_add(&table[mix(&state) % 2000]->value, 1, __ATOMIC_RELAXED);
  }
  memset(table, 0, 2000 * sizeof *table);
}

void count_up(unsigned long* counter, int times) {
  _Atomic(unsigned long)* const both = (_Atomic(unsigned long)*)counter;
  for (int i = 0; i < times; ++i) {
    atomic_fetch_add_explicit(&both[0], 1, memory_order_relaxed);
    unsigned long old = atomic_load_explicit(&both[1], memory_order_relaxed);
    while (
        !atomic_compare_exchange_weak_explicit(&both[1], &old, old + 1, memory_order_relaxed, memory_order_relaxed)) {
    }
  }
}

int count_up_wide(void* counter, int times) {
  struct five* const all = counter;
  int torn = 0;
  for (int i = 0; i < times; ++i) {
    struct five old, fresh;
    __atomic_load(all, &old, __ATOMIC_RELAXED);
    for (int w = 1; w < 5; ++w) torn += old.values[w] != old.values[0];
    do {
      fresh = old;
      for (int w = 0; w < 5; ++w) fresh.values[w]++;
    } while (!__atomic_compare_exchange(all, &old, &fresh, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  }
  return torn;
}

struct waiting {
  struct waiting* next;
  unsigned long word;
};
void wait_for(unsigned long* word, unsigned long value, int way) {
  _Atomic(unsigned long)* const atomic = (_Atomic(unsigned long)*)word;
  unsigned long* volatile where = word;
  switch (way) {
    case 0:
      while (*(volatile unsigned long*)word != value) {
      }
      break;
    case 1:
      while (atomic_load_explicit(atomic, memory_order_relaxed) != value) __builtin_ia32_pause();
      break;
    case 2:
      while (atomic_fetch_add(atomic, 0) != value) sched_yield();
      break;
    case 3:
      while (__atomic_load_n(where, __ATOMIC_SEQ_CST) != value) __asm__ volatile("pause" ::: "memory");
      break;
    default:
      for (unsigned long old = value; !atomic_compare_exchange_weak(atomic, &old, value); old = value) {
      }
  }
}
int length_of_list(void* list) {
  int length = 0;
  for (struct waiting* at = list; at != NULL; at = __atomic_load_n(&at->next, __ATOMIC_RELAXED)) ++length;
  return length;
}

/* What a debugger is to see: the access's own line. */
const int load_one_line = __LINE__ + 2;
unsigned long load_one(const unsigned long* from) {
  return *from + 1;
}
const int store_one_line = __LINE__ + 2;
void store_one(unsigned long* to, unsigned long value) {
  *to = value;
}

/* Volatile stores and atomics publish hazards of their own where the loop hazard is published, in loops and outside. */
static void hold_volatile(unsigned char* memory) {
  uint64_t* const w = (uint64_t*)memory;
  const size_t n = KERNEL_BYTES / sizeof *w;
  uint32_t state = 17;
  for (size_t i = 0; i < 200; ++i) {
    w[mix(&state) % n] += i;
    w[mix(&state) % n] ^= state;
    *(volatile uint64_t*)&w[mix(&state) % n] = i * FLAG;
  }
}

/* A function's stores share the loop hazard, and loads of what they store need no checks. */
struct body {
  double place[3], speed[3];
  uint64_t moves;
  float mass;
  uint16_t kind;
  uint8_t age;
};
__attribute__((noinline)) static void move(struct body* one, const struct body* other, int is_last) {
  const double by = other->mass * 0.5;
  one->place[0] += one->speed[0] * by;
  one->place[1] += one->speed[1] * by;
  one->place[2] += other->speed[2];
  one->moves++;
  if (one->moves % 3 == 0) {
    one->mass = other->mass + 1;
    one->kind ^= other->kind;
    return;
  }
  one->age += other->age;
  if (is_last) *(volatile uint8_t*)&one->age = 7;
}
/* Behind the last store no hazard may be left, whichever hazard it had. */
__attribute__((noinline)) static void turn(struct body* one, const struct body* other) {
  one->speed[0] = -one->speed[0] * other->mass;
  one->speed[1] = -one->speed[1] * other->mass;
  one->place[2] = one->place[1] + other->speed[2];
  *(volatile uint64_t*)&one->moves = 5;
}
static void hold_functions(unsigned char* memory) {
  struct body* const bodies = (struct body*)memory;
  const size_t n = KERNEL_BYTES / sizeof *bodies;
  memset(memory, 0, KERNEL_BYTES);
  for (size_t i = 0; i < n; ++i) {
    for (int k = 0; k < 3; ++k) bodies[i].speed[k] = (double)i + k;
    bodies[i].mass = (float)(i % 5), bodies[i].kind = (uint16_t)(i * 7), bodies[i].age = (uint8_t)i;
  }
  uint32_t state = 23;
  for (size_t t = 0; t < 1500; ++t) move(&bodies[mix(&state) % n], &bodies[mix(&state) % n], t % 5 == 0);
  move(&bodies[1], &bodies[2], 1);
  turn(&bodies[2], &bodies[3]);
}

/* What one check has found is relied on in both branches and behind them, across loads that may miss (held_runs.h). */
__attribute__((noinline)) static void meet(struct body* one, const struct body* other, const uint64_t* moves) {
  one->place[0] = other->place[1];
  if (*moves & 1) {
    one->place[1] = other->speed[0];
    one->place[0] += other->mass;
  } else if (*moves & 2) {
    one->place[2] = one->place[0] - other->speed[1];
  }
  one->speed[0] = other->speed[2];
  one->place[0] -= one->place[2];
  one->speed[1] = other->place[0] + one->speed[0];
}
static void hold_branches(unsigned char* memory) {
  struct body* const bodies = (struct body*)memory;
  const size_t n = KERNEL_BYTES / sizeof *bodies;
  memset(memory, 0, KERNEL_BYTES);
  for (size_t i = 0; i < n; ++i) {
    for (int k = 0; k < 3; ++k) bodies[i].speed[k] = (double)(i % 16) + k;
    bodies[i].mass = (float)(i % 5), bodies[i].moves = i;
  }
  uint32_t state = 29;
  for (size_t t = 0; t < 1500; ++t) {
    struct body* const one = &bodies[mix(&state) % n];
    meet(one, &bodies[mix(&state) % n], &bodies[mix(&state) % n].moves);
    for (int k = 0; k < 3; ++k)
      if (!(one->place[k] > -64 && one->place[k] < 64)) one->place[k] = k;
    if (!(one->speed[1] > -64 && one->speed[1] < 64)) one->speed[1] = 1;
  }
  for (size_t t = 0; t < 1500; ++t) {
    struct body* const one = &bodies[mix(&state) % n];
    const struct body* const other = &bodies[mix(&state) % n];
    one->moves = other->moves + t;
    if (other->kind % 2 == 0) one->mass = other->mass + 1;
    one->kind = (uint16_t)(other->kind + 1);
    if (other->age > 3)
      one->age = 0;
    else
      one->age = (uint8_t)(other->age + 1);
    one->moves ^= one->kind;
  }
}

/* The count of a loop's iterations may run out in its last one, and then the hazard is cleared. So nothing is held behind it. */
__attribute__((noinline)) static void wander(struct body* bodies, size_t n, uint64_t* trail, size_t steps) {
  uint32_t state = 31;
  for (size_t round = 0; round < 2000; ++round) {
    struct body* const one = &bodies[mix(&state) % n];
    size_t t = 0;
    do {
      trail[(t * 7 + round) % steps] = one->moves + t;
      one->moves += trail[t] & 3;
    } while (++t < steps);
    one->moves ^= round;
    one->age++;
  }
}
static void hold_behind_loops(unsigned char* memory) {
  struct body* const bodies = (struct body*)memory;
  const size_t half = KERNEL_BYTES / 2;
  memset(memory, 0, KERNEL_BYTES);
  for (size_t steps = 1; steps < 24; steps += 3)
    wander(bodies, half / sizeof *bodies, (uint64_t*)(memory + half), steps);
}

/* What is held is loaded without a check, by the same group as other memory, which may miss before. */
__attribute__((noinline)) static double glance(struct body* bodies, size_t n, size_t rounds) {
  double sum = 0;
  uint32_t state = 37;
  for (size_t round = 0; round < rounds; ++round) {
    struct body* const one = &bodies[mix(&state) % n];
    const struct body* const other = &bodies[mix(&state) % n];
    one->place[0] = (double)(round % 8);
    one->speed[0] = (double)(round % 4);
    sum += other->mass * one->place[1];
  }
  return sum;
}
static void hold_groups(unsigned char* memory) {
  struct body* const bodies = (struct body*)memory;
  const size_t n = KERNEL_BYTES / sizeof *bodies;
  memset(memory, 0, KERNEL_BYTES);
  for (size_t i = 0; i < n; ++i) bodies[i].place[1] = (double)(i % 9), bodies[i].mass = (float)(i % 5);
  for (size_t i = 0; i < 8; ++i) bodies[i].speed[2] = glance(bodies, n, 6000);
}

const struct kernel c_kernels[] = {{"width_8", width_8},
                                   {"parts_of_flag_values", parts_of_flag_values},
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
                                   {"text", text},
                                   {"short_copies", short_copies},
                                   {"atomic_8", atomic_8},
                                   {"atomic_16", atomic_16},
                                   {"atomic_32", atomic_32},
                                   {"atomic_64", atomic_64},
                                   {"atomic_128", atomic_128},
                                   {"atomic_structures", atomic_structures},
                                   {"atomic_unaligned", atomic_unaligned},
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
                                   {"loop_steps", loop_steps},
                                   {"loop_tiles", loop_tiles},
                                   {"loop_guards", loop_guards},
                                   {"hold_scatter", hold_scatter},
                                   {"hold_between", hold_between},
                                   {"hold_stages", hold_stages},
                                   {"hold_pivot", hold_pivot},
                                   {"hold_overlap", hold_overlap},
                                   {"hold_volatile", hold_volatile},
                                   {"hold_functions", hold_functions},
                                   {"hold_branches", hold_branches},
                                   {"hold_behind_loops", hold_behind_loops},
                                   {"hold_groups", hold_groups},
                                   {"versions", versions},
                                   {"private_arguments", private_arguments},
                                   {"list", list},
                                   {"through_pointers", through_pointers},
                                   {NULL, NULL}};
