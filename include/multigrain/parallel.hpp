/// \file
/// Multigrain: parallel_for and parallel_reduce, loops whose iterations are divided among all processors.
///
/// They are called on processor 0 while no other processor runs, as mg::run_on_all, which they are made of: they start
/// all processors, and return when all have ended. So what was written before is seen in the loop, and what the loop wrote
/// is seen afterwards. The callables are copied to the processors byte by byte: they capture numbers, pointers and spans
/// into shared memory, and mg::mutex_ref, by value. An exception that leaves one of them ends the program.
///
/// Inside a program of mg::run_on_all, where all processors run already, mg::part_of says which part of a range is
/// whose.
///
/// Errors: std::system_error as mg::run_on_all (EINVAL for a capture of a local variable, EBUSY if another
/// processor runs, EPERM on another node), std::bad_alloc. Not for signal handlers.
#ifndef MULTIGRAIN_PARALLEL_HPP
#define MULTIGRAIN_PARALLEL_HPP

#include <multigrain/multigrain.hpp>

#if __cplusplus >= 202002L  // multigrain.hpp says so otherwise

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace mg {

/// Indices from begin up to, and without, end.
struct index_range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool empty() const noexcept { return begin == end; }
};

/// The part of `range` that is that of number `part` of `parts` (less than it): contiguous, in order, and of sizes that
/// differ by one at most.
[[nodiscard]] constexpr index_range part_of(index_range range, std::size_t part, std::size_t parts) noexcept {
  const std::size_t each = range.size() / parts;
  const std::size_t more = range.size() % parts;  // so many parts have one more
  const auto start = [=](std::size_t p) { return range.begin + p * each + std::min(p, more); };
  return {start(part), start(part + 1)};
}
/// The calling processor's part.
[[nodiscard]] inline index_range part_of(index_range range) noexcept {
  return part_of(range, processor(), processors());
}

/// How a loop is divided.
enum class schedule {
  /// Each processor has one contiguous part, the same in each loop over the same range: so pages stay where they are. Over a
  /// span, no page is divided between two nodes, and nodes have the parts that MG_HOME_BLOCKED gives them.
  fixed,
  /// Over a span: each page is worked on at the node that is its home when the loop begins (mg_home_of), if it has one.
  /// For data that were placed by anything but MG_HOME_BLOCKED. Nodes may get more or less to do than others.
  by_home,
  /// Processors take `chunk` iterations each time that they have nothing to do, from a counter under a lock: for iterations
  /// that take very different times.
  dynamic,
};

/// Options of a loop.
struct loop_options {
  mg::schedule schedule = mg::schedule::fixed;
  /// For schedule::dynamic: how many iterations a processor takes at a time; 0: a part of 1/8 of its share. Over a span
  /// they are rounded up to pages.
  std::size_t chunk = 0;
};

namespace detail {

/// A counter from which processors take chunks; in shared memory.
struct chunk_counter {
  mutex guard;
  std::size_t next = 0;

  /// The next `chunk` of `range`; empty when there is none.
  index_range take(index_range range, std::size_t chunk) {
    const std::lock_guard held(guard);
    const std::size_t first = range.begin + next;
    const std::size_t count = std::min(chunk, range.end - first);
    next += count;
    return {first, first + count};
  }
};

inline std::size_t default_chunk(std::size_t size, std::size_t chunk) noexcept {
  constexpr std::size_t chunks_of_a_share = 8;
  return chunk != 0 ? chunk : std::max<std::size_t>(1, size / (std::size_t{processors()} * chunks_of_a_share));
}

/// An array's elements by the pages in which they begin. Element i is of unit u if it is among the elements
/// first(u) <= i < first(u + 1): those that begin on page u of the array, the array's first page being 0.
struct page_units {
  std::uintptr_t address;  // of the first element
  std::size_t element;     // bytes
  std::size_t count;       // elements
  std::size_t page;        // bytes

