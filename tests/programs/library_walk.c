// Every function of C that has a wrapper (wrapped_functions.def), on private memory and on shared memory whose lines
// are another node's: what it returns and leaves must be the same. The list itself says which there are, so that a
// wrapper without a case is an error. Built with -fno-builtin and with unchecked calls as errors: a case whose call
// does not go to a wrapper does not compile.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <multigrain/multigrain.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

// A case works on this. No pointers stay in it, because private and shared memory are compared byte by byte.
struct arena {
  char text[128];   // "hello, shared world"
  char other[128];  // "shared"
  char path[64];
  char out[5000];
  wchar_t wide[32];  // L"wide, world"
  wchar_t wide_other[32];
  wchar_t wide_out[256];
  double d[8];
  float f[8];
  long double x[4];
  int i[32];
  long l[32];
  unsigned u[4];
  unsigned short state[8];
  struct drand48_data drand;
  struct tm tm;
  time_t t;
  sigset_t set;
  mbstate_t mb;
  fpos_t position;
  char* p[4];  // cleared at the end
  wchar_t* w[4];
  size_t n[4];
  void* v[4];
  pthread_t thread;
  struct timespec now;
};

static void fill(struct arena* a) {
  memset(a, 0, sizeof *a);
  strcpy(a->text, "hello, shared world");
  strcpy(a->other, "shared");
  strcpy(a->path, "/usr/../tmp");
  wcscpy(a->wide, L"wide, world");
  wcscpy(a->wide_other, L"world");
  for (int k = 0; k < 32; k++) a->i[k] = (k * 7) % 32;
  for (int k = 0; k < 8; k++) a->state[k] = (unsigned short)(k + 1), a->d[k] = k + 0.25, a->f[k] = (float)k + 0.5f;
  a->u[0] = 42;
  a->t = 86400 * 365;
  a->tm = (struct tm){.tm_year = 71, .tm_mon = 4, .tm_mday = 6, .tm_hour = 7, .tm_isdst = 0};
  srand48_r(7, &a->drand);
}
static long at(struct arena* a, const void* p) {
  return p == NULL ? -1 : (const char*)p - (const char*)a;
}
static int by_int(const void* l, const void* r) {
  return *(const int*)l - *(const int*)r;
}
static int by_int_more(const void* l, const void* r, void* more) {
  return by_int(l, r) * *(int*)more;
}
static int by_text(const void* l, const void* r) {
  return strcmp(l, r);
}
static FILE* input(const char* text) {
  FILE* file = tmpfile();
  fputs(text, file);
  rewind(file);
  return file;
}
// Stores what was written to a stream or descriptor into the arena.
static void back(struct arena* a, FILE* file) {
  fflush(file);
  rewind(file);
  char line[256] = {0};
  size_t got = fread(line, 1, sizeof line - 1, file);
  memcpy(a->out + 2000, line, got + 1);
  fclose(file);
}
static FILE* saved_stdout;
static int saved_fd;
static void begin_stdout(void) {
  fflush(stdout);
  saved_fd = dup(1);
  saved_stdout = tmpfile();
  dup2(fileno(saved_stdout), 1);
}
static void end_stdout(struct arena* a) {
  fflush(stdout);
  dup2(saved_fd, 1);
  close(saved_fd);
  back(a, saved_stdout);
}
static void begin_stderr(void) {
  fflush(stderr);
  saved_fd = dup(2);
  saved_stdout = tmpfile();
  dup2(fileno(saved_stdout), 2);
}
static void end_stderr(struct arena* a) {
  fflush(stderr);
  dup2(saved_fd, 2);
  close(saved_fd);
  back(a, saved_stdout);
}
static void* thread(void* p) {
  return p;
}
static void* twice(void* p) {
  return (char*)p + 1;
}

// More strings than a call has registers for, all of them shared.
#define FOUR_STRINGS(a) (a)->other, (a)->text, (a)->text, (a)->other
#define TWENTY_STRINGS(a)                                                                                           \
  "%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%c", FOUR_STRINGS(a), FOUR_STRINGS(a), FOUR_STRINGS(a), FOUR_STRINGS(a), \
      FOUR_STRINGS(a)

#define V(name, parameters, call)     \
  static int list_##name parameters { \
    va_list list;                     \
    va_start(list, format);           \
    int result = call;                \
    va_end(list);                     \
    return result;                    \
  }
V(vprintf, (const char* format, ...), vprintf(format, list))
V(vfprintf, (FILE * file, const char* format, ...), vfprintf(file, format, list))
V(vdprintf, (int fd, const char* format, ...), vdprintf(fd, format, list))
V(vsprintf, (char* to, const char* format, ...), vsprintf(to, format, list))
V(vsnprintf, (char* to, size_t n, const char* format, ...), vsnprintf(to, n, format, list))
V(vasprintf, (char** to, const char* format, ...), vasprintf(to, format, list))
V(vscanf, (const char* format, ...), vscanf(format, list))
V(vfscanf, (FILE * file, const char* format, ...), vfscanf(file, format, list))
V(vsscanf, (const char* text, const char* format, ...), vsscanf(text, format, list))
V(vsyslog, (int level, const char* format, ...), (vsyslog(level, format, list), 0))

