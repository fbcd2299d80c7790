// mgtrace filter: takes a part of a trace, or writes all of it again.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>

#include "commands.h"
#include "output.h"
#include "progress.h"
#include "trace/format/trace_file.h"

namespace multigrain::trace::tool {
namespace {

struct FilterArguments {
  std::string input;
  std::vector<unsigned> processors;
  std::string addresses, references;
  bool reads = false, writes = false, no_events = false, repair = false;
  unsigned threads = 1;
  OutputOptions output;
};

// [begin, end)
struct Range {
  uint64_t begin = 0, end = ~uint64_t{0};
};

Result<uint64_t> read_number(std::string_view text, std::string_view what) {
  uint64_t number = 0;
  const bool hexadecimal = text.starts_with("0x");
  const char* const from = text.data() + (hexadecimal ? 2 : 0);
  const auto [end, error] = std::from_chars(from, text.data() + text.size(), number, hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size())
    return fail("'{}' is no {}: give a whole number, or one in hexadecimal after 0x", text, what);
  return number;
}

// Reads "BEGIN-END", of which either may be missing.
Result<Range> read_range(std::string_view text, std::string_view what) {
  Range range;
  if (text.empty()) return range;
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return fail("'{}' is no range of {}s: give BEGIN-END (END excluded)", text, what);
  if (dash > 0) {
    const auto begin = read_number(text.substr(0, dash), what);
    if (!begin) return tl::unexpected<Error>(begin.error());
    range.begin = *begin;
  }
  if (dash + 1 < text.size()) {
    const auto end = read_number(text.substr(dash + 1), what);
    if (!end) return tl::unexpected<Error>(end.error());
    range.end = *end;
  }
  if (range.begin >= range.end) return fail("the range of {}s '{}' is empty", what, text);
  return range;
}

bool is_of_memory(const Event& event) {
  return event.kind == EventKind::kAllocate || event.kind == EventKind::kFree;
}

// The allocations that the program has made and not freed before the first reference that is kept. What remains of the
// trace refers to their memory, so they are part of it; without them the memory would have no names.
class LiveAllocations {
 public:
  // An allocation or the end of one, in the trace's order.
  void note(const Event& event) {
    if (event.kind == EventKind::kFree) {
      live_.erase(event.address);
    } else {
      live_.insert_or_assign(event.address, Numbered{next_++, event});
    }
  }
  // Returns them in the order in which they were made.
  [[nodiscard]] std::vector<Event> in_order() const {
    std::vector<Numbered> sorted;
    for (const auto& [address, allocation] : live_) sorted.push_back(allocation);
    std::ranges::sort(sorted, {}, &Numbered::number);
    std::vector<Event> events;
    for (const Numbered& allocation : sorted) events.push_back(allocation.event);
    return events;
  }

