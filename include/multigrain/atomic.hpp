/// \file
/// Multigrain: mg::atomic and mg::atomic_ref, atomic objects that work between nodes under every protocol.
///
/// They have the shape of std::atomic and std::atomic_ref, and are the operations of multigrain/atomic.h, which says
/// what they cost. The program may be compiled by any compiler.
///
/// An mg::atomic is shared if it is in shared memory: an element of mg::make_shared_array, or a member of an object of
/// mg::make_unique. Elsewhere it is an ordinary atomic object of its node.
///
/// Memory orders. Multigrain is release consistent: plain writes are seen by other processors after a release and the
/// matching acquire. Each operation here is both, and all are in one order that all processors agree on
/// (memory_order_seq_cst). So what a program may rely on is:
///
///   relaxed            the operation is atomic; in fact it orders as much as the others
///   acquire, consume   what was written before the operation whose value is read is seen from here on
///   release            what was written before is seen by those who read this value
///   acq_rel, seq_cst   both, and one order of all operations
///
/// An order is accepted so that code written for std::atomic compiles, and has no effect. What saves time is fewer
/// operations: count in private memory and add once.
///
/// Every function may be called from any processor or thread, and from no signal handler; none throws.
#ifndef MULTIGRAIN_ATOMIC_HPP
#define MULTIGRAIN_ATOMIC_HPP

#include <multigrain/multigrain.hpp>

#if __cplusplus >= 202002L  // multigrain.hpp says so otherwise

#include <multigrain/atomic.h>

#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace mg {

namespace detail {

template <std::size_t Size>
struct atomic_functions {};

#define MG_ATOMIC_FUNCTIONS(N, T)                                             \
  template <>                                                                 \
  struct atomic_functions<N> {                                                \
    using word = T;                                                           \
    static constexpr auto load = &mg_atomic_load_##N;                         \
    static constexpr auto store = &mg_atomic_store_##N;                       \
    static constexpr auto update = &mg_atomic_update_##N;                     \
    static constexpr auto compare_exchange = &mg_atomic_compare_exchange_##N; \
  };
MG_ATOMIC_FUNCTIONS(1, std::uint8_t)
MG_ATOMIC_FUNCTIONS(2, std::uint16_t)
MG_ATOMIC_FUNCTIONS(4, std::uint32_t)
MG_ATOMIC_FUNCTIONS(8, std::uint64_t)
MG_ATOMIC_FUNCTIONS(16, mg_atomic_16)
#undef MG_ATOMIC_FUNCTIONS

/// What can be an atomic object: trivially copyable, of 1, 2, 4, 8 or 16 bytes, without bytes of padding (which
/// compare_exchange would compare).
template <typename T>
concept atomic_value =
    std::is_trivially_copyable_v<T> && std::has_single_bit(sizeof(T)) && sizeof(T) <= 16 &&
    (std::has_unique_object_representations_v<T> || std::is_same_v<T, float> || std::is_same_v<T, double>);

template <typename T>
struct atomic_difference {
  using type = T;
};
template <typename T>
struct atomic_difference<T*> {
  using type = std::ptrdiff_t;
};

/// The operations, on the object whose address is `Object::address()`.
template <typename T, typename Object>
class atomic_operations {
  using functions = atomic_functions<sizeof(T)>;
  using word = typename functions::word;

