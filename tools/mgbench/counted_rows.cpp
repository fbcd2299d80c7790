#include <algorithm>

#include "counted.h"

namespace multigrain::bench {
namespace {

constexpr double kBytesOfHostPage = 4096, kBytesOfWord = 8;
// A word that a writer has changed, as a diff.
constexpr double kDiff = 16;

// The prices of steps, in nanoseconds.
class Steps {
 public:
  explicit Steps(const MachineDescription& machine) : machine_(machine) {}
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  [[nodiscard]] static double ns(Picoseconds cost) { return static_cast<double>(cost) / 1000; }
  [[nodiscard]] double fault() const { return ns(costs_.fault_entry); }
  [[nodiscard]] double transition() const { return ns(costs_.transition); }
  [[nodiscard]] double fill() const { return ns(costs_.translation_fill); }
  [[nodiscard]] double grant() const { return ns(rights_change(costs_, true, 1, 1)); }
  [[nodiscard]] double revoke() const { return ns(rights_change(costs_, false, 1, 1)); }
  [[nodiscard]] double queue() const { return ns(costs_.queue_page); }
  [[nodiscard]] double twin() const { return kBytesOfHostPage * ns(costs_.twin_byte); }
  [[nodiscard]] double make_diff() const { return kBytesOfHostPage * ns(costs_.diff_make_byte); }
  [[nodiscard]] double apply_diff() const { return kDiff * ns(costs_.diff_apply_byte); }
  [[nodiscard]] double release() const { return ns(costs_.release); }
  [[nodiscard]] double check() const { return ns(costs_.check); }

  [[nodiscard]] double occupied(double bytes) const {
    const NetworkModel& network = machine_.network;
    return static_cast<double>(network.occupancy_ns) + (network.bytes_per_ns > 0 ? bytes / network.bytes_per_ns : 0);
  }
  [[nodiscard]] double latency() const { return static_cast<double>(machine_.network.latency_ns); }
  // A message of so many bytes until its handler runs, and its handler without what it does.
  [[nodiscard]] double leave(double bytes = 0) const {
    return ns(costs_.message_send) + bytes * ns(costs_.send_byte) + occupied(bytes) + latency();
  }
  [[nodiscard]] double handle(double bytes = 0) const {
    return ns(costs_.message_receive) + bytes * ns(costs_.receive_byte) + transition();
  }
  [[nodiscard]] double message(double bytes = 0) const { return leave(bytes) + handle(bytes); }
  [[nodiscard]] double launch() const { return ns(costs_.message_send); }

  [[nodiscard]] double issue() const { return ns(costs_.remote_issue); }
  [[nodiscard]] double put(double bytes) const { return issue() + occupied(bytes) + latency(); }
  [[nodiscard]] double answered(double bytes, double answer) const {
    return issue() + occupied(0) + latency() + answer + occupied(bytes) + latency();
  }
  [[nodiscard]] double get(double bytes) const {
    return answered(bytes, ns(costs_.get_answer) + bytes * ns(costs_.get_answer_byte));
  }
  [[nodiscard]] double atomic() const { return answered(kBytesOfWord, ns(costs_.atomic_answer)); }