  template <typename T>
  explicit page_units(std::span<T> data)
      : address(reinterpret_cast<std::uintptr_t>(data.data())),
        element(sizeof(T)),
        count(data.size()),
        page(page_size()) {}
  [[nodiscard]] std::uintptr_t first_page() const { return address / page; }
  [[nodiscard]] std::size_t units() const {
    return count == 0 ? 0 : (address + count * element - 1) / page - first_page() + 1;
  }
  [[nodiscard]] std::size_t first(std::size_t unit) const {
    const std::uintptr_t start = (first_page() + unit) * page;
    if (start <= address) return 0;
    return std::min<std::size_t>(count, (start - address + element - 1) / element);
  }
  [[nodiscard]] index_range elements(index_range of_units) const {
    return {first(of_units.begin), first(of_units.end)};
  }
};

/// The calling processor's part of an array: whole pages for each node, and inside a node by elements.
inline index_range own_part(const page_units& pages) {
  const index_range of_node = part_of({0, pages.units()}, node(), nodes());
  return part_of(pages.elements(of_node), processor() % processors_per_node(), processors_per_node());
}

/// For each page of an array, the processor that works on it: one of the node that is its home, in turn.
inline shared_array<std::uint32_t> owners_by_home(const page_units& pages) {
  const std::size_t units = pages.units();
  auto owners = make_shared_array<std::uint32_t>(units);
  const std::unique_ptr<unsigned[]> turns(new unsigned[nodes()]());
  for (std::size_t unit = 0; unit < units; ++unit) {
    // Its first byte that is in the array.
    const std::uintptr_t at = std::max((pages.first_page() + unit) * pages.page, pages.address);
    const int home = mg_home_of(reinterpret_cast<const void*>(at));
    // A page without a home gets the node that a division by pages would give it.
    std::size_t of = 0;
    if (home >= 0)
      of = static_cast<std::size_t>(home);
    else
      while (part_of({0, units}, of, nodes()).end <= unit) ++of;
    owners[unit] = static_cast<std::uint32_t>(of) * processors_per_node() + turns[of]++ % processors_per_node();
  }
  return owners;
}

// What processors are sent are structures and not lambda expressions: an empty callable takes no room in them. In a lambda
// it would be a byte with padding behind it, in which there may be anything, an address of the stack too.

template <typename Work>
struct fixed_part {
  index_range range;
  [[no_unique_address]] Work work;
  void operator()() {
    if (const index_range mine = part_of(range); !mine.empty()) work(mine);
  }
};
template <typename Work>
struct chunks {
  index_range range;
  chunk_counter* counter;
  std::size_t chunk;
  [[no_unique_address]] Work work;
  void operator()() {
    for (index_range mine; !(mine = counter->take(range, chunk)).empty();) work(mine);
  }
};

/// Runs `work` on every processor with each range of indices that is the processor's, by the options.
template <typename Work>
void divide(index_range range, const loop_options& options, Work work) {
  if (options.schedule != schedule::dynamic) return run_on_all(fixed_part<Work>{range, work});
  const auto counter = make_unique<chunk_counter>();
  run_on_all(chunks<Work>{range, counter.get(), default_chunk(range.size(), options.chunk), work});
}

template <typename Work>
struct fixed_pages {
  page_units pages;
  [[no_unique_address]] Work work;
  void operator()() {
    if (const index_range mine = own_part(pages); !mine.empty()) work(mine);
  }
};
template <typename Work>
struct pages_by_home {
  page_units pages;
  std::span<const std::uint32_t> owners;
  [[no_unique_address]] Work work;
  void operator()(unsigned me) {
    // Neighbouring pages together, since that is one call.
    for (std::size_t unit = 0; unit < owners.size();) {
      std::size_t end = unit;
      while (end < owners.size() && owners[end] == me) ++end;
      if (const index_range mine = pages.elements({unit, end}); !mine.empty()) work(mine);
      unit = end + 1;
    }
  }
};
template <typename Work>
struct work_on_pages {
  page_units pages;
  [[no_unique_address]] Work work;
  void operator()(index_range units) {
    if (const index_range mine = pages.elements(units); !mine.empty()) work(mine);
  }
};

/// The same for the elements of an array.
template <typename Work>
void divide(const page_units& pages, const loop_options& options, Work work) {
  switch (options.schedule) {
    case schedule::fixed:
      return run_on_all(fixed_pages<Work>{pages, work});
    case schedule::by_home: {
      const auto owners = owners_by_home(pages);
      return run_on_all(pages_by_home<Work>{pages, owners.span(), work});
    }
    case schedule::dynamic: {
      const std::size_t bytes = default_chunk(pages.count, options.chunk) * pages.element;
      return divide(
          index_range{0, pages.units()},
          {.schedule = schedule::dynamic, .chunk = std::max<std::size_t>(1, (bytes + pages.page - 1) / pages.page)},
          work_on_pages<Work>{pages, work});
    }
  }
}

template <typename Body>
struct for_indices {
  [[no_unique_address]] Body body;
  void operator()(index_range mine) {
    if constexpr (std::is_invocable_v<Body&, index_range>)
      body(mine);
    else
      for (std::size_t i = mine.begin; i < mine.end; ++i) body(i);
  }
};
template <typename T, typename Body>
struct for_elements {
  std::span<T> data;
  [[no_unique_address]] Body body;
  void operator()(index_range mine) {
    const std::span<T> part = data.subspan(mine.begin, mine.size());
    if constexpr (std::is_invocable_v<Body&, std::span<T>>)
      body(part);
    else if constexpr (std::is_invocable_v<Body&, T&, std::size_t>)
      for (std::size_t i = mine.begin; i < mine.end; ++i) body(data[i], i);
    else
      for (T& element : part) body(element);
  }
};

}  // namespace detail