void bcopy(const void*, void*, size_t);
extern void* __memcpy_chk(void*, const void*, size_t, size_t);
extern void* __memmove_chk(void*, const void*, size_t, size_t);
extern void* __mempcpy_chk(void*, const void*, size_t, size_t);
extern void* __memset_chk(void*, int, size_t, size_t);
extern void __explicit_bzero_chk(void*, size_t, size_t);
extern char* __strcpy_chk(char*, const char*, size_t);
extern char* __stpcpy_chk(char*, const char*, size_t);
extern char* __strncpy_chk(char*, const char*, size_t, size_t);
extern char* __stpncpy_chk(char*, const char*, size_t, size_t);
extern char* __strcat_chk(char*, const char*, size_t);
extern char* __strncat_chk(char*, const char*, size_t, size_t);
extern wchar_t* __wmemset_chk(wchar_t*, wchar_t, size_t, size_t);
extern wchar_t* __wmemcpy_chk(wchar_t*, const wchar_t*, size_t, size_t);
extern wchar_t* __wmemmove_chk(wchar_t*, const wchar_t*, size_t, size_t);
extern wchar_t* __wcscpy_chk(wchar_t*, const wchar_t*, size_t);
extern wchar_t* __wcscat_chk(wchar_t*, const wchar_t*, size_t);
extern char* __fgets_chk(char*, size_t, int, FILE*);
extern char* __realpath_chk(const char*, char*, size_t);
extern int __gethostname_chk(char*, size_t, size_t);
extern char* __getcwd_chk(char*, size_t, size_t);
extern size_t __mbstowcs_chk(wchar_t*, const char*, size_t, size_t);
extern size_t __wcstombs_chk(char*, const wchar_t*, size_t, size_t);
extern int __printf_chk(int, const char*, ...);
extern int __fprintf_chk(FILE*, int, const char*, ...);
extern int __dprintf_chk(int, int, const char*, ...);
extern int __sprintf_chk(char*, int, size_t, const char*, ...);
extern int __snprintf_chk(char*, size_t, int, size_t, const char*, ...);
extern int __asprintf_chk(char**, int, const char*, ...);
extern int __vprintf_chk(int, const char*, va_list);
extern int __vfprintf_chk(FILE*, int, const char*, va_list);
extern int __vdprintf_chk(int, int, const char*, va_list);
extern int __vsprintf_chk(char*, int, size_t, const char*, va_list);
extern int __vsnprintf_chk(char*, size_t, int, size_t, const char*, va_list);
extern int __vasprintf_chk(char**, int, const char*, va_list);
extern int __xpg_strerror_r(int, char*, size_t);
extern char* __strtok_r(char*, const char*, char**);
extern char* __strdup(const char*);
extern char* __strndup(const char*, size_t);
extern ssize_t __getdelim(char**, size_t*, int, FILE*);
extern float __strtof_l(const char*, char**, locale_t);
extern double __strtod_l(const char*, char**, locale_t);
extern long double __strtold_l(const char*, char**, locale_t);
V(vprintf_chk, (const char* format, ...), __vprintf_chk(1, format, list))
V(vfprintf_chk, (FILE * file, const char* format, ...), __vfprintf_chk(file, 1, format, list))
V(vdprintf_chk, (int fd, const char* format, ...), __vdprintf_chk(fd, 1, format, list))
V(vsprintf_chk, (char* to, const char* format, ...), __vsprintf_chk(to, 1, 500, format, list))
V(vsnprintf_chk, (char* to, size_t n, const char* format, ...), __vsnprintf_chk(to, n, 1, 500, format, list))
V(vasprintf_chk, (char** to, const char* format, ...), __vasprintf_chk(to, 1, format, list))

// CASE(name, statements): `r` is what is compared beside the arena.
#define SAVE(string) (strcpy(a->out + 3000, string))
#define NEW(string)                         \
  do {                                      \
    char* made = (string);                  \
    memcpy(a->out, made, strlen(made) + 1); \
    free(made);                             \
  } while (0)
