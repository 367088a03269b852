// Models: C functions of torch.distributed: the reducer of DistributedDataParallel, process groups, handles
// of work.
//
// These functions change state in C++ (buckets, counters, connections), the data of tensors and other
// processes. Guards read none of that. So each run calls them again in the same place, and what the trace
// knows stays valid. A collective writes to its tensors until somebody waits for its handle. Both calls are
// in the trace, and no tensor operation moves past a call.
//
// Functions that run Python code of the program (hooks of the reducer, stores and backends in Python), and
// functions that make or destroy groups, are not listed: they are opaque steps.
#include "capture/calls/model.h"
#include "capture/calls/table.h"

namespace kintsugi::capture {

namespace {

#define KTG_C10D(name) "torch._C._distributed_c10d." name

constexpr Facts kJoins = kWaitsForProcesses.gives("None");
constexpr Facts kCollective = kWaitsForProcesses.gives("torch._C._distributed_c10d.Work");

constexpr ModelRow kRows[] = {
    // the reducer of DistributedDataParallel, which the module's forward calls
    {KTG_C10D("Reducer.prepare_for_forward"), knownModel, kJoins},
    {KTG_C10D("Reducer.prepare_for_backward"), knownModel, kJoins},
    {KTG_C10D("Reducer._rebuild_buckets"), knownModel, kWaitsForProcesses.gives("bool")},
    {KTG_C10D("Reducer._set_forward_pass_work_handle"), knownModel, kJoins},
    {KTG_C10D("Reducer._install_post_backward_futures"), knownModel, kJoins},
    {KTG_C10D("Reducer._get_local_used_map"), knownModel, gives("torch.Tensor")},
    {KTG_C10D("Reducer._ddp_graph_static"), knownModel, gives("bool")},
    {KTG_C10D("Reducer.get_backward_stats"), knownModel, kReadsWorld.gives("list")},
    {KTG_C10D("Logger.set_runtime_stats_and_log"), knownModel, kJoins},
    {KTG_C10D("_broadcast_coalesced"), knownModel, kJoins},
    {"torch._C._autograd._unsafe_set_version_counter", knownModel, gives("None").raises("RuntimeError")},
    // process groups, whose members never change
    {KTG_C10D("ProcessGroup.rank"), constantModel,
     dependsOn(StateWord::kArguments).gives("int").runsNoPython()},
    {KTG_C10D("ProcessGroup.size"), constantModel,
     dependsOn(StateWord::kArguments).gives("int").runsNoPython()},
    {KTG_C10D("ProcessGroup.name"), knownModel, gives("str")},
    {KTG_C10D("ProcessGroup._get_backend_name"), knownModel, gives("str")},
    {KTG_C10D("ProcessGroup.broadcast"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.allreduce"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.allreduce_coalesced"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.reduce"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.allgather"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.all_gather_single"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup._allgather_base"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.allgather_coalesced"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.all_gather_single_coalesced"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.allgather_into_tensor_coalesced"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.gather"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.scatter"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.reduce_scatter"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.reduce_scatter_single"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup._reduce_scatter_base"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.reduce_scatter_single_coalesced"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.reduce_scatter_tensor_coalesced"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.all_to_all_single"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.alltoall_base"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.alltoall"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.send"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.recv"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup.recv_anysource"), knownModel, kCollective},
    {KTG_C10D("ProcessGroup._start_coalescing"), knownModel, kJoins},
    {KTG_C10D("ProcessGroup._end_coalescing"), knownModel, kCollective},
    // A barrier waits for the others, perhaps for threads of this process with groups of their own. So does
    // who waits for a handle.
    {KTG_C10D("ProcessGroup.barrier"), blockingModel,
     kWaitsForProcesses.alsoWaits().gives("torch._C._distributed_c10d.Work")},
    {KTG_C10D("ProcessGroup.monitored_barrier"), blockingModel, kWaitsForProcesses.alsoWaits().gives("None")},
    // handles
    {KTG_C10D("Work.wait"), blockingModel, kWaitsForProcesses.alsoWaits().gives("bool")},
    {KTG_C10D("Work.synchronize"), blockingModel, kWaitsForProcesses.alsoWaits().gives("None")},
    {KTG_C10D("Work.is_completed"), blockingModel, kReadsWorld.alsoWaits().gives("bool")},
    {KTG_C10D("Work.is_success"), blockingModel, kReadsWorld.alsoWaits().gives("bool")},
    {KTG_C10D("Work.result"), knownModel, gives("list")},
    {KTG_C10D("Work.source_rank"), knownModel, gives("int")},
    {KTG_C10D("Work._source_rank"), knownModel, gives("int")},
    {KTG_C10D("Work.get_future"), knownModel, gives("torch._C.Future")},
    // options of a call, as an object
    {KTG_C10D("AllToAllOptions"), knownModel, gives("torch.distributed.distributed_c10d.AllToAllOptions")},
    {KTG_C10D("AllgatherOptions"), knownModel, gives("torch._C._distributed_c10d.AllgatherOptions")},
    {KTG_C10D("AllreduceCoalescedOptions"), knownModel,
     gives("torch.distributed.distributed_c10d.AllreduceCoalescedOptions")},
    {KTG_C10D("AllreduceOptions"), knownModel, gives("torch.distributed.distributed_c10d.AllreduceOptions")},
    {KTG_C10D("BarrierOptions"), knownModel, gives("torch.distributed.distributed_c10d.BarrierOptions")},
    {KTG_C10D("BroadcastOptions"), knownModel, gives("torch.distributed.distributed_c10d.BroadcastOptions")},
    {KTG_C10D("GatherOptions"), knownModel, gives("torch.distributed.distributed_c10d.GatherOptions")},
    {KTG_C10D("ReduceOptions"), knownModel, gives("torch.distributed.distributed_c10d.ReduceOptions")},
    {KTG_C10D("ReduceScatterOptions"), knownModel,
     gives("torch.distributed.distributed_c10d.ReduceScatterOptions")},
    {KTG_C10D("ScatterOptions"), knownModel, gives("torch.distributed.distributed_c10d.ScatterOptions")},
    {KTG_C10D("get_debug_level"), knownModel, gives("torch.distributed.distributed_c10d.DebugLevel")},
    // what functional collectives ask before they wrap a result
    {"torch._C._get_dispatch_mode", knownModel,
     gives("any: a mode of the program's, or None").raises("RuntimeError")},
    {"torch._C._dispatch_tls_is_dispatch_key_included", knownModel, gives("bool").raises("RuntimeError")},
    {"torch._C._get_accelerator", constantModel,
     dependsOn(StateWord::kBuild).gives("torch.device").runsNoPython().raises("RuntimeError")},
};

#undef KTG_C10D

}  // namespace

void registerDistributedModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
