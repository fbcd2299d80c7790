/* Functions of the C library that touch memory through pointers, for compiled code: the pass calls these where a
 * pointer may be shared (src/instrument/pass/library_calls.cpp has the list). Each does what the function without the
 * prefix does, with the accesses to shared memory checked. C, as fine_grain.h. */
#ifndef MULTIGRAIN_INSTRUMENT_RUNTIME_MEMORY_FUNCTIONS_H
#define MULTIGRAIN_INSTRUMENT_RUNTIME_MEMORY_FUNCTIONS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

void* __multigrain_mempcpy(void* to, const void* from, size_t size);
int __multigrain_memcmp(const void* a, const void* b, size_t size);
int __multigrain_bcmp(const void* a, const void* b, size_t size);
void* __multigrain_memchr(const void* in, int byte, size_t size);
size_t __multigrain_strlen(const char* s);
size_t __multigrain_strnlen(const char* s, size_t size);
int __multigrain_strcmp(const char* a, const char* b);
int __multigrain_strncmp(const char* a, const char* b, size_t size);
char* __multigrain_strcpy(char* to, const char* from);
char* __multigrain_stpcpy(char* to, const char* from);
char* __multigrain_strncpy(char* to, const char* from, size_t size);
char* __multigrain_strcat(char* to, const char* from);
char* __multigrain_strchr(const char* s, int c);
char* __multigrain_strrchr(const char* s, int c);
char* __multigrain_strstr(const char* s, const char* part);
char* __multigrain_strdup(const char* s);
void __multigrain_qsort(void* base, size_t count, size_t size, int (*compare)(const void*, const void*));
int __multigrain_sprintf(char* to, const char* format, ...);
int __multigrain_snprintf(char* to, size_t size, const char* format, ...);
int __multigrain_vsprintf(char* to, const char* format, va_list arguments);
int __multigrain_vsnprintf(char* to, size_t size, const char* format, va_list arguments);
char* __multigrain_fgets(char* to, int size, FILE* stream);

/* Text that is read: the text, its format and the places of the results may be shared. */
long __multigrain_strtol(const char* text, char** end, int base);
unsigned long __multigrain_strtoul(const char* text, char** end, int base);
long long __multigrain_strtoll(const char* text, char** end, int base);
unsigned long long __multigrain_strtoull(const char* text, char** end, int base);
float __multigrain_strtof(const char* text, char** end);
double __multigrain_strtod(const char* text, char** end);
long double __multigrain_strtold(const char* text, char** end);
int __multigrain_scanf(const char* format, ...);
int __multigrain_fscanf(FILE* stream, const char* format, ...);
int __multigrain_sscanf(const char* text, const char* format, ...);
int __multigrain_vscanf(const char* format, va_list arguments);
int __multigrain_vfscanf(FILE* stream, const char* format, va_list arguments);
int __multigrain_vsscanf(const char* text, const char* format, va_list arguments);

/* The compiler's library of atomic operations (libatomic), on objects of any size. `real` is the library's function, for
 * an object that is private: code that has no checks may use it, too. */
void __multigrain_atomic_load(size_t size, const void* object, void* value, int order,
                              void (*real)(size_t, const void*, void*, int));
void __multigrain_atomic_store(size_t size, void* object, const void* value, int order,
                               void (*real)(size_t, void*, const void*, int));
void __multigrain_atomic_exchange(size_t size, void* object, const void* value, void* old_value, int order,
                                  void (*real)(size_t, void*, const void*, void*, int));
bool __multigrain_atomic_compare_exchange(size_t size, void* object, void* expected, const void* desired, int success,
                                          int failure, bool (*real)(size_t, void*, void*, const void*, int, int));

/* A string that the C library may read: `s` itself if it is private, else a copy, which stays until the caller's thread
 * has asked for 16 more. NULL is allowed. */
const char* __multigrain_string(const char* s);

#ifdef __cplusplus
}
#endif
#endif