#define CASES                                                                                                          \
  CASE(memcpy, r = at(a, memcpy(a->out + 3, a->text, 100)))                                                            \
  CASE(memmove, r = at(a, memmove(a->text + 3, a->text, 30)))                                                          \
  CASE(memset, r = at(a, memset(a->out + 1, 'x', 999)))                                                                \
  CASE(mempcpy, r = at(a, mempcpy(a->out, a->text, 20)))                                                               \
  CASE(memccpy, r = at(a, memccpy(a->out, a->text, ',', 20)))                                                          \
  CASE(memcmp, r = memcmp(a->text, a->other, 20) > 0)                                                                  \
  CASE(bcmp, r = bcmp(a->text, a->other, 20) != 0)                                                                     \
  CASE(bcopy, bcopy(a->text, a->out, 20))                                                                              \
  CASE(bzero, bzero(a->text, 5))                                                                                       \
  CASE(explicit_bzero, explicit_bzero(a->text, 5))                                                                     \
  CASE(swab, swab(a->text, a->out, 10))                                                                                \
  CASE(memchr, r = at(a, memchr(a->text, 'w', 30)))                                                                    \
  CASE(memrchr, r = at(a, memrchr(a->text, 'o', 30)))                                                                  \
  CASE(rawmemchr, r = at(a, rawmemchr(a->text, 'w')))                                                                  \
  CASE(memmem, r = at(a, memmem(a->text, 20, a->other, 6)))                                                            \
  CASE(strlen, r = (long)strlen(a->text))                                                                              \
  CASE(strnlen, r = (long)strnlen(a->text, 7))                                                                         \
  CASE(strcmp, r = strcmp(a->text + 7, a->other) > 0)                                                                  \
  CASE(strncmp, r = strncmp(a->text + 7, a->other, 6))                                                                 \
  CASE(strcasecmp, r = strcasecmp(a->text, "HELLO, SHARED WORLD"))                                                     \
  CASE(strncasecmp, r = strncasecmp(a->text, "HELLO", 5))                                                              \
  CASE(strcoll, r = strcoll(a->text, a->other) < 0)                                                                    \
  CASE(strverscmp, r = strverscmp(a->text, a->other) < 0)                                                              \
  CASE(strxfrm, r = (long)strxfrm(a->out, a->text, 100))                                                               \
  CASE(strcpy, r = at(a, strcpy(a->out, a->text)))                                                                     \
  CASE(stpcpy, r = at(a, stpcpy(a->out, a->text)))                                                                     \
  CASE(strncpy, r = at(a, strncpy(a->text, a->other, 12)))                                                             \
  CASE(stpncpy, r = at(a, stpncpy(a->text, a->other, 12)))                                                             \
  CASE(strcat, r = at(a, strcat(a->text, a->other)))                                                                   \
  CASE(strncat, r = at(a, strncat(a->text, a->other, 3)))                                                              \
  CASE(strchr, r = at(a, strchr(a->text, 'o')))                                                                        \
  CASE(strrchr, r = at(a, strrchr(a->text, 'o')))                                                                      \
  CASE(strchrnul, r = at(a, strchrnul(a->text, 'z')))                                                                  \
  CASE(index, r = at(a, index(a->text, 'o')))                                                                          \
  CASE(rindex, r = at(a, rindex(a->text, 'o')))                                                                        \
  CASE(strstr, r = at(a, strstr(a->text, a->other)))                                                                   \
  CASE(strcasestr, r = at(a, strcasestr(a->text, "SHARED")))                                                           \
  CASE(strpbrk, r = at(a, strpbrk(a->text, "sw")))                                                                     \
  CASE(strspn, r = (long)strspn(a->text, "hel"))                                                                       \
  CASE(strcspn, r = (long)strcspn(a->text, ","))                                                                       \
  CASE(strtok, r = at(a, strtok(a->text, ", ")); a->l[0] = at(a, strtok(NULL, ", "));                                  \
       a->l[1] = at(a, strtok(NULL, ", ")); a->l[2] = at(a, strtok(NULL, ", ")))                                       \
  CASE(strtok_r, char* rest; r = at(a, strtok_r(a->text, ", ", &rest));                                                \
       a->l[0] = at(a, strtok_r(NULL, a->text + 100, &rest)); a->l[1] = at(a, rest))                                   \
  CASE(__strtok_r, r = at(a, __strtok_r(a->text, ", ", &a->p[0])); a->l[0] = at(a, __strtok_r(NULL, ", ", &a->p[0])))  \
  CASE(strsep, a->p[0] = a->text; r = at(a, strsep(&a->p[0], ", ")); a->l[0] = at(a, strsep(&a->p[0], ", "));          \
       a->l[1] = at(a, a->p[0]))                                                                                       \
  CASE(strdup, NEW(strdup(a->text)))                                                                                   \
  CASE(__strdup, NEW(__strdup(a->text)))                                                                               \
  CASE(strndup, NEW(strndup(a->text, 5)))                                                                              \
  CASE(__strndup, NEW(__strndup(a->text, 5)))                                                                          \
  CASE(qsort, qsort(a->i, 32, sizeof(int), by_int))                                                                    \
  CASE(qsort_r, a->l[0] = 0; int down = -1; qsort_r(a->i, 32, sizeof(int), by_int_more, &down))                        \
  CASE(bsearch, qsort(a->i, 32, sizeof(int), by_int); int key = 11;                                                    \
       r = at(a, bsearch(&key, a->i, 32, sizeof(int), by_int)))                                                        \
  CASE(lfind, a->n[0] = 32; int key = 14; r = at(a, lfind(&key, a->i, &a->n[0], sizeof(int), by_int)))                 \
  CASE(lsearch, a->n[0] = 10; int key = 1000; r = at(a, lsearch(&key, a->i, &a->n[0], sizeof(int), by_int)))           \
  CASE(hsearch_r, struct hsearch_data t = {0}; hcreate_r(10, &t); ENTRY e = {a->text, a->other}, *found;               \
       r = hsearch_r(e, ENTER, &found, &t); a->text[0] = 'j'; ENTRY k = {"hello, shared world", 0};                    \
       hsearch_r(k, FIND, (ENTRY**)&a->v[0], &t); a->text[0] = 'h';                                                    \
       a->l[0] = hsearch_r((ENTRY){a->text, 0}, FIND, &found, &t); a->l[1] = found ? at(a, found->data) : -2;          \
       hdestroy_r(&t))                                                                                                 \
  CASE(hsearch, hcreate(10); hsearch((ENTRY){a->text, a->other}, ENTER);                                               \
       ENTRY* found = hsearch((ENTRY){"hello, shared world", 0}, FIND); r = found ? at(a, found->data) : -2;           \
       hdestroy())                                                                                                     \
  CASE(tsearch, r = *(char**)tsearch(a->text, &a->v[0], by_text) == a->text;                                           \
       r += *(char**)tsearch(a->other, &a->v[0], by_text) == a->other;                                                 \
       tdelete(a->text, &a->v[0], by_text), tdelete(a->other, &a->v[0], by_text))                                      \
  CASE(tfind, tsearch(a->text, &a->v[0], by_text);                                                                     \
       r = at(a, *(void**)tfind("hello, shared world", &a->v[0], by_text)); tdelete(a->text, &a->v[0], by_text))       \
  CASE(tdelete, tsearch(a->text, &a->v[0], by_text); r = tdelete(a->text, &a->v[0], by_text) != NULL;                  \
       a->l[0] = a->v[0] == NULL)                                                                                      \
  CASE(wmemset, r = at(a, wmemset(a->wide_out, L'x', 9)))                                                              \
  CASE(wmemcpy, r = at(a, wmemcpy(a->wide_out, a->wide, 9)))                                                           \
  CASE(wmemmove, r = at(a, wmemmove(a->wide + 1, a->wide, 9)))                                                         \
  CASE(wmempcpy, r = at(a, wmempcpy(a->wide_out, a->wide, 9)))                                                         \
  CASE(wmemcmp, r = wmemcmp(a->wide, a->wide_other, 5) < 0)                                                            \
  CASE(wmemchr, r = at(a, wmemchr(a->wide, L',', 9)))                                                                  \
  CASE(wcslen, r = (long)wcslen(a->wide))                                                                              \
  CASE(wcsnlen, r = (long)wcsnlen(a->wide, 4))                                                                         \
  CASE(wcscmp, r = wcscmp(a->wide, a->wide_other) < 0)                                                                 \
  CASE(wcsncmp, r = wcsncmp(a->wide + 6, a->wide_other, 4))                                                            \
  CASE(wcscoll, r = wcscoll(a->wide, a->wide_other) < 0)                                                               \
  CASE(wcscpy, r = at(a, wcscpy(a->wide_out, a->wide)))                                                                \
  CASE(wcpcpy, r = at(a, wcpcpy(a->wide_out, a->wide)))                                                                \
  CASE(wcsncpy, r = at(a, wcsncpy(a->wide, a->wide_other, 9)))                                                         \
  CASE(wcscat, r = at(a, wcscat(a->wide, a->wide_other)))                                                              \
  CASE(wcsncat, r = at(a, wcsncat(a->wide, a->wide_other, 2)))                                                         \
  CASE(wcschr, r = at(a, wcschr(a->wide, L'w')))                                                                       \
  CASE(wcsrchr, r = at(a, wcsrchr(a->wide, L'w')))                                                                     \
  CASE(wcsstr, r = at(a, wcsstr(a->wide, a->wide_other)))                                                              \
  CASE(wcspbrk, r = at(a, wcspbrk(a->wide, L"dr")))                                                                    \
  CASE(wcsspn, r = (long)wcsspn(a->wide, L"wi"))                                                                       \
  CASE(wcscspn, r = (long)wcscspn(a->wide, L","))                                                                      \
  CASE(wcsdup, wchar_t* made = wcsdup(a->wide); r = wcscmp(made, L"wide, world"); free(made))                          \
  CASE(mbstowcs, r = (long)mbstowcs(a->wide_out, a->text, 30))                                                         \
  CASE(wcstombs, r = (long)wcstombs(a->out, a->wide, 30))                                                              \
  CASE(mbtowc, r = mbtowc(a->wide_out, a->text, 5))                                                                    \
  CASE(wctomb, r = wctomb(a->out, L'z'))                                                                               \
  CASE(mblen, r = mblen(a->text, 5))                                                                                   \
  CASE(mbrtowc, r = (long)mbrtowc(a->wide_out, a->text, 5, &a->mb))                                                    \
  CASE(wcrtomb, r = (long)wcrtomb(a->out, L'z', &a->mb))                                                               \
  CASE(wcstol, wcscpy(a->wide, L"123x"); r = wcstol(a->wide, &a->w[0], 10); a->l[0] = at(a, a->w[0]))                  \
  CASE(wcstoul, wcscpy(a->wide, L"123x"); r = (long)wcstoul(a->wide, &a->w[0], 10); a->l[0] = at(a, a->w[0]))          \
  CASE(wcstoll, wcscpy(a->wide, L"123x"); r = wcstoll(a->wide, &a->w[0], 10); a->l[0] = at(a, a->w[0]))                \
  CASE(wcstoull, wcscpy(a->wide, L"123x"); r = (long)wcstoull(a->wide, &a->w[0], 10); a->l[0] = at(a, a->w[0]))        \
  CASE(wcstod, wcscpy(a->wide, L"1.5x"); a->d[0] = wcstod(a->wide, &a->w[0]); a->l[0] = at(a, a->w[0]))                \
  CASE(wcstof, wcscpy(a->wide, L"1.5x"); a->f[0] = wcstof(a->wide, &a->w[0]); a->l[0] = at(a, a->w[0]))                \
  CASE(fputws, FILE* file = tmpfile(); r = fputws(a->wide, file) >= 0; back(a, file))                                  \
  CASE(strtol, strcpy(a->text, "-12x"); r = strtol(a->text, &a->p[0], 10); a->l[0] = at(a, a->p[0]))                   \
  CASE(strtoul, strcpy(a->text, "12x"); r = (long)strtoul(a->text, &a->p[0], 10); a->l[0] = at(a, a->p[0]))            \
  CASE(strtoll, strcpy(a->text, "-12x"); r = strtoll(a->text, &a->p[0], 10); a->l[0] = at(a, a->p[0]))                 \
  CASE(strtoull, strcpy(a->text, "12x"); r = (long)strtoull(a->text, &a->p[0], 10); a->l[0] = at(a, a->p[0]))          \
  CASE(strtoimax, strcpy(a->text, "12x"); r = strtoimax(a->text, &a->p[0], 10); a->l[0] = at(a, a->p[0]))              \
  CASE(strtoumax, strcpy(a->text, "12x"); r = (long)strtoumax(a->text, &a->p[0], 10); a->l[0] = at(a, a->p[0]))        \
  CASE(strtof, strcpy(a->text, "1.5x"); a->f[0] = strtof(a->text, &a->p[0]); a->l[0] = at(a, a->p[0]))                 \
  CASE(strtod, strcpy(a->text, "1.5x"); a->d[0] = strtod(a->text, &a->p[0]); a->l[0] = at(a, a->p[0]))                 \
  CASE(strtold, strcpy(a->text, "1.5x"); r = (long)(2 * strtold(a->text, &a->p[0])); a->l[0] = at(a, a->p[0]))         \
  CASE(__strtof_l, strcpy(a->text, "1.5x"); a->f[0] = __strtof_l(a->text, &a->p[0], newlocale(LC_ALL_MASK, "C", 0));   \
       a->l[0] = at(a, a->p[0]))                                                                                       \
  CASE(__strtod_l, strcpy(a->text, "1.5x"); a->d[0] = __strtod_l(a->text, &a->p[0], newlocale(LC_ALL_MASK, "C", 0));   \
       a->l[0] = at(a, a->p[0]))                                                                                       \
  CASE(__strtold_l, strcpy(a->text, "1.5x");                                                                           \
       r = (long)(2 * __strtold_l(a->text, &a->p[0], newlocale(LC_ALL_MASK, "C", 0))))                                 \
  CASE(atoi, strcpy(a->text, "12x"); r = atoi(a->text))                                                                \
  CASE(atol, strcpy(a->text, "12x"); r = atol(a->text))                                                                \
  CASE(atoll, strcpy(a->text, "12x"); r = atoll(a->text))                                                              \
  CASE(atof, strcpy(a->text, "1.5"); a->d[0] = atof(a->text))                                                          \
  CASE(a64l, r = a64l(a->other))                                                                                       \
  CASE(scanf, FILE* file = input("12 words 2.5"); FILE* before = stdin; stdin = file;                                  \
       r = scanf("%d %20s %lf", &a->i[0], a->out, &a->d[0]); stdin = before; fclose(file))                             \
  CASE(fscanf, FILE* file = input("12 words 2.5"); r = fscanf(file, "%d %20s %lf", &a->i[0], a->out, &a->d[0]);        \
       fclose(file))                                                                                                   \
  CASE(sscanf, r = sscanf(a->text, "%[a-z], %s", a->out, a->out + 50))                                                 \
  CASE(vscanf, FILE* file = input("12 words 2.5"); FILE* before = stdin; stdin = file;                                 \
       r = list_vscanf("%d %20s %lf", &a->i[0], a->out, &a->d[0]); stdin = before; fclose(file))                       \
  CASE(vfscanf, FILE* file = input("12 words 2.5"); r = list_vfscanf(file, "%d %20s %lf", &a->i[0], a->out, &a->d[0]); \
       fclose(file))                                                                                                   \
  CASE(vsscanf, r = list_vsscanf(a->text, "%[a-z], %s", a->out, a->out + 50))                                          \
  CASE(printf, begin_stdout(); r = printf("%s %5.2f %n", a->text, 2.5, &a->i[0]); end_stdout(a))                       \
  CASE(fprintf, FILE* file = tmpfile(); r = fprintf(file, "%d %-8s|%.3s|%Lg %d%%", 1, a->other, a->text, 2.5L, 7);     \
       back(a, file))                                                                                                  \
  CASE(dprintf, FILE* file = tmpfile(); r = dprintf(fileno(file), TWENTY_STRINGS(a), 'x'); back(a, file))              \
  CASE(sprintf, r = sprintf(a->out, "%2$s %1$s %3$*4$d", a->text, a->other, 5, 7))                                     \
  CASE(snprintf, r = snprintf(a->out, 30, "%.*s %ls %g %s", 4, a->text, a->wide, 0.5, a->other))                       \
  CASE(asprintf, r = asprintf(&a->p[0], "%s-%s", a->text, a->other); NEW(a->p[0]))                                     \
  CASE(vprintf, begin_stdout(); r = list_vprintf("%s %5.2f %n", a->text, 2.5, &a->i[0]); end_stdout(a))                \
  CASE(vfprintf, FILE* file = tmpfile(); r = list_vfprintf(file, "%d %s %g %g %g %g %g %g %g %g %g %s", 1, a->text,    \
                                                           1., 2., 3., 4., 5., 6., 7., 8., 9., a->other);              \
       back(a, file))                                                                                                  \
  CASE(vdprintf, FILE* file = tmpfile(); r = list_vdprintf(fileno(file), TWENTY_STRINGS(a), 'x'); back(a, file))       \
  CASE(vsprintf, r = list_vsprintf(a->out, "%s %Lg %d %d %d %d %d %d %s", a->text, 2.5L, 1, 2, 3, 4, 5, 6, a->other))  \
  CASE(vsnprintf, r = list_vsnprintf(a->out, 9, "%s", a->text))                                                        \
  CASE(vasprintf, r = list_vasprintf(&a->p[0], "%s-%s", a->text, a->other); NEW(a->p[0]))                              \
  CASE(syslog, syslog(LOG_DEBUG, "%s", a->text))                                                                       \
  CASE(vsyslog, list_vsyslog(LOG_DEBUG, "%s", a->text))                                                                \
  CASE(warn, begin_stderr(); errno = ENOENT; warn("%s", a->text); end_stderr(a))                                       \
  CASE(warnx, begin_stderr(); warnx("%s", a->text); end_stderr(a))                                                     \
  CASE(__printf_chk, begin_stdout(); r = __printf_chk(1, "%s", a->text); end_stdout(a))                                \
  CASE(__fprintf_chk, FILE* file = tmpfile(); r = __fprintf_chk(file, 1, "%s", a->text); back(a, file))                \
  CASE(__dprintf_chk, FILE* file = tmpfile(); r = __dprintf_chk(fileno(file), 1, "%s", a->text); back(a, file))        \
  CASE(__sprintf_chk, r = __sprintf_chk(a->out, 1, 500, "%s", a->text))                                                \
  CASE(__snprintf_chk, r = __snprintf_chk(a->out, 9, 1, 500, "%s", a->text))                                           \
  CASE(__asprintf_chk, r = __asprintf_chk(&a->p[0], 1, "%s", a->text); NEW(a->p[0]))                                   \
  CASE(__vprintf_chk, begin_stdout(); r = list_vprintf_chk("%s", a->text); end_stdout(a))                              \
  CASE(__vfprintf_chk, FILE* file = tmpfile(); r = list_vfprintf_chk(file, "%s", a->text); back(a, file))              \
  CASE(__vdprintf_chk, FILE* file = tmpfile(); r = list_vdprintf_chk(fileno(file), "%s", a->text); back(a, file))      \
  CASE(__vsprintf_chk, r = list_vsprintf_chk(a->out, "%s", a->text))                                                   \
  CASE(__vsnprintf_chk, r = list_vsnprintf_chk(a->out, 9, "%s", a->text))                                              \
  CASE(__vasprintf_chk, r = list_vasprintf_chk(&a->p[0], "%s", a->text); NEW(a->p[0]))                                 \
  CASE(__memcpy_chk, r = at(a, __memcpy_chk(a->out, a->text, 20, 500)))                                                \
  CASE(__memmove_chk, r = at(a, __memmove_chk(a->text + 1, a->text, 20, 90)))                                          \
  CASE(__mempcpy_chk, r = at(a, __mempcpy_chk(a->out, a->text, 20, 500)))                                              \
  CASE(__memset_chk, r = at(a, __memset_chk(a->out, 7, 20, 500)))                                                      \
  CASE(__explicit_bzero_chk, __explicit_bzero_chk(a->text, 4, 90))                                                     \
  CASE(__strcpy_chk, r = at(a, __strcpy_chk(a->out, a->text, 500)))                                                    \
  CASE(__stpcpy_chk, r = at(a, __stpcpy_chk(a->out, a->text, 500)))                                                    \
  CASE(__strncpy_chk, r = at(a, __strncpy_chk(a->text, a->other, 9, 90)))                                              \
  CASE(__stpncpy_chk, r = at(a, __stpncpy_chk(a->text, a->other, 9, 90)))                                              \
  CASE(__strcat_chk, r = at(a, __strcat_chk(a->text, a->other, 90)))                                                   \
  CASE(__strncat_chk, r = at(a, __strncat_chk(a->text, a->other, 3, 90)))                                              \
  CASE(__wmemset_chk, r = at(a, __wmemset_chk(a->wide_out, L'y', 5, 90)))                                              \
  CASE(__wmemcpy_chk, r = at(a, __wmemcpy_chk(a->wide_out, a->wide, 5, 90)))                                           \
  CASE(__wmemmove_chk, r = at(a, __wmemmove_chk(a->wide + 1, a->wide, 5, 20)))                                         \
  CASE(__wcscpy_chk, r = at(a, __wcscpy_chk(a->wide_out, a->wide, 90)))                                                \
  CASE(__wcscat_chk, r = at(a, __wcscat_chk(a->wide, a->wide_other, 30)))                                              \
  CASE(__fgets_chk, FILE* file = input("a line\nanother"); r = at(a, __fgets_chk(a->out, 100, 50, file));              \
       fclose(file))                                                                                                   \
  CASE(__realpath_chk, r = at(a, __realpath_chk(a->path, a->out, PATH_MAX)))                                           \
  CASE(__gethostname_chk, r = __gethostname_chk(a->out, 100, 500))                                                     \
  CASE(__getcwd_chk, r = at(a, __getcwd_chk(a->out, 4000, 5000)))                                                      \
  CASE(__mbstowcs_chk, r = (long)__mbstowcs_chk(a->wide_out, a->text, 30, 90))                                         \
  CASE(__wcstombs_chk, r = (long)__wcstombs_chk(a->out, a->wide, 30, 90))                                              \
  CASE(frexp, a->d[0] = frexp(48, &a->i[0]))                                                                           \
  CASE(frexpf, a->f[0] = frexpf(48, &a->i[0]))                                                                         \
  CASE(frexpl, a->d[0] = (double)frexpl(48, &a->i[0]))                                                                 \
  CASE(modf, a->d[0] = modf(3.25, &a->d[1]))                                                                           \
  CASE(modff, a->f[0] = modff(3.25f, &a->f[1]))                                                                        \
  CASE(modfl, a->d[0] = (double)modfl(3.25L, &a->x[1]))                                                                \
  CASE(sincos, sincos(1, &a->d[0], &a->d[1]))                                                                          \
  CASE(sincosf, sincosf(1, &a->f[0], &a->f[1]))                                                                        \
  CASE(sincosl, sincosl(1, &a->x[0], &a->x[1]))                                                                        \
  CASE(remquo, a->d[0] = remquo(29, 3, &a->i[0]))                                                                      \
  CASE(remquof, a->f[0] = remquof(29, 3, &a->i[0]))                                                                    \
  CASE(remquol, a->d[0] = (double)remquol(29, 3, &a->i[0]))                                                            \
  CASE(lgamma_r, a->d[0] = lgamma_r(-0.5, &a->i[0]))                                                                   \
  CASE(lgammaf_r, a->f[0] = lgammaf_r(-0.5f, &a->i[0]))                                                                \
  CASE(lgammal_r, a->d[0] = (double)lgammal_r(-0.5L, &a->i[0]))                                                        \
  CASE(nan, strcpy(a->text, "5"); double n = nan(a->text); memcpy(&r, &n, sizeof r))                                   \
  CASE(nanf, strcpy(a->text, "5"); float n = nanf(a->text); memcpy(&r, &n, sizeof n))                                  \
  CASE(nanl, strcpy(a->text, "5"); long double n = nanl(a->text); memcpy(&r, &n, sizeof r))                            \
  CASE(rand_r, r = rand_r(&a->u[0]))                                                                                   \
  CASE(erand48, a->d[0] = erand48(a->state))                                                                           \
  CASE(nrand48, r = nrand48(a->state))                                                                                 \
  CASE(jrand48, r = jrand48(a->state))                                                                                 \
  CASE(seed48, seed48(a->state); r = lrand48())                                                                        \
  CASE(lcong48, lcong48(a->state); r = lrand48(); srand48(1))                                                          \
  CASE(drand48_r, r = drand48_r(&a->drand, &a->d[0]))                                                                  \
  CASE(lrand48_r, r = lrand48_r(&a->drand, &a->l[0]))                                                                  \
  CASE(mrand48_r, r = mrand48_r(&a->drand, &a->l[0]))                                                                  \
  CASE(erand48_r, r = erand48_r(a->state, &a->drand, &a->d[0]))                                                        \
  CASE(nrand48_r, r = nrand48_r(a->state, &a->drand, &a->l[0]))                                                        \
  CASE(jrand48_r, r = jrand48_r(a->state, &a->drand, &a->l[0]))                                                        \
  CASE(srand48_r, r = srand48_r(11, &a->drand))                                                                        \
  CASE(gmtime, r = gmtime(&a->t)->tm_year)                                                                             \
  CASE(localtime, r = localtime(&a->t)->tm_year)                                                                       \
  CASE(gmtime_r, r = at(a, gmtime_r(&a->t, &a->tm)); a->tm.tm_zone = 0)                                                \
  CASE(localtime_r, r = at(a, localtime_r(&a->t, &a->tm)); a->tm.tm_zone = 0)                                          \
  CASE(asctime, SAVE(asctime(&a->tm)))                                                                                 \
  CASE(asctime_r, r = at(a, asctime_r(&a->tm, a->out)))                                                                \
  CASE(ctime, SAVE(ctime(&a->t)))                                                                                      \
  CASE(ctime_r, r = at(a, ctime_r(&a->t, a->out)))                                                                     \
  CASE(mktime, r = mktime(&a->tm); a->tm.tm_zone = 0)                                                                  \
  CASE(timelocal, r = timelocal(&a->tm); a->tm.tm_zone = 0)                                                            \
  CASE(timegm, r = timegm(&a->tm); a->tm.tm_zone = 0)                                                                  \
  CASE(strftime, strcpy(a->other, "%Y-%m-%d"); r = (long)strftime(a->out, 500, a->other, &a->tm))                      \
  CASE(strptime, strcpy(a->text, "1999-12-31 x"); r = at(a, strptime(a->text, "%Y-%m-%d", &a->tm)))                    \
  CASE(timespec_get, r = timespec_get(&a->now, TIME_UTC); a->l[0] = a->now.tv_sec > 1000;                              \
       memset(&a->now, 0, sizeof a->now))                                                                              \
  CASE(inet_ntop, a->u[0] = htonl(0x7f000001); r = at(a, inet_ntop(AF_INET, &a->u[0], a->out, 50)))                    \
  CASE(inet_pton, strcpy(a->text, "127.0.0.1"); r = inet_pton(AF_INET, a->text, &a->u[1]))                             \
  CASE(inet_aton, strcpy(a->text, "127.0.0.1"); r = inet_aton(a->text, (struct in_addr*)&a->u[1]))                     \
  CASE(inet_addr, strcpy(a->text, "127.0.0.1"); r = inet_addr(a->text))                                                \
  CASE(gethostname, r = gethostname(a->out, 100))                                                                      \
  CASE(getdomainname, r = getdomainname(a->out, 100))                                                                  \
  CASE(realpath, r = at(a, realpath(a->path, a->out)))                                                                 \
  CASE(getenv, strcpy(a->text, "PATH"); r = getenv(a->text) != NULL)                                                   \
  CASE(secure_getenv, strcpy(a->text, "PATH"); r = secure_getenv(a->text) != NULL)                                     \
  CASE(setenv, strcpy(a->text, "MG_WALK"); setenv(a->text, a->other, 1); SAVE(getenv("MG_WALK")))                      \
  CASE(unsetenv, strcpy(a->text, "MG_WALK"); setenv("MG_WALK", "1", 1); unsetenv(a->text);                             \
       r = getenv("MG_WALK") == NULL)                                                                                  \
  CASE(putenv, strcpy(a->text, "MG_PUT=put"); r = putenv(a->text); SAVE(getenv("MG_PUT")); unsetenv("MG_PUT"))         \
  CASE(setlocale, strcpy(a->text, "C"); SAVE(setlocale(LC_ALL, a->text)))                                              \
  CASE(strerror_r, char* said = strerror_r(9999, a->out, 100); r = at(a, said))                                        \
  CASE(__xpg_strerror_r, r = __xpg_strerror_r(ENOENT, a->out, 100))                                                    \
  CASE(ttyname_r, r = ttyname_r(0, a->out, 100) != 0)                                                                  \
  CASE(getlogin_r, getlogin_r(a->out, 100))                                                                            \
  CASE(confstr, r = (long)confstr(_CS_PATH, a->out, 100))                                                              \
  CASE(getentropy, r = getentropy(a->out, 64); for (int k = 0; k < 64; k++) a->i[0] |= a->out[k];                      \
       a->i[0] = a->i[0] != 0; memset(a->out, 0, 64))                                                                  \
  CASE(getloadavg, a->d[0] = -1; r = getloadavg(a->d, 1); a->d[0] = a->d[0] >= 0)                                      \
  CASE(pathconf, r = pathconf(a->path, _PC_NAME_MAX))                                                                  \
  CASE(perror, begin_stderr(); errno = ENOENT; perror(a->text); end_stderr(a))                                         \
  CASE(psignal, begin_stderr(); psignal(SIGINT, a->text); end_stderr(a))                                               \
  CASE(fdopen, strcpy(a->text, "w"); FILE* file = fdopen(dup(1), a->text); r = file != NULL; if (file) fclose(file))   \
  CASE(fgets, FILE* file = input("a line\nanother"); r = at(a, fgets(a->out, 100, file)); fclose(file))                \
  CASE(fgets_unlocked, FILE* file = input("a line\nanother"); r = at(a, fgets_unlocked(a->out, 100, file));            \
       fclose(file))                                                                                                   \
  CASE(getline, FILE* file = input("a line\nanother"); r = getline(&a->p[0], &a->n[0], file); NEW(a->p[0]);            \
       fclose(file))                                                                                                   \
  CASE(getdelim, FILE* file = input("a line\nanother"); r = getdelim(&a->p[0], &a->n[0], 'i', file); NEW(a->p[0]);     \
       fclose(file))                                                                                                   \
  CASE(__getdelim, FILE* file = input("a line\nanother"); r = __getdelim(&a->p[0], &a->n[0], 'i', file); NEW(a->p[0]); \
       fclose(file))                                                                                                   \
  CASE(fgetpos, FILE* file = input("a line"); fgetc(file); r = fgetpos(file, &a->position); fgetc(file);               \
       fsetpos(file, &a->position); a->l[0] = fgetc(file); fclose(file))                                               \
  CASE(fsetpos, FILE* file = input("a line"); fgetpos(file, &a->position); fgetc(file);                                \
       r = fsetpos(file, &a->position); a->l[0] = fgetc(file); fclose(file))                                           \
  CASE(sigemptyset, sigfillset(&a->set); r = sigemptyset(&a->set))                                                     \
  CASE(sigfillset, r = sigfillset(&a->set))                                                                            \
  CASE(sigaddset, r = sigaddset(&a->set, SIGUSR1))                                                                     \
  CASE(sigdelset, sigfillset(&a->set); r = sigdelset(&a->set, SIGUSR1))                                                \
  CASE(sigismember, sigaddset(&a->set, SIGUSR1); r = sigismember(&a->set, SIGUSR1))                                    \
  CASE(pthread_create, r = pthread_create(&a->thread, NULL, thread, a->text); void* e; pthread_join(a->thread, &e);    \
       a->l[0] = at(a, e); a->thread = 0)                                                                              \
  CASE(pthread_join, pthread_t t; pthread_create(&t, NULL, twice, a->text); r = pthread_join(t, &a->v[0]);             \
       a->l[0] = at(a, a->v[0]))                                                                                       \
  CASE(dlopen, strcpy(a->text, "libm.so.6"); r = dlopen(a->text, RTLD_NOW) != NULL)                                    \
  CASE(dlsym, strcpy(a->text + 50, "strlen"); size_t (*found)(const char*);                                            \
       *(void**)& found = dlsym(RTLD_DEFAULT, a->text + 50); r = (long)found(a->text))

