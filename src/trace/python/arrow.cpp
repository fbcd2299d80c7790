#include "trace/python/arrow.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <vector>

namespace multigrain::trace {
namespace {

struct Column {
  const char* name;
  const char* format;  // the Arrow format string of the type
  size_t offset, bytes;
};

template <typename T>
constexpr const char* format_of() {
  constexpr std::array<const char*, 9> kFormats = {"", "C", "S", "", "I", "", "", "", "L"};
  return kFormats[sizeof(T)];
}

#define MG_COLUMN(Type, field)                                                             \
  Column {                                                                                 \
    #field, format_of<decltype(Type::field)>(), offsetof(Type, field), sizeof(Type::field) \
  }
constexpr Column kReferenceColumns[] = {MG_COLUMN(Reference, address), MG_COLUMN(Reference, site),
                                        MG_COLUMN(Reference, processor), MG_COLUMN(Reference, access),
                                        MG_COLUMN(Reference, size)};
constexpr Column kEventColumns[] = {MG_COLUMN(Event, position), MG_COLUMN(Event, address), MG_COLUMN(Event, value),
                                    MG_COLUMN(Event, name),     MG_COLUMN(Event, site),    MG_COLUMN(Event, processor),
                                    MG_COLUMN(Event, kind)};
#undef MG_COLUMN

// This is a schema with its children; they are released with it.
struct SchemaMemory {
  std::vector<ArrowSchema> columns;
  std::vector<ArrowSchema*> pointers;
};

void fill_schema(std::span<const Column> columns, ArrowSchema* out) {
  auto memory = std::make_unique<SchemaMemory>();
  memory->columns.resize(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    memory->columns[i] = {.format = columns[i].format,
                          .name = columns[i].name,
                          .metadata = nullptr,
                          .flags = 0,
                          .n_children = 0,
                          .children = nullptr,
                          .dictionary = nullptr,
                          // The consumer may move a child out and release it by itself, so a child owns nothing.
                          .release = [](ArrowSchema* child) { child->release = nullptr; },
                          .private_data = nullptr};
    memory->pointers.push_back(&memory->columns[i]);
  }
  *out = {.format = "+s",
          .name = "",
          .metadata = nullptr,
          .flags = 0,
          .n_children = static_cast<int64_t>(columns.size()),
          .children = memory->pointers.data(),
          .dictionary = nullptr,
          .release =
              [](ArrowSchema* schema) {
                delete static_cast<SchemaMemory*>(schema->private_data);
                schema->release = nullptr;
              },
          .private_data = memory.get()};
  memory.release();
}

using Values = std::shared_ptr<std::vector<std::byte>>;

// These are a column's values, which outlive the batch if the consumer moves the column out of it.
struct ColumnMemory {
  Values values;
  std::array<const void*, 2> buffers = {nullptr, nullptr};  // no nulls, so no bitmap
};

struct ArrayMemory {
  std::vector<ArrowArray> columns;
  std::vector<ArrowArray*> pointers;
  std::array<const void*, 1> buffers = {nullptr};
};

// These are rows by column, until they are handed out.
class Rows {
 public:
  explicit Rows(std::span<const Column> columns) : columns_(columns), values_(columns.size()) { clear(); }
  [[nodiscard]] size_t size() const { return size_; }

  template <typename T>
  void append(std::span<const T> items) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      std::vector<std::byte>& values = *values_[i];
      size_t at = values.size();
      values.resize(at + items.size() * column.bytes);
      for (const T& item : items) {
        std::memcpy(values.data() + at, reinterpret_cast<const std::byte*>(&item) + column.offset, column.bytes);
        at += column.bytes;
      }
    }
    size_ += items.size();
  }

