// What a run costs by place: how a node begins to count it, and how node 0 collects the tables of all (node.h, status/costs.h).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <tuple>
#include <type_traits>

#include "base/lock_guard.h"
#include "base/settings.h"
#include "emulation/machine_description.h"
#include "fabric/module.h"
#include "fabric/rows.h"
#include "runtime/message_types.h"
#include "runtime/node.h"
#include "runtime/private/variables.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

enum class RowKind : uint64_t { kPages, kLines, kWaits };

template <typename Row>
void append(std::vector<Row>& rows, const Message& message) {
  for (const Row& row : append_rows(rows, message, "rows of costs that cannot be right, from node"))
    if (row.node != message.from.value) panic("rows of costs of another node, from node", message.from.value);
}

template <typename Row>
void send_rows_of(Fabric& fabric, RowKind kind, std::span<const Row> rows) {
  MessageHeader header;
  header.type = runtime_message::kCostRows;
  header.word[0] = static_cast<uint64_t>(kind);
  multigrain::send_rows(fabric, header, rows);
}

std::vector<std::string> words_of_this_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> words;
  for (size_t at = 0; at < all.size(); at += words.back().size() + 1) words.emplace_back(&all[at]);
  return words;
}

// Returns "a:2,b:2" of the hosts of all nodes; nothing if there is one host.
std::string hosts_for_option(const std::vector<std::string>& hosts) {
  if (std::set<std::string>(hosts.begin(), hosts.end()).size() < 2) return {};
  std::string text;
  for (size_t i = 0; i < hosts.size();) {
    size_t end = i;
    while (end < hosts.size() && hosts[end] == hosts[i]) ++end;
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", hosts[i], end - i);
    i = end;
  }
  return text;
}

}  // namespace

void Node::start_costs() {
  costs::start(node_status()->costs, config_.stats != StatsFormat::kNone ? costs::Mode::kOn : costs::Mode::kOff,
               region_->page_shift(), &time_stamp, time_stamps_per_us());
  set_handler<&Node::handle_cost_rows>(runtime_message::kCostRows);
}

// On another node than 0, at the end of the run.
void Node::send_costs() {
  if (config_.stats == StatsFormat::kNone || hosted_ != nullptr) return;
  costs::Rows rows;
  costs::append_rows(node_status()->costs, config_.node.value, rows);
  send_rows_of(*fabric_, RowKind::kPages, std::span<const costs::PageRow>(rows.pages));
  send_rows_of(*fabric_, RowKind::kLines, std::span<const costs::LineRow>(rows.lines));
  send_rows_of(*fabric_, RowKind::kWaits, std::span<const costs::WaitRow>(rows.waits));
}

void Node::handle_cost_rows(const Message& message) {
  if (config_.node != NodeId(0)) panic("costs for node 0 came here, from node", message.from.value);
  const LockGuard hold(rows_lock_);
  switch (static_cast<RowKind>(message.header.word[0])) {
    case RowKind::kPages:
      return append(cost_rows_.pages, message);
    case RowKind::kLines:
      return append(cost_rows_.lines, message);
    case RowKind::kWaits:
      return append(cost_rows_.waits, message);
  }
  panic("costs of a kind that there is not, from node", message.from.value);
}

RunCommand Node::command_of_run() const {
  RunCommand command;
  auto& options = command.options;
  const std::string hosts = bootstrap_ ? hosts_for_option(bootstrap_->hosts) : std::string();
  if (hosts.empty())
    options.emplace_back("--nodes", std::to_string(config_.nodes));
  else
    options.emplace_back("--hosts", hosts);
  options.emplace_back("--procs-per-node", std::to_string(config_.processors_per_node));
  const std::set<std::string_view> said = {"--nodes", "--procs-per-node", "--stats", "--timeline", "--verbose"};
  for (const Setting& setting : settings()) {
    if (setting.option == nullptr || said.contains(setting.long_option())) continue;
    const char* const value = secure_getenv(setting.variable);
    if (value == nullptr) continue;
    // mgrun has put a description in the place of the name of its file.
    const bool is_text = std::strchr(value, '\n') != nullptr || std::strchr(value, '{') != nullptr;
    if (is_text && config_.machine == nullptr) continue;
    options.emplace_back(setting.long_option(), setting.placeholder == nullptr ? std::string()
                                                : is_text                      ? config_.machine->name
                                                                               : std::string(value));
  }
  options.emplace_back("--stats", "text");
  command.program = words_of_this_process();
  return command;
}