  static constexpr bool is_integer = (std::integral<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, mg_atomic_16>;
  static constexpr bool is_number = is_integer || std::is_floating_point_v<T>;
  static constexpr bool can_add = is_number || std::is_pointer_v<T>;

 public:
  using value_type = T;
  using difference_type = typename atomic_difference<T>::type;
  static constexpr bool is_always_lock_free = false;
  [[nodiscard]] bool is_lock_free() const noexcept { return false; }

  /// The value.
  [[nodiscard]] T load(std::memory_order = std::memory_order_seq_cst) const noexcept {
    return std::bit_cast<T>(functions::load(at()));
  }
  operator T() const noexcept { return load(); }
  /// Stores the value.
  void store(T value, std::memory_order = std::memory_order_seq_cst) const noexcept {
    functions::store(at(), std::bit_cast<word>(value));
  }
  /// Stores the value, and returns what was there before.
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) const noexcept {
    return update(value, MG_ATOMIC_SET);
  }
  /// Stores `desired` if the value is `expected`, bit by bit, and returns whether it has; otherwise `expected` becomes
  /// the value. Neither form fails without reason.
  bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) const noexcept {
    const word wanted = std::bit_cast<word>(expected);
    const word found = functions::compare_exchange(at(), wanted, std::bit_cast<word>(desired));
    if (found == wanted) return true;
    expected = std::bit_cast<T>(found);
    return false;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success = std::memory_order_seq_cst,
                             std::memory_order failure = std::memory_order_seq_cst) const noexcept {
    return compare_exchange_strong(expected, desired, success, failure);
  }

  /// Adds, or subtracts, and returns what was there before. Integers wrap; a pointer moves by elements.
  T fetch_add(difference_type operand, std::memory_order = std::memory_order_seq_cst) const noexcept
    requires can_add
  {
    return add(operand, MG_ATOMIC_PLUS, MG_ATOMIC_FLOAT_PLUS);
  }
  T fetch_sub(difference_type operand, std::memory_order = std::memory_order_seq_cst) const noexcept
    requires can_add
  {
    return add(operand, MG_ATOMIC_MINUS, MG_ATOMIC_FLOAT_MINUS);
  }
  /// Change the value's bits, and return what was there before.
  T fetch_and(T operand, std::memory_order = std::memory_order_seq_cst) const noexcept
    requires is_integer
  {
    return update(operand, MG_ATOMIC_BITAND);
  }
  T fetch_or(T operand, std::memory_order = std::memory_order_seq_cst) const noexcept
    requires is_integer
  {
    return update(operand, MG_ATOMIC_BITOR);
  }
  T fetch_xor(T operand, std::memory_order = std::memory_order_seq_cst) const noexcept
    requires is_integer
  {
    return update(operand, MG_ATOMIC_BITXOR);
  }
  /// Store the smaller, or the greater, of the value and the operand, and return what was there before.
  T fetch_min(T operand, std::memory_order = std::memory_order_seq_cst) const noexcept
    requires is_integer
  {
    return update(operand, std::is_signed_v<T> ? MG_ATOMIC_SIGNED_SMALLEST : MG_ATOMIC_SMALLEST);
  }
  T fetch_max(T operand, std::memory_order = std::memory_order_seq_cst) const noexcept
    requires is_integer
  {
    return update(operand, std::is_signed_v<T> ? MG_ATOMIC_SIGNED_GREATEST : MG_ATOMIC_GREATEST);
  }

  /// Return the new value, as those of std::atomic do.
  T operator++() const noexcept
    requires(can_add && !std::is_floating_point_v<T>)
  {
    return stepped(fetch_add(1), 1);
  }
  T operator--() const noexcept
    requires(can_add && !std::is_floating_point_v<T>)
  {
    return stepped(fetch_sub(1), -1);
  }
  T operator+=(difference_type operand) const noexcept
    requires can_add
  {
    return stepped(fetch_add(operand), operand);
  }
  /// Return what was there before.
  T operator++(int) const noexcept
    requires(can_add && !std::is_floating_point_v<T>)
  {
    return fetch_add(1);
  }
  T operator--(int) const noexcept
    requires(can_add && !std::is_floating_point_v<T>)
  {
    return fetch_sub(1);
  }

  /// Waits, asleep, until the value differs from `old_value` bit by bit; at once if it does already. Another processor
  /// has to call notify_one or notify_all after it has changed the value. A value that changes back meanwhile may be
  /// missed.
  void wait(T old_value, std::memory_order = std::memory_order_seq_cst) const noexcept {
    mg_atomic_wait(at(), sizeof(T), &old_value);
  }
  /// Let those look again that wait, on all nodes: both wake all of them, and those whose value has not changed go on
  /// waiting.
  void notify_one() const noexcept { mg_atomic_notify(at()); }
  void notify_all() const noexcept { mg_atomic_notify(at()); }

