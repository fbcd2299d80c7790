#include "guest/nodes/process_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace multigrain::guest {
namespace {

// A run of pages. Their contents follow; no bytes: that was the last.
struct Run {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// Bits of the system's account of a page. [linux: Documentation/admin-guide/mm/pagemap.rst]
constexpr uint64_t kThere = uint64_t{1} << 63 | uint64_t{1} << 62;  // in memory, or swapped out

bool send_run(int socket, Run& run) {
  if (run.bytes == 0) return true;
  const bool sent = send_value(socket, run) && send_all(socket, reinterpret_cast<const void*>(run.address), run.bytes);
  run.bytes = 0;
  return sent;
}

bool send_area(int socket, int pagemap, Range range) {
  std::array<uint64_t, 512> entries;
  Run run;
  for (uint64_t at = range.begin; at < range.end;) {
    const uint64_t count = std::min<uint64_t>(entries.size(), (range.end - at) / kPageSize);
    const auto wanted = static_cast<ssize_t>(count * sizeof(uint64_t));
    // A page of which nothing is known is sent.
    if (pread(pagemap, entries.data(), static_cast<size_t>(wanted), static_cast<off_t>(at / kPageSize * 8)) != wanted)
      entries.fill(kThere);
    for (uint64_t i = 0; i < count; ++i, at += kPageSize) {
      if ((entries[i] & kThere) == 0) {
        if (!send_run(socket, run)) return false;
        continue;
      }
      if (run.bytes == 0) run.address = at;
      run.bytes += kPageSize;
    }
  }
  return send_run(socket, run);
}

}  // namespace

bool send_all(int socket, const void* bytes, size_t count) {
  const auto* at = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t sent = send(socket, at, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* bytes, size_t count) {
  auto* at = static_cast<std::byte*>(bytes);
  while (count > 0) {
    const ssize_t received = recv(socket, at, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    at += received;
    count -= static_cast<size_t>(received);
  }
  return true;
}

bool send_descriptor(int socket, int fd) {
  char has_one = fd >= 0 ? 1 : 0;
  iovec part{.iov_base = &has_one, .iov_len = 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof fd)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  while (true) {
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    return sent == 1;
  }
}

bool receive_descriptor(int socket, FileDescriptor& fd) {
  char has_one = 0;
  iovec part{.iov_base = &has_one, .iov_len = 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  do received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR);
  if (received != 1) return false;
  fd = FileDescriptor();
  if (has_one == 0) return true;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return false;
  int number = -1;
  std::memcpy(&number, CMSG_DATA(header), sizeof number);
  fd = FileDescriptor(number);
  return true;
}

bool send_pages(int socket, const std::vector<Area>& areas) {
  const FileDescriptor pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  for (const Area& area : areas) {
    if (area.file != 0) continue;
    void* const begin = reinterpret_cast<void*>(area.range.begin);
    const uint64_t bytes = area.range.end - area.range.begin;
    const bool can_read = (area.rights & PROT_READ) != 0;
    if (!can_read) mprotect(begin, bytes, area.rights | PROT_READ);
    const bool sent = send_area(socket, pagemap.get(), area.range);
    if (!can_read) mprotect(begin, bytes, area.rights);
    if (!sent) return false;
  }
  return send_value(socket, Run{});
}

bool receive_pages(int socket) {
  while (true) {
    Run run;
    if (!receive_value(socket, run)) return false;
    if (run.bytes == 0) return true;
    if (!receive_all(socket, reinterpret_cast<void*>(run.address), run.bytes)) return false;
  }
}

}  // namespace multigrain::guest
