#include <charconv>

#include "trace/import/text_source.h"

namespace multigrain::trace {
namespace {

class Lackey final : public TextSource {
 public:
  explicit Lackey(ImportOptions options) : TextSource(options) {}

 private:
  // Private references are counted over this many references. More frequent counts would make the file larger for no
  // use.
  static constexpr unsigned kPrivateEvery = 4096;

  Status line(std::string_view text) override {
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
    if (instruction) {
      instruction_ = address;
      known_ = false;
      ++private_;
      return {};
    }
    if (!known_) {
      site_ = site(fmt::format("{:#x}", instruction_),
                   [](const std::string& name) { return Site{.file = "", .function = name, .line = 0}; });
      known_ = true;
    }
    if (kind != 'S')
      if (Status status = add(0, address, size, Access::kRead, site_); !status) return status;
    if (kind != 'L')
      if (Status status = add(0, address, size, Access::kWrite, site_); !status) return status;
    if (++since_ == kPrivateEvery) give_private();
    return {};
  }

  Status finish() override {
    if (!any_) return bad("the text ends without a single reference");
    give_private();
    return {};
  }

  Status not_lackey(std::string_view text) const {
    return bad("'{}' is not a line of valgrind --tool=lackey --trace-mem=yes", text.substr(0, 60));
  }

  void give_private() {
    since_ = 0;
    if (private_ != 0 && options_.count_instructions) {
      const Event event{.position = 0,
                        .address = 0,
                        .value = private_,
                        .name = 0,
                        .site = 0,
                        .processor = 0,
                        .kind = EventKind::kPrivate};
      MG_CHECK(add(event, 0).has_value());
    }
    private_ = 0;
  }

  uint64_t instruction_ = 0;
  SiteId site_ = 0;
  bool known_ = true;  // site_ belongs to instruction_
  uint64_t private_ = 0;
  unsigned since_ = 0;
  bool any_ = false;
};

}  // namespace

Result<std::unique_ptr<ImportSource>> open_lackey(const std::string& path, ImportOptions options) {
  auto source = std::make_unique<Lackey>(options);
  if (Status status = source->open(path, "valgrind --tool=lackey"); !status)
    return tl::unexpected<Error>(status.error());
  return source;
}

}  // namespace multigrain::trace
