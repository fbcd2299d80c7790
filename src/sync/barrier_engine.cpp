#include "sync/barrier_engine.h"

#include "base/error.h"

namespace multigrain {

bool BarrierNode::arrive(const BarrierPlace& place) {
  MG_CHECK(processors_ < place.processors, processors_);
  return ++processors_ == place.processors;
}

BarrierActions BarrierNode::flushed(const BarrierPlace& place) {
  MG_CHECK(processors_ == place.processors && stage_ == Stage::kArriving, processors_);
  stage_ = Stage::kFlushed;
  return proceed(place);
}

BarrierActions BarrierNode::on_up(const BarrierPlace& place, uint32_t episode) {
  MG_CHECK(episode == episode_ && children_ < place.children(), episode, episode_);
  ++children_;
  return proceed(place);
}

BarrierActions BarrierNode::on_down(const BarrierPlace& place, uint32_t episode) {
  MG_CHECK(episode == episode_ && stage_ == (place.gathers ? Stage::kGathered : Stage::kFlushed), episode, episode_);
  return place.gathers ? learn() : finish();
}

BarrierActions BarrierNode::gathered(const BarrierPlace& place) {
  MG_CHECK(stage_ == Stage::kGathering, episode_);
  stage_ = Stage::kGathered;
  if (place.is_root()) return learn();
  BarrierActions actions;
  actions.send_up = true;
  return actions;
}

BarrierActions BarrierNode::learned() {
  MG_CHECK(stage_ == Stage::kLearning, episode_);
  return finish();
}

BarrierActions BarrierNode::proceed(const BarrierPlace& place) {
  if (stage_ != Stage::kFlushed || children_ != place.children()) return {};
  BarrierActions actions;
  if (place.gathers) {
    stage_ = Stage::kGathering;
    actions.gather = true;
    return actions;
  }
  if (place.is_root()) return finish();
  actions.send_up = true;
  return actions;
}

BarrierActions BarrierNode::learn() {
  stage_ = Stage::kLearning;
  BarrierActions actions;
  actions.learn = true;
  return actions;
}

BarrierActions BarrierNode::finish() {
  processors_ = 0;
  children_ = 0;
  stage_ = Stage::kArriving;
  ++episode_;
  BarrierActions actions;
  actions.released = true;
  return actions;
}

}  // namespace multigrain
