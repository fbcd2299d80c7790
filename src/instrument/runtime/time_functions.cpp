// These are wrappers of the C library's functions on calendars and clocks.
#include <ctime>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

using namespace multigrain::checks;

static constexpr size_t kAsciiTime = 26;  // bytes that asctime_r writes

MG_ENTRY struct tm* __multigrain_gmtime(const time_t* time) {
  return gmtime(in(time));
}
MG_ENTRY struct tm* __multigrain_localtime(const time_t* time) {
  return localtime(in(time));
}
MG_ENTRY struct tm* __multigrain_gmtime_r(const time_t* time, struct tm* to) {
  return gmtime_r(in(time), in_out(to)) != nullptr ? to : nullptr;
}
MG_ENTRY struct tm* __multigrain_localtime_r(const time_t* time, struct tm* to) {
  return localtime_r(in(time), in_out(to)) != nullptr ? to : nullptr;
}
MG_ENTRY char* __multigrain_asctime(const struct tm* time) {
  return asctime(in(time));  // NOLINT(bugprone-unsafe-functions): the program calls it
}
MG_ENTRY char* __multigrain_asctime_r(const struct tm* time, char* to) {
  return asctime_r(in(time), InOutBytes(to, kAsciiTime)) != nullptr ? to : nullptr;  // NOLINT: the program calls it
}
MG_ENTRY char* __multigrain_ctime(const time_t* time) {
  return ctime(in(time));
}
MG_ENTRY char* __multigrain_ctime_r(const time_t* time, char* to) {
  return ctime_r(in(time), InOutBytes(to, kAsciiTime)) != nullptr ? to : nullptr;
}
MG_ENTRY time_t __multigrain_mktime(struct tm* time) {
  return mktime(in_out(time));
}
MG_ENTRY time_t __multigrain_timelocal(struct tm* time) {
  return mktime(in_out(time));
}
MG_ENTRY time_t __multigrain_timegm(struct tm* time) {
  return timegm(in_out(time));
}
MG_ENTRY size_t __multigrain_strftime(char* to, size_t size, const char* format, const struct tm* time) {
  return strftime(InOutBytes(to, size), size, Text(format), in(time));
}
MG_ENTRY char* __multigrain_strptime(const char* s, const char* format, struct tm* to) {
  const Text text(s);
  return text.original(strptime(text, Text(format), in_out(to)));
}
MG_ENTRY int __multigrain_timespec_get(struct timespec* to, int base) {
  return timespec_get(in_out(to), base);
}
