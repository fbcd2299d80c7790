// Lets calls on sockets take shared memory: transfers with addresses and control data, and the calls that take
// addresses and options.
#include <sys/socket.h>

#include "runtime/interpose/real.h"
#include "runtime/interpose/transfer.h"

namespace multigrain {
namespace {

// Returns the length that the caller says its address or option buffer has; 0 if there is no buffer.
size_t length_of(const void* buffer, const socklen_t* length) {
  return buffer == nullptr || length == nullptr ? 0 : *length;
}

// Makes a call with a private message header, for sendmsg and recvmsg. The parts that are not shared stay the
// program's own.
template <typename Call>
ssize_t with_message(const msghdr* user, PrivateVectors::Direction direction, Call&& call) {
  msghdr header = *user;
  PrivateVectors vectors(header.msg_iov, header.msg_iovlen, direction);
  if (!vectors.ready()) return -1;
  header.msg_iov = const_cast<iovec*>(vectors.get());
  InOutBytes name(header.msg_name, header.msg_namelen);
  InOutBytes control(header.msg_control, header.msg_controllen);
  header.msg_name = name;
  header.msg_control = control;
  const ssize_t moved = call(&header);
  if (direction == PrivateVectors::Direction::kIn && moved >= 0) {
    auto* result = const_cast<msghdr*>(user);
    result->msg_namelen = header.msg_namelen;
    result->msg_controllen = header.msg_controllen;
    result->msg_flags = header.msg_flags;
    vectors.store(moved);
  }
  return moved;
}

}  // namespace

MG_WRAPPER(ssize_t, send, int fd, const void* buffer, size_t size, int flags) {
  return transfer_out(fd, buffer, size,
                      [&](const void* b, size_t n, size_t) { return MG_REAL(send)(fd, b, n, flags); });
}

MG_WRAPPER(ssize_t, recv, int fd, void* buffer, size_t size, int flags) {
  return transfer_in(fd, buffer, size, [&](void* b, size_t n, size_t) { return MG_REAL(recv)(fd, b, n, flags); });
}

MG_WRAPPER(ssize_t, __recv_chk, int fd, void* buffer, size_t size, size_t buffer_size, int flags) {
  if (size > buffer_size) return MG_REAL(__recv_chk)(fd, buffer, size, buffer_size, flags);
  return mg_wrap_recv(fd, buffer, size, flags);
}

MG_WRAPPER(ssize_t, sendto, int fd, const void* buffer, size_t size, int flags, const sockaddr* to, socklen_t length) {
  const InBytes address(to, length);
  return transfer_out(fd, buffer, size, [&](const void* b, size_t n, size_t) {
    return MG_REAL(sendto)(fd, b, n, flags, address, length);
  });
}

MG_WRAPPER(ssize_t, recvfrom, int fd, void* buffer, size_t size, int flags, sockaddr* from, socklen_t* length) {
  const InOutBytes address(from, length_of(from, length));
  const InOut<socklen_t> address_length(length);
  return transfer_in(fd, buffer, size, [&](void* b, size_t n, size_t) {
    return MG_REAL(recvfrom)(fd, b, n, flags, address, address_length);
  });
}

MG_WRAPPER(ssize_t, __recvfrom_chk, int fd, void* buffer, size_t size, size_t buffer_size, int flags, sockaddr* from,
           socklen_t* length) {
  if (size > buffer_size) return MG_REAL(__recvfrom_chk)(fd, buffer, size, buffer_size, flags, from, length);
  return mg_wrap_recvfrom(fd, buffer, size, flags, from, length);
}

MG_WRAPPER(ssize_t, sendmsg, int fd, const msghdr* message, int flags) {
  return with_message(message, PrivateVectors::Direction::kOut,
                      [&](const msghdr* m) { return MG_REAL(sendmsg)(fd, m, flags); });
}

MG_WRAPPER(ssize_t, recvmsg, int fd, msghdr* message, int flags) {
  return with_message(message, PrivateVectors::Direction::kIn,
                      [&](msghdr* m) { return MG_REAL(recvmsg)(fd, m, flags); });
}

MG_WRAPPER(int, bind, int fd, const sockaddr* address, socklen_t length) {
  return MG_REAL(bind)(fd, InBytes(address, length), length);
}

MG_WRAPPER(int, connect, int fd, const sockaddr* address, socklen_t length) {
  return MG_REAL(connect)(fd, InBytes(address, length), length);
}

MG_WRAPPER(int, accept, int fd, sockaddr* address, socklen_t* length) {
  return MG_REAL(accept)(fd, InOutBytes(address, length_of(address, length)), InOut(length));
}

MG_WRAPPER(int, accept4, int fd, sockaddr* address, socklen_t* length, int flags) {
  return MG_REAL(accept4)(fd, InOutBytes(address, length_of(address, length)), InOut(length), flags);
}

MG_WRAPPER(int, getsockname, int fd, sockaddr* address, socklen_t* length) {
  return MG_REAL(getsockname)(fd, InOutBytes(address, length_of(address, length)), InOut(length));
}

MG_WRAPPER(int, getpeername, int fd, sockaddr* address, socklen_t* length) {
  return MG_REAL(getpeername)(fd, InOutBytes(address, length_of(address, length)), InOut(length));
}

MG_WRAPPER(int, getsockopt, int fd, int level, int option, void* value, socklen_t* length) {
  return MG_REAL(getsockopt)(fd, level, option, InOutBytes(value, length_of(value, length)), InOut(length));
}

MG_WRAPPER(int, setsockopt, int fd, int level, int option, const void* value, socklen_t length) {
  return MG_REAL(setsockopt)(fd, level, option, InBytes(value, length), length);
}

MG_WRAPPER(int, socketpair, int domain, int type, int protocol, int* pair) {
  return MG_REAL(socketpair)(domain, type, protocol, InOutBytes(pair, 2 * sizeof(int)));
}

}  // namespace multigrain