#define CASE(name, ...)                      \
  static long case_##name(struct arena* a) { \
    long r = 0;                              \
    __VA_ARGS__;                             \
    return r;                                \
  }
CASES
#undef CASE
#define CASE(name, ...) {#name, case_##name},
static const struct {
  const char* name;
  long (*run)(struct arena*);
} cases[] = {CASES};
enum { kCases = sizeof cases / sizeof *cases };

#define MG_WRAPPED(result, name, parameters) #name,
#define MG_WRAPPED_CXX(name)
static const char* const wrapped[] = {
#include "instrument/wrapped_functions.def"
};
#undef MG_WRAPPED
#undef MG_WRAPPED_CXX
#define MG_WRAPPED(result, name, parameters)
#define MG_WRAPPED_CXX(name) #name,
static const char* const wrapped_cxx[] = {
#include "instrument/wrapped_functions.def"
};

static struct arena* shared;
static mg_barrier_t barrier;
static long results[kCases];  // on node 0

// And what lies between the members of struct tm.
static void clear_pointers(struct arena* a) {
  memset(&a->tm.tm_isdst + 1, 0, offsetof(struct tm, tm_gmtoff) - offsetof(struct tm, tm_isdst) - sizeof(int));
  memset(a->p, 0, sizeof a->p);
  memset(a->w, 0, sizeof a->w);
  memset(a->v, 0, sizeof a->v);
}

