// What must hold between the settings of the mesh. Rules that need the model: layout/mesh_rules.h.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/core/sharding.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/layout/sequence.h>
#include <tessera/layout/stages.h>

#include <optional>

namespace tessera::config {
namespace {

namespace schedule = layout::schedule;

bool is_schedule_file(const std::string& name) {
  return schedule::find_schedule(name) == nullptr && path_exists(name) && !is_directory(name);
}

class MeshRules : RuleChecks {
 public:
  MeshRules(const Resolved& resolved, Problems& problems)
      : RuleChecks(resolved, problems), p_(resolved.values.parallel) {}

  void check() {
    sizes();
    if (p_.sequence_parallel && p_.tp_size == 1)
      problem({"sequence_parallel", "tp_size"}, said("sequence_parallel"),
              " divides what each process of tensor parallelism computes in full: it needs --tp_size 2 or more "
              "(tp_size is 1)");
    if (p_.cp_size > 1) levels();
    if (p_.pp_size > 1) pipeline();
    if (ranks_per_sample(p_) * p_.ep_size > 1) fixed_order();
    if (p_.tp_size > 1) optimizer();
  }

 private:
  void sizes() {
    if (p_.num_processes == 0) return;  // run_mesh says it of the processes that run
    const std::string wrong = mesh_problem(c_, static_cast<int>(p_.num_processes), 0,
                                           [this](const char* name) { return is_default(name) ? name : said(name); });
    if (!wrong.empty())
      problem({"pp_size", "tp_size", "cp_size", "ep_size", "num_processes", "shard_group_size"}, wrong);
  }

  void levels() {
    try {
      layout::head_ranks_of(p_.cp_comm_type, static_cast<int>(p_.cp_size), static_cast<int>(p_.cp_a2a_size));
    } catch (const InputError& error) {
      problem({"cp_comm_type", "cp_size", "cp_a2a_size"}, said("cp_comm_type"), ": ", error.what());
    }
  }

  void pipeline() {
    const std::optional<std::int64_t> each = stages_per_rank();
    if (p_.pipeline_layout.empty() || p_.pipeline_layout == layout::layout_by_flops) return;
    try {
      const auto stages =
          static_cast<std::int64_t>(layout::parse_stage_layout(p_.pipeline_layout, layout::any_blocks, 0).size());
      if (each && stages != p_.pp_size * *each)
        problem({"pipeline_layout", "pp_size", "pipeline_schedule", "pipeline_stages_per_rank"},
                said("pipeline_layout"), " has ", stages, stages == 1 ? " stage" : " stages", ", but pp_size ",
                p_.pp_size, " x ", *each, " per process, as the schedule ", p_.pipeline_schedule, " has them, are ",
                p_.pp_size * *each, "; ",
                stages % p_.pp_size == 0 ? concat("give --pipeline_stages_per_rank ", stages / p_.pp_size,
                                                  " and a schedule that takes so many, or ")
                                         : "",
                "make it ", p_.pp_size * *each);
    } catch (const InputError& error) {
      problem({"pipeline_layout"}, said("pipeline_layout"), ": ", error.what());
    }
  }

  /// Those of the schedule, which is looked at as a whole; nullopt after a complaint.
  std::optional<std::int64_t> stages_per_rank() {
    const std::string& name = p_.pipeline_schedule;
    const std::int64_t given = p_.pipeline_stages_per_rank, steps = c_.optimization.gradient_accumulation_steps;
    const auto wrong = [&](const auto&... parts) {
      problem({"pp_size", "pipeline_schedule", "pipeline_stages_per_rank", "pipeline_group_size",
               "gradient_accumulation_steps"},
              said("pipeline_schedule"), parts...);
      return std::nullopt;
    };
    try {
      if (is_schedule_file(name)) return stages_of_file(schedule::read_schedule(name), wrong);
      const schedule::ScheduleRow& row = schedule::schedule_of(name);
      const std::int64_t each = given > 0 ? given : row.least_stages;
      // A schedule that would take long to make is made by the ranks; its stages are looked at.
      const bool small = steps <= most_made && p_.pp_size * each <= most_made / steps;
      schedule::Shape shape{.stages_per_rank = static_cast<int>(each)};
      if (small)
        shape = {static_cast<int>(p_.pp_size), static_cast<int>(each), static_cast<int>(steps),
                 static_cast<int>(p_.pipeline_group_size)};
      (void)schedule::make_schedule(row.name, shape);
      return each;
    } catch (const InputError& error) {
      if (is_schedule_file(name)) return wrong(" ", name, ": ", error.what(), "; correct it, or give another file");
      const bool unknown = schedule::find_schedule(name) == nullptr;
      return wrong(": ", error.what(), unknown ? "; there is no file of that name either" : "");
    }
  }

