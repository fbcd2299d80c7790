#include "trace_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace multigrain::trace::bench {
namespace {

// An array that the processors share.
template <typename T>
class Shared {
 public:
  Shared(KernelTrace& trace, size_t size) : trace_(trace), base_(trace.place(size * sizeof(T))), items_(size) {}
  T read(unsigned processor, SiteId site, size_t i) const {
    trace_.refer(processor, site, base_ + i * sizeof(T), Access::kRead, sizeof(T));
    return items_[i];
  }
  void write(unsigned processor, SiteId site, size_t i, T value) {
    trace_.refer(processor, site, base_ + i * sizeof(T), Access::kWrite, sizeof(T));
    items_[i] = value;
  }
  // Gives access without a reference, before the trace begins.
  T& unseen(size_t i) { return items_[i]; }

 private:
  KernelTrace& trace_;
  uint64_t base_;
  std::vector<T> items_;
};

// The items from `begin` to `end`, which belong to one processor.
struct Share {
  size_t begin, end;
};
Share share_of(unsigned processor, unsigned processors, size_t count) {
  return {count * processor / processors, count * (processor + 1) / processors};
}

void multiply_matrices(KernelTrace& trace) {
  constexpr size_t n = 96;
  Shared<double> a(trace, n * n), b(trace, n * n), c(trace, n * n);
  for (size_t i = 0; i < n * n; ++i) a.unseen(i) = b.unseen(i) = static_cast<double>(i % 7);
  const unsigned processors = trace.processors();
  for (size_t step = 0; step < (n + processors - 1) / processors; ++step) {
    for (unsigned p = 0; p < processors; ++p) {
      const Share rows = share_of(p, processors, n);
      const size_t i = rows.begin + step;
      if (i >= rows.end) continue;
      for (size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (size_t k = 0; k < n; ++k) sum += a.read(p, 1, i * n + k) * b.read(p, 2, k * n + j);
        c.write(p, 3, i * n + j, sum);
      }
    }
    trace.meet();
  }
}

void relax(KernelTrace& trace, bool by_rows) {
  constexpr size_t n = 258;
  Shared<double> grid(trace, n * n);
  for (size_t i = 0; i < n; ++i) grid.unseen(i) = 100;
  const unsigned processors = trace.processors();
  for (unsigned sweep = 0; sweep < 4; ++sweep) {
    for (size_t colour = 0; colour < 2; ++colour) {
      for (unsigned p = 0; p < processors; ++p) {
        const Share share = share_of(p, processors, n - 2);
        for (size_t u = share.begin + 1; u <= share.end; ++u) {
          for (size_t v = 1 + (u + colour) % 2; v < n - 1; v += 2) {
            const size_t i = by_rows ? u * n + v : v * n + u;
            const double around =
                grid.read(p, 4, i - 1) + grid.read(p, 5, i + 1) + grid.read(p, 6, i - n) + grid.read(p, 7, i + n);
            grid.write(p, 9, i, 0.8 * grid.read(p, 8, i) + 0.05 * around);
          }
        }
      }
      trace.meet();
    }
  }
}
void relax_by_rows(KernelTrace& trace) {
  relax(trace, true);
}
void relax_by_columns(KernelTrace& trace) {
  relax(trace, false);
}

void merge_sort(KernelTrace& trace) {
  constexpr size_t n = size_t{1} << 16;
  Shared<uint32_t> a(trace, n), b(trace, n);
  for (size_t i = 0; i < n; ++i) a.unseen(i) = static_cast<uint32_t>(trace.random()());
  Shared<uint32_t>*from = &a, *to = &b;
  const unsigned processors = trace.processors();
  for (size_t width = 1; width < n; width *= 2, std::swap(from, to)) {
    const size_t pairs = n / (2 * width);
    for (unsigned p = 0; p < processors; ++p) {
      const Share share = share_of(p, processors, pairs);
      for (size_t pair = share.begin; pair < share.end; ++pair) {
        size_t left = pair * 2 * width, right = left + width, out = left;
        const size_t middle = right, end = right + width;
        while (left < middle && right < end) {
          const uint32_t x = from->read(p, 10, left), y = from->read(p, 11, right);
          if (x <= y) {
            to->write(p, 12, out++, x);
            ++left;
          } else {
            to->write(p, 13, out++, y);
            ++right;
          }
        }
        while (left < middle) to->write(p, 15, out++, from->read(p, 14, left++));
        while (right < end) to->write(p, 17, out++, from->read(p, 16, right++));
      }
    }
    trace.meet();
  }
}

void quicksort(KernelTrace& trace) {
  constexpr size_t n = size_t{1} << 13;
  const unsigned processors = trace.processors();
  Shared<double> a(trace, n * processors);
  for (unsigned p = 0; p < processors; ++p) {
    const size_t base = p * n;
    for (size_t i = 0; i < n; ++i) a.unseen(base + i) = static_cast<double>(trace.random()() % 1000000);
    std::vector<std::pair<ptrdiff_t, ptrdiff_t>> todo = {
        {static_cast<ptrdiff_t>(base), static_cast<ptrdiff_t>(base + n) - 1}};
    const auto at = [](ptrdiff_t i) { return static_cast<size_t>(i); };
    while (!todo.empty()) {
      const auto [low, high] = todo.back();
      todo.pop_back();
      if (low >= high) continue;
      const double pivot = a.read(p, 18, at((low + high) / 2));
      ptrdiff_t i = low, j = high;
      while (i <= j) {
        while (a.read(p, 19, at(i)) < pivot) ++i;
        while (a.read(p, 20, at(j)) > pivot) --j;
        if (i > j) break;
        const double x = a.read(p, 21, at(i)), y = a.read(p, 22, at(j));
        a.write(p, 23, at(i++), y);
        a.write(p, 24, at(j--), x);
      }
      todo.emplace_back(low, j);
      todo.emplace_back(i, high);
    }
  }
  trace.meet();
}

// As in mp3d, particles move through cells and collide with the particles that were in the cell before.
void particles(KernelTrace& trace) {
  constexpr size_t count = 20000, side = 24, cells = side * side * side, fields = 6, cell_fields = 4;
  Shared<float> body(trace, count * fields), cell(trace, cells * cell_fields);
  auto& random = trace.random();
  for (size_t i = 0; i < count * fields; ++i)
    body.unseen(i) = i % fields < 3 ? static_cast<float>(random() % 1000) / 1000 * side
                                    : (static_cast<float>(random() % 1000) / 1000 - 0.5f);
  const unsigned processors = trace.processors();
  for (unsigned step = 0; step < 4; ++step) {
    for (unsigned p = 0; p < processors; ++p) {
      const Share share = share_of(p, processors, count);
      for (size_t i = share.begin; i < share.end; ++i) {
        size_t where = 0;
        for (unsigned d = 0; d < 3; ++d) {
          float x = body.read(p, 25 + d, i * fields + d) + body.read(p, 28 + d, i * fields + 3 + d);
          if (x < 0 || x >= side) {
            x = x < 0 ? 0 : side - 0.01f;
            body.write(p, 31 + d, i * fields + 3 + d, -1);
          }
          body.write(p, 34 + d, i * fields + d, x);
          where = where * side + static_cast<size_t>(x);
        }
        where *= cell_fields;
        const float n = cell.read(p, 37, where);
        cell.write(p, 38, where, n + 1);
        const float momentum = cell.read(p, 39, where + 1);
        if (momentum > 0.3f) body.write(p, 40, i * fields + 3, momentum);
        cell.write(p, 41, where + 1, momentum * 0.9f + 0.1f * body.read(p, 42, i * fields + 3));
      }
    }
    trace.meet();
  }
}

// Follows the chains of a hash table whose nodes are in random order, which is as irregular as programs get.
void chase_pointers(KernelTrace& trace) {
  constexpr size_t nodes = 60000, buckets = 4096, words = 4;  // key, count, next, unused
  Shared<uint64_t> heads(trace, buckets), node(trace, nodes * words);
  auto& random = trace.random();
  std::vector<uint32_t> order(nodes);
  std::iota(order.begin(), order.end(), 1u);
  std::shuffle(order.begin() + 1, order.end(), random);
  for (uint32_t i = 1; i < nodes; ++i) {
    const uint32_t at = order[i - 1] % nodes;
    const uint64_t key = random();
    node.unseen(at * words) = key;
    node.unseen(at * words + 2) = heads.unseen(key % buckets);
    heads.unseen(key % buckets) = at;
  }
  const unsigned processors = trace.processors();
  for (unsigned p = 0; p < processors; ++p) {
    for (unsigned search = 0; search < 8000; ++search) {
      const uint64_t key = node.unseen(random() % nodes * words);
      uint64_t at = heads.read(p, 43, key % buckets);
      while (at != 0) {
        if (node.read(p, 44, at * words) == key) {
          node.write(p, 46, at * words + 1, node.read(p, 45, at * words + 1) + 1);
          break;
        }
        at = node.read(p, 47, at * words + 2);
      }
    }
  }
  trace.meet();
}

void life(KernelTrace& trace) {
  constexpr size_t n = 256;
  Shared<uint8_t> a(trace, n * n), b(trace, n * n);
  for (size_t i = 0; i < n * n; ++i) a.unseen(i) = trace.random()() % 3 == 0;
  Shared<uint8_t>*from = &a, *to = &b;
  const unsigned processors = trace.processors();
  for (unsigned step = 0; step < 2; ++step, std::swap(from, to)) {
    for (unsigned p = 0; p < processors; ++p) {
      const Share share = share_of(p, processors, n);
      for (size_t y = share.begin; y < share.end; ++y) {
        for (size_t x = 0; x < n; ++x) {
          unsigned alive = 0;
          SiteId site = 48;
          for (size_t dy : {n - 1, size_t{0}, size_t{1}})
            for (size_t dx : {n - 1, size_t{0}, size_t{1}})
              if (dy != 0 || dx != 0) alive += from->read(p, site++, (y + dy) % n * n + (x + dx) % n);
          const bool lives = from->read(p, 56, y * n + x) != 0;
          to->write(p, 57, y * n + x, alive == 3 || (lives && alive == 2));
        }
      }
    }
    trace.meet();
  }
}

}  // namespace

