#include "sync/barrier_engine.h"

#include "base/error.h"

namespace multigrain {

bool BarrierNode::arrive(const BarrierPlace& place) {
  MG_CHECK(processors_ < place.processors, processors_);
  return ++processors_ == place.processors;
}

BarrierActions BarrierNode::flushed(const BarrierPlace& place) {
  MG_CHECK(processors_ == place.processors && !flushed_, processors_);
  flushed_ = true;
  return proceed(place);
}

BarrierActions BarrierNode::on_up(const BarrierPlace& place, uint32_t episode) {
  MG_CHECK(episode == episode_ && children_ < place.children(), episode, episode_);
  ++children_;
  return proceed(place);
}

BarrierActions BarrierNode::on_down(uint32_t episode) {
  MG_CHECK(episode == episode_ && flushed_, episode, episode_);
  return finish();
}

BarrierActions BarrierNode::proceed(const BarrierPlace& place) {
  if (!flushed_ || children_ != place.children()) return {};
  if (place.is_root()) return finish();
  BarrierActions actions;
  actions.send_up = true;
  return actions;
}

BarrierActions BarrierNode::finish() {
  processors_ = 0;
  children_ = 0;
  flushed_ = false;
  ++episode_;
  BarrierActions actions;
  actions.released = true;
  return actions;
}

}  // namespace multigrain
