#include <tessera/train/core/run_groups.h>

#include <tessera/architectures/mesh_sizes.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/run_config.h>
#include <tessera/corpus/data_list.h>

#include <numeric>
#include <span>

namespace tessera::train {

RunGroups make_run_groups(const RunConfig& config, comm::World& world) {
  using layout::Axis;
  RunGroups groups;
  comm::run_on_all_ranks(world.group(),
                         [&] { groups.mesh = config::run_mesh(config, world.size(), world.local_size()); });
  groups.sequence_parallel = config.parallel.sequence_parallel;
  const comm::MeshGroups made(world, groups.mesh);
  groups.data = made.over({Axis::dp_replicate, Axis::dp_shard});
  groups.gradients = made.over({Axis::dp_replicate, Axis::dp_shard, Axis::cp});
  groups.engine = groups.gradients;
  groups.place = groups.data.rank();
  if (!groups.cuts() && groups.expert_ranks() == 1) return groups;
  comm::heartbeat().set_place(layout::describe_rank(groups.mesh, world.rank()));
  groups.tensor = made.of(Axis::tp);
  groups.pipeline = groups.stages = made.of(Axis::pp);
  groups.experts = made.over({Axis::ep, Axis::etp});
  if (groups.expert_ranks() > 1) {
    groups.engine = made.of(Axis::edp);
    // Tokens are also exchanged during backward, and sums must not interleave with these exchanges.
    groups.beside = world.split(layout::groups_beside_experts(groups.mesh, /*stages=*/false), "ep gradients");
    if (config.parallel.deterministic_reduce) {
      // An expert first sums over the ranks of ep, where its tokens meet, so ep is the outer order.
      groups.place = groups.beside.rank() * groups.engine.size() + groups.engine.rank();
      groups.per_source = c10::make_intrusive<nn::SourceGradients>(groups.beside.size());
    }
    groups.stages = groups.mesh.size(Axis::etp) == groups.tensor_ranks()
                        ? made.over({Axis::pp, Axis::ep})
                        : world.split(layout::groups_beside_experts(groups.mesh, /*stages=*/true), "pp-ep beside");
  }
  constexpr Axis stages = Axis::pp;
  if (groups.pipeline_ranks() > 1 && groups.pipeline.capabilities().ordered_messages)
    groups.back = world.split(layout::all_groups(groups.mesh, std::span(&stages, 1)), "pp back");
  if (groups.pipeline_ranks() > 1 && config.parallel.deterministic_reduce)
    groups.tied = world.split(layout::all_groups(groups.mesh, std::span(&stages, 1)), "pp tied");
  if (groups.context_ranks() > 1)
    groups.context =
        context_groups(world, groups.mesh, config.parallel.cp_comm_type, static_cast<int>(config.parallel.cp_a2a_size));
  return groups;
}

namespace {

layout::ModelSizes sizes_of(const models::LanguageModel& model) {
  layout::ModelSizes sizes = architectures::mesh_sizes(model.spec());
  sizes.vocabulary = model.vocab_size();  // includes added rows
  return sizes;
}

}  // namespace

std::int64_t RunGroups::filled_length(std::int64_t tokens) const {
  const std::int64_t parts = std::int64_t{context_ranks()} * (sequence_parallel ? tensor_ranks() : 1);
  const std::int64_t unit = std::lcm(parts, context_ranks() > 1 ? context.padded(1) : 1);
  return (tokens + unit - 1) / unit * unit;
}

void check_model_fits(const RunGroups& groups, const RunConfig& config, const models::LanguageModel& model,
                      std::int64_t block_size) {
  if (!groups.cuts()) return;
  if (model.image_input())
    throw InputError(
        "a model with image input cannot be cut: use --tp_size 1, --cp_size 1 and --pp_size 1; --strategy full_shard "
        "shards it");
  const ParallelConfig& p = config.parallel;
  layout::MeshUse use;
  const bool examples = !config.data.mock_data && corpus::may_hold_examples(config.data.train_file);
  const std::int64_t longest =
      examples && config.data.max_seq_length > 0 ? config.data.max_seq_length : block_size;  // tokens per row
  use.sequence = examples || groups.context_ranks() > 1 ? groups.filled_length(longest) : block_size;
  if (groups.context_ranks() == 1 && use.sequence > model.max_positions())
    throw InputError(concat("rows of ", longest, " tokens, padded to ", use.sequence, " so that tp_size ",
                            groups.tensor_ranks(), " divides them, do not fit the model's ", model.max_positions(),
                            " positions: use shorter rows (--max_seq_length)"));
  use.sequence_parallel = p.sequence_parallel;
  use.method = p.cp_comm_type;
  use.head_ranks = static_cast<int>(p.cp_a2a_size);
  layout::check_mesh(groups.mesh, sizes_of(model), use);
}

}  // namespace tessera::train
