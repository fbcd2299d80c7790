// These are traces that other tools wrote as text, as sources. Nothing is kept in memory but a batch and the names.
//
// Errors name the file, the line, and the byte at which that begins. They come after all references and events before that line have been delivered.
// header() grows while the text is read: its processors, sites and names are complete for every batch that next() has
// returned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct ImportOptions {
  // A processor from this number on is an error; 0: there are as many as the text has.
  unsigned processors = 0;
  // This says whether instruction fetches of Lackey and of drmemtrace become counts of private references. They are ignored
  // otherwise.
  bool count_instructions = true;
};

class ImportSource : public TraceSource {
 public:
  // These are sizes of the text: of the part that has been read, and of all of it if that is known (0: a pipe).
  [[nodiscard]] virtual uint64_t bytes_read() const = 0;
  [[nodiscard]] virtual uint64_t bytes_total() const = 0;
};

// Reads what `valgrind --tool=lackey --trace-mem=yes` printed: lines "I  addr,size" (an instruction), " L addr,size" (a
// load), " S addr,size" (a store) and " M addr,size" (both), addresses in hexadecimal. Lines that begin with "==" are
// Valgrind's own and are skipped; a text with such lines before its references and none behind them is cut off, which is an error,
// as is a last line without an end. Lackey does not say which thread it was: all is processor 0's. An instruction that
// refers to memory is a site, whose function is its address ("0x401136"). A read of more than 255 bytes becomes
// several. "-" is standard input.
Result<std::unique_ptr<ImportSource>> open_lackey(const std::string& path, ImportOptions options = {});

// Reads comma-separated values. The first line names the columns, in any order:
//   access     required: r, read, w or write; or an event: private, allocate, free, acquire, release, barrier, start,
//              end
//   address    required for references, allocate and free; decimal, or hexadecimal after 0x
//   processor  from 0; without the column all is processor 0's
//   size       bytes, default 8; of a private event: how many references; of an allocate event: bytes
//   site       FILE:LINE, FILE:LINE:FUNCTION or a FUNCTION; empty: not known
//   name       of an allocation
//   time       any whole number; the rows must be in its order
// Fields may be quoted ("a, b"; "" for a quote). Empty lines and lines that begin with # are skipped. A last line without a
// newline is an error: it may be cut off. The path "-" is standard input.
Result<std::unique_ptr<ImportSource>> open_csv(const std::string& path, ImportOptions options = {});

// Reads what DynamoRIO's tool `view` printed of a drmemtrace trace (`drrun -t drmemtrace -indir DIRECTORY -tool view`, which
// writes to standard error): lines "RECORD INSTRUCTION: THREAD DETAILS" between "Output format:" and "View tool results:". Threads are
// processors in the order in which they appear. A site is the address of the instruction ("0x401136"). Markers, prefetches and
// flushes are skipped. A text without its end, or with a line that `view` does not print, is an error. "-" is standard input.
Result<std::unique_ptr<ImportSource>> open_drmemtrace(const std::string& path, ImportOptions options = {});

// Reads memory samples of `perf mem record` as `perf script -F tid,time,event,addr,data_src,ip,sym` prints them, a line each, in
// the order of time; the fields comm, pid and cpu may be there as well. Threads are processors in the order in which they
// appear. A sample is a reference to one byte, because it says no more. Prefetches and other operations than loads and stores are
// skipped. Lines that begin with # are skipped. What was not sampled is missing, so this tells who uses which memory, and not what
// a placement costs. A text whose last line has no end is an error. "-" is standard input.
Result<std::unique_ptr<ImportSource>> open_perf(const std::string& path, ImportOptions options = {});

}  // namespace multigrain::trace
