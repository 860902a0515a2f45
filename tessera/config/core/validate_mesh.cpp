// What must hold between the settings of the mesh. Rules that need the model: layout/mesh_rules.h.

#include <tessera/base/error.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/core/sharding.h>
#include <tessera/layout/sequence.h>

namespace tessera::config {
namespace {

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
    if (ranks_per_sample(p_) > 1) fixed_order();
    if (p_.tp_size > 1) optimizer();
  }

 private:
  void sizes() {
    if (p_.num_processes == 0) return;  // run_mesh says it of the processes that run
    const std::string wrong = mesh_problem(c_, static_cast<int>(p_.num_processes), 0,
                                           [this](const char* name) { return is_default(name) ? name : said(name); });
    if (!wrong.empty()) problem({"tp_size", "cp_size", "num_processes", "shard_group_size"}, wrong);
  }

  void levels() {
    try {
      layout::head_ranks_of(p_.cp_comm_type, static_cast<int>(p_.cp_size), static_cast<int>(p_.cp_a2a_size));
    } catch (const InputError& error) {
      problem({"cp_comm_type", "cp_size", "cp_a2a_size"}, said("cp_comm_type"), ": ", error.what());
    }
  }

  void fixed_order() {
    for (const char* name : {"deterministic_reduce", "logical_shards"})
      if (name == std::string_view("deterministic_reduce") ? p_.deterministic_reduce : p_.logical_shards > 0)
        return problem(
            {name, "tp_size", "cp_size"}, said(name), " is not built with tensor and context parallelism (", "tp_size ",
            p_.tp_size, ", cp_size ", p_.cp_size,
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

  const ParallelConfig& p_;
};

}  // namespace

void validate_mesh(const Resolved& resolved, Problems& problems) { MeshRules(resolved, problems).check(); }

void unused_mesh(const Resolved& resolved, const Unused& unused) {
  const ParallelConfig& p = resolved.values.parallel;
  if (p.cp_size == 1) unused("cp_comm_type", "--cp_size is 1");
  if (p.cp_size == 1 || p.cp_comm_type != layout::ContextMethod::a2a_p2p)
    unused("cp_a2a_size", p.cp_size == 1 ? "--cp_size is 1" : concat("--cp_comm_type is ", word_of(p.cp_comm_type)));
}

}  // namespace tessera::config
