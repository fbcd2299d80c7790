// _FORTIFY_SOURCE replaces functions of the C library by forms that are told how much room there is, and end the
// program if that is too little. These are the wrappers of such forms.
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

extern "C" [[noreturn]] void __chk_fail();

using namespace multigrain::checks;

static void require(bool enough) {
  if (!enough) __chk_fail();
}

MG_ENTRY void* __multigrain___memcpy_chk(void* to, const void* from, size_t size, size_t room) {
  require(size <= room);
  return __multigrain_memcpy(to, from, size);
}
MG_ENTRY void* __multigrain___memmove_chk(void* to, const void* from, size_t size, size_t room) {
  require(size <= room);
  return __multigrain_memmove(to, from, size);
}
MG_ENTRY void* __multigrain___mempcpy_chk(void* to, const void* from, size_t size, size_t room) {
  require(size <= room);
  return __multigrain_mempcpy(to, from, size);
}
MG_ENTRY void* __multigrain___memset_chk(void* to, int byte, size_t size, size_t room) {
  require(size <= room);
  return __multigrain_memset(to, byte, size);
}
MG_ENTRY void __multigrain___explicit_bzero_chk(void* to, size_t size, size_t room) {
  require(size <= room);
  __multigrain_memset(to, 0, size);
}
MG_ENTRY char* __multigrain___strcpy_chk(char* to, const char* from, size_t room) {
  const Text source(from);
  require(source.size() < room);
  return __multigrain_strcpy(to, source);
}
MG_ENTRY char* __multigrain___stpcpy_chk(char* to, const char* from, size_t room) {
  const Text source(from);
  require(source.size() < room);
  return __multigrain_stpcpy(to, source);
}
MG_ENTRY char* __multigrain___strncpy_chk(char* to, const char* from, size_t size, size_t room) {
  require(size <= room);
  return __multigrain_strncpy(to, from, size);
}
MG_ENTRY char* __multigrain___stpncpy_chk(char* to, const char* from, size_t size, size_t room) {
  require(size <= room);
  return __multigrain_stpncpy(to, from, size);
}
MG_ENTRY char* __multigrain___strcat_chk(char* to, const char* from, size_t room) {
  const Text source(from);
  const size_t before = __multigrain_strnlen(to, room);
  require(source.size() < room - before);
  return __multigrain_strcat(to, source);
}
MG_ENTRY char* __multigrain___strncat_chk(char* to, const char* from, size_t size, size_t room) {
  const Text source(from, size);
  const size_t before = __multigrain_strnlen(to, room);
  require(source.size() < room - before);
  return __multigrain_strncat(to, from, size);
}
MG_ENTRY int* __multigrain___wmemset_chk(int* to, int c, size_t count, size_t room) {
  require(count <= room);
  return __multigrain_wmemset(to, c, count);
}
MG_ENTRY int* __multigrain___wmemcpy_chk(int* to, const int* from, size_t count, size_t room) {
  require(count <= room);
  return __multigrain_wmemcpy(to, from, count);
}
MG_ENTRY int* __multigrain___wmemmove_chk(int* to, const int* from, size_t count, size_t room) {
  require(count <= room);
  return __multigrain_wmemmove(to, from, count);
}
MG_ENTRY int* __multigrain___wcscpy_chk(int* to, const int* from, size_t room) {
  require(__multigrain_wcslen(from) < room);
  return __multigrain_wcscpy(to, from);
}
MG_ENTRY int* __multigrain___wcscat_chk(int* to, const int* from, size_t room) {
  const size_t before = __multigrain_wcsnlen(to, room);
  require(__multigrain_wcslen(from) < room - before);
  return __multigrain_wcscat(to, from);
}
MG_ENTRY char* __multigrain___fgets_chk(char* to, size_t room, int size, FILE* stream) {
  require(size <= 0 || static_cast<size_t>(size) <= room);
  return __multigrain_fgets(to, size, stream);
}
MG_ENTRY char* __multigrain___realpath_chk(const char* path, char* to, size_t room) {
  require(room >= PATH_MAX);
  return __multigrain_realpath(path, to);
}
MG_ENTRY int __multigrain___gethostname_chk(char* to, size_t size, size_t room) {
  require(size <= room);
  return __multigrain_gethostname(to, size);
}
MG_ENTRY char* __multigrain___getcwd_chk(char* to, size_t size, size_t room) {
  require(size <= room);
  return getcwd(to, size);  // the runtime interposes the C library's getcwd
}
MG_ENTRY size_t __multigrain___mbstowcs_chk(int* to, const char* from, size_t count, size_t room) {
  require(count <= room);
  return __multigrain_mbstowcs(to, from, count);
}
MG_ENTRY size_t __multigrain___wcstombs_chk(char* to, const int* from, size_t count, size_t room) {
  require(count <= room);
  return __multigrain_wcstombs(to, from, count);
}
