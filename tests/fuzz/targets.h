// These functions handle bytes that came from outside, for fuzzing: each takes any bytes and checks what must hold of
// the result. A broken promise aborts.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "fabric/ucx/wire.h"
#include "fabric/wireup/frames.h"
#include "memory/diff.h"

namespace multigrain::fuzz {

using Bytes = std::span<const std::byte>;

inline ucx::WireContext wire_context() {
  ucx::WireContext context;
  context.self = 1;
  context.nodes = 3;
  context.segment_bytes = {uint64_t{48} << 20, uint64_t{1} << 20};
  context.key = {0x1111111111111111, 0x2222222222222222, 0x3333333333333333};
  return context;
}

// The input is an active message: two bytes say how long its data is, and the rest is its header. Messages that are
// accepted have all fields in bounds.
inline void wire(Bytes input) {
  static const ucx::WireContext context = wire_context();
  if (input.size() < 4) return;
  uint32_t data_bytes = 0;
  std::memcpy(&data_bytes, input.data(), 4);
  data_bytes %= 300'000;
  // The copy has the exact size, so that a sanitizer sees every byte that is read too many.
  const std::vector<std::byte> header(input.begin() + 4, input.end());
  ucx::WireMessage message;
  if (decode(context, header, data_bytes, message).verdict == ucx::Verdict::kGood) {
    MG_CHECK(message.from < context.nodes && message.from != context.self);
    MG_CHECK(message.key == context.key[message.from]);
    MG_CHECK(message.payload_length <= Fabric::kMaxPayload);
    MG_CHECK(message.segment < static_cast<uint8_t>(SegmentId::kCount));
    MG_CHECK(message.slice_length <= context.segment_bytes[message.segment]);
    MG_CHECK(message.slice_offset <= context.segment_bytes[message.segment] - message.slice_length);
    MG_CHECK(data_bytes == message.payload_length + (message.carried != 0 ? message.slice_length : 0));
  }
  ucx::WireControl control;
  if (decode(context, header, data_bytes, control).verdict == ucx::Verdict::kGood) {
    MG_CHECK(control.from < context.nodes && control.from != context.self);
    MG_CHECK(control.key == context.key[control.from]);
    MG_CHECK(control.kind > ucx::ControlKind::kNone && control.kind < ucx::ControlKind::kCount);
    if (control.kind == ucx::ControlKind::kPeerFailed) MG_CHECK(control.a < context.nodes && control.from == 0);
    if (control.kind == ucx::ControlKind::kRemoteKey || control.kind == ucx::ControlKind::kRemoteKeyRequest)
      MG_CHECK(control.a < context.segment_bytes.size() &&
               control.b * ucx::kChunkBytes < context.segment_bytes[control.a]);
    MG_CHECK(data_bytes <= ucx::kMaxRemoteKey);
  }
}

// The input is coalesced messages: their header, then the records.
inline void coalesced(Bytes input) {
  static const ucx::WireContext context = wire_context();
  const size_t split = std::min(input.size(), sizeof(ucx::WireCoalesced));
  const std::vector<std::byte> header(input.begin(), input.begin() + static_cast<ptrdiff_t>(split));
  const std::vector<std::byte> data(input.begin() + static_cast<ptrdiff_t>(split), input.end());
  ucx::WireCoalesced all;
  if (decode(context, header, data.size(), all).verdict != ucx::Verdict::kGood) return;
  MG_CHECK(all.from < context.nodes && all.from != context.self);
  MG_CHECK(all.key == context.key[all.from]);
  MG_CHECK(all.count != 0 && data.size() <= ucx::kMaxCoalescedBytes);
  Bytes rest(data);
  for (unsigned left = all.count; left != 0; --left) {
    const size_t before = rest.size();
    ucx::WireMessage message;
    Bytes payload;
    const ucx::Checked checked = next_record(context, all, left, rest, message, payload);
    MG_CHECK(checked.verdict != ucx::Verdict::kUnauthenticated);
    if (checked.verdict != ucx::Verdict::kGood) return;
    MG_CHECK(message.from == all.from && message.key == all.key);
    MG_CHECK(message.slice_length == 0 && message.carried == 0 && message.delay_ns == 0);
    MG_CHECK(payload.size() == message.payload_length && payload.size() <= ucx::kMaxCoalescedPayload);
    MG_CHECK(before == rest.size() + sizeof message + payload.size());
    MG_CHECK(payload.empty() ||
             (payload.data() >= data.data() && payload.data() + payload.size() <= data.data() + data.size()));
  }
  MG_CHECK(rest.empty());
}

// The bytes are a scattered put: its header, then its table and bytes. What is found good is carried out, in memory of
// the exact size.
inline void pieces(Bytes input) {
  static const ucx::WireContext context = wire_context();
  const size_t split = std::min(input.size(), sizeof(ucx::WirePieces));
  const std::vector<std::byte> header(input.begin(), input.begin() + static_cast<ptrdiff_t>(split));
  const std::vector<std::byte> data(input.begin() + static_cast<ptrdiff_t>(split), input.end());
  ucx::WirePieces wire;
  if (decode(context, header, data.size(), wire).verdict != ucx::Verdict::kGood) return;
  MG_CHECK(wire.from < context.nodes && wire.from != context.self);
  MG_CHECK(wire.key == context.key[wire.from]);
  MG_CHECK(wire.count != 0 && wire.segment < context.segment_bytes.size());
  const ucx::Checked checked = check_pieces(context, wire, data);
  MG_CHECK(checked.verdict != ucx::Verdict::kUnauthenticated);
  if (checked.verdict != ucx::Verdict::kGood) return;
  size_t at = wire.count * sizeof(ucx::WirePiece);
  for (uint32_t i = 0; i < wire.count; ++i) {
    const ucx::WirePiece each = ucx::piece(data, i);
    const uint64_t end = context.segment_bytes[wire.segment];
    MG_CHECK(each.length != 0 && wire.offset <= end && each.length <= end - wire.offset &&
             each.offset <= end - wire.offset - each.length);
    at += each.length;
    MG_CHECK(at <= data.size());
  }
  MG_CHECK(at == data.size());
}

// The input is a stream of frames, in pieces whose lengths the first byte gives, and the fields of each frame.
inline void frames(Bytes input) {
  if (input.empty()) return;
  const size_t piece = 1 + std::to_integer<size_t>(input[0]);
  FrameParser parser;
  for (Bytes rest = input.subspan(1); !rest.empty();) {
    const size_t length = std::min(piece, rest.size());
    parser.feed(rest.first(length));
    rest = rest.subspan(length);
    while (true) {
      auto frame = parser.next();
      if (!frame) {
        MG_CHECK(!parser.next());  // nothing more can be had
        return;
      }
      if (!*frame) break;
      MG_CHECK((*frame)->payload.size() <= kMaxFramePayload);
      FieldReader fields((*frame)->payload);
      const uint64_t number = fields.number(1000);
      MG_CHECK(number <= 1000);
      const size_t text = fields.text().size();
      const size_t blob = fields.blob().size();
      MG_CHECK(text + blob <= (*frame)->payload.size());
      if (fields.complete()) MG_CHECK(24 + text + blob == (*frame)->payload.size());
    }
  }
}

// The bytes are a diff, which is applied to a page between two others that must stay as they are.
inline void diff(Bytes input) {
  constexpr size_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;
  alignas(64) static std::array<Page, 3> pages;
  Page untouched;
  untouched.fill(std::byte{0x33});
  pages.fill(untouched);
  const std::vector<std::byte> exact(input.begin(), input.end());
  const bool applied = apply_diff(pages[1].data(), kPage, exact);
  MG_CHECK(pages[0] == untouched && pages[2] == untouched);
  MG_CHECK(applied || pages[1] == untouched);
}

struct Target {
  const char* name;
  void (*run)(Bytes);
  // Makes an input that is right, from which fuzzing starts.
  std::vector<std::byte> (*good)();
};

template <typename T>
void append(std::vector<std::byte>& out, const T& value) {
  const size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

inline constexpr Target kTargets[] = {
    {"wire_message", wire,
     [] {
       std::vector<std::byte> out;
       append(out, uint32_t{100 + 4096});
       ucx::WireMessage message{};
       message.key = 0x3333333333333333;
       message.from = 2;
       message.payload_length = 100;
       message.slice_offset = 8192;
       message.slice_length = 4096;
       message.carried = 1;
       append(out, message);
       return out;
     }},
    {"wire_control", wire,
     [] {
       std::vector<std::byte> out;
       append(out, uint32_t{60});
       ucx::WireControl control{};
       control.key = 0x1111111111111111;
       control.from = 0;
       control.kind = ucx::ControlKind::kRemoteKey;
       control.b = 2;
       append(out, control);
       return out;
     }},
    {"wire_coalesced", coalesced,
     [] {
       std::vector<std::byte> out;
       ucx::WireCoalesced all{};
       all.key = 0x3333333333333333;
       all.from = 2;
       all.count = 3;
       append(out, all);
       for (uint32_t i = 0; i < all.count; ++i) {
         ucx::WireMessage message{};
         message.key = all.key;
         message.from = all.from;
         message.sequence = i;
         message.payload_length = i * 60;
         append(out, message);
         out.resize(out.size() + message.payload_length, std::byte{7});
       }
       return out;
     }},
    {"wire_pieces", pieces,
     [] {
       std::vector<std::byte> out;
       ucx::WirePieces wire{};
       wire.key = 0x3333333333333333;
       wire.from = 2;
       wire.offset = (uint64_t{1} << 20) - 200;
       wire.count = 3;
       wire.segment = static_cast<uint8_t>(SegmentId::kWords);
       append(out, wire);
       for (uint32_t i = 0; i < wire.count; ++i) append(out, ucx::WirePiece{i * 90, 20});
       out.resize(out.size() + 60, std::byte{7});
       return out;
     }},
    {"frames", frames,
     [] {
       std::vector<std::byte> out{std::byte{40}};
       for (uint8_t type = 0; type < 3; ++type) {
         FieldWriter fields;
         fields.number(type).text("a host's name").blob(std::vector<std::byte>(type * 30u));
         append_frame(out, type, fields.payload());
       }
       return out;
     }},
    {"diff", diff,
     [] {
       alignas(64) static std::byte page[4096]{};
       alignas(64) static const std::byte twin[4096]{};
       for (size_t i = 7; i < sizeof page; i += 91) page[i] = std::byte{1};
       for (size_t i = 1000; i < 1500; ++i) page[i] = std::byte{2};
       std::vector<std::byte> out(max_encoded_size(sizeof page));
       out.resize(encode_diff(page, twin, sizeof page, out));
       return out;
     }},
};

}  // namespace multigrain::fuzz
