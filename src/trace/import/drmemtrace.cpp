#include <charconv>

#include "trace/import/text_source.h"
#include "trace/import/threads.h"

namespace multigrain::trace {
namespace {

// Takes blanks, then a number, then `after`, from the front of the text. Returns false if something else is there.
bool take_number(std::string_view& text, uint64_t& number, int base, std::string_view after) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.starts_with(after)) return false;
  text.remove_prefix(after.size());
  return true;
}

class Drmemtrace final : public TextSource {
 public:
  explicit Drmemtrace(ImportOptions options) : TextSource(options) {}

 private:
  Status line(std::string_view text) override {
    switch (part_) {
      case Part::kBefore:  // what the program has printed
        if (text == "Output format:") part_ = Part::kRecords;
        return {};
      case Part::kRecords:
        if (text == "View tool results:") {
          part_ = Part::kResults;
          return {};
        }
        if (text.starts_with("<--record#->") || text.starts_with("----")) return {};
        return record(text);
      case Part::kResults:
        return {};
    }
    return {};
  }

  Status record(std::string_view text) {
    std::string_view rest = text;
    uint64_t number = 0, instruction = 0, thread = 0;
    if (!take_number(rest, number, 10, " ") || !take_number(rest, instruction, 10, ":") ||
        !take_number(rest, thread, 10, " "))
      return foreign(text);
    const std::string_view kind = rest.substr(0, rest.find(' '));
    const bool is_read = kind == "read", is_write = kind == "write", is_fetch = kind == "ifetch";
    if (!is_read && !is_write && !is_fetch) {
      // The bytes of a long instruction go on in a second line of the same record.
      const bool goes_on = number == fetched_ && rest.find_first_not_of(" 0123456789abcdef") == std::string_view::npos;
      const bool is_skipped = kind.starts_with("<") || kind.starts_with("pref") || kind == "iflush" || kind == "dflush";
      return goes_on || is_skipped ? Status() : foreign(text);
    }
    rest.remove_prefix(kind.size());
    uint64_t size = 0, address = 0, counter = 0;
    if (!take_number(rest, size, 10, " byte(s) @ 0x") || !take_number(rest, address, 16, "")) return foreign(text);
    const uint64_t processor = threads_.processor(thread);
    if (is_fetch) {
      fetched_ = number;
      count_private(processor);
      return {};
    }
    if (!rest.starts_with(" by PC 0x")) return foreign(text);
    rest.remove_prefix(std::string_view(" by PC 0x").size());
    if (!take_number(rest, counter, 16, "") || !rest.empty()) return foreign(text);
    const SiteId where = site_of_function(fmt::format("{:#x}", counter));
    any_ = true;
    if (Status status = add(processor, address, size, is_write ? Access::kWrite : Access::kRead, where); !status)
      return status;
    return give_private_in_turn();
  }

  Status foreign(std::string_view text) const {
    return bad("'{}' is not a line of drmemtrace's view{}", shown(text, 80), is_cut() ? ", or is cut off" : "");
  }

  Status finish() override {
    if (part_ == Part::kBefore) return bad("there is no 'Output format:', with which drmemtrace's view begins");
    if (part_ == Part::kRecords) return bad("the text ends before 'View tool results:': it is cut off");
    if (!any_) return bad("the text ends without a single reference");
    return give_private();
  }

  enum class Part : uint8_t { kBefore, kRecords, kResults };
  Part part_ = Part::kBefore;
  Threads threads_;
  uint64_t fetched_ = 0;  // the record of the last instruction
  bool any_ = false;
};

}  // namespace

Result<std::unique_ptr<ImportSource>> open_drmemtrace(const std::string& path, ImportOptions options) {
  auto source = std::make_unique<Drmemtrace>(options);
  if (Status status = source->open(path, "drmemtrace"); !status) return tl::unexpected<Error>(status.error());
  return source;
}

}  // namespace multigrain::trace
