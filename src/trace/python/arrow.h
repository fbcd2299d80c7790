// This is a trace as a stream of Arrow record batches, by the Arrow C stream interface (arrow.apache.org/docs/format/
// CStreamInterface.html): what pyarrow, Polars, DuckDB and others read without knowing of Multigrain.
#pragma once

#include <cstdint>
#include <memory>

#include "trace/trace.h"

namespace multigrain::trace {

// These are the structures of the interface, an ABI that is the same everywhere.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

// These become the rows: a reference (address, site, processor, access, size) or an event (position, address, value,
// name, site, processor, kind), each a struct of unsigned columns without nulls, named and as wide as in trace.h.
enum class ArrowRows : uint8_t { kReferences, kEvents };

// Makes a stream that reads `source` when the consumer asks for batches. All batches but the last have at least 65 536
// rows. The consumer must release the stream; batches that it got from the stream live on their own. An error of the
// source is EIO with the error's sentence. Like every such stream it may be used by any thread, but by only one at a
// time.
void make_arrow_stream(std::unique_ptr<TraceSource> source, ArrowRows rows, ArrowArrayStream* out);

}  // namespace multigrain::trace
