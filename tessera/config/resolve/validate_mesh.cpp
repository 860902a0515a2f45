// Rules between the settings of the mesh. Rules that depend on the model: layout/mesh_rules.h.

#include <tessera/config/resolve/validate_mesh.h>

#include <tessera/base/error.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/core/run_schedule.h>
#include <tessera/config/hf/sharding.h>
#include <tessera/layout/sequence.h>
#include <tessera/layout/stages.h>

#include <optional>

namespace tessera::config {
namespace {

class MeshRules : RuleChecks {
 public:
  MeshRules(const Resolved& resolved, Problems& problems)
      : RuleChecks(resolved, problems), p_(resolved.values.parallel) {}

  void check() {
    sizes();
    if (p_.sequence_parallel && p_.tp_size == 1)
      problem(
          {"sequence_parallel", "tp_size"}, said("sequence_parallel"),
          " shards computations that tensor-parallel processes repeat: it needs --tp_size 2 or more (tp_size is 1)");
    if (p_.cp_size > 1) levels();
    if (p_.pp_size > 1) pipeline();
    if (p_.tp_size * p_.cp_size > 1) fixed_order();
    if (p_.tp_size > 1) optimizer();
  }

 private:
  void sizes() {
    if (p_.num_processes == 0) return;  // run_mesh checks the actual number of processes
    const std::string wrong = mesh_problem(c_, static_cast<int>(p_.num_processes), 0,
                                           [this](const char* name) { return is_default(name) ? name : said(name); });
    if (!wrong.empty())
      problem({"pp_size", "tp_size", "cp_size", "ep_size", "etp_size", "num_processes", "shard_group_size"}, wrong);
  }

  void levels() {
    try {
      layout::head_ranks_of(p_.cp_comm_type, static_cast<int>(p_.cp_size), static_cast<int>(p_.cp_a2a_size));
    } catch (const InputError& error) {
      problem({"cp_comm_type", "cp_size", "cp_a2a_size"}, said("cp_comm_type"), ": ", error.what());
    }
  }

  void pipeline() {
    const std::optional<std::int64_t> each = stages();
    if (p_.pipeline_layout.empty() || layout::is_layout_word(p_.pipeline_layout)) return;
    try {
      const auto stages =
          static_cast<std::int64_t>(layout::parse_stage_layout(p_.pipeline_layout, layout::any_blocks, 0).size());
      if (each && stages != p_.pp_size * *each)
        problem({"pipeline_layout", "pp_size", "pipeline_schedule", "pipeline_stages_per_rank"},
                said("pipeline_layout"), " has ", stages, stages == 1 ? " stage" : " stages", ", but pp_size ",
                p_.pp_size, " x ", *each, " per process (schedule ", p_.pipeline_schedule, ") is ", p_.pp_size * *each,
                "; ",
                stages % p_.pp_size == 0 ? concat("use --pipeline_stages_per_rank ", stages / p_.pp_size,
                                                  " and a schedule that supports this many, or ")
                                         : "",
                "make it ", p_.pp_size * *each);
    } catch (const InputError& error) {
      problem({"pipeline_layout"}, said("pipeline_layout"), ": ", error.what());
    }
  }

  /// Stages per process; also checks the whole schedule. nullopt after reporting a problem.
  std::optional<std::int64_t> stages() {
    try {
      return stages_per_rank(c_, [this](const char* name) { return said(name); });
    } catch (const InputError& error) {
      problem({"pp_size", "pipeline_schedule", "pipeline_stages_per_rank", "pipeline_group_size",
               "gradient_accumulation_steps"},
              error.what());
      return std::nullopt;
    }
  }

  void fixed_order() {
    for (const char* name : {"deterministic_reduce", "logical_shards"})
      if (name == std::string_view("deterministic_reduce") ? p_.deterministic_reduce : p_.logical_shards > 0)
        return problem({name, "tp_size", "cp_size"}, said(name),
                       " is not implemented with tensor and context parallelism (tp_size ", p_.tp_size, ", cp_size ",
                       p_.cp_size,
                       "): its order is defined for whole micro-batches; remove it, or use data-parallel processes, "
                       "--pp_size and --ep_size");
  }

  void optimizer() {
    const std::string wrong = problem_of_optimizer(c_.optimization.optim, p_, said("optim"));
    if (!wrong.empty()) problem({"optim", "tp_size"}, wrong);
  }

  const ParallelConfig& p_;
};

}  // namespace

std::string problem_of_optimizer(OptimizerKind optim, const ParallelConfig& parallel, const std::string& said) {
  using Kind = OptimizerKind;
  const char* why = optim == Kind::adafactor                     ? "sums over rows and columns of whole matrices"
                    : optim == Kind::lamb || optim == Kind::lars ? "norms of whole matrices"
                    : optim == Kind::muon                        ? "whole matrices to orthogonalize"
                                                                 : nullptr;
  if (why == nullptr) return "";
  if (parallel.tp_size == 1 && parallel.etp_size > 1 && optim == Kind::muon)
    return concat(said, " ", optim, " needs ", why, ", but a process has 1/", parallel.etp_size,
                  " of an expert's "
                  "(etp_size ",
                  parallel.etp_size, "); that is not implemented: use adamw, or --etp_size 1");
  if (parallel.tp_size == 1) return "";
  return concat(said, " ", optim, " needs ", why, ", but a process has 1/", parallel.tp_size, " (tp_size ",
                parallel.tp_size,
                "); that is not implemented: use adamw, adam, sgd, lion, adagrad or rmsprop, or --tp_size 1");
}

void validate_mesh(const Resolved& resolved, Problems& problems) { MeshRules(resolved, problems).check(); }

void unused_mesh(const Resolved& resolved, const Unused& unused) {
  const ParallelConfig& p = resolved.values.parallel;
  if (p.pp_size == 1)
    for (const char* name :
         {"pipeline_schedule", "pipeline_stages_per_rank", "pipeline_group_size", "pipeline_layout", "pipeline_gather"})
      unused(name, "--pp_size is 1");
  else if (is_schedule_file(p.pipeline_schedule))
    unused("pipeline_group_size", "--pipeline_schedule is a file, which determines the order of everything");
  if (p.pp_size > 1 && !row_of(resolved.values.sharding.strategy).shard_parameters)
    unused("pipeline_gather", "the strategy keeps parameters whole, so nothing is gathered");
  if (p.tp_size == 1 && p.etp_size == 1) unused("etp_size", "--tp_size is 1");
  if (resolved.values.optimization.moe_capacity_factor == 0) {
    unused("moe_token_drop_policy", "--moe_capacity_factor is 0: nothing is dropped");
    unused("moe_pad_expert_input_to_capacity", "--moe_capacity_factor is 0: experts have no capacity");
  }
  if (p.cp_size == 1) unused("cp_comm_type", "--cp_size is 1");
  if (p.cp_size == 1 || p.cp_comm_type != layout::ContextMethod::a2a_p2p)
    unused("cp_a2a_size", p.cp_size == 1 ? "--cp_size is 1" : concat("--cp_comm_type is ", word_of(p.cp_comm_type)));
}

}  // namespace tessera::config