 private:
  struct Numbered {
    uint64_t number;
    Event event;
  };
  std::map<uint64_t, Numbered> live_;  // by address
  uint64_t next_ = 0;
};

// Notes the allocations of the blocks before `end`. Only blocks with events are read.
Status note_allocations(const std::string& input, bool allow_partial, size_t end, LiveAllocations& live) {
  auto probe = TraceFile::open(input);
  if (!probe) return tl::unexpected<Error>(probe.error());
  const std::vector<BlockInfo>& blocks = (*probe)->blocks();
  for (size_t first = 0, after = 0; first < end; first = after) {
    for (after = first; after < end && blocks[after].events != 0;) ++after;
    if (after == first) {
      ++after;
      continue;
    }
    auto source = TraceFile::open(input, {.first_block = first, .end_block = after, .allow_partial = allow_partial});
    if (!source) return tl::unexpected<Error>(source.error());
    while (true) {
      const auto batch = (*source)->next();
      if (!batch) return tl::unexpected<Error>(batch.error());
      if (batch->references.empty() && batch->events.empty()) break;
      for (const Event& event : batch->events)
        if (is_of_memory(event)) live.note(event);
    }
  }
  return {};
}

// What of a trace has to be read. Of the blocks outside the range of references only those with events are read, for
// their allocations.
Result<ReadOptions> what_to_read(const FilterArguments& options, const Range& references) {
  ReadOptions read{.threads = options.threads, .allow_partial = options.repair};
  if (options.references.empty()) return read;
  auto probe = TraceFile::open(options.input);
  if (!probe) return tl::unexpected<Error>(probe.error());
  const auto& blocks = (*probe)->blocks();
  while (read.first_block < blocks.size() &&
         blocks[read.first_block].first + blocks[read.first_block].references < references.begin)
    ++read.first_block;
  size_t end = read.first_block;
  while (end < blocks.size() && blocks[end].first < references.end) ++end;
  if (end < blocks.size()) read.end_block = end;
  return read;
}

Result<int> run_filter(const FilterArguments& options) {
  const auto addresses = read_range(options.addresses, "address");
  if (!addresses) return tl::unexpected<Error>(addresses.error());
  const auto references = read_range(options.references, "reference");
  if (!references) return tl::unexpected<Error>(references.error());
  const auto read = what_to_read(options, *references);
  if (!read) return tl::unexpected<Error>(read.error());
  auto source = TraceFile::open(options.input, *read);
  if (!source) return tl::unexpected<Error>(source.error());
  std::error_code ignored;
  if (std::filesystem::equivalent(options.input, options.output.path, ignored) ||
      std::filesystem::equivalent(options.input, options.output.path + ".partial", ignored))
    return fail("{} cannot be read and written at once; give --output another name", options.input);
  const TraceHeader& header = (*source)->header();
  std::vector<bool> wanted(header.processors, options.processors.empty());
  for (const unsigned processor : options.processors) {
    if (processor >= header.processors)
      return fail("{} has no processor {}; they are 0 to {}", options.input, processor, header.processors - 1);
    wanted[processor] = true;
  }
  auto writer = TraceWriter::create(options.output.path, header, options.output.write);
  if (!writer) return tl::unexpected<Error>(writer.error());

  const bool reads = options.reads || !options.writes, writes = options.writes || !options.reads;
  const auto keep = [&](const Reference& reference, uint64_t index) {
    return index >= references->begin && index < references->end && wanted[reference.processor] &&
           reference.address < addresses->end && reference.address + (reference.size - 1u) >= addresses->begin &&
           (reference.access == Access::kRead ? reads : writes);
  };
  const bool everything = options.processors.empty() && options.addresses.empty() && options.references.empty() &&
                          reads && writes && !options.no_events;
  LiveAllocations before;
  if (!options.no_events) {
    if (Status status = note_allocations(options.input, options.repair, read->first_block, before); !status)
      return tl::unexpected<Error>(status.error());
  }
  bool has_begun = options.no_events;  // what was allocated before the first reference that is kept has been written
  const auto begin_with = [&](const LiveAllocations& live) -> Status {
    has_begun = true;
    for (Event event : live.in_order()) {
      event.position = 0;
      if (Status status = (*writer)->append(event); !status) return status;
    }
    return {};
  };
  Progress progress("Filtering", "references", (*source)->references());
  std::vector<Reference> kept;
  while (true) {
    const auto batch = (*source)->next();
    if (!batch) return tl::unexpected<Error>(batch.error());
    if (batch->references.empty() && batch->events.empty()) break;
    Status status;
    if (everything) {
      status = (*writer)->append(*batch);
    } else {
      kept.clear();
      size_t event = 0;
      for (size_t i = 0; i <= batch->references.size() && status; ++i) {
        // Events keep their place among the references that stay.
        for (; event < batch->events.size() && batch->events[event].position == batch->first + i && status; ++event) {
          Event moved = batch->events[event];
          if (options.no_events) continue;
          if (moved.position < references->begin) {
            if (is_of_memory(moved)) before.note(moved);
            continue;
          }
          if ((!wanted[moved.processor] && !is_of_memory(moved)) || moved.position > references->end) continue;
          if (!has_begun) status = begin_with(before);
          if (!status) break;
          status = (*writer)->append(kept);
          kept.clear();
          moved.position = (*writer)->references();
          if (status) status = (*writer)->append(moved);
        }
        if (!status || i == batch->references.size() || !keep(batch->references[i], batch->first + i)) continue;
        if (!has_begun) status = begin_with(before);
        kept.push_back(batch->references[i]);
      }
      if (status) status = (*writer)->append(kept);
    }
    if (!status) return tl::unexpected<Error>(status.error());
    progress.update(batch->first + batch->references.size());
  }
  if (Status status = (*writer)->finish(); !status) return tl::unexpected<Error>(status.error());
  const std::string& damage = (*source)->damage();
  if (!damage.empty())
    fmt::print(stderr, "mgtrace: {}: {}; {} references before it were kept\n", options.input, damage,
               (*writer)->references());
  return 0;
}

}  // namespace

Command add_filter(CLI::App& app) {
  auto options = std::make_shared<FilterArguments>();
  CLI::App* const command = app.add_subcommand(
      "filter",
      "take a part of a trace, repair one that was cut off, or compress one again; events that belong to what "
      "is left stay in their place");
  command->add_option("input", options->input, "the trace to read")->required()->type_name("TRACE");
  command->add_option("--processors", options->processors, "only these, as in 0,3,5")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("P");
  command->add_option("--addresses", options->addresses, "only what touches these: BEGIN-END (END excluded)")
      ->type_name("RANGE");
  command->add_option("--references", options->references, "only these, counted from 0: BEGIN-END (END excluded)")
      ->type_name("RANGE");
  CLI::Option* const reads = command->add_flag("--reads", options->reads, "only reads");
  command->add_flag("--writes", options->writes, "only writes")->excludes(reads);
  command->add_flag("--no-events", options->no_events, "references alone");
  command->add_flag("--repair", options->repair, "take what precedes the damage of a damaged trace");
  command->add_option("--threads", options->threads, "that decode ahead; default 1")
      ->type_name("N")
      ->check(CLI::Range(0, 256));
  add_output_options(*command, options->output);
  return {command, [options] { return run_filter(*options); }};
}

}  // namespace multigrain::trace::tool
