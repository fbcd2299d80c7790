/* This header declares what code that mgcc compiled with -fmultigrain-races calls: the pass (src/races/pass) has LLVM's thread
 * sanitizer put the calls in, and gives them these names. It is written in C, as such headers are. */
#ifndef MULTIGRAIN_RACES_COMPILED_ABI_H
#define MULTIGRAIN_RACES_COMPILED_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MG_RACES_API __attribute__((visibility("default")))
#define MG_RACES_PREFIX "__multigrain_race_"
/* Of the note in each object file (base/object_note.h). */
#define MG_RACES_NOTE_TYPE 5
#define MG_RACES_VERSION 2

/* What the calling thread has accessed lately and need not tell again (recent.h): a table of so many lines, a power of two, of
 * which each is for 64 bytes of the program's. Code looks in it before it calls. With n = address / 64 the line's index is
 * n ^ n >> 12, modulo their number: rows of a matrix at a power of two from each other do not fall on one index. */
#define MG_RACES_RECENT_LINES 4096
#define MG_RACES_RECENT_FOLD 12
struct mg_race_recent_line {
  uint64_t read;    /* a bit for each byte */
  uint64_t address; /* of the first of the 64 bytes */
  uint64_t written;
  uint64_t zero;
};
#ifdef __cplusplus
MG_RACES_API extern constinit thread_local const struct mg_race_recent_line* __multigrain_race_recent;
#endif

/* The program is about to read or write N bytes, at an address that is a multiple of N, or at any. */
#define MG_RACES_ACCESSES(N)                                          \
  MG_RACES_API void __multigrain_race_read##N(const void*);           \
  MG_RACES_API void __multigrain_race_write##N(void*);                \
  MG_RACES_API void __multigrain_race_unaligned_read##N(const void*); \
  MG_RACES_API void __multigrain_race_unaligned_write##N(void*);
MG_RACES_ACCESSES(1)
MG_RACES_ACCESSES(2)
MG_RACES_ACCESSES(4)
MG_RACES_ACCESSES(8)
MG_RACES_ACCESSES(16)
#undef MG_RACES_ACCESSES
MG_RACES_API void __multigrain_race_read_range(const void*, size_t);
MG_RACES_API void __multigrain_race_write_range(void*, size_t);
/* The same for `count` pieces of `bytes` each, of which each begins `stride` bytes behind the one before. */
MG_RACES_API void __multigrain_race_read_strided(const void*, size_t bytes, int64_t stride, uint64_t count);
MG_RACES_API void __multigrain_race_write_strided(void*, size_t bytes, int64_t stride, uint64_t count);
/* The same, of accesses in several lines of the source. `other_lines` has up to so many of them besides the call's own, 16 bits each: how
 * many lines further down it is, or 0. */
#define MG_RACES_OTHER_LINES 4
MG_RACES_API void __multigrain_race_read_lines(const void*, size_t bytes, int64_t stride, uint64_t count,
                                               uint64_t other_lines);
MG_RACES_API void __multigrain_race_write_lines(void*, size_t bytes, int64_t stride, uint64_t count,
                                                uint64_t other_lines);
/* The pointer to an object's virtual functions is read, or written: `value` is the new one. */
MG_RACES_API void __multigrain_race_vptr_read(const void*);
MG_RACES_API void __multigrain_race_vptr_update(void*, const void* value);
/* In the place of the functions without the prefix. */
MG_RACES_API void* __multigrain_race_memcpy(void*, const void*, size_t);
MG_RACES_API void* __multigrain_race_memmove(void*, const void*, size_t);
MG_RACES_API void* __multigrain_race_memset(void*, int, size_t);
/* A function begins, whose call returns to `site`; and it ends. */
MG_RACES_API void __multigrain_race_func_entry(void* site);
MG_RACES_API void __multigrain_race_func_exit(void);

/* Around an atomic operation of `size` bytes; `what` is made of these. The first returns what the second is to be given. */
enum mg_race_atomic {
  MG_RACE_ACQUIRES = 1,
  MG_RACE_RELEASES = 2,
  MG_RACE_READS = 4,
  MG_RACE_WRITES = 8,
};
MG_RACES_API void* __multigrain_race_begin_atomic(const void*);
MG_RACES_API void __multigrain_race_end_atomic(void* begun, const void*, size_t size, uint32_t what);
/* Before a fence that releases, and behind one that acquires. */
MG_RACES_API void __multigrain_race_release_fence(void);
MG_RACES_API void __multigrain_race_acquire_fence(void);
/* Before a call that releases by an object of the program's, such as the guard of a static variable, and behind one that acquires;
 * and the same for objects of POSIX, of which a program of threads tells by itself where they are in shared memory. */
MG_RACES_API void __multigrain_race_release(const void*);
MG_RACES_API void __multigrain_race_acquire(const void*);
MG_RACES_API void __multigrain_race_posix_release(const void*);
MG_RACES_API void __multigrain_race_posix_acquire(const void*);

#ifdef __cplusplus
}
#endif
#endif
