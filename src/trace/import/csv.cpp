#include <array>
#include <charconv>

#include "trace/import/text_source.h"

namespace multigrain::trace {
namespace {

enum Column { kAccess, kAddress, kProcessor, kSize, kSite, kName, kTime, kColumns };
constexpr std::array<std::string_view, kColumns> kColumnNames = {"access", "address", "processor", "size",
                                                                 "site",   "name",    "time"};

constexpr struct {
  std::string_view name;
  EventKind kind;
} kEvents[] = {{"private", EventKind::kPrivate}, {"allocate", EventKind::kAllocate},
               {"free", EventKind::kFree},       {"acquire", EventKind::kAcquire},
               {"release", EventKind::kRelease}, {"barrier", EventKind::kBarrier},
               {"start", EventKind::kStart},     {"end", EventKind::kEnd}};

bool parse_number(std::string_view text, uint64_t& number) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

Site parse_site(const std::string& text) {
  const size_t colon = text.find(':');
  uint64_t line = 0;
  const size_t second = colon == std::string::npos ? colon : text.find(':', colon + 1);
  if (colon == std::string::npos || !parse_number(text.substr(colon + 1, second - colon - 1), line) || line > ~0u)
    return {.file = "", .function = text, .line = 0};
  return {.file = text.substr(0, colon),
          .function = second == std::string::npos ? "" : text.substr(second + 1),
          .line = static_cast<uint32_t>(line)};
}

class Csv final : public TextSource {
 public:
  explicit Csv(ImportOptions options) : TextSource(options) { column_of_.fill(kAbsent); }

 private:
  static constexpr size_t kAbsent = ~size_t{0};

  Status line(std::string_view text) override {
    // Of a number that is cut off, what is left is a number, too.
    if (is_cut()) return bad("'{}' has no newline at its end: the text is cut off, or lacks it", shown(text, 60));
    if (text.empty() || text[0] == '#') return {};
    if (Status status = split(text); !status) return status;
    if (!columns_) return read_columns();
    if (fields_.size() != columns_)
      return bad("it has {} fields, but the first line names {} columns", fields_.size(), columns_);
    return row();
  }

  Status split(std::string_view text) {
    fields_.clear();
    size_t at = 0;
    while (true) {
      std::string& field = fields_.emplace_back();
      while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
      if (at < text.size() && text[at] == '"') {
        ++at;
        while (true) {
          if (at >= text.size()) return bad("a quoted field has no end");
          if (text[at] != '"') {
            field += text[at++];
          } else if (++at < text.size() && text[at] == '"') {
            field += '"';
            ++at;
          } else {
            break;
          }
        }
        while (at < text.size() && text[at] != ',') ++at;
      } else {
        const size_t comma = std::min(text.find(',', at), text.size());
        field = text.substr(at, comma - at);
        while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.pop_back();
        at = comma;
      }
      if (at >= text.size()) return {};
      ++at;
    }
  }

  Status read_columns() {
    for (size_t i = 0; i < fields_.size(); ++i) {
      size_t column = 0;
      while (column < kColumns && kColumnNames[column] != fields_[i]) ++column;
      if (column == kColumns)
        return bad("'{}' is no column; the first line names some of access, address, processor, size, site, name, time",
                   shown(fields_[i], 40));
      if (column_of_[column] != kAbsent) return bad("it names the column {} twice", fields_[i]);
      column_of_[column] = i;
    }
    if (column_of_[kAccess] == kAbsent || column_of_[kAddress] == kAbsent)
      return bad("the first line must name the columns access and address");
    columns_ = fields_.size();
    return {};
  }

  [[nodiscard]] const std::string& text(Column column) const {
    static const std::string none;
    return column_of_[column] == kAbsent ? none : fields_[column_of_[column]];
  }
  Status number(Column column, uint64_t otherwise, uint64_t& value) const {
    const std::string& field = text(column);
    value = otherwise;
    if (field.empty() || parse_number(field, value)) return {};
    return bad("the {} '{}' is not a whole number", kColumnNames[column], shown(field, 40));
  }

  Status row() {
    uint64_t address, processor, size, time;
    if (Status status = number(kAddress, 0, address); !status) return status;
    if (Status status = number(kProcessor, 0, processor); !status) return status;
    if (Status status = number(kSize, 0, size); !status) return status;
    if (Status status = number(kTime, time_, time); !status) return status;
    if (time < time_) return bad("time runs backwards, from {} to {}", time_, time);
    time_ = time;
    const std::string& access = text(kAccess);
    const SiteId where = site(text(kSite), parse_site);
    const bool read = access == "r" || access == "R" || access == "read";
    if (read || access == "w" || access == "W" || access == "write") {
      if (text(kAddress).empty()) return bad("a reference needs an address");
      return add(processor, address, text(kSize).empty() ? 8 : size, read ? Access::kRead : Access::kWrite, where);
    }
    for (const auto& event : kEvents) {
      if (event.name != access) continue;
      if (text(kAddress).empty() && (event.kind == EventKind::kAllocate || event.kind == EventKind::kFree))
        return bad("{} needs an address", access);
      return add({.position = 0,
                  .address = address,
                  .value = size,
                  .name = name(text(kName)),
                  .site = where,
                  .processor = 0,
                  .kind = event.kind},
                 processor);
    }
    return bad("the access '{}' is none of r, w, private, allocate, free, acquire, release, barrier, start, end",
               shown(access, 40));
  }

  Status finish() override {
    if (columns_ == 0) return bad("there is no line that names the columns");
    return {};
  }

  size_t columns_ = 0;  // 0: the first line has not been read
  std::array<size_t, kColumns> column_of_{};
  std::vector<std::string> fields_;
  uint64_t time_ = 0;
};

}  // namespace

Result<std::unique_ptr<ImportSource>> open_csv(const std::string& path, ImportOptions options) {
  auto source = std::make_unique<Csv>(options);
  if (Status status = source->open(path, "csv"); !status) return tl::unexpected<Error>(status.error());
  return source;
}

}  // namespace multigrain::trace
