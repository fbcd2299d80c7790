// These are peers that connect to a node's ports and do not belong to its run, and functions that look at a node from
// outside.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fabric/ucx/gate_token.h"

namespace multigrain::testing {

inline JobSecret secret_of(uint8_t fill) {
  JobSecret secret;
  secret.fill(std::byte{fill});
  return secret;
}

// Returns how many files a process has open.
inline size_t descriptors(pid_t process) {
  size_t count = 0;
  DIR* const directory = opendir(("/proc/" + std::to_string(process) + "/fd").c_str());
  if (directory == nullptr) return 0;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(directory);
  return count;
}

// Returns the addresses on which a process listens.
inline std::vector<sockaddr_in> ports(pid_t process) {
  std::set<std::string> inodes;
  const std::string path = "/proc/" + std::to_string(process) + "/fd";
  DIR* const directory = opendir(path.c_str());
  if (directory == nullptr) return {};
  while (const dirent* entry = readdir(directory)) {
    char target[128] = {};
    if (readlink((path + "/" + entry->d_name).c_str(), target, sizeof target - 1) <= 0) continue;
    const std::string text(target);
    if (text.starts_with("socket:[")) inodes.insert(text.substr(8, text.size() - 9));
  }
  closedir(directory);
  std::vector<sockaddr_in> found;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip, inode;
    fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    if (state != "0A" || !inodes.contains(inode)) continue;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = static_cast<in_addr_t>(std::stoul(local.substr(0, 8), nullptr, 16));
    address.sin_port = htons(static_cast<uint16_t>(std::stoul(local.substr(9), nullptr, 16)));
    found.push_back(address);
  }
  return found;
}

// Returns the token that a node makes that holds `secret`.
inline gate::Token token_for(int fd, const JobSecret& secret) {
  gate::Connection connection;
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  EXPECT_TRUE(gate::end_of(name, &connection.caller));
  size = sizeof name;
  getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size);
  EXPECT_TRUE(gate::end_of(name, &connection.called));
  return gate::Key(secret).make_token(1, connection);
}

class UnauthenticatedPeers {
 public:
  UnauthenticatedPeers() = default;
  UnauthenticatedPeers(const UnauthenticatedPeers&) = delete;
  UnauthenticatedPeers& operator=(const UnauthenticatedPeers&) = delete;
  ~UnauthenticatedPeers() { leave(); }

  int connect_to(const sockaddr_in& to) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    open_.push_back(fd);
    return fd;
  }
  static void say(int fd, const void* bytes, size_t length) {
    // The other side may have closed it already; that is what it is there for.
    [[maybe_unused]] ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
  }
  // Closes all connections.
  void leave() {
    for (int fd : open_) close(fd);
    open_.clear();
    speaking_.clear();
  }
  // Returns how many of the peers that sent something are still connected, after `wait_ms` at most.
  size_t still_connected(int wait_ms) const {
    size_t count = 0;
    for (int fd : speaking_) {
      pollfd watched{fd, POLLIN, 0};
      char byte;
      if (poll(&watched, 1, wait_ms) != 1 || recv(fd, &byte, 1, MSG_DONTWAIT) > 0) ++count;
    }
    return count;
  }

  // One peer of every kind connects to a port, and stays. Returns how many have sent something, and so must be refused.
  unsigned knock(const sockaddr_in& port, const JobSecret& right, const JobSecret& wrong) {
    const size_t before = speaking_.size();
    // Two peers send nothing.
    connect_to(port);
    connect_to(port);
    // These send noise of all sizes.
    for (const size_t length : {1u, 7u, 8u, 93u, 94u, 95u, 4000u, 60000u}) {
      const std::vector<uint8_t> bytes = noise(length);
      say(speaker(port), bytes.data(), bytes.size());
    }
    // This peer sends UCX's own first words: the magic number, and a request to connect with a plausible header and
    // address.
    struct [[gnu::packed]] {
      uint64_t magic = 0xCAFEBABE12345678u;
      uint8_t am_id = 0xf0;
      uint32_t length = 24 + 16;
      uint32_t event = 1;
      uint8_t flags = 0;
      std::array<uint8_t, 51> rest{};
    } ucx;
    say(speaker(port), &ucx, sizeof ucx);
    // This peer sends a store to an address, as UCX's PUT looks: id, length, address, sequence number.
    struct [[gnu::packed]] {
      uint64_t magic = 0xCAFEBABE12345678u;
      uint8_t am_id = 0xf1;
      uint32_t length = 24;
      uint64_t address = 0x400000;
      uint64_t bytes = 4096;
      uint32_t sn = 0;
      std::array<uint8_t, 4096> data{};
    } put;
    say(speaker(port), &put, sizeof put);
    // These send a token made with another secret, a token for another connection, and half a token and nothing more.
    int fd = speaker(port);
    const gate::Token other_secret = token_for(fd, wrong);
    say(fd, &other_secret, sizeof other_secret);
    const gate::Token elsewhere = token_for(fd, right);
    say(speaker(port), &elsewhere, sizeof elsewhere);
    fd = speaker(port);
    const gate::Token half = token_for(fd, right);
    say(fd, &half, sizeof half / 2);
    // One peer sends a right token byte by byte, which only a peer does that is out to stall a node.
    fd = speaker(port);
    const gate::Token slow = token_for(fd, right);
    for (size_t i = 0; i < 20; ++i) {
      say(fd, reinterpret_cast<const char*>(&slow) + i, 1);
      usleep(500);
    }
    return static_cast<unsigned>(speaking_.size() - before);
  }

  void crowd(const std::vector<sockaddr_in>& at, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const std::vector<uint8_t> bytes = noise(1 + random_() % 200);
      say(speaker(at[i % at.size()]), bytes.data(), bytes.size());
    }
  }

 private:
  int speaker(const sockaddr_in& port) {
    speaking_.push_back(connect_to(port));
    return speaking_.back();
  }
  std::vector<uint8_t> noise(size_t length) {
    std::vector<uint8_t> bytes(length);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(random_()); });
    return bytes;
  }

  std::mt19937_64 random_{7};
  std::vector<int> open_;
  std::vector<int> speaking_;
};

}  // namespace multigrain::testing
