/* Functions of the C library that touch memory through pointers, for compiled code: the pass calls these where a pointer
 * may be shared (src/instrument/pass/library_calls.cpp has the list). Each does what the function without the prefix does, with
 * the accesses to shared memory checked. C, as fine_grain.h. */
#ifndef MULTIGRAIN_INSTRUMENT_RUNTIME_MEMORY_FUNCTIONS_H
#define MULTIGRAIN_INSTRUMENT_RUNTIME_MEMORY_FUNCTIONS_H

#include <stdarg.h>
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

/* A string that the C library may read: `s` itself if it is private, else a copy, which stays until the caller's thread
 * has asked for 16 more. NULL is allowed. */
const char* __multigrain_string(const char* s);

#ifdef __cplusplus
}
#endif
#endif
