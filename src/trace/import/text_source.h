// This is what all imports of text share: lines with their numbers, batches, tables of sites and names.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/import/import.h"

namespace multigrain::trace {

class TextSource : public ImportSource {
 public:
  ~TextSource() override;
  [[nodiscard]] const TraceHeader& header() const final { return header_; }
  Result<Batch> next() final;
  [[nodiscard]] uint64_t bytes_read() const final { return bytes_read_; }
  [[nodiscard]] uint64_t bytes_total() const final { return bytes_total_; }

  // Opens `path`; "-" is standard input.
  Status open(const std::string& path, std::string recorder);

 protected:
  explicit TextSource(ImportOptions options);

  // Reads one line, which comes without its newline. It may add references and events.
  virtual Status line(std::string_view text) = 0;
  // The text has ended. This may add events.
  virtual Status finish() = 0;

  // Returns an error on the current line, with the place where that begins.
  template <typename... Args>
  Status bad(fmt::format_string<Args...> format, Args&&... args) const {
    return fail("{}, line {}: {} (the line begins at byte {})", path_, line_number_,
                fmt::format(format, std::forward<Args>(args)...), line_begins_);
  }
  // Returns the first `most` bytes of the text for a message, with a question mark for each that is no printable ASCII: a file
  // of another kind must do nothing to a terminal.
  static std::string shown(std::string_view text, size_t most);
  // Returns whether the current line ends with the text, and not with a newline.
  [[nodiscard]] bool is_cut() const { return is_cut_; }
  // Adds a reference of any size.
  Status add(uint64_t processor, uint64_t address, uint64_t size, Access access, SiteId site);
  // Adds an event at the current position.
  Status add(Event event, uint64_t processor);
  SiteId site(const std::string& text, Site (*parse)(const std::string&));
  // Returns the site of which only the function, or the instruction's address, is known.
  SiteId site_of_function(const std::string& function);
  // The processor has fetched an instruction, which is a private reference if the options say so.
  void count_private(uint64_t processor);
  // To be called once a reference has been added for a line: now and then the private references that have been counted become
  // events. More frequent ones would make the file larger for no use.
  Status give_private_in_turn();
  // Makes events of those that are left, at the end.
  Status give_private();
  uint32_t name(const std::string& text);

  ImportOptions options_;
  TraceHeader header_;

 private:
  Status see(uint64_t processor);
  // Reads the next line. Returns false at the end.
  Result<bool> read_line(std::string_view& text);

  std::string path_;
  std::FILE* file_ = nullptr;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // the unread part of the buffer
  bool at_end_ = false;         // the file has ended
  bool finished_ = false;
  uint64_t bytes_read_ = 0, bytes_total_ = 0;
  uint64_t line_number_ = 0, line_begins_ = 0;
  bool is_cut_ = false;
  std::string failure_;

  uint64_t first_ = 0;
  std::vector<Reference> references_;
  std::vector<Event> events_;
  std::unordered_map<std::string, SiteId> sites_;
  std::unordered_map<std::string, uint32_t> names_;

  std::vector<uint64_t> private_;  // references since give_private(), by processor
  unsigned since_ = 0;
};

}  // namespace multigrain::trace
