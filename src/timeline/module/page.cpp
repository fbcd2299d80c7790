#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "timeline/module/files.h"

namespace multigrain::timeline {
namespace {

using nlohmann::json;

constexpr const char* kPage =
#include "timeline_page.inc"
    ;

// What fits into a page of 2 MB: intervals of categories, of calls, faults and handlers, arrows, and parts of the run for each of
// which a row has the shares of the categories.
constexpr size_t kTimes = 50'000;
constexpr size_t kScopes = 20'000;
constexpr size_t kArrows = 5'000;
constexpr size_t kBins = 48'000;  // over all rows
constexpr size_t kMostBins = 1'200;
constexpr size_t kCategories = 7;
constexpr size_t kTableRows = 12;

// Returns the shortest duration with which at most `most` of the intervals remain.
uint64_t shortest_of(std::vector<uint64_t> durations, size_t most) {
  if (durations.size() <= most) return 0;
  std::ranges::nth_element(durations, durations.begin() + static_cast<ptrdiff_t>(most), std::greater<>());
  return durations[most] + 1;
}

std::string duration_text(uint64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns >= 1'000'000'000) return fmt::format("{:.3f} s", value / 1e9);
  if (ns >= 1'000'000) return fmt::format("{:.3f} ms", value / 1e6);
  return fmt::format("{:.2f} us", value / 1e3);
}

// How often something took how long.
struct Sum {
  uint64_t times = 0;
  uint64_t total = 0;
  uint64_t longest = 0;
  void add(uint64_t duration) {
    ++times;
    total += duration;
    longest = std::max(longest, duration);
  }
};

class PageWriter {
 public:
  PageWriter(const WrittenRun& run, RunNames& names) : run_(run), names_(names) {}

  std::string write() {
    for (const WrittenTrack& track : run_.tracks)
      for (const Event& event : track.events) end_ = std::max(end_, event.begin + event.duration);
    choose();
    json data;
    data["program"] = run_.program;
    data["run"] = fmt::format("{} {} of {} {}, protocol {}, network {}, {} clock, {}", run_.nodes,
                              run_.nodes == 1 ? "node" : "nodes", run_.processors_per_node,
                              run_.processors_per_node == 1 ? "processor" : "processors", run_.protocol, run_.network,
                              run_.clock, duration_text(end_));
    data["end"] = end_;
    data["bins"] = bins_;
    for (size_t c = 0; c < kCategories; ++c) data["categories"].push_back(category_name(static_cast<uint8_t>(c)));
    data["rows"] = json::array();
    for (const WrittenTrack& track : run_.tracks) data["rows"].push_back(row(track));
    data["arrows"] = arrows();
    data["tables"] = tables();
    data["left_out"] = left_out();
    data["names"] = texts_;
    std::string page = kPage;
    const std::string_view mark = "/*DATA*/null";
    // No text of the data can end the script.
    std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
    for (size_t at = 0; (at = text.find("</", at)) != std::string::npos;) text.replace(at, 2, "<\\/");
    page.replace(page.find(mark), mark.size(), text);
    return page;
  }

 private:
  void choose() {
    std::vector<uint64_t> times, scopes;
    for (const WrittenTrack& track : run_.tracks)
      for (const Event& event : track.events) {
        if (event.kind == Kind::kCategory) times.push_back(event.duration);
        if (event.kind == Kind::kCall || event.kind == Kind::kFault || event.kind == Kind::kHandler)
          scopes.push_back(event.duration);
      }
    shortest_time_ = shortest_of(std::move(times), kTimes);
    shortest_scope_ = shortest_of(std::move(scopes), kScopes);
    bins_ = std::clamp<size_t>(kBins / std::max<size_t>(1, run_.tracks.size()), 50, kMostBins);
  }

  // Returns the text's place among D.names.
  size_t index_of(const std::string& text) {
    const auto [place, is_new] = indexes_.try_emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return place->second;
  }

  json row(const WrittenTrack& track) {
    json result;
    const std::string title = track_name(track);
    result["node"] = track.node;
    result["title"] =
        run_.nodes > 1 && track.owner != Owner::kService ? fmt::format("node {}, {}", track.node, title) : title;
    result["short"] = track.owner == Owner::kProcessor ? fmt::format("{}: p{}", track.node, track.number)
                      : track.owner == Owner::kService ? fmt::format("{}: service", track.node)
                                                       : fmt::format("{}: t{}", track.node, track.number);
    result["processor"] = track.owner == Owner::kProcessor || track.owner == Owner::kThread;
    std::array<uint64_t, kCategories> totals{};
    std::vector<std::array<double, kCategories>> shares(bins_);
    const double bin = static_cast<double>(std::max<uint64_t>(end_, 1)) / static_cast<double>(bins_);
    json times = json::array(), scopes = json::array();
    uint64_t last_time = 0, last_scope = 0;
    for (const Event& event : track.events) {
      if (event.kind == Kind::kCategory && event.what < kCategories) {
        totals[event.what] += event.duration;
        spread(event, bin, shares);
        if (event.duration < shortest_time_) continue;
        times.insert(times.end(), {event.begin - last_time, event.duration, event.what});
        last_time = event.begin;
      } else if (const auto scope = scope_of(event)) {
        if (event.duration < shortest_scope_) continue;
        const auto& [name, place, kind] = *scope;
        scopes.insert(scopes.end(), {event.begin - last_scope, event.duration, index_of(name),
                                     place.empty() ? json(-1) : json(index_of(place)), kind});
        last_scope = event.begin;
      }
    }
    result["times"] = std::move(times);
    result["scopes"] = std::move(scopes);
    result["totals"] = totals;
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (const auto& each : shares)
      for (const double share : each) text += alphabet[static_cast<size_t>(std::clamp(share * 63 + 0.5, 0.0, 63.0))];
    result["bins"] = text;
    return result;
  }

