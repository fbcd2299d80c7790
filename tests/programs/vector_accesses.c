// Built-in functions of x86 that access memory lane by lane, on shared memory whose lines are another node's.
#include <immintrin.h>
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <string.h>

enum { kCount = 512 };
struct data {
  double numbers[kCount];
  float singles[kCount];
  int indices[kCount];
  long wide[kCount];
  unsigned char bytes[4 * kCount];
};
static struct data* shared;

__attribute__((noinline)) static void work(struct data* d, double* sums) {
  __m256d sum = _mm256_setzero_pd(), some = _mm256_setzero_pd();
  __m128 narrow = _mm_setzero_ps();
  __m256i longs = _mm256_setzero_si256();
  const __m256d odd = _mm256_castsi256_pd(_mm256_set_epi64x(-1, 0, -1, 0));
  for (int i = 0; i < kCount; i += 4) {
    const __m128i at = _mm_loadu_si128((const __m128i*)(d->indices + i));
    const __m256i wide_at = _mm256_loadu_si256((const __m256i*)(d->wide + i));
    sum = _mm256_add_pd(sum, _mm256_i32gather_pd(d->numbers, at, 8));
    some = _mm256_add_pd(some, _mm256_mask_i32gather_pd(_mm256_set1_pd(0.5), d->numbers, at, odd, 8));
    narrow = _mm_add_ps(narrow, _mm256_i64gather_ps(d->singles, wide_at, 4));
    narrow = _mm_add_ps(narrow, _mm_i64gather_ps(d->singles, _mm256_castsi256_si128(wide_at), 4));
    longs = _mm256_add_epi64(longs, _mm256_i64gather_epi64((const long long*)d->wide, wide_at, 8));
  }
  _mm256_storeu_pd(sums, sum);
  _mm256_storeu_pd(sums + 4, some);
  float floats[4];
  _mm_storeu_ps(floats, narrow);
  for (int i = 0; i < 4; i++) sums[8 + i] = (double)floats[i];
  long numbers[4];
  _mm256_storeu_si256((__m256i*)numbers, longs);
  for (int i = 0; i < 4; i++) sums[12 + i] = (double)numbers[i];
  for (int n = 0; n < 4; n++) {
    const __m256i mask = _mm256_set_epi64x(0, n > 2 ? -1 : 0, n > 1 ? -1 : 0, n > 0 ? -1 : 0);
    const __m256d loaded = _mm256_maskload_pd(d->numbers + 100 + 4 * n, mask);
    _mm256_maskstore_pd(d->numbers + 200 + 4 * n, mask, _mm256_add_pd(loaded, _mm256_set1_pd(1)));
    const __m128i mask_of_four = _mm_set_epi32(n, -1, -n, 0);
    const __m128i four = _mm_maskload_epi32(d->indices + 300 + n, mask_of_four);
    _mm_maskstore_epi32(d->indices + 400 + n, mask_of_four, four);
  }
  const __m128i some_bytes = _mm_lddqu_si128((const __m128i*)(d->bytes + 301));
  _mm_maskmoveu_si128(some_bytes, _mm_set1_epi16((short)0x8000), (char*)d->bytes + 405);
}

static void fill(struct data* d) {
  memset(d, 0, sizeof *d);
  for (int i = 0; i < kCount; i++) {
    d->numbers[i] = i, d->singles[i] = (float)i / 4, d->indices[i] = (i * 5) & (kCount - 1),
    d->wide[i] = (i * 7) & (kCount - 1);
    for (int k = 0; k < 4; k++) d->bytes[4 * i + k] = (unsigned char)(255 - i % 7 - k);
  }
}

static double* sums;
static void on_last(void* unused) {
  (void)unused;
  if (mg_processor() != mg_processors() - 1) return;
  double own[16];
  work(shared, own);
  memcpy(sums, own, sizeof own);
}

int main(void) {
  if (!__builtin_cpu_supports("avx2")) return puts("this processor has no AVX2"), 0;
  static struct data expected, found;
  static double expected_sums[16], found_sums[16];
  fill(&expected);
  work(&expected, expected_sums);
  shared = mg_alloc(sizeof *shared, NULL);
  sums = mg_alloc(sizeof expected_sums, NULL);
  fill(shared);
  mg_spawn_all(on_last, NULL);
  memcpy(&found, shared, sizeof found);
  memcpy(found_sums, sums, sizeof found_sums);
  for (int i = 0; i < 16; i++)
    if (found_sums[i] != expected_sums[i])
      return printf("sum %d is %g, not %g\n", i, found_sums[i], expected_sums[i]), 1;
  for (size_t i = 0; i < sizeof expected; i++)
    if (((char*)&found)[i] != ((char*)&expected)[i]) return printf("byte %zu differs\n", i), 1;
  return 0;
}
