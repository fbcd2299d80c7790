#include "trace/import/import.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trace/import/text_source.h"

namespace multigrain::trace {
namespace {

constexpr size_t kBuffer = size_t{1} << 18;
// A text with a longer line has none of these formats.
constexpr size_t kLongestLine = size_t{1} << 16;
constexpr uint64_t kProcessors = uint64_t{1} << 16;

}  // namespace

TextSource::TextSource(ImportOptions options) : options_(options) {
  header_.sites.resize(1);
  header_.names.resize(1);
  sites_[""] = 0;
  names_[""] = 0;
  buffer_.resize(kBuffer + kLongestLine);
}

TextSource::~TextSource() {
  if (file_ != nullptr && file_ != stdin) std::fclose(file_);
}

Status TextSource::open(const std::string& path, std::string recorder) {
  path_ = path == "-" ? "standard input" : path;
  header_.recorder = std::move(recorder);
  header_.processors = options_.processors;
  file_ = path == "-" ? stdin : std::fopen(path.c_str(), "re");
  if (file_ == nullptr) return fail_errno(errno, "cannot open " + path_);
  struct stat status;
  if (fstat(fileno(file_), &status) != 0) return fail_errno(errno, "cannot examine " + path_);
  if (S_ISDIR(status.st_mode)) return fail("cannot read {}: it is a directory", path_);
  if (S_ISREG(status.st_mode)) bytes_total_ = static_cast<uint64_t>(status.st_size);
  return {};
}

std::string TextSource::shown(std::string_view text, size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

Result<bool> TextSource::read_line(std::string_view& text) {
  while (true) {
    const char* const from = buffer_.data() + begin_;
    const auto* const newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    if (newline != nullptr || (at_end_ && begin_ != end_)) {
      const char* const to = newline != nullptr ? newline : buffer_.data() + end_;
      text = {from, static_cast<size_t>(to - from)};
      is_cut_ = newline == nullptr;
      const size_t used = text.size() + (is_cut_ ? 0 : 1);
      begin_ += used;
      line_begins_ = bytes_read_;
      bytes_read_ += used;
      ++line_number_;
      if (text.ends_with('\r')) text.remove_suffix(1);
      return true;
    }
    if (at_end_) return false;
    if (end_ - begin_ > kLongestLine)
      return fail("{}, line {}: it has more than {} bytes (the line begins at byte {})", path_, line_number_ + 1,
                  kLongestLine, bytes_read_);
    std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
    end_ -= begin_;
    begin_ = 0;
    const size_t got = std::fread(buffer_.data() + end_, 1, buffer_.size() - end_, file_);
    if (got == 0 && std::ferror(file_) != 0) return fail_errno(errno, "cannot read " + path_);
    end_ += got;
    at_end_ = got == 0;
  }
}

Result<Batch> TextSource::next() {
  if (!failure_.empty()) return fail("{}", failure_);
  first_ += references_.size();
  references_.clear();
  events_.clear();
  while (references_.size() < kBatch - kLongestLine / 255 && events_.size() < kBatch && !finished_) {
    const size_t references = references_.size(), events = events_.size();
    std::string_view text;
    const auto there = read_line(text);
    Status status;
    if (!there)
      status = tl::unexpected<Error>(there.error());
    else if (*there)
      status = line(text);
    else
      status = finish();
    finished_ = there && !*there;
    if (!status) {
      // The text before the bad line is good.
      failure_ = status.error().message;
      references_.resize(references);
      events_.resize(events);
      if (references == 0 && events == 0) return fail("{}", failure_);
      break;
    }
  }
  return Batch{.first = first_, .references = references_, .events = events_};
}

Status TextSource::see(uint64_t processor) {
  const uint64_t allowed = options_.processors != 0 ? options_.processors : kProcessors;
  if (processor >= allowed) return bad("there is no processor {}; they are 0 to {}", processor, allowed - 1);
  header_.processors = std::max(header_.processors, static_cast<unsigned>(processor) + 1);
  return {};
}

Status TextSource::add(uint64_t processor, uint64_t address, uint64_t size, Access access, SiteId site) {
  if (Status status = see(processor); !status) return status;
  if (size == 0 || size > kLongestLine) return bad("a reference to {} bytes is not to 1 to {}", size, kLongestLine);
  if (address + (size - 1) < address) return bad("a reference to {} bytes at {:#x} ends beyond memory", size, address);
  while (size > 0) {
    const uint64_t part = std::min<uint64_t>(size, 255);
    references_.push_back({.address = address,
                           .site = site,
                           .processor = static_cast<ProcessorId>(processor),
                           .access = access,
                           .size = static_cast<uint8_t>(part)});
    address += part;
    size -= part;
  }
  return {};
}

Status TextSource::add(Event event, uint64_t processor) {
  if (Status status = see(processor); !status) return status;
  event.processor = static_cast<ProcessorId>(processor);
  event.position = first_ + references_.size();
  events_.push_back(event);
  return {};
}

void TextSource::count_private(uint64_t processor) {
  if (!options_.count_instructions) return;
  if (private_.size() <= processor) private_.resize(processor + 1);
  ++private_[processor];
}

Status TextSource::give_private_in_turn() {
  constexpr unsigned kEvery = 4096;
  return ++since_ == kEvery ? give_private() : Status();
}

Status TextSource::give_private() {
  since_ = 0;
  for (uint64_t processor = 0; processor < private_.size(); ++processor) {
    if (private_[processor] == 0) continue;
    const Event event{.position = 0,
                      .address = 0,
                      .value = private_[processor],
                      .name = 0,
                      .site = 0,
                      .processor = 0,
                      .kind = EventKind::kPrivate};
    if (Status status = add(event, processor); !status) return status;
    private_[processor] = 0;
  }
  return {};
}

SiteId TextSource::site_of_function(const std::string& function) {
  return site(function, [](const std::string& name) { return Site{.file = "", .function = name, .line = 0}; });
}

SiteId TextSource::site(const std::string& text, Site (*parse)(const std::string&)) {
  const auto [found, fresh] = sites_.emplace(text, static_cast<SiteId>(header_.sites.size()));
  if (fresh) header_.sites.push_back(parse(text));
  return found->second;
}

uint32_t TextSource::name(const std::string& text) {
  const auto [found, fresh] = names_.emplace(text, static_cast<uint32_t>(header_.names.size()));
  if (fresh) header_.names.push_back(text);
  return found->second;
}

}  // namespace multigrain::trace