 private:
  const MachineDescription machine_;
  const MachineCosts& costs_ = machine_.costs;
};

}  // namespace

MachineDescription with_pages_of(const MachineDescription& machine, unsigned page) {
  MachineDescription scaled = machine;
  MachineCosts& costs = scaled.costs;
  constexpr auto kRows = static_cast<Picoseconds>(kBytesOfHostPage);
  for (Picoseconds* const price : {&costs.twin_byte, &costs.diff_make_byte, &costs.send_byte, &costs.receive_byte})
    *price = *price * page / kRows;
  return scaled;
}

CountedTable mgs_table(const MachineDescription& machine, unsigned page, bool is_papers, const Summaries& measured,
                       const Summaries& as_is) {
  const Steps s(with_pages_of(machine, page));
  const double tlb_read = s.fault() + s.transition() + s.fill() + s.grant();
  const double fetch = tlb_read + s.message() + s.message(kBytesOfHostPage);
  const double recall = s.message() + s.revoke() + s.transition() + s.message(kBytesOfHostPage);
  const double write = s.queue() + s.twin();
  // The home takes one DIFF after the other. They come as the INVs have left: one after the other, too.
  const auto release = [&](int writers) {
    const double take = s.handle(kDiff) + s.apply_diff();
    return s.release() + s.transition() + 2 * s.message() + s.revoke() + s.transition() + s.make_diff() +
           s.leave(kDiff) + (writers - 1) * std::max({take, s.launch(), s.occupied(0)}) + take + s.message();
  };
  struct Model {
    const char* name;
    double paper;  // cycles
    double sum;    // ns
    const char* steps;
  };
  const Model models[] = {
      {"TLB Fill, read", 2302, tlb_read, "F + T + M + G"},
      {"TLB Fill, write", 3590, tlb_read + s.queue(), "F + T + M + G + Q"},
      {"Page Fault, read", 11772, fetch, "TLB Fill + m (RREQ) + m + P (RDAT)"},
      {"Page Fault, write", 21956, fetch + write, "the same + Q + W"},
      {"Upgrade Fault", 12441, tlb_read + write + s.launch(), "TLB Fill + Q + W + message_send (WNOTIFY)"},
      {"Page Fault, Single-Writer, read", 29353, fetch + recall, "Page Fault + m (1WINV) + V + T + m + P (1WDATA)"},
      {"Page Fault, Single-Writer, write", 35293, fetch + recall + write, "the same + Q + W"},
      {"Single-Writer Transition", 9992, s.release() + s.transition() + 4 * s.message(),
       "E + T + 4 m (REL, 1WGR, ACK1W, RACK)"},
      {"Release (2 writers)", 33424, release(2), "E + T + 2 m (REL, INV) + V + T + D + DIFF + 2 (h + d) + m (RACK)"},
      {"Release (3 writers)", 33516, release(3), "the same with 3 (h + d)"},
      {"Pointer Translation", 23, s.check(), "check: a price; no run has compiled checks under mgs"}};
  const char* const unit = is_papers ? "cycles" : "us";
  const double scale = is_papers ? machine.clock_mhz / 1000 : 1.0 / 1000;
  CountedTable table{
      .key = "mgs",
      .title =
          is_papers ? "MGS, Table 1: operations of mgs, on the paper's machine" : "Operations of mgs (MGS, Table 1)",
      .as_is = as_is.empty() ? "" : "4 KiB",
      .rows = {},
      .notes = {
          "F: fault_entry; T: transition; M: translation_fill; G: grant_call and rights_page; Q: queue_page; W: a twin; V: "
          "revoke_call and rights_page; D: a diff made; d: a diff of a word applied; E: release; P: a page's bytes; m: a "
          "message and its transition (message_send, network, message_receive, T); h: the part of it at the receiver.",
          "TLB Fill is the home's first access to its own page, which takes one transition and no message: a node has one "
          "set of rights for all of its processors, and so no faults that fill only a processor's own table."}};
  for (const Model& model : models) {
    CountedRow row{.name = model.name,
                   .steps = model.steps,
                   .sum = model.sum * scale,
                   .paper = {},
                   .here = 0,
                   .as_is = {},
                   .unit = unit};
    if (is_papers) row.paper = model.paper;
    const auto found = measured.find(model.name);
    row.here = (found == measured.end() ? model.sum : found->second.p50) * scale;
    const auto other = as_is.find(model.name);
    if (other != as_is.end()) row.as_is = other->second.p50 * scale;
    table.rows.push_back(row);
  }
  if (!as_is.empty())
    table.notes.emplace_back(
        "Pages here have at least 4096 bytes, and the paper's have 1024. So a page's bytes have a quarter of their "
        "prices, which makes a page cost what the paper's costs; the column \"4 KiB\" has the machine's own prices. (A diff's "
        "16 bytes are sent at the lower price as well, which is 61 cycles.)");
  if (is_papers) {
    table.notes.emplace_back(
        "Page Fault, Single-Writer: in the paper a write costs 5940 cycles more than a read, and in a Page Fault 10184 "
        "more. No sum of the same steps has both.");
    table.notes.emplace_back(
        "Release: three writers cost 92 cycles more than two in the paper. Here the home takes one diff after the other.");
    table.notes.emplace_back(
        "Cache misses, remote software and the translation of distributed arrays are rows of hardware and of compiled "
        "code of which the counted clock has no model.");
  }
  return table;
}

CountedTable genima_table(const MachineDescription& machine, const std::string& paper,
                          const RemoteOperations& operations, const Summaries& pages, const Summaries& locks) {
  const Steps s(machine);
  const auto us = [](Picoseconds cost) { return Steps::ns(cost) / 1000; };
  const MachineCosts& c = machine.costs;
  // A stream is as fast as the link, or as the processor starts operations.
  const double stream = kBytesOfHostPage / std::max(s.occupied(kBytesOfHostPage), s.issue()) * 1000;
  const double interrupt = pages.at("Page Fault, read, the home computes").p50 - pages.at("Page Fault, read").p50;
  struct Model {
    const char* name;
    double myrinet, origin;
    double sum, here;
    const char* steps;
    const char* unit;
  };
  const Model models[] = {
      {"1-word send", 14, 0.11, s.put(kBytesOfWord) / 1000, operations.word_send / 1000, "I + O + L", "us"},
      {"1-word fetch", 31, 0.61, s.get(kBytesOfWord) / 1000, operations.word_fetch / 1000, "I + O + L + A + O + L",
       "us"},
      {"4 KByte send", 46, 7, s.put(kBytesOfHostPage) / 1000, operations.page_send / 1000, "I + O + L", "us"},
      {"4 KByte fetch", 105, 8, s.get(kBytesOfHostPage) / 1000, operations.page_fetch / 1000, "I + O + L + A + O + L",
       "us"},
      {"Maximum ping-pong bandwidth", 96, 555, stream, operations.send_rate * 1000, "4 KByte / the greater of O and I",
       "MB/s"},
      {"Maximum fetch bandwidth", 95, 578, stream, operations.fetch_rate * 1000, "4 KByte / the greater of O and I",
       "MB/s"},
      {"Notification", 42, 47, us(c.interrupt), interrupt / 1000, "interrupt", "us"},
      {"Remote lock acquire", 53.8, 8, us(c.lock_ask) + s.atomic() / 1000, locks.at("Remote lock acquire").p50 / 1000,
       "lock_ask + I + O + L + A + O + L", "us"},
      {"Local lock acquire", 12.7, 7, us(c.lock_ask), locks.at("Local lock acquire").p50 / 1000,
       "lock_ask: this node is its manager", "us"},
      {"Remote lock release", 7.4, 7, us(c.lock_release) + us(c.lock_pass) + s.issue() / 1000,
       locks.at("Remote lock release").p50 / 1000, "lock_release + lock_pass + I", "us"}};
  CountedTable table{
      .key = "genima",
      .title = paper.empty() ? "Remote operations and locks (GeNIMA, Table I)"
                             : "GeNIMA, Table I: remote operations and locks, on the paper's machine",
      .as_is = "",
      .rows = {},
      .notes = {
          "I: remote_issue; O: the link, occupancy and bytes / bandwidth; L: latency; A: the other node's answer.",
          "Sends and fetches are those of the emulated network by itself. Locks are hlrc's; a lock that another node used "
          "last takes a second atomic operation to acquire. Bandwidths are those of many operations of 4 KByte at a time.",
          "Notification is what a page fault under mgs takes more if the home's processor computes."}};
  for (const Model& model : models) {
    CountedRow row{.name = model.name,
                   .steps = model.steps,
                   .sum = model.sum,
                   .paper = {},
                   .here = model.here,
                   .as_is = {},
                   .unit = model.unit};
    if (paper == "genima-myrinet") row.paper = model.myrinet;
    if (paper == "genima-origin") row.paper = model.origin;
    table.rows.push_back(row);
  }
  if (paper == "genima-origin")
    table.notes.emplace_back(
        "The paper has 7 and 8 us for 4 KByte, rounded; with its own bandwidths they are 7.4 and 7.7.");
  return table;
}

}  // namespace multigrain::bench