uint64_t KernelTrace::place(size_t bytes) {
  const uint64_t at = next_place_;
  next_place_ += (bytes + 4096 + 63) / 64 * 64;
  return at;
}

void KernelTrace::meet() {
  merged_.clear();
  std::vector<size_t> next(of_.size());
  std::vector<unsigned> left;
  for (unsigned p = 0; p < of_.size(); ++p)
    if (!of_[p].empty()) left.push_back(p);
  while (!left.empty()) {
    const uint64_t draw = random_();
    const size_t which = (draw >> 32) % left.size();
    const unsigned p = left[which];
    const size_t run = std::min<size_t>(1 + (draw & 0xffffffff) % longest_run_, of_[p].size() - next[p]);
    const auto from = of_[p].begin() + static_cast<ptrdiff_t>(next[p]);
    merged_.insert(merged_.end(), from, from + static_cast<ptrdiff_t>(run));
    next[p] += run;
    if (next[p] == of_[p].size()) {
      of_[p].clear();
      left.erase(left.begin() + static_cast<ptrdiff_t>(which));
    }
  }
  references_ += merged_.size();
  sink_(merged_);
}

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> all = {
      {"matrix multiply", multiply_matrices, 1780000},
      {"SOR by rows", relax_by_rows, 1570000},
      {"SOR by columns", relax_by_columns, 1570000},
      {"merge sort", merge_sort, 3000000},
      {"quicksort", quicksort, 2000000},
      {"particles", particles, 1200000},
      {"pointer chasing", chase_pointers, 1100000},
      {"life", life, 1310000},
  };
  return all;
}

TraceHeader kernel_header(unsigned processors) {
  TraceHeader header;
  header.processors = processors;
  header.program = "kernels";
  header.recorder = "mgbench trace";
  header.names = {""};
  header.sites.resize(kKernelSites);
  for (SiteId i = 1; i < kKernelSites; ++i)
    header.sites[i] = {.file = "trace_kernels.cpp", .function = fmt::format("statement {}", i), .line = i};
  return header;
}

void run_kernels(KernelTrace& trace, uint64_t references) {
  const uint64_t before = trace.references();
  const std::vector<Kernel>& all = kernels();
  for (size_t i = 0; i < all.size(); ++i)
    while (trace.references() - before < references * (i + 1) / all.size()) all[i].run(trace);
}

}  // namespace multigrain::trace::bench