 private:
  [[nodiscard]] T* at() const noexcept { return static_cast<const Object*>(this)->address(); }
  T update(T operand, mg_atomic_change change) const noexcept {
    return std::bit_cast<T>(functions::update(at(), std::bit_cast<word>(operand), change));
  }
  T add(difference_type operand, mg_atomic_change integers, [[maybe_unused]] mg_atomic_change reals) const noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      return update(operand, reals);
    } else if constexpr (std::is_pointer_v<T>) {
      // A number of bytes: negative ones wrap, as the sum does.
      const auto bytes = static_cast<word>(operand) * sizeof(std::remove_pointer_t<T>);
      return std::bit_cast<T>(functions::update(at(), bytes, integers));
    } else {
      return update(operand, integers);
    }
  }
  /// What the operation has left: integers wrap without undefined behaviour, as in std::atomic.
  static T stepped(T before, difference_type operand) noexcept {
    if constexpr (is_integer)
      return static_cast<T>(static_cast<word>(static_cast<word>(before) + static_cast<word>(operand)));
    else
      return before + operand;
  }
};

}  // namespace detail

/// An atomic object. T is trivially copyable, has 1, 2, 4, 8 or 16 bytes and no padding; float and double are, too.
/// Neither copied nor moved.
template <detail::atomic_value T>
class atomic : public detail::atomic_operations<T, atomic<T>> {
 public:
  /// The value T(), as in C++20; zeroed shared memory is the same for numbers and pointers.
  constexpr atomic() noexcept = default;
  /// Not atomic: other processors may use the object once they have synchronised with this.
  constexpr atomic(T value) noexcept : value_(value) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  T operator=(T value) noexcept {
    this->store(value);
    return value;
  }

 private:
  friend class detail::atomic_operations<T, atomic<T>>;
  [[nodiscard]] T* address() const noexcept { return &value_; }

  alignas(sizeof(T)) mutable T value_{};
};

/// Atomic operations on an object that is not mg::atomic, such as an element of an array. As long as one of these
/// exists for an object, all accesses to it that may race are by such. Trivially copyable, so that callables may
/// capture it by value. The object is aligned to its size.
template <detail::atomic_value T>
class atomic_ref : public detail::atomic_operations<T, atomic_ref<T>> {
 public:
  static constexpr std::size_t required_alignment = sizeof(T);
  explicit atomic_ref(T& object) noexcept : object_(&object) {}
  atomic_ref(const atomic_ref&) noexcept = default;
  atomic_ref& operator=(const atomic_ref&) = delete;
  T operator=(T value) const noexcept {
    this->store(value);
    return value;
  }

 private:
  friend class detail::atomic_operations<T, atomic_ref<T>>;
  [[nodiscard]] T* address() const noexcept { return object_; }

  T* object_;
};

/// A flag that is set or clear, at first clear, as std::atomic_flag.
class atomic_flag {
 public:
  constexpr atomic_flag() noexcept = default;
  atomic_flag(const atomic_flag&) = delete;
  atomic_flag& operator=(const atomic_flag&) = delete;
  /// Sets it, and returns whether it was set.
  bool test_and_set(std::memory_order = std::memory_order_seq_cst) noexcept { return is_set_.exchange(1) != 0; }
  void clear(std::memory_order = std::memory_order_seq_cst) noexcept { is_set_.store(0); }
  [[nodiscard]] bool test(std::memory_order = std::memory_order_seq_cst) const noexcept { return is_set_.load() != 0; }
  /// Waits until the flag differs from `old_value`; as atomic::wait.
  void wait(bool old_value, std::memory_order = std::memory_order_seq_cst) const noexcept {
    is_set_.wait(old_value ? 1 : 0);
  }
  void notify_one() noexcept { is_set_.notify_one(); }
  void notify_all() noexcept { is_set_.notify_all(); }

 private:
  atomic<std::uint32_t> is_set_{0};
};

}  // namespace mg

#endif
#endif
