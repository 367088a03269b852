// Models: torch.distributed's C functions: the reducer of DistributedDataParallel, process groups, work
// handles.
//
// What they change lies in C++ (buckets, counters, connections), in the data of tensors, and in other
// processes: nothing that a guard reads. They are called again on every run, in their place.
#include <iterator>

#include "capture/calls/model.h"

namespace kintsugi::capture {

namespace {

constexpr ModelRow kRows[] = {
    // the reducer of DistributedDataParallel, which its forward tells what happens
    {"torch._C._distributed_c10d.Reducer.prepare_for_forward", knownModel, kWritesProcess},
    {"torch._C._distributed_c10d.Reducer.prepare_for_backward", knownModel, kWritesProcess},
    {"torch._C._distributed_c10d.Reducer._rebuild_buckets", knownModel, kWritesProcess},
    {"torch._C._distributed_c10d.Logger.set_runtime_stats_and_log", knownModel, kWritesProcess},
};

static_assert(statesAreNamed(kRows));

}  // namespace

void registerDistributedModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