  void hand_out(ArrowArray* out) {
    auto memory = std::make_unique<ArrayMemory>();
    memory->columns.resize(columns_.size());
    std::vector<std::unique_ptr<ColumnMemory>> columns;
    for (size_t i = 0; i < columns_.size(); ++i) {
      columns.push_back(std::make_unique<ColumnMemory>());
      columns[i]->values = std::move(values_[i]);
      columns[i]->buffers[1] = columns[i]->values->data();
      memory->columns[i] = {.length = static_cast<int64_t>(size_),
                            .null_count = 0,
                            .offset = 0,
                            .n_buffers = 2,
                            .n_children = 0,
                            .buffers = columns[i]->buffers.data(),
                            .children = nullptr,
                            .dictionary = nullptr,
                            .release =
                                [](ArrowArray* column) {
                                  delete static_cast<ColumnMemory*>(column->private_data);
                                  column->release = nullptr;
                                },
                            .private_data = columns[i].get()};
      memory->pointers.push_back(&memory->columns[i]);
    }
    *out = {.length = static_cast<int64_t>(size_),
            .null_count = 0,
            .offset = 0,
            .n_buffers = 1,
            .n_children = static_cast<int64_t>(columns_.size()),
            .buffers = memory->buffers.data(),
            .children = memory->pointers.data(),
            .dictionary = nullptr,
            .release =
                [](ArrowArray* array) {
                  auto* const held = static_cast<ArrayMemory*>(array->private_data);
                  // This releases the columns that were not moved out.
                  for (ArrowArray* column : held->pointers)
                    if (column->release != nullptr) column->release(column);
                  delete held;
                  array->release = nullptr;
                },
            .private_data = memory.get()};
    memory.release();
    for (auto& column : columns) column.release();
    clear();
  }

 private:
  void clear() {
    for (Values& values : values_) values = std::make_shared<std::vector<std::byte>>();
    size_ = 0;
  }

  std::span<const Column> columns_;
  std::vector<Values> values_;
  size_t size_ = 0;
};

class Stream {
 public:
  static constexpr size_t kRows = 65'536;

  Stream(std::unique_ptr<TraceSource> source, ArrowRows rows)
      : source_(std::move(source)),
        of_references_(rows == ArrowRows::kReferences),
        columns_(of_references_ ? std::span<const Column>(kReferenceColumns) : std::span<const Column>(kEventColumns)),
        rows_(columns_) {}

  int schema(ArrowSchema* out) {
    fill_schema(columns_, out);
    return 0;
  }
  int next(ArrowArray* out) {
    while (!ended_ && rows_.size() < kRows) {
      auto batch = source_->next();
      if (!batch) {
        error_ = batch.error().message;
        return EIO;
      }
      ended_ = batch->references.empty() && batch->events.empty();
      if (of_references_)
        rows_.append(batch->references);
      else
        rows_.append(batch->events);
    }
    // The Arrow interface marks the end of a stream by a released array.
    if (rows_.size() == 0)
      *out = {};
    else
      rows_.hand_out(out);
    return 0;
  }
  [[nodiscard]] const char* error() const { return error_.empty() ? nullptr : error_.c_str(); }
  void set_error(const char* error) { error_ = error; }

 private:
  std::unique_ptr<TraceSource> source_;
  bool of_references_;
  std::span<const Column> columns_;
  Rows rows_;
  bool ended_ = false;
  std::string error_;
};

// An exception must not leave a C function.
template <typename F>
int guarded(ArrowArrayStream* stream, F&& f) {
  auto& self = *static_cast<Stream*>(stream->private_data);
  try {
    return f(self);
  } catch (const std::bad_alloc&) {
    self.set_error("out of memory");  // short enough to need no allocation
    return ENOMEM;
  }
}

}  // namespace

void make_arrow_stream(std::unique_ptr<TraceSource> source, ArrowRows rows, ArrowArrayStream* out) {
  *out = {
      .get_schema =
          [](ArrowArrayStream* stream, ArrowSchema* schema) {
            return guarded(stream, [&](Stream& self) { return self.schema(schema); });
          },
      .get_next = [](ArrowArrayStream* stream,
                     ArrowArray* array) { return guarded(stream, [&](Stream& self) { return self.next(array); }); },
      .get_last_error = [](ArrowArrayStream* stream) { return static_cast<Stream*>(stream->private_data)->error(); },
      .release =
          [](ArrowArrayStream* stream) {
            delete static_cast<Stream*>(stream->private_data);
            stream->release = nullptr;
          },
      .private_data = new Stream(std::move(source), rows)};
}

}  // namespace multigrain::trace
