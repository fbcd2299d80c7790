// One processor produces numbers, the others consume them, through a bounded queue in shared memory.
//
//   mg++ -std=c++20 -O2 producer_consumer.cpp -o producer_consumer
//   mgrun --nodes 2 --procs-per-node 2 ./producer_consumer
#include <cstdio>
#include <deque>
#include <multigrain/thread.hpp>
#include <mutex>
#include <vector>

namespace {

struct Queue {
  mg::mutex mutex;
  mg::condition_variable changed;
  std::deque<int, mg::allocator<int>> items;  // the elements are in shared memory, as the Queue is
  bool is_closed = false;
  long sum = 0;
};

void consume(Queue* queue) {
  long mine = 0;
  std::unique_lock lock(queue->mutex);
  while (true) {
    queue->changed.wait(lock, [queue] { return queue->is_closed || !queue->items.empty(); });
    if (queue->items.empty()) break;
    const int item = queue->items.front();
    queue->items.pop_front();
    queue->changed.notify_all();  // there is room
    lock.unlock();
    mine += item;
    lock.lock();
  }
  queue->sum += mine;
}

}  // namespace

int main() {
  const auto queue = mg::make_unique<Queue>();
  {
    std::vector<mg::jthread> consumers;
    for (unsigned i = 1; i < mg::processors(); ++i) consumers.emplace_back(&consume, queue.get());
    for (int item = 1; item <= 1000; ++item) {
      std::unique_lock lock(queue->mutex);
      if (!consumers.empty()) queue->changed.wait(lock, [&queue] { return queue->items.size() < 16; });
      queue->items.push_back(item);
      queue->changed.notify_all();
    }
    const std::lock_guard lock(queue->mutex);
    queue->is_closed = true;
    queue->changed.notify_all();
  }  // the threads are joined
  if (mg::processors() == 1) consume(queue.get());
  std::printf("the sum is %ld\n", queue->sum);
}