static int failed;
static long* returned;
static void walk(void* unused) {
  (void)unused;
  const unsigned worker = mg_processors() - 1;
  struct arena* const own = malloc(sizeof *own);
  struct arena* const copy = malloc(sizeof *own);
  for (int k = 0; k < kCases; k++) {
    if (mg_processor() == 0) fill(shared);
    mg_barrier(barrier);
    if (mg_processor() == worker) {
      *returned = cases[k].run(shared);
      clear_pointers(shared);
    }
    mg_barrier(barrier);
    if (mg_processor() != 0) continue;
    fill(own);
    results[k] = cases[k].run(own);
    clear_pointers(own);
    memcpy(copy, shared, sizeof *copy);
    if (*returned != results[k]) {
      fprintf(stderr, "%s: returns %ld of private memory, and %ld of shared\n", cases[k].name, results[k], *returned);
      failed = 1;
    }
    for (size_t at_byte = 0; at_byte < sizeof *own; at_byte++) {
      if (((char*)own)[at_byte] == ((char*)copy)[at_byte]) continue;
      fprintf(stderr, "%s: leaves %02x in byte %zu of private memory, and %02x of shared\n", cases[k].name,
              ((unsigned char*)own)[at_byte], at_byte, ((unsigned char*)copy)[at_byte]);
      failed = 1;
      break;
    }
  }
}

int main(void) {
  for (size_t k = 0; k < sizeof wrapped / sizeof *wrapped; k++) {
    int found = strcmp(wrapped[k], "err") == 0 || strcmp(wrapped[k], "errx") == 0;  // they end the program
    for (int c = 0; c < kCases; c++) found |= strcmp(cases[c].name, wrapped[k]) == 0;
    if (!found) fprintf(stderr, "there is no case for %s\n", wrapped[k]), failed = 1;
  }
  for (size_t k = 0; k < sizeof wrapped_cxx / sizeof *wrapped_cxx; k++) {
    char name[256];
    snprintf(name, sizeof name, "__multigrain_%s", wrapped_cxx[k]);
    if (dlsym(RTLD_DEFAULT, name) == NULL) fprintf(stderr, "there is no %s\n", name), failed = 1;
  }
  shared = mg_alloc(sizeof *shared, NULL);
  returned = mg_alloc(sizeof *returned, NULL);
  barrier = mg_barrier_create(0);
  mg_spawn_all(walk, NULL);
  printf("%d functions\n", kCases);
  return failed;
}
