#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace multigrain {
namespace {

constexpr Nanoseconds kInterval = 100'000'000;
constexpr unsigned kWidth = 24;

// 12.3 M, for people.
std::string short_number(double value) {
  const char* const suffixes[] = {"", " k", " M", " G", " T"};
  size_t i = 0;
  while (value >= 1000 && i + 1 < std::size(suffixes)) value /= 1000, ++i;
  return i == 0 ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}{}", value, suffixes[i]);
}

std::string short_time(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string label, std::string unit, uint64_t total)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {
  start_ = monotonic_ns();
  next_ = start_ + kInterval;
}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(uint64_t done) {
  if (!terminal_) return;
  const Nanoseconds now = monotonic_ns();
  if (now < next_) return;
  next_ = now + kInterval;
  draw(done, now);
}

void Progress::draw(uint64_t done, Nanoseconds now) {
  drawn_ = true;
  const double seconds = static_cast<double>(now - start_) * 1e-9;
  const double rate = static_cast<double>(done) / seconds;
  if (total_ == 0) {
    fmt::print(stderr, "\r{} {} {}, {}/s\033[K", label_, short_number(static_cast<double>(done)), unit_,
               short_number(rate));
  } else {
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
    const auto filled = static_cast<size_t>(part * kWidth);
    const double left = rate > 0 ? static_cast<double>(total_ - std::min(done, total_)) / rate : 0;
    fmt::print(stderr, "\r{} [{}{}] {:3.0f}%, {} {}/s, {} left\033[K", label_, std::string(filled, '#'),
               std::string(kWidth - filled, ' '), part * 100, short_number(rate), unit_, short_time(left));
  }
  std::fflush(stderr);
}

Steps::Steps(std::string label, size_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1), start_(monotonic_ns()) {}

Steps::~Steps() {
  if (terminal_ && begun_ != 0) fmt::print(stderr, "\r\033[K");
}

void Steps::begin(const std::string& name) {
  ++begun_;
  if (!terminal_) return;
  fmt::print(stderr, "\r{}\033[K", text(name, static_cast<double>(monotonic_ns() - start_) * 1e-9));
  std::fflush(stderr);
}

std::string Steps::text(const std::string& name, double seconds) const {
  const size_t done = begun_ == 0 ? 0 : begun_ - 1;
  const size_t total = std::max(total_, begun_);
  const size_t filled = done * kWidth / std::max<size_t>(total, 1);
  std::string text = fmt::format("{} [{}{}] {} of {}: {}", label_, std::string(filled, '#'),
                                 std::string(kWidth - filled, ' '), begun_, total, name);
  if (done != 0)
    text +=
        fmt::format(", {} left", short_time(seconds / static_cast<double>(done) * static_cast<double>(total - done)));
  return text;
}

}  // namespace multigrain