CostReport Node::cost_report() {
  if (hosted_ != nullptr) return {};
  costs::Rows rows;
  costs::append_rows(node_status()->costs, 0, rows);
  uint64_t processors_ns = 0;
  {
    const LockGuard hold(rows_lock_);
    rows.pages.insert(rows.pages.end(), cost_rows_.pages.begin(), cost_rows_.pages.end());
    rows.lines.insert(rows.lines.end(), cost_rows_.lines.begin(), cost_rows_.lines.end());
    rows.waits.insert(rows.waits.end(), cost_rows_.waits.begin(), cost_rows_.waits.end());
  }
  for (unsigned n = 0; n < config_.nodes; ++n)
    for (unsigned i = 0; i < reports_[n].processors; ++i) processors_ns += reports_[n].processor[i].total_ns;
  // Nodes end in any order.
  std::ranges::sort(rows.pages, {}, [](const costs::PageRow& row) { return std::tuple(row.node, row.page); });
  std::ranges::sort(rows.lines, {}, [](const costs::LineRow& row) { return std::tuple(row.node, row.site); });
  std::ranges::sort(rows.waits, {},
                    [](const costs::WaitRow& row) { return std::tuple(row.node, row.call, row.object, row.site); });

  const auto open = load_module(timeline::kModuleName, timeline::kModuleSymbol);
  if (!open) {
    std::fprintf(stderr, "multigrain: --stats: cannot name lines and memory: %s\n", open.error().message.c_str());
    return {};
  }
  const auto places = reinterpret_cast<decltype(&multigrain_timeline_module)>(*open)()->places(*node_status());
  CostContext context{
      .nodes = config_.nodes,
      .page_size = config_.page_size,
      .line_size = config_.line_size,
      .prefetch = config_.prefetch,
      .protocol = config_.traits().kind,
      .home = config_.home_under(config_.traits()),
      .has_checks = line_protocol_ != nullptr,
      .processors_ns = processors_ns,
      .command = command_of_run(),
      .address_of = [this](uint64_t page) -> uint64_t {
        return region_->has_pages(PageId(page), 1) ? reinterpret_cast<uint64_t>(region_->view(PageId(page))) : 0;
      },
      .home_of = [this](uint64_t page) -> std::optional<NodeId> {
        return region_->has_pages(PageId(page), 1) ? heap_->home_of(PageId(page)) : std::nullopt;
      },
      .is_by_lines = [this](uint64_t page) -> bool {
        return region_->has_pages(PageId(page), 1) && line_protocol_ != nullptr &&
               line_protocol_->keeps_page(PageId(page));
      }};
  const CostNames names{
      .block = [&](uint64_t address) -> CostNames::Block {
        const timeline::Places::Block block = places->block(address);
        if (block.begin != 0) return {.name = block.name, .begin = block.begin, .size = block.size};
        // The globals of a program whose globals are shared are where they were, and not in the region.
        const uint64_t from_base = address - reinterpret_cast<uint64_t>(region_->base());
        if (from_base >= region_->size())
          if (const auto variable = variable_at(address)) return {.name = variable->described(), .begin = 0, .size = 0};
        return {.name = "other shared memory", .begin = 0, .size = 0};
      },
      .instruction = [&](uint64_t address) { return places->instruction(address); },
      .call = [&](uint64_t address) { return places->call(address); },
      .object = [&](uint32_t call, uint64_t object) { return places->object(static_cast<uint8_t>(call), object); }};
  return make_cost_report(rows, context, names);
}

}  // namespace multigrain
