// Tables of one node that another one needs, as messages of rows: plain values of equal size.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "fabric/fabric.h"

namespace multigrain {

// Sends the rows to node 0, in as many messages as they need, each with this header; none if there are no rows. It may wait, so handlers may not
// call it.
template <typename Row>
void send_rows(Fabric& fabric, const MessageHeader& header, std::span<const Row> rows) {
  static_assert(std::is_trivially_copyable_v<Row>);
  constexpr size_t kMost = Fabric::kMaxPayload / sizeof(Row);
  while (!rows.empty()) {
    const auto some = rows.first(std::min(rows.size(), kMost));
    fabric.send(NodeId(0), header, std::as_bytes(some), {}, SendContext::kOrdinary);
    rows = rows.subspan(some.size());
  }
}

// Appends the rows of such a message, and returns those. Panics with the sentence `what`, which the number of the sender ends, if the message is no whole number of rows.
template <typename Row>
std::span<const Row> append_rows(std::vector<Row>& rows, const Message& message, const char* what) {
  static_assert(std::is_trivially_copyable_v<Row>);
  if (message.payload.empty() || message.payload.size() % sizeof(Row) != 0) panic(what, message.from.value);
  const size_t before = rows.size();
  rows.resize(before + message.payload.size() / sizeof(Row));
  std::memcpy(&rows[before], message.payload.data(), message.payload.size());
  return std::span<const Row>(rows).subspan(before);
}

}  // namespace multigrain