/// Calls `body(i)`, or `body(range)` if it takes an index_range, for all i of `range`, each once, on all processors.
/// Iterations run at the same time and in no order.
template <typename Body>
  requires(std::is_invocable_v<Body&, std::size_t> || std::is_invocable_v<Body&, index_range>)
void parallel_for(index_range range, Body body, const loop_options& options = {}) {
  detail::divide(range, options, detail::for_indices<Body>{std::move(body)});
}
/// The same for i from 0 up to, and without, `count`.
template <std::integral Count, typename Body>
  requires(std::is_invocable_v<Body&, std::size_t> || std::is_invocable_v<Body&, index_range>)
void parallel_for(Count count, Body body, const loop_options& options = {}) {
  if (count > Count{0}) parallel_for(index_range{0, static_cast<std::size_t>(count)}, std::move(body), options);
}

/// Calls `body(element)`, or `body(element, index)`, or `body(part)` with a std::span<T>, for all elements of `data`, which
/// are in shared memory. No page of `data` is worked on by two nodes, so that nodes that write the elements do not
/// write the same pages (if elements lie across the pages' borders, the one that does is the exception).
template <typename T, typename Body>
  requires(std::is_invocable_v<Body&, T&> || std::is_invocable_v<Body&, T&, std::size_t> ||
           std::is_invocable_v<Body&, std::span<T>>)
void parallel_for(std::span<T> data, Body body, const loop_options& options = {}) {
  detail::divide(detail::page_units(data), options, detail::for_elements<T, Body>{data, std::move(body)});
}
template <typename T, typename Body>
void parallel_for(const shared_array<T>& data, Body body, const loop_options& options = {}) {
  parallel_for(data.span(), std::move(body), options);
}

/// In which order a reduction combines values.
enum class reduction_order {
  /// Each processor's values in the order of their indices, then the processors' in their order, with schedule::fixed. So
  /// the result is the same in each run on a machine of the same shape; on another one, sums of floating-point numbers
  /// may differ in their last digits. With schedule::dynamic, a processor combines what it happened to take.
  by_processor,
  /// Values in pieces of `piece` indices, each in order, then the pieces in their order: the result is the same, to the
  /// last bit, on every machine, with every schedule. It costs a T for each piece, in shared memory.
  by_piece,
};

/// Options of a reduction.
struct reduce_options {
  reduction_order order = reduction_order::by_processor;
  std::size_t piece = 1024;  ///< indices; not 0. Part of what makes the result
  loop_options loop = {};    ///< for by_piece, over pieces
};

namespace detail {

/// Where processors leave values, in shared memory.
template <typename T>
class partial_results {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "the processors' results are in shared memory, byte by byte");

  partial_results(std::size_t count, const T& identity) : count_(count) {
    alloc_options options;
    options.home = MG_HOME_BLOCKED;
    if constexpr (alignof(T) > 16) options.alignment = alignof(T);
    values_.reset(static_cast<T*>(allocate_bytes(std::max<std::size_t>(1, count) * sizeof(T), options)));
    std::uninitialized_fill_n(values_.get(), count, identity);
  }
  [[nodiscard]] T* values() const { return values_.get(); }
  template <typename Combine>
  [[nodiscard]] T combined(T total, Combine& combine) const {
    for (std::size_t i = 0; i < count_; ++i) total = combine(total, values_.get()[i]);
    return total;
  }

 private:
  struct free_block {
    void operator()(T* block) const noexcept { mg_free(block); }
  };
  std::unique_ptr<T, free_block> values_;
  std::size_t count_;
};

template <typename T, typename Value, typename Combine>
T combine_range(T so_far, index_range range, Value& value, Combine& combine) {
  for (std::size_t i = range.begin; i < range.end; ++i) so_far = combine(so_far, value(i));
  return so_far;
}

