#include <tessera/train/loop/run_groups.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/agree.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/config/core/mesh.h>
#include <tessera/layout/mesh_rules.h>

#include <array>
#include <initializer_list>

namespace tessera::train {

RunGroups make_run_groups(const RunConfig& config, comm::World& world) {
  using layout::Axis;
  RunGroups groups;
  comm::agree(world.group(), [&] { groups.mesh = config::run_mesh(config, world.size(), world.local_size()); });
  if (!groups.cuts()) {
    groups.data = groups.gradients = world.group();
    return groups;
  }
  const auto over = [&](auto... axes) { return comm::mesh_group(world, groups.mesh, std::array{axes...}); };
  groups.data = over(Axis::dp_replicate, Axis::dp_shard);
  groups.gradients = over(Axis::dp_replicate, Axis::dp_shard, Axis::cp);
  groups.tensor = over(Axis::tp);
  if (groups.context_ranks() > 1)
    groups.context =
        context_groups(world, groups.mesh, config.parallel.cp_comm_type, static_cast<int>(config.parallel.cp_a2a_size));
  return groups;
}

namespace {

layout::ModelSizes sizes_of(const models::LanguageModel& model) {
  const Value& config = model.hf_config();
  const auto number = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const Value* value = config.find(name); value != nullptr && value->is_number()) return value->as_int();
    return std::int64_t{0};
  };
  const Value* type = config.find("model_type");
  layout::ModelSizes sizes;
  if (type != nullptr && type->is_string()) sizes.name = type->as_string();
  sizes.heads = number({"num_attention_heads", "n_head"});
  sizes.key_heads = number({"num_key_value_heads"});
  sizes.intermediate = model.shape().inner;
  sizes.vocabulary = model.vocab_size();
  return sizes;
}

}  // namespace

void check_model_fits(const RunGroups& groups, const RunConfig& config, const models::LanguageModel& model,
                      std::int64_t block_size) {
  if (!groups.cuts()) return;
  const ParallelConfig& p = config.parallel;
  for (const std::string& file : {config.data.train_file, config.data.validation_file})
    if (p.sequence_parallel && to_lower(file).ends_with(".jsonl"))
      throw InputError(concat("--sequence_parallel cuts rows of one length, a multiple of tp_size ", p.tp_size,
                              ", but rows of examples (", file,
                              ") are as long as the longest of each batch: leave it "
                              "out, or give text or a .bin"));
  layout::MeshUse use;
  use.sequence = groups.context_ranks() > 1 ? groups.context.padded(block_size) : block_size;
  use.sequence_parallel = p.sequence_parallel;
  use.method = p.cp_comm_type;
  use.head_ranks = static_cast<int>(p.cp_a2a_size);
  layout::check_mesh(groups.mesh, sizes_of(model), use);
}

}  // namespace tessera::train