  std::optional<std::int64_t> stages_of_file(const schedule::Schedule& read, const auto& wrong) {
    const auto ranks = static_cast<std::int64_t>(read.ranks.size()), given = p_.pipeline_stages_per_rank;
    const std::int64_t steps = c_.optimization.gradient_accumulation_steps;
    const std::string& file = p_.pipeline_schedule;
    if (ranks != p_.pp_size)
      return wrong(" ", file, " is a schedule of ", ranks, " ranks, but pp_size is ", p_.pp_size, ": give --pp_size ",
                   ranks, ", or another file");
    if (read.micro_batches != steps)
      return wrong(" ", file, " is a schedule of ", read.micro_batches,
                   " micro-batches, but gradient_accumulation_steps is ", steps,
                   ": give --gradient_accumulation_steps ", read.micro_batches, ", or another file");
    schedule::check(read);
    if (!schedule::has_backward(read))
      return wrong(" ", file, " is a schedule without backward: nothing would be learnt");
    const std::int64_t each = read.stages() / ranks;
    if (read.stages() % ranks != 0)
      return wrong(" ", file, " has ", read.stages(), " stages, which ", ranks, " ranks do not share evenly");
    if (given > 0 && given != each)
      return wrong(" ", file, " has ", each, " stages per rank, but pipeline_stages_per_rank is ", given,
                   ": leave it out");
    return each;
  }

  void fixed_order() {
    for (const char* name : {"deterministic_reduce", "logical_shards"})
      if (name == std::string_view("deterministic_reduce") ? p_.deterministic_reduce : p_.logical_shards > 0)
        return problem(
            {name, "pp_size", "tp_size", "cp_size", "ep_size"}, said(name),
            " is not built with pipeline, tensor, context and expert parallelism (pp_size ", p_.pp_size, ", tp_size ",
            p_.tp_size, ", cp_size ", p_.cp_size, ", ep_size ", p_.ep_size,
            "): its order is that of whole micro-batches; leave it out, or use data-parallel processes only");
  }

  /// Their updates mix numbers of a whole matrix, of which a process has a part.
  void optimizer() {
    using Kind = OptimizerKind;
    const Kind optim = c_.optimization.optim;
    const char* why = optim == Kind::adafactor                     ? "sums over rows and columns of whole matrices"
                      : optim == Kind::lamb || optim == Kind::lars ? "norms of whole matrices"
                                                                   : nullptr;
    if (why != nullptr)
      problem({"optim", "tp_size"}, said("optim"), " ", optim, " needs ", why, ", of which a process has 1/",
              p_.tp_size, " (tp_size ", p_.tp_size,
              "); that is not built: use adamw, adam, sgd, lion or adagrad, or --tp_size 1");
  }

  static constexpr std::int64_t most_made = 1 << 20;  ///< ranks x stages per rank x micro-batches
  const ParallelConfig& p_;
};

}  // namespace

void validate_mesh(const Resolved& resolved, Problems& problems) { MeshRules(resolved, problems).check(); }

void unused_mesh(const Resolved& resolved, const Unused& unused) {
  const ParallelConfig& p = resolved.values.parallel;
  if (p.pp_size == 1)
    for (const char* name :
         {"pipeline_schedule", "pipeline_stages_per_rank", "pipeline_group_size", "pipeline_layout", "pipeline_gather"})
      unused(name, "--pp_size is 1");
  else if (is_schedule_file(p.pipeline_schedule))
    unused("pipeline_group_size", "--pipeline_schedule is a file, which says the order of everything");
  if (p.pp_size > 1 && !row_of(resolved.values.sharding.strategy).shard_parameters)
    unused("pipeline_gather", "the strategy leaves parameters whole, so that nothing is gathered");
  if (p.cp_size == 1) unused("cp_comm_type", "--cp_size is 1");
  if (p.cp_size == 1 || p.cp_comm_type != layout::ContextMethod::a2a_p2p)
    unused("cp_a2a_size", p.cp_size == 1 ? "--cp_size is 1" : concat("--cp_comm_type is ", word_of(p.cp_comm_type)));
}

}  // namespace tessera::config
