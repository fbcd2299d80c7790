// A program for threads of one machine: threads, containers, pointers and synchronisation of the C++ library, by as many
// threads as the first argument says. It knows nothing of Multigrain. What it prints does not depend on order.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

int failed = 0;
std::mutex report_mutex;

void check(bool holds, const char* what) {
  if (holds) return;
  const std::lock_guard hold(report_mutex);
  std::cerr << "wrong: " << what << '\n';
  failed = 1;
}

// Captures by reference: the creator's local variables.
template <typename Function>
void run_all(int threads, Function function) {
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back([&function, i] { function(i); });
  for (std::thread& thread : all) thread.join();
}

// A queue with a lock and a condition, of functions that other threads have made.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      const std::lock_guard hold(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  template <typename Function>
  auto submit(Function function) {
    auto task = std::make_shared<std::packaged_task<decltype(function())()>>(std::move(function));
    auto result = task->get_future();
    {
      const std::lock_guard hold(mutex_);
      queue_.emplace_back([task] { (*task)(); });
    }
    changed_.notify_one();
    return result;
  }

 private:
  void work() {
    while (true) {
      std::function<void()> next;
      {
        std::unique_lock hold(mutex_);
        changed_.wait(hold, [this] { return ends_ || !queue_.empty(); });
        if (queue_.empty()) return;
        next = std::move(queue_.back());
        queue_.pop_back();
      }
      next();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> queue_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

struct Counted {
  explicit Counted(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~Counted() { --alive_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& alive_;
};

const std::string& shared_text() {
  static const std::string text = "made once, by whichever thread came first, and long enough for memory of its own";
  return text;
}

thread_local int of_thread = 0;
std::once_flag once;
int once_done = 0;

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 4;

  std::mutex mutex;
  std::map<std::string, std::vector<int>> map;
  run_all(threads, [&](int me) {
    for (int i = 0; i < 100; ++i) {
      const std::lock_guard hold(mutex);
      map["a key that is long enough for memory of its own, " + std::to_string(i % 10)].push_back(me);
    }
  });
  size_t in_map = 0;
  for (const auto& [key, values] : map) in_map += values.size();
  std::cout << "map " << map.size() << ' ' << in_map << '\n';

  std::atomic<int> alive{0};
  std::atomic<long> sum{0};
  {
    std::vector<std::shared_ptr<Counted>> shared;
    for (int i = 0; i < 20; ++i) shared.push_back(std::make_shared<Counted>(alive));
    run_all(threads, [&](int) {
      for (int round = 0; round < 10; ++round)
        for (const auto& one : shared) {
          const std::shared_ptr<Counted> copy = one;
          sum += copy.use_count() > 1 ? 1 : 0;
        }
    });
    check(alive == 20, "objects of shared pointers");
  }
  check(alive == 0, "objects of shared pointers at the end");
  std::cout << "shared pointers " << sum << '\n';

  {
    Pool pool(threads);
    std::vector<std::future<std::string>> results;
    for (int i = 0; i < 50; ++i)
      results.push_back(pool.submit([i] {
        if (i % 10 == 9) throw std::runtime_error("the task " + std::to_string(i) + " fails, as it is to");
        return std::string(static_cast<size_t>(i), 'x');
      }));
    size_t length = 0, thrown = 0;
    for (auto& result : results) try {
        length += result.get().size();
      } catch (const std::runtime_error& error) {
        thrown += std::string(error.what()).find("is to") != std::string::npos ? 1 : 0;
      }
    std::cout << "pool " << length << ' ' << thrown << '\n';
  }

  std::vector<double> numbers(10'000);
  std::iota(numbers.begin(), numbers.end(), 1.0);
  std::vector<std::future<double>> parts;
  for (int i = 0; i < threads; ++i)
    parts.push_back(std::async(std::launch::async, [&numbers, i, threads] {
      const auto at = [&](int part) { return numbers.begin() + static_cast<long>(numbers.size()) * part / threads; };
      return std::accumulate(at(i), at(i + 1), 0.0);
    }));
  double total = 0;
  for (auto& part : parts) total += part.get();
  std::cout << "async " << static_cast<long>(total) << '\n';

  std::shared_mutex rw;
  int first = 0, second = 0;
  run_all(threads, [&](int me) {
    check(of_thread == 0, "a thread-local variable of a new thread");
    of_thread = me + 1;
    std::call_once(once, [] { ++once_done; });
    check(once_done == 1, "call_once");
    check(shared_text().size() == 80, "a static variable of a function");
    for (int i = 0; i < 50; ++i) {
      if (i % 5 == 0) {
        const std::unique_lock hold(rw);
        ++first;
        ++second;
      } else {
        const std::shared_lock hold(rw);
        check(first == second, "two variables under a shared mutex");
      }
    }
    check(of_thread == me + 1, "a thread-local variable");
  });
  std::cout << "shared mutex " << first << '\n';

  std::condition_variable never;
  std::unique_lock hold(mutex);
  check(!never.wait_for(hold, std::chrono::milliseconds(5), [] { return false; }), "wait_for");
  check(std::thread::hardware_concurrency() >= 1, "hardware_concurrency");
  std::ostringstream text;
  text << std::this_thread::get_id();
  check(!text.str().empty(), "get_id");
  std::cout << (failed != 0 ? "wrong" : "right") << std::endl;
  return failed;
}
