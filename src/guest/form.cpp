#include "guest/form.h"

#include <asm/prctl.h>
#include <asm/termbits.h>
#include <linux/fs.h>
#include <linux/prctl.h>
#include <linux/serial.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cerrno>

#include "guest/form_notation.h"

#ifndef F_GETLK
#include <fcntl.h>
#endif

namespace multigrain::guest {
namespace {

using notation::form;

constexpr std::array<Form, kCalls> make_forms() {
  std::array<Form, kCalls> forms{};
#define PASS(name, text) forms[SYS_##name] = form(text);
#define SEEN(name, function, text) forms[SYS_##name] = form(text);
#define LATE(name, number, text) forms[number] = form(text);
#define HOST(name, function)
#define MEMORY(name, function)
#define LATE_MEMORY(name, number)
#define ALONE(name, function)
#define LACK(name, code)
#define NONE(name, code)
#include "guest/calls.def"
#undef PASS
#undef SEEN
#undef LATE
#undef HOST
#undef MEMORY
#undef LATE_MEMORY
#undef ALONE
#undef LACK
#undef NONE
  return forms;
}

constexpr std::array<Form, kCalls> kForms = make_forms();

struct Commands {
  long call;
  uint32_t first;
  uint32_t last;
  Form form;
};

constexpr Commands kCommands[] = {
#define COMMANDS(call, first, last, text) \
  {SYS_##call, static_cast<uint32_t>(first), static_cast<uint32_t>(last), form(text)},
#define COMMAND(call, command, text) COMMANDS(call, command, command, text)
#define ENCODED(type, first, last)
#include "guest/commands.def"
#undef ENCODED
};

struct Encoded {
  uint32_t type;
  uint32_t first;
  uint32_t last;
};

constexpr Encoded kEncoded[] = {
#undef COMMANDS
#undef COMMAND
#define COMMANDS(call, first, last, text)
#define COMMAND(call, command, text)
#define ENCODED(type, first, last) {type, first, last},
#include "guest/commands.def"
#undef COMMANDS
#undef COMMAND
#undef ENCODED
};

// Returns the form of an ioctl() whose command says how long its structure is. Some commands say more than there is, so
// what can be read is copied.
Form encoded(uint32_t command) {
  const bool is_listed = std::ranges::any_of(kEncoded, [&](const Encoded& range) {
    return range.type == _IOC_TYPE(command) && _IOC_NR(command) >= range.first && _IOC_NR(command) <= range.last;
  });
  if (!is_listed) return {};
  constexpr Form kValues = form("i i i");
  Form result = kValues;
  if (_IOC_SIZE(command) == 0 || _IOC_DIR(command) == _IOC_NONE) return result;
  result.arguments[2] = {.kind = Kind::kBytes,
                         .way = _IOC_DIR(command) == _IOC_WRITE ? Way::kIn : Way::kBoth,
                         .unit = static_cast<uint16_t>(_IOC_SIZE(command)),
                         .is_what_is_there = true};
  return result;
}

Form form_of_command(long number, uint32_t command) {
  switch (number) {
    case SYS_quotactl:
    case SYS_quotactl_fd:
      command >>= 8;  // without the type of quota
      break;
    case SYS_semctl:
    case SYS_msgctl:
    case SYS_shmctl: {
      constexpr uint32_t kIpc64 = 0x100;  // old C libraries add it
      command &= ~kIpc64;
      break;
    }
    default:
      break;
  }
  for (const Commands& commands : kCommands)
    if (commands.call == number && command >= commands.first && command <= commands.last) return commands.form;
  return number == SYS_ioctl ? encoded(command) : Form{};
}

// These options of sockets have addresses in them, or keep memory of the caller, so there is no form for them.
struct Options {
  uint64_t level, first, last;
};
constexpr uint64_t kIp = 0, kTcp = 6, kIpv6 = 41, kSctp = 132, kRds = 276, kXdp = 283, kPacket = 263,
                   kAny = ~uint64_t{0};
constexpr Options kNotSet[] = {{SOL_SOCKET, 60, 60},  // SO_ZEROCOPY
                               {kIp, 64, 64},         // IPT_SO_SET_REPLACE and its like
                               {kIp, 96, 96},        {kIp, 128, 255},
                               {kIpv6, 64, 64},      {kPacket, 22, 22},  // PACKET_FANOUT_DATA
                               {kRds, 0, kAny},      {kXdp, 0, kAny}};
constexpr Options kNotGot[] = {{SOL_SOCKET, 26, 26},                  // SO_GET_FILTER
                               {kIp, 128, 255},      {kTcp, 35, 35},  // TCP_ZEROCOPY_RECEIVE
                               {kSctp, 111, 111},                     // SCTP_SOCKOPT_CONNECTX3
                               {kRds, 0, kAny},      {kXdp, 0, kAny}};

template <size_t kSize>
bool is_among(const Options (&options)[kSize], uint32_t level, uint32_t option) {
  return std::ranges::any_of(options, [&](const Options& range) {
    return range.level == level && option >= range.first && option <= range.last;
  });
}

Form form_of_option(long number, uint32_t level, uint32_t option) {
  if (number == SYS_getsockopt) return is_among(kNotGot, level, option) ? Form{} : kForms[SYS_getsockopt];
  if (is_among(kNotSet, level, option)) return {};
  constexpr uint32_t kReuseportFilter = 51;  // SO_ATTACH_REUSEPORT_CBPF
  constexpr Form kFilter = form("i i i <sock_fprog i");
  const bool is_filter = level == SOL_SOCKET && (option == SO_ATTACH_FILTER || option == kReuseportFilter);
  return is_filter ? kFilter : kForms[SYS_setsockopt];
}

}  // namespace

const NestedShape& nested_shape(size_t index) {
  return notation::kNested[index];
}

uint8_t notify_shape() {
  constexpr Form kForm = form("<sigevent_thread");
  return kForm.arguments[0].from;
}

Form form_of(long number, const uint64_t arguments[6]) {
  if (static_cast<uint64_t>(number) >= kCalls) return {};
  if (number == SYS_setsockopt || number == SYS_getsockopt)
    return form_of_option(number, static_cast<uint32_t>(arguments[1]), static_cast<uint32_t>(arguments[2]));
  const Form& found = kForms[static_cast<size_t>(number)];
  return found.command < 0
             ? found
             : form_of_command(number, static_cast<uint32_t>(arguments[static_cast<size_t>(found.command)]));
}

}  // namespace multigrain::guest
