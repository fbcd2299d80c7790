#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "counted.h"

namespace multigrain::bench {
namespace {

// The sizes of a page in MGS's Table 1, and of the host's.
constexpr double kBytesOfMgsPage = 1024, kBytesOfHostPage = 4096, kBytesOfWord = 8, kBytesOfLine = 64;
// One get reads the hazards of a node's threads: a header, and four slots at first (coherence/dszoom/driver.cpp).
constexpr double kBytesOfHazards = 5 * 64;
// A word that a writer has changed, as a diff.
constexpr double kDiff = 16;

// The prices of steps, in nanoseconds.
class StepPrices {
 public:
  explicit StepPrices(const MachineDescription& machine, double page = kBytesOfHostPage)
      : machine_(machine), page_(page) {}
  StepPrices(const StepPrices&) = delete;
  StepPrices& operator=(const StepPrices&) = delete;

  [[nodiscard]] static double ns(Picoseconds cost) { return static_cast<double>(cost) / 1000; }
  [[nodiscard]] double page() const { return page_; }
  [[nodiscard]] double fault() const { return ns(costs_.fault_entry); }
  [[nodiscard]] double miss() const { return ns(costs_.check_miss); }
  [[nodiscard]] double transition() const { return ns(costs_.transition); }
  [[nodiscard]] double fill() const { return ns(costs_.translation_fill); }
  [[nodiscard]] double grant() const { return ns(rights_change(costs_, true, 1, 1)); }
  [[nodiscard]] double revoke() const { return ns(rights_change(costs_, false, 1, 1)); }
  [[nodiscard]] double queue() const { return ns(costs_.queue_page); }
  [[nodiscard]] double twin() const { return page_ * ns(costs_.twin_byte); }
  [[nodiscard]] double make_diff() const { return page_ * ns(costs_.diff_make_byte); }
  [[nodiscard]] double apply_diff() const { return kDiff * ns(costs_.diff_apply_byte); }
  [[nodiscard]] double release() const { return ns(costs_.release); }
  [[nodiscard]] double check() const { return ns(costs_.check); }
  [[nodiscard]] double directory() const { return ns(costs_.directory); }
  [[nodiscard]] double downgrade() const { return ns(costs_.downgrade); }

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
  // The bytes of an answer, and what the other node's interface adds to it.
  struct Answer {
    double bytes, added;
  };
  [[nodiscard]] Answer of_get(double bytes) const {
    return {bytes, ns(costs_.get_answer) + bytes * ns(costs_.get_answer_byte)};
  }
  [[nodiscard]] Answer of_atomic() const { return {kBytesOfWord, ns(costs_.atomic_answer)}; }
  // Operations on one node's memory that are started one right after the other, until all have been answered.
  [[nodiscard]] double together(std::initializer_list<Answer> answers) const {
    double now = 0, out = 0, back = 0, in = 0, last = 0;
    for (const Answer& answer : answers) {
      now += issue();
      out = std::max(out, now) + occupied(0);
      const double transfer = occupied(answer.bytes) - occupied(0);
      back = std::max(back, out + latency()) + occupied(answer.bytes);
      in = std::max(in, back - transfer + latency()) + transfer;
      last = std::max(last, in + answer.added);
    }
    return last;
  }

