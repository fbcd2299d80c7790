// This tests parallel_for and parallel_reduce: each index once, whatever the schedule; pages that stay with one node; results
// that do not depend on the machine. The argument is how often all of it is done.
#include <cmath>
#include <cstring>
#include <multigrain/parallel.hpp>

#include "program.h"

namespace {

constexpr mg::schedule kSchedules[] = {mg::schedule::fixed, mg::schedule::by_home, mg::schedule::dynamic};

struct Odd {
  char bytes[40];
};
static_assert(mg::part_of({10, 20}, 0, 3).end == 14 && mg::part_of({10, 20}, 2, 3).begin == 17);
static_assert(mg::part_of({5, 5}, 1, 4).empty() && mg::part_of({0, 3}, 7, 8).empty());

template <typename Function>
int code_of(Function&& function) {
  try {
    function();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

// Sizes at which parts have no elements, one, or a border in a page.
void each_index_once() {
  for (const mg::schedule schedule : kSchedules)
    for (const size_t count : {0ul, 1ul, 3ul, 511ul, 512ul, 513ul, 5000ul})
      for (const size_t chunk : {0ul, 1ul, 700ul}) {
        if (schedule != mg::schedule::dynamic && chunk != 0) continue;
        if (chunk == 1 && count > 600) continue;
        const mg::loop_options options{.schedule = schedule, .chunk = chunk};
        const auto hits = mg::make_shared_array<uint64_t>(count);
        mg::parallel_for(count, [hits = hits.span()](size_t i) { hits[i] += i + 1; }, options);
        mg::parallel_for(
            mg::index_range{0, count},
            [hits = hits.span()](mg::index_range part) {
              for (size_t i = part.begin; i < part.end; ++i) hits[i] += 1;
            },
            options);
        mg::parallel_for(hits, [](uint64_t& hit) { hit += 1; }, options);
        mg::parallel_for(hits.span(), [](uint64_t& hit, size_t i) { hit += i; }, options);
        mg::parallel_for(
            hits,
            [](std::span<uint64_t> part) {
              for (uint64_t& hit : part) hit += 1;
            },
            options);
        for (size_t i = 0; i < count; ++i) REQUIRE(hits[i] == 2 * i + 4);
      }
  // A range that does not begin at 0, and what is no range.
  const auto sum = mg::make_shared_array<uint64_t>(100);
  mg::parallel_for(mg::index_range{40, 60}, [sum = sum.span()](size_t i) { sum[i] = 1; });
  mg::parallel_for(-3, [sum = sum.span()](size_t i) { sum[i] = 9; });
  for (size_t i = 0; i < 100; ++i) REQUIRE(sum[i] == (i >= 40 && i < 60 ? 1 : 0));
}

// An array whose elements lie across pages, from the middle of one.
void pages_stay_together() {
  const size_t page = mg::page_size();
  for (const mg_home home : {MG_HOME_INTERLEAVED, MG_HOME_BLOCKED, MG_HOME_FIRST_TOUCH}) {
    mg::alloc_options placed;
    placed.home = home;
    const auto memory = mg::make_shared_array<Odd>(6 * page / sizeof(Odd), placed);
    const std::span<Odd> data = memory.span().subspan(7);
    for (const mg::schedule schedule : kSchedules) {
      mg::parallel_for(data,
                       [](Odd& element) {
                         const unsigned node = mg::node() + 1;
                         std::memcpy(element.bytes, &node, sizeof node);
                       },
                       {.schedule = schedule});
      for (size_t i = 1; i < data.size(); ++i) {
        unsigned node = 0, before = 0;
        std::memcpy(&node, data[i].bytes, sizeof node);
        std::memcpy(&before, data[i - 1].bytes, sizeof node);
        REQUIRE(node != 0 && before != 0);
        const auto at = reinterpret_cast<uintptr_t>(&data[i]);
        if (at / page == reinterpret_cast<uintptr_t>(&data[i - 1]) / page) REQUIRE(node == before);
      }
    }
  }
  // By home: the home does it, if homes stay where they are.
  mg::alloc_options placed;
  placed.home = MG_HOME_INTERLEAVED;
  const auto words = mg::make_shared_array<uint32_t>(8 * page / sizeof(uint32_t), placed);
  const auto homes = mg::make_shared_array<int>(words.size());
  for (size_t i = 0; i < words.size(); ++i) homes[i] = mg_home_of(&words[i]);
  mg::parallel_for(words, [](uint32_t& word) { word = mg::node(); }, {.schedule = mg::schedule::by_home});
  for (size_t i = 0; i < words.size(); ++i) REQUIRE(static_cast<int>(words[i]) == homes[i]);
}

struct Extremes {
  double least;
  double most;
  long count;
};

double term(size_t i) {
  return std::sin(static_cast<double>(i)) * std::pow(10.0, static_cast<double>(i % 30));
}

void reductions() {
  const auto plus = [](auto a, auto b) { return a + b; };
  for (const mg::schedule schedule : kSchedules)
    for (const size_t count : {0ul, 1ul, 5ul, 3000ul})
      for (const auto order : {mg::reduction_order::by_processor, mg::reduction_order::by_piece}) {
        const mg::reduce_options options{.order = order, .piece = 100, .loop = {.schedule = schedule, .chunk = 0}};
        const auto square = [](size_t i) { return uint64_t{i} * i; };
        const uint64_t expected = count == 0 ? 0 : count * (count - 1) * (2 * count - 1) / 6;
        REQUIRE(mg::parallel_reduce(count, uint64_t{0}, square, plus, options) == expected);
        const auto numbers = mg::make_shared_array<uint32_t>(count);
        mg::parallel_for(numbers, [](uint32_t& number, size_t i) { number = static_cast<uint32_t>(i * i); });
        REQUIRE(mg::parallel_reduce(
                    numbers, uint64_t{0}, [](uint32_t n) { return uint64_t{n}; }, plus, options) == expected);
        const Extremes found = mg::parallel_reduce(
            numbers.span(), Extremes{1e9, -1, 0}, [](const uint32_t& n) { return Extremes{double(n), double(n), 1}; },
            [](Extremes a, Extremes b) {
              return Extremes{std::min(a.least, b.least), std::max(a.most, b.most), a.count + b.count};
            },
            options);
        REQUIRE(found.count == static_cast<long>(count));
        if (count != 0) REQUIRE(found.least == 0 && found.most == double((count - 1) * (count - 1)));
      }

  // A combination that is associative and not commutative: strings of digits, as numbers and their lengths.
  struct Digits {
    uint64_t value;
    uint64_t power;
  };
  const Digits digits = mg::parallel_reduce(
      17, Digits{0, 1}, [](size_t i) { return Digits{i % 10, 10}; },
      [](Digits a, Digits b) { return Digits{a.value * b.power + b.value, a.power * b.power}; });
  REQUIRE(digits.value == 1234567890123456);

  // The same bits on every machine: this is what one processor computes.
  constexpr size_t kTerms = 20000;
  constexpr size_t kPiece = 300;
  double expected = 0;
  for (size_t first = 0; first < kTerms; first += kPiece) {
    double piece = 0;
    for (size_t i = first; i < std::min(first + kPiece, kTerms); ++i) piece += term(i);
    expected += piece;
  }
  for (const mg::schedule schedule : {mg::schedule::fixed, mg::schedule::dynamic}) {
    const double sum = mg::parallel_reduce(
        kTerms, 0.0, &term, plus, {.order = mg::reduction_order::by_piece, .piece = kPiece, .loop = {schedule, 1}});
    REQUIRE(std::memcmp(&sum, &expected, sizeof sum) == 0);
  }
  const double first = mg::parallel_reduce(kTerms, 0.0, &term, plus);
  const double again = mg::parallel_reduce(kTerms, 0.0, &term, plus);
  REQUIRE(std::memcmp(&first, &again, sizeof first) == 0);
  REQUIRE(std::fabs(first - expected) <= 1e-9 * std::fabs(expected) + 1e20);
  REQUIRE(code_of([] {
            (void)mg::parallel_reduce(3, 0, [](size_t) { return 1; }, [](int a, int b) { return a + b; }, {.piece = 0});
          }) == EINVAL);
}

void errors() {
  if (mg::processors() == 1) return;
  long local = 0;
  if (mg::nodes() > 1) REQUIRE(code_of([&local] { mg::parallel_for(3, [&local](size_t) { ++local; }); }) == EINVAL);
  // Another processor runs.
  mg::flag* const end = ::new (mg_alloc(sizeof(mg::flag), nullptr)) mg::flag;
  mg::spawn(1, [end] { end->wait(); });
  REQUIRE(code_of([] { mg::parallel_for(3, [](size_t) {}); }) == EBUSY);
  end->set();
  mg::join_all();
}

// All processors of a running program divide by themselves.
void inside() {
  const auto hits = mg::make_shared_array<int>(1000);
  mg::run_on_all([hits = hits.span()] {
    const mg::index_range mine = mg::part_of({0, hits.size()});
    for (size_t i = mine.begin; i < mine.end; ++i) ++hits[i];
  });
  for (const int hit : hits) REQUIRE(hit == 1);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
  for (int i = 0; i < rounds; ++i) {
    each_index_once();
    pages_stay_together();
    reductions();
    errors();
    inside();
  }
  return 0;
}
