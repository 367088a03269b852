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
#include <iterator>

#include "capture/calls/model.h"

namespace kintsugi::capture {

namespace {

#define KTG_C10D(name) "torch._C._distributed_c10d." name

constexpr ModelRow kRows[] = {
    // the reducer of DistributedDataParallel, which the module's forward calls
    {KTG_C10D("Reducer.prepare_for_forward"), knownModel, kWaitsForProcesses},
    {KTG_C10D("Reducer.prepare_for_backward"), knownModel, kWaitsForProcesses},
    {KTG_C10D("Reducer._rebuild_buckets"), knownModel, kWaitsForProcesses},
    {KTG_C10D("Reducer._set_forward_pass_work_handle"), knownModel, kWaitsForProcesses},
    {KTG_C10D("Reducer._install_post_backward_futures"), knownModel, kWaitsForProcesses},
    {KTG_C10D("Reducer._get_local_used_map"), knownModel},
    {KTG_C10D("Reducer._ddp_graph_static"), knownModel},
    {KTG_C10D("Reducer.get_backward_stats"), knownModel, kReadsWorld},
    {KTG_C10D("Logger.set_runtime_stats_and_log"), knownModel, kWaitsForProcesses},
    {KTG_C10D("_broadcast_coalesced"), knownModel, kWaitsForProcesses},
    {"torch._C._autograd._unsafe_set_version_counter", knownModel},
    // process groups, whose members never change
    {KTG_C10D("ProcessGroup.rank"), constantModel, {StateWord::kArguments}},
    {KTG_C10D("ProcessGroup.size"), constantModel, {StateWord::kArguments}},
    {KTG_C10D("ProcessGroup.name"), knownModel},
    {KTG_C10D("ProcessGroup._get_backend_name"), knownModel},
    {KTG_C10D("ProcessGroup.broadcast"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.allreduce"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.allreduce_coalesced"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.reduce"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.allgather"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.all_gather_single"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup._allgather_base"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.allgather_coalesced"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.all_gather_single_coalesced"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.allgather_into_tensor_coalesced"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.gather"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.scatter"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.reduce_scatter"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.reduce_scatter_single"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup._reduce_scatter_base"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.reduce_scatter_single_coalesced"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.reduce_scatter_tensor_coalesced"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.all_to_all_single"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.alltoall_base"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.alltoall"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.send"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.recv"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.recv_anysource"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup._start_coalescing"), knownModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup._end_coalescing"), knownModel, kWaitsForProcesses},
    // A barrier waits for the others, perhaps for threads of this process with groups of their own.
    {KTG_C10D("ProcessGroup.barrier"), blockingModel, kWaitsForProcesses},
    {KTG_C10D("ProcessGroup.monitored_barrier"), blockingModel, kWaitsForProcesses},
    // handles
    {KTG_C10D("Work.wait"), knownModel, kWaitsForProcesses},
    {KTG_C10D("Work.synchronize"), knownModel, kWaitsForProcesses},
    {KTG_C10D("Work.is_completed"), knownModel, kReadsWorld},
    {KTG_C10D("Work.is_success"), knownModel, kReadsWorld},
    {KTG_C10D("Work.result"), knownModel},
    {KTG_C10D("Work.source_rank"), knownModel},
    {KTG_C10D("Work._source_rank"), knownModel},
    {KTG_C10D("Work.get_future"), knownModel},
    // options of a call, as an object
    {KTG_C10D("AllToAllOptions"), knownModel},
    {KTG_C10D("AllgatherOptions"), knownModel},
    {KTG_C10D("AllreduceCoalescedOptions"), knownModel},
    {KTG_C10D("AllreduceOptions"), knownModel},
    {KTG_C10D("BarrierOptions"), knownModel},
    {KTG_C10D("BroadcastOptions"), knownModel},
    {KTG_C10D("GatherOptions"), knownModel},
    {KTG_C10D("ReduceOptions"), knownModel},
    {KTG_C10D("ReduceScatterOptions"), knownModel},
    {KTG_C10D("ScatterOptions"), knownModel},
    {KTG_C10D("get_debug_level"), knownModel},
    // what functional collectives ask before they wrap a result
    {"torch._C._get_dispatch_mode", knownModel},
    {"torch._C._dispatch_tls_is_dispatch_key_included", knownModel},
    {"torch._C._get_accelerator", constantModel, {StateWord::kBuild}},
};

static_assert(statesAreNamed(kRows));

#undef KTG_C10D

}  // namespace

void registerDistributedModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
