#include <charconv>

#include "trace/import/text_source.h"

namespace multigrain::trace {
namespace {

class Lackey final : public TextSource {
 public:
  explicit Lackey(ImportOptions options) : TextSource(options) {}

 private:
  Status line(std::string_view text) override {
    if (is_cut()) return bad("'{}' has no end: the text is cut off", shown(text, 60));
    if (text.starts_with("==")) is_valgrinds_ = true;
    if (text.empty() || text.starts_with("==")) return {};
    if (text.size() < 4) return not_lackey(text);
    const bool instruction = text.starts_with("I  ");
    const char kind = instruction ? 'I' : text[1];
    if (!instruction && (text[0] != ' ' || text[2] != ' ' || (kind != 'L' && kind != 'S' && kind != 'M')))
      return not_lackey(text);
    uint64_t address = 0, size = 0;
    const char* const end = text.data() + text.size();
    const auto [comma, bad_address] = std::from_chars(text.data() + 3, end, address, 16);
    if (bad_address != std::errc() || comma == end || *comma != ',') return not_lackey(text);
    const auto [stop, bad_size] = std::from_chars(comma + 1, end, size, 10);
    if (bad_size != std::errc() || stop != end) return not_lackey(text);
    any_ = true;
    // Valgrind's own lines stand before the references, and again behind them; with -q there are none before.
    if (is_valgrinds_) has_valgrinds_ = true;
    is_valgrinds_ = false;
    if (instruction) {
      instruction_ = address;
      known_ = false;
      count_private(0);
      return {};
    }
    if (!known_) {
      site_ = site_of_function(fmt::format("{:#x}", instruction_));
      known_ = true;
    }
    if (kind != 'S')
      if (Status status = add(0, address, size, Access::kRead, site_); !status) return status;
    if (kind != 'L')
      if (Status status = add(0, address, size, Access::kWrite, site_); !status) return status;
    return give_private_in_turn();
  }

  Status finish() override {
    if (!any_) return bad("the text ends without a single reference");
    if (has_valgrinds_ && !is_valgrinds_)
      return bad(
          "the text ends before Valgrind's own lines ('==...'), which stand behind the references: it is cut off");
    return give_private();
  }

  Status not_lackey(std::string_view text) const {
    return bad("'{}' is not a line of valgrind --tool=lackey --trace-mem=yes", shown(text, 60));
  }

  uint64_t instruction_ = 0;
  SiteId site_ = 0;
  bool known_ = true;  // site_ belongs to instruction_
  bool any_ = false;
  bool is_valgrinds_ = false;   // the last line that was not empty is one of Valgrind's own
  bool has_valgrinds_ = false;  // such lines precede references
};

}  // namespace

Result<std::unique_ptr<ImportSource>> open_lackey(const std::string& path, ImportOptions options) {
  auto source = std::make_unique<Lackey>(options);
  if (Status status = source->open(path, "valgrind --tool=lackey"); !status)
    return tl::unexpected<Error>(status.error());
  return source;
}

}  // namespace multigrain::trace
