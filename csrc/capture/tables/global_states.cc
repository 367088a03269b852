#include "capture/tables/global_states.h"

#include "torchapi/op_effects.h"

namespace kintsugi::capture {

void GlobalStates::noteCall(ir::ValueId value) {
  const bool like = entry_.isLike(torchapi::GlobalState::current());
  behind_.push_back({value, like, torchapi::gradMode()});
}

}  // namespace kintsugi::capture
