#include "guest/long_calls.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "guest/package.h"

namespace multigrain::guest {
namespace {

// Makes a call of the host's where the guest's calls are made.
long ask(const Call& call, long number, uint64_t first, uint64_t second = 0, uint64_t third = 0, uint64_t fourth = 0,
         uint64_t fifth = 0) {
  Call question{.number = number,
                .arguments = {first, second, third, fourth, fifth, 0},
                .context = call.context,
                .thread = call.thread};
  return pass_copied(question);
}

uint64_t address_of(auto& object) {
  return reinterpret_cast<uint64_t>(&object);
}

// Returns whether a read of this descriptor goes on until it has everything that it wants, or there is no more.
bool reads_on(const Call& call) {
  struct stat status{};
  if (ask(call, SYS_fstat, call.arguments[0], address_of(status)) != 0) return false;
  constexpr unsigned kMemoryDevices = 1;  // zero, urandom
  return S_ISREG(status.st_mode) || S_ISBLK(status.st_mode) ||
         (S_ISCHR(status.st_mode) && major(status.st_rdev) == kMemoryDevices);
}

// Returns 0, or the error for a descriptor on which one call makes one message, since that cannot be cut.
long check_stream(const Call& call) {
  int type = 0;
  socklen_t size = sizeof type;
  const long code =
      ask(call, SYS_getsockopt, call.arguments[0], SOL_SOCKET, SO_TYPE, address_of(type), address_of(size));
  if (code == -ENOTSOCK) return 0;
  if (code < 0) return code;
  return type == SOCK_STREAM ? 0 : -EMSGSIZE;
}

bool is_writing(long number) {
  switch (number) {
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
      return true;
    default:
      return false;
  }
}

// Returns whether the next part follows a part that was done as a whole.
bool goes_on(const Call& call) {
  switch (call.number) {
    case SYS_read:
    case SYS_readv:
    case SYS_pread64:
    case SYS_preadv:
    case SYS_preadv2:
      return reads_on(call);
    case SYS_recvfrom:
      return (call.arguments[3] & MSG_WAITALL) != 0;
    case SYS_recvmsg:
      return (call.arguments[2] & MSG_WAITALL) != 0;
    case SYS_getrandom:
      return true;
    case SYS_sendmmsg:
      return false;
    default:
      return is_writing(call.number);
  }
}

}  // namespace

long pass_copied(Call& call) {
  long done = 0;
  while (true) {
    Package package;
    if (const long code = package.pack(call, static_cast<uint64_t>(done)); code != 0) {
      if (package.is_refused()) return refuse(call, code);
      return done > 0 ? done : code;
    }
    const uint64_t cut_to = package.cut_to();
    if (cut_to != 0 && done == 0 && is_writing(call.number))
      if (const long code = check_stream(call); code != 0) return code;
    const long result = package.unpack(carry_out(package, call.thread));
    if (result < 0) return done > 0 ? done : result;
    done += result;
    if (cut_to == 0 || static_cast<uint64_t>(result) < cut_to || !goes_on(call)) return done;
  }
}

}  // namespace multigrain::guest
