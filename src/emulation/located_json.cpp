#include "emulation/located_json.h"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

namespace multigrain {
namespace {

using nlohmann::json;

// Hands the text on, and counts its lines meanwhile. The parser has read a key up to its closing quotation mark when it says so.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CountingIterator(std::string_view::const_iterator at, unsigned* line) : at_(at), line_(line) {}
  char operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  std::string_view::const_iterator at_;
  unsigned* line_;
};

// Receives what the parser finds.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(LocatedJson& whole, const unsigned& line) : line_(line) { open_.push_back(&whole); }
  [[nodiscard]] const std::string& error() const { return error_; }

  bool null() override { return put(LocatedJson::Kind::kNull); }
  bool boolean(bool /*value*/) override { return put(LocatedJson::Kind::kBoolean); }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!std::isfinite(value)) return fails(line_, fmt::format("the number {} is too large", text));
    return number(value);
  }
  bool string(string_t& value) override {
    LocatedJson* const added = add(LocatedJson::Kind::kText);
    added->text = std::move(value);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON has none
  bool start_object(size_t /*elements*/) override { return start(LocatedJson::Kind::kObject); }
  bool start_array(size_t /*elements*/) override { return start(LocatedJson::Kind::kArray); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    LocatedJson& object = *open_.back();
    if (object.find(name) != nullptr) return fails(line_, fmt::format("'{}' is there twice", name));
    object.members.emplace_back(name, LocatedJson(line_));
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& token, const nlohmann::detail::exception& problem) override {
    // What the library says begins with its own name for the error, and ends with what it expected.
    std::string said = problem.what();
    const size_t begin = said.find("syntax error");
    said = begin == std::string::npos ? fmt::format("at '{}'", token) : said.substr(begin);
    return fails(line_, fmt::format("this is no JSON: {}", said));
  }

 private:
  static constexpr size_t kDeepest = 8;

  bool fails(unsigned line, const std::string& what) {
    if (error_.empty()) error_ = fmt::format("line {}: {}", line, what);
    return false;
  }
  // Returns where the next value belongs.
  LocatedJson* add(LocatedJson::Kind kind) {
    LocatedJson* at = open_.back();
    if (at->kind == LocatedJson::Kind::kObject)
      at = &at->members.back().second;
    else if (at->kind == LocatedJson::Kind::kArray)
      at = &at->elements.emplace_back(at->line);
    at->kind = kind;
    return at;
  }
  bool put(LocatedJson::Kind kind) {
    add(kind);
    return true;
  }
  bool number(double value) {
    add(LocatedJson::Kind::kNumber)->number = value;
    return true;
  }
  bool start(LocatedJson::Kind kind) {
    if (open_.size() > kDeepest) return fails(line_, "this is nested too deep");
    LocatedJson* const added = add(kind);
    open_.push_back(added);
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  const unsigned& line_;
  std::string error_;
  // The whole, and the objects and arrays that have begun and not ended. While one is open nothing is added to what
  // holds it, so that it stays where it is.
  std::vector<LocatedJson*> open_;
};

}  // namespace

Result<LocatedJson> parse_located_json(std::string_view text) {
  LocatedJson whole;
  unsigned line = 1;
  Builder builder(whole, line);
  const bool read =
      json::sax_parse(CountingIterator(text.begin(), &line), CountingIterator(text.end(), &line), &builder);
  if (!read) return fail("{}", builder.error());
  return whole;
}

}  // namespace multigrain