template <typename T, typename Value, typename Combine>
struct combine_own {
  T* values;
  [[no_unique_address]] Value value;
  [[no_unique_address]] Combine combine;
  void operator()(index_range mine) {
    T& own = values[processor()];
    own = combine_range(own, mine, value, combine);
  }
};
template <typename T, typename Value, typename Combine>
struct combine_pieces {
  index_range range;
  T* values;
  std::size_t piece;
  [[no_unique_address]] Value value;
  [[no_unique_address]] Combine combine;
  void operator()(index_range mine) {
    for (std::size_t p = mine.begin; p < mine.end; ++p) {
      const std::size_t first = range.begin + p * piece;
      values[p] = combine_range(values[p], {first, first + std::min(piece, range.end - first)}, value, combine);
    }
  }
};
template <typename U, typename Value>
struct element_value {
  std::span<U> data;
  [[no_unique_address]] Value value;
  auto operator()(std::size_t i) { return value(data[i]); }
};

/// `Indices` is an index_range or the page_units of an array.
template <typename Indices, typename T, typename Value, typename Combine>
T reduce_by_processor(const Indices& indices, T identity, Value value, Combine combine, const loop_options& loop) {
  const partial_results<T> results(processors(), identity);
  divide(indices, loop, combine_own<T, Value, Combine>{results.values(), value, combine});
  return results.combined(identity, combine);
}

template <typename T, typename Value, typename Combine>
T reduce_by_piece(index_range range, T identity, Value value, Combine combine, const reduce_options& options) {
  const std::size_t pieces = range.size() / options.piece + (range.size() % options.piece != 0 ? 1 : 0);
  const partial_results<T> results(pieces, identity);
  divide(index_range{0, pieces}, options.loop,
         combine_pieces<T, Value, Combine>{range, results.values(), options.piece, value, combine});
  return results.combined(identity, combine);
}

}  // namespace detail

/// Combines `value(i)` for all i of `range`: `combine(combine(identity, value(0)), value(1))`, ..., where `combine` is
/// associative, and `identity` changes nothing. `value(i)` is called once for each i, on all processors; T is trivially
/// copyable. Throws std::system_error (EINVAL) if options.piece is 0.
template <typename T, typename Value, typename Combine>
  requires(std::is_invocable_r_v<T, Value&, std::size_t> && std::is_invocable_r_v<T, Combine&, T, T>)
[[nodiscard]] T parallel_reduce(index_range range, T identity, Value value, Combine combine,
                                const reduce_options& options = {}) {
  if (options.piece == 0) detail::check(-EINVAL, "mg::parallel_reduce: pieces have one index at least");
  if (options.order == reduction_order::by_piece)
    return detail::reduce_by_piece(range, identity, std::move(value), std::move(combine), options);
  return detail::reduce_by_processor(range, identity, std::move(value), std::move(combine), options.loop);
}
/// The same for i from 0 up to, and without, `count`.
template <std::integral Count, typename T, typename Value, typename Combine>
  requires(std::is_invocable_r_v<T, Value&, std::size_t> && std::is_invocable_r_v<T, Combine&, T, T>)
[[nodiscard]] T parallel_reduce(Count count, T identity, Value value, Combine combine,
                                const reduce_options& options = {}) {
  return parallel_reduce(index_range{0, count > Count{0} ? static_cast<std::size_t>(count) : 0}, identity,
                         std::move(value), std::move(combine), options);
}
/// The same for the elements of `data`, which are in shared memory: `value(element)`. With by_processor each processor has the
/// elements that parallel_for over the same span gives it.
template <typename T, typename U, typename Value, typename Combine>
  requires(std::is_invocable_r_v<T, Value&, U&> && std::is_invocable_r_v<T, Combine&, T, T>)
[[nodiscard]] T parallel_reduce(std::span<U> data, T identity, Value value, Combine combine,
                                const reduce_options& options = {}) {
  const detail::element_value<U, Value> of_index{data, std::move(value)};
  if (options.order == reduction_order::by_piece)
    return parallel_reduce(index_range{0, data.size()}, identity, of_index, std::move(combine), options);
  return detail::reduce_by_processor(detail::page_units(data), identity, of_index, std::move(combine), options.loop);
}

template <typename T, typename U, typename Value, typename Combine>
[[nodiscard]] T parallel_reduce(const shared_array<U>& data, T identity, Value value, Combine combine,
                                const reduce_options& options = {}) {
  return parallel_reduce(data.span(), identity, std::move(value), std::move(combine), options);
}

}  // namespace mg

#endif
#endif
