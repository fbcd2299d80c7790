#include <charconv>

#include "trace/import/text_source.h"
#include "trace/import/threads.h"

namespace multigrain::trace {
namespace {

constexpr std::string_view kCommand = "perf script -F tid,time,event,addr,data_src,ip,sym";

// The bits of perf's data_src that say what was done (linux/perf_event.h, PERF_MEM_OP_...).
constexpr uint64_t kLoad = 2, kStore = 4;

bool is_number(std::string_view text, int base, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

// Takes the next word from the front of the text. Returns an empty one at its end.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

class Perf final : public TextSource {
 public:
  explicit Perf(ImportOptions options) : TextSource(options) {}

 private:
  // [COMM] [PID/]TID [[CPU]] SECONDS.FRACTION: [PERIOD] EVENT: ADDRESS DATA_SRC |OP LOAD|...|... IP SYMBOL
  Status line(std::string_view text) override {
    if (text.empty() || text[0] == '#') return {};
    if (is_cut()) return bad("'{}' has no end: the text is cut off", shown(text, 80));
    std::string_view rest = text;
    uint64_t thread = 0;
    bool has_thread = false;
    while (true) {
      std::string_view word = take_word(rest);
      if (word.empty()) return foreign(text);
      if (is_time(word)) break;
      if (const size_t slash = word.find('/'); slash != std::string_view::npos) word.remove_prefix(slash + 1);
      if (uint64_t number = 0; is_number(word, 10, number)) {
        thread = number;
        has_thread = true;
      }
    }
    // A period may stand before the event; an event's name may have colons in it.
    std::string_view word = take_word(rest);
    if (uint64_t period = 0; is_number(word, 10, period)) word = take_word(rest);
    if (!has_thread || !word.ends_with(':')) return foreign(text);
    uint64_t address = 0, source = 0, instruction = 0;
    if (!is_number(take_word(rest), 16, address) || !is_number(take_word(rest), 16, source)) return foreign(text);
    const size_t last = rest.rfind('|');
    if (!rest.substr(std::min(rest.find_first_not_of(' '), rest.size())).starts_with("|OP ")) return foreign(text);
    // What the data source says in words ends where the first hexadecimal number is, behind the name of its last part.
    rest.remove_prefix(last + 1);
    static_cast<void>(take_word(rest));
    do word = take_word(rest);
    while (!word.empty() && !is_number(word, 16, instruction));
    if (word.empty()) return foreign(text);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    // Another number: there are other fields, and that was not the instruction. A symbol may look like a short one.
    const std::string_view next = rest.substr(0, rest.find(' '));
    uint64_t other = 0;
    if (is_number(next, 10, other) || (next.size() > 8 && is_number(next, 16, other))) return foreign(text);
    any_ = true;
    const uint64_t processor = threads_.processor(thread);
    if ((source & (kLoad | kStore)) == 0) return {};
    const bool is_known = !rest.empty() && !rest.starts_with("[unknown]");
    const SiteId where = site_of_function(is_known ? std::string(rest) : fmt::format("{:#x}", instruction));
    if ((source & kLoad) != 0)
      if (Status status = add(processor, address, 1, Access::kRead, where); !status) return status;
    return (source & kStore) == 0 ? Status() : add(processor, address, 1, Access::kWrite, where);
  }

  Status finish() override {
    if (!any_) return bad("the text ends without a single sample");
    return {};
  }

  // Seconds and a fraction, and a colon.
  static bool is_time(std::string_view word) {
    const size_t point = word.find('.');
    uint64_t number = 0;
    return point != std::string_view::npos && word.ends_with(':') && is_number(word.substr(0, point), 10, number) &&
           is_number(word.substr(point + 1, word.size() - point - 2), 10, number);
  }

  Status foreign(std::string_view text) const {
    return bad("'{}' is not a memory sample as printed by {}", shown(text, 80), kCommand);
  }

  Threads threads_;
  bool any_ = false;
};

}  // namespace

Result<std::unique_ptr<ImportSource>> open_perf(const std::string& path, ImportOptions options) {
  auto source = std::make_unique<Perf>(options);
  if (Status status = source->open(path, "perf script"); !status) return tl::unexpected<Error>(status.error());
  return source;
}

}  // namespace multigrain::trace
