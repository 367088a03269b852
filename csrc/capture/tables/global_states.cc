#include "capture/tables/global_states.h"

#include "torchapi/op_effects.h"

namespace kintsugi::capture {

void GlobalStates::noteCall(ir::ValueId value) {
  const bool unchanged = entry_.equalsExceptGradMode(torchapi::GlobalState::current());
  afterCalls_.push_back({value, unchanged, torchapi::gradMode()});
}

}  // namespace kintsugi::capture