 private:
  const MachineDescription machine_;
  const double page_;
  const MachineCosts& costs_ = machine_.costs;
};

}  // namespace

CountedTable mgs_table(const MachineDescription& machine, bool is_translated, bool is_papers,
                       const Summaries& measured) {
  const StepPrices s(machine, is_translated ? kBytesOfMgsPage : kBytesOfHostPage);
  // A right in a table of a processor's own is the entry that it fills.
  const double tlb_read =
      is_translated ? s.miss() + s.transition() + s.fill() : s.fault() + s.transition() + s.fill() + s.grant();
  const double fetch = tlb_read + s.message() + s.message(s.page());
  const double recall = s.message() + s.revoke() + s.transition() + s.message(s.page());
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
  const char* const fill = is_translated ? "K + T + M" : "F + T + M + G";
  std::vector<Model> models = {
      {"TLB Fill, read", 2302, tlb_read, fill},
      {"TLB Fill, write", 3590, tlb_read + s.queue(), is_translated ? "K + T + M + Q" : "F + T + M + G + Q"},
      {"Page Fault, read", 11772, fetch, "TLB Fill + m (RREQ) + m + P (RDAT)"},
      {"Page Fault, write", 21956, fetch + write, "the same + Q + W"},
      {"Upgrade Fault", 12441, tlb_read + write + s.launch(), "TLB Fill + Q + W + message_send (WNOTIFY)"},
      {"Page Fault, Single-Writer, read", 29353, fetch + recall, "Page Fault + m (1WINV) + V + T + m + P (1WDATA)"},
      {"Page Fault, Single-Writer, write", 35293, fetch + recall + write, "the same + Q + W"},
      {"Single-Writer Transition", 9992, s.release() + s.transition() + 4 * s.message(),
       "E + T + 4 m (REL, 1WGR, ACK1W, RACK)"},
      {"Release (2 writers)", 33424, release(2), "E + T + 2 m (REL, INV) + V + T + D + DIFF + 2 (h + d) + m (RACK)"},
      {"Release (3 writers)", 33516, release(3), "the same with 3 (h + d)"}};
  if (const auto& translation = machine.instructions.translation; is_translated && translation) {
    models.push_back({"Pointer Translation", 23, StepPrices::ns(translation->pointer), "translation.pointer"});
    models.push_back({"Distributed Array Translation", 16, StepPrices::ns(translation->array), "translation.array"});
  } else {
    models.push_back(
        {"Compiled check that passes", 23, s.check(), "check: a price; no run has compiled checks under mgs"});
  }
  const char* const unit = is_papers ? "cycles" : "us";
  const double scale = is_papers ? machine.clock_mhz / 1000 : 1.0 / 1000;
  CountedTable table{
      .key = "mgs",
      .title =
          is_papers ? "MGS, Table 1: operations of mgs, on the paper's machine" : "Operations of mgs (MGS, Table 1)",
      .rows = {},
      .notes = {
          "F: fault_entry; T: transition; M: translation_fill; G: grant_call and rights_page; Q: queue_page; W: a twin; V: "
          "revoke_call and rights_page; D: a diff made; d: a diff of a word applied; E: release; P: a page's bytes; m: a "
          "message and its transition (message_send, network, message_receive, T); h: the part of it at the receiver.",
          is_translated
              ? "K: check_miss. The run has --mgs translation=compiled and pages of 1024 bytes: each processor has a "
                "translation table of its own, and TLB Fill is a fault on a page that another processor of the node has mapped."
              : "TLB Fill is the home's first access to its own page, which takes one transition and no message: a node has "
                "one set of rights for all of its processors, and so no faults that fill only a processor's own table."}};
  for (const Model& model : models) {
    CountedRow row{
        .name = model.name, .steps = model.steps, .sum = model.sum * scale, .paper = {}, .here = 0, .unit = unit};
    if (is_papers) row.paper = model.paper;
    const auto found = measured.find(model.name);
    row.here = (found == measured.end() ? model.sum : found->second.p50) * scale;
    table.rows.push_back(row);
  }
  if (is_papers) {
    table.notes.emplace_back(
        "Page Fault, Single-Writer: in the paper a write costs 5940 cycles more than a read, and in a Page Fault 10184 "
        "more. No sum of the same steps has both.");
    table.notes.emplace_back(
        "Release: three writers cost 92 cycles more than two in the paper. Here the home takes one diff after the other.");
  }
  return table;
}

CountedTable hardware_table(const MachineDescription& machine, bool is_papers, const Summaries& measured) {
  struct Model {
    const char* name;
    double paper_read, paper_write;  // cycles
    CacheDescription::Price CacheDescription::* price;
    const char* steps;
  };
  const Model models[] = {
      {"Cache Miss Local", 11, 12, &CacheDescription::local, "local_"},
      {"Cache Miss Remote", 38, 38, &CacheDescription::remote, "remote_"},
      {"Cache Miss 2-party", 42, 43, &CacheDescription::two_party, "two_party_"},
      {"Cache Miss 3-party", 63, 66, &CacheDescription::three_party, "three_party_"},
      {"Remote Software", 425, 707, &CacheDescription::software, "software_"},
  };
  CountedTable table{
      .key = "hardware",
      .title = is_papers ? "MGS, Table 1: misses of caches in a node, on the paper's machine"
                         : "Misses of caches in a node (MGS, Table 1)",
      .rows = {},
      .notes = {
          "A run with --caches on, on one node of 8 processors: others bring a line into its state, and processor 0 accesses "
          "it. What the same access takes that hits is taken off."}};
  const double scale = is_papers ? machine.clock_mhz / 1000 : 1.0 / 1000;
  for (const Model& model : models) {
    for (const bool writes : {false, true}) {
      const CacheDescription::Price& price = (*machine.caches).*model.price;
      const char* const what = writes ? "write" : "read";
      CountedRow row{.name = fmt::format("{}, {}", model.name, what),
                     .steps = fmt::format("caches.{}{}", model.steps, what),
                     .sum = StepPrices::ns(writes ? price.write : price.read) * scale,
                     .paper = {},
                     .here = 0,
                     .unit = is_papers ? "cycles" : "us"};
      if (is_papers) row.paper = writes ? model.paper_write : model.paper_read;
      row.here = measured.at(row.name).p50 * scale;
      table.rows.push_back(row);
    }
  }
  if (machine.caches->pointers != 5)
    table.notes.emplace_back(
        "Remote Software is a line with five readers and one more: on this machine no entry of the directory overflows by "
        "that, if it has more than five pointers.");
  return table;
}

CountedTable genima_table(const MachineDescription& machine, const std::string& paper,
                          const RemoteOperations& operations, const Summaries& pages, const Summaries& locks) {
  const StepPrices s(machine);
  const auto us = [](Picoseconds cost) { return StepPrices::ns(cost) / 1000; };
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

namespace {

// A row of lines: its sum in nanoseconds.
struct LineModel {
  const char* name;
  double paper;  // us; 0: the paper has no figure
  double sum;
  const char* steps;
};

CountedRow row_of(const LineModel& model, bool is_papers, double here) {
  CountedRow row{.name = model.name,
                 .steps = model.steps,
                 .sum = model.sum / 1000,
                 .paper = {},
                 .here = here / 1000,
                 .unit = "us"};
  if (is_papers && model.paper != 0) row.paper = model.paper;
  return row;
}

}  // namespace

CountedTable dszoom_table(const MachineDescription& machine, bool is_papers, const Summaries& measured) {
  const StepPrices s(machine);
  const double common = s.miss() + s.transition() + s.directory() + s.issue();
  const double lock = s.together({s.of_atomic(), s.of_get(kBytesOfHazards), s.of_get(kBytesOfLine)}) + s.downgrade();
  const double lock_alone = s.together({s.of_atomic(), s.of_get(kBytesOfHazards)}) + s.downgrade();
  const double flags = s.put(kBytesOfLine) + s.latency();
  const LineModel models[] = {
      {"Load miss, two hops", 2.8, common + lock, "X + T + d + I (unlock) + 3 I + R (lock, hazards, line) + g"},
      {"Load miss, three hops", 0, common + 2 * lock, "the same + 3 I + R (revoke, hazards, line) + g"},
      {"Store miss, two hops", 0, common + lock + flags, "Load miss, two hops + I + R (flags)"},
      {"Store miss, three hops", 0, common + 2 * lock + flags, "Load miss, three hops + I + R (flags)"},
      {"Upgrade", 0, common + lock_alone + flags,
       "X + T + d + I (unlock) + 2 I + R (lock, hazards) + g + I + R (flags)"},
  };
  CountedTable table{
      .key = "dszoom",
      .title = is_papers ? "DSZOOM: misses of lines of 64 bytes, on the paper's machine" : "Misses of lines of dszoom",
      .rows = {},
      .notes = {
          "X: check_miss; T: transition; d: directory; g: downgrade; I: remote_issue; R: the network, there and back. A "
          "miss is what the access takes longer than the same one that hits."}};
  for (const LineModel& model : models) table.rows.push_back(row_of(model, is_papers, measured.at(model.name).p50));
  if (is_papers)
    table.notes.emplace_back(
        "The paper has bounds: the protocol of a remote load below 0.8 us, and a network of 2 us there "
        "and back: 2.8 us; the whole below 3 us.");
  return table;
}

CountedTable shasta_table(const MachineDescription& machine, bool is_papers, const Summaries& measured,
                          const Summaries& locks) {
  const StepPrices s(machine);
  const MachineCosts& c = machine.costs;
  const auto plain = [&] { return s.message(); };
  // The requester's transition, and a request to the home.
  const double ask = s.miss() + s.transition() + plain() + s.directory();
  const auto two_hops = [&](double bytes) { return ask + s.downgrade() + s.message(bytes); };
  const double three_hops = ask + plain() + s.downgrade() + s.message(kBytesOfLine);
  const double large = two_hops(kBytesOfHostPage), small = two_hops(kBytesOfLine);
  const LineModel models[] = {
      {"Load miss, two hops", 20, small, "X + T + d + 2 m + g + b"},
      {"Load miss, three hops", 0, three_hops, "X + T + d + 3 m + g + b"},
      {"Store miss, two hops", 0, small, "as the load"},
      {"Store miss, three hops", 0, three_hops, "as the load"},
      // The home's acknowledgement of its own copy comes right behind its answer.
      {"Upgrade", 0, ask + s.downgrade() + plain() + std::max({s.handle(), s.launch(), s.occupied(0)}),
       "X + T + d + 2 m + g + h"},
      {"Load miss of a block of 4096 bytes", 0, large, "X + T + d + 2 m + g + 64 b"},
  };
  CountedTable table{
      .key = "shasta",
      .title = is_papers ? "Shasta, section 6: misses of blocks of 64 bytes, and locks, on the paper's machine"
                         : "Misses of blocks and locks of shasta",
      .rows = {},
      .notes = {
          "X: check_miss; T: transition; d: directory; g: downgrade; m: a message and its transition (message_send, "
          "network, message_receive, T); h: the part of it at the receiver; b: 64 bytes (send_byte, link, receive_byte). A miss is what the access takes "
          "longer than the same one that hits."}};
  for (const LineModel& model : models) table.rows.push_back(row_of(model, is_papers, measured.at(model.name).p50));
  // What each byte more takes.
  const auto rate = [](double of_large, double of_small) {
    return (kBytesOfHostPage - kBytesOfLine) / (of_large - of_small) * 1000;
  };
  CountedRow bandwidth{
      .name = "Bandwidth of large blocks",
      .steps = "a byte / (send_byte + link + receive_byte)",
      .sum = rate(large, small),
      .paper = {},
      .here = rate(measured.at("Load miss of a block of 4096 bytes").p50, measured.at("Load miss, two hops").p50),
      .unit = "MB/s"};
  if (is_papers) bandwidth.paper = 35;
  table.rows.push_back(bandwidth);
  const double message = s.message() - s.transition();
  const LineModel lock_models[] = {
      {"Cached lock acquire", 1.11, s.ns(c.lock_acquire), "lock_acquire"},
      {"Remote lock acquire", 15.63, s.ns(c.lock_ask) + s.ns(c.lock_pass) + 2 * message + s.ns(c.node_miss),
       "lock_ask + lock_pass + 2 (message_send, network, message_receive) + node_miss"},
  };
  for (const LineModel& model : lock_models) table.rows.push_back(row_of(model, is_papers, locks.at(model.name).p50));
  return table;
}

}  // namespace multigrain::bench