  static void spread(const Event& event, double bin, std::vector<std::array<double, kCategories>>& shares) {
    const auto begin = static_cast<double>(event.begin), end = static_cast<double>(event.begin + event.duration);
    for (auto b = static_cast<size_t>(begin / bin); b < shares.size() && static_cast<double>(b) * bin < end; ++b) {
      const double from = std::max(begin, static_cast<double>(b) * bin);
      const double to = std::min(end, static_cast<double>(b + 1) * bin);
      if (to > from) shares[b][event.what] += (to - from) / bin;
    }
  }

  // Returns the name, the place in the program, and the kind for the page (0 call, 1 fault, 2 handler) of an interval.
  std::optional<std::tuple<std::string, std::string, int>> scope_of(const Event& event) {
    switch (event.kind) {
      case Kind::kCall:
        return std::tuple(names_.object(event.what, event.key),
                          event.site == 0 ? std::string() : names_.call(event.site), 0);
      case Kind::kFault:
        return std::tuple(names_.fault(event), names_.instruction(event.site), 1);
      case Kind::kHandler:
        return std::tuple(fmt::format("handles {} from node {}", message(event.what), event.peer), std::string(), 2);
      case Kind::kCategory:
      case Kind::kSend:
        break;
    }
    return std::nullopt;
  }

  std::string message(uint8_t type) const { return RunNames::message(run_, type); }

  json arrows() {
    std::map<std::tuple<unsigned, unsigned, uint64_t>, std::pair<size_t, uint64_t>> sent;
    for (size_t r = 0; r < run_.tracks.size(); ++r)
      for (const Event& event : run_.tracks[r].events)
        if (event.kind == Kind::kSend)
          sent.emplace(std::tuple(run_.tracks[r].node, unsigned{event.peer}, event.key), std::pair(r, event.begin));
    std::vector<json> found;
    for (size_t r = 0; r < run_.tracks.size(); ++r)
      for (const Event& event : run_.tracks[r].events) {
        if (event.kind != Kind::kHandler) continue;
        const auto source = sent.find({event.peer, run_.tracks[r].node, event.key});
        if (source == sent.end()) continue;
        found.push_back({source->second.first, source->second.second, r, event.begin, index_of(message(event.what))});
      }
    const size_t every = found.size() / kArrows + 1;
    json result = json::array();
    for (size_t i = 0; i < found.size(); i += every) result.push_back(std::move(found[i]));
    arrows_every_ = every;
    return result;
  }

  static json table(const char* title, const char* what, const std::map<std::string, Sum>& sums) {
    std::vector<std::pair<std::string, Sum>> rows(sums.begin(), sums.end());
    std::ranges::sort(rows, std::greater<>(), [](const auto& row) { return std::pair(row.second.total, row.first); });
    json result = {
        {"title", title}, {"head", {what, "times", "in all", "on average", "longest"}}, {"rows", json::array()}};
    for (size_t i = 0; i < std::min(rows.size(), kTableRows); ++i) {
      const Sum& sum = rows[i].second;
      result["rows"].push_back({rows[i].first, std::to_string(sum.times), duration_text(sum.total),
                                duration_text(sum.total / sum.times), duration_text(sum.longest)});
    }
    return result;
  }

  json tables() {
    std::map<std::string, Sum> blocks, lines, calls, sites;
    for (const WrittenTrack& track : run_.tracks)
      for (const Event& event : track.events) {
        if (event.kind == Kind::kFault) {
          blocks[names_.block(event.key)].add(event.duration);
          lines[names_.instruction(event.site)].add(event.duration);
        } else if (event.kind == Kind::kCall) {
          calls[names_.object(event.what, event.key)].add(event.duration);
          if (event.site != 0) sites[names_.call(event.site)].add(event.duration);
        }
      }
    return {table("Faults by block of shared memory", "block, and the line that allocates it", blocks),
            table("Faults by line of the program", "line", lines),
            table("Waits by object", "object, and the line that made it", calls),
            table("Waits by line of the program", "line", sites)};
  }

  std::string left_out() const {
    uint64_t events = 0, least = 0, one_in = 1;
    for (const WrittenTrack& track : run_.tracks) {
      one_in = std::max(one_in, track.one_in);
      events += track.left_out;
      least = std::max(least, track.least);
    }
    std::string text;
    if (events != 0)
      text += fmt::format("The run left out {} events: on some rows what was shorter than {}, and some messages. ",
                          events, duration_text(least));
    if (one_in > 1) text += fmt::format("Of the longer ones, some rows have one in {}. ", one_in);
    if (shortest_time_ != 0 || shortest_scope_ != 0)
      text += fmt::format(
          "This page shows single times of {} and more, and calls and faults of {} and more; a trace "
          "(--timeline with another name) has all. ",
          duration_text(shortest_time_), duration_text(shortest_scope_));
    if (arrows_every_ > 1) text += fmt::format("Of the messages it has one in {}. ", arrows_every_);
    if (run_.threads_without_track != 0)
      text += fmt::format("{} threads have no row: there were too many. ", run_.threads_without_track);
    return text;
  }

  const WrittenRun& run_;
  RunNames& names_;
  uint64_t end_ = 0;
  size_t bins_ = 1;
  uint64_t shortest_time_ = 0;
  uint64_t shortest_scope_ = 0;
  size_t arrows_every_ = 1;
  std::vector<std::string> texts_;
  std::map<std::string, size_t> indexes_;
};

}  // namespace

std::string page(const WrittenRun& run, RunNames& names) {
  return PageWriter(run, names).write();
}

}  // namespace multigrain::timeline
