#include <tessera/format/deepspeed/deepspeed_ranks.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <string>
#include <utility>

namespace tessera::format::deepspeed {
namespace {

/// BF16_Optimizer, which DeepSpeed uses for stage 1 in bf16 with fp32 gradients (_do_optimizer_sanity_check), does not
/// record the stage. zero_to_fp32 therefore refuses its checkpoints; ds_to_universal.py (_get_zero_stage) treats them
/// as stage 1, whose layout they have (_flatten_dense_tensors_aligned, state_dict). The list of paddings distinguishes
/// them from older files without a stage.
bool is_of_bf16_optimizer(const StateFile& file, const PickleNode& state) {
  return file.find(state, "zero_stage") == nullptr && file.find(state, "group_paddings") != nullptr;
}

/// Reads 'zero_stage': a number, or since 0.7 ZeroStageEnum(number).
std::int64_t read_stage(const StateFile& file, const PickleNode& state) {
  if (is_of_bf16_optimizer(file, state)) return 1;
  const PickleNode& value = file.member(state, "zero_stage");
  const Pickle& pickle = file.pickle();
  const bool is_enum = value.kind == PickleKind::object && pickle[value.items[0]].text.ends_with(".ZeroStageEnum");
  const bool wrapped = is_enum && pickle.arguments(value).size() == 1;
  const std::int64_t stage = file.integer(wrapped ? pickle[pickle.arguments(value)[0]] : value, "zero_stage");
  if (stage < 1 || stage > 3) file.fail("has ZeRO stage ", stage, "; 1, 2 and 3 are supported");
  return stage;
}

/// Reads 'partition_count': for stage 3 a number; for stages 1 and 2 one per group, which differ only with experts
/// (parse_optim_states then uses the largest).
std::int64_t read_count(const StateFile& file, const PickleNode& count) {
  std::int64_t ranks = 0;
  if (count.kind == PickleKind::list || count.kind == PickleKind::tuple) {
    for (const std::uint32_t item : count.items) {
      const std::int64_t of_group = file.integer(file.node(item), "partition_count");
      if (ranks != 0 && of_group != ranks)
        file.fail("its groups are divided over ", ranks, " and over ", of_group,
                  " ranks (experts?), which is not supported");
      ranks = of_group;
    }
  } else {
    ranks = file.integer(count, "partition_count");
  }
  if (ranks < 1) file.fail("'partition_count' is ", ranks, "; it must be at least 1");
  return ranks;
}

TorchTensor read_group(StateFile& file, const PickleNode& value, const std::string& name) {
  TorchTensor group = file.tensor(value, name);
  if (group.shape.size() != 1 || !group.contiguous())
    file.fail("'", name, "' of shape ", shape_text(group.shape), " is not one flat row");
  if (group.dtype != DType::f32 && group.dtype != DType::f16 && group.dtype != DType::bf16)
    file.fail("'", name, "' has dtype ", dtype_name(group.dtype), "; expected F32, F16 or BF16");
  return group;
}

/// Reads the flat groups under the key of the stage (parse_optim_states, fp32_groups_key).
std::vector<TorchTensor> read_groups(StateFile& file, const PickleNode& state, std::int64_t stage) {
  const char* key = stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
  std::vector<TorchTensor> groups;
  for (const std::uint32_t item : file.list(file.member(state, key), key)) {
    const std::string name = concat(key, "[", groups.size(), "]");
    groups.push_back(read_group(file, file.node(item), name));
    if (groups.back().dtype != groups.front().dtype)
      file.fail("'", name, "' has a different dtype from the group before it");
  }
  if (groups.empty()) file.fail("'", key, "' is empty");
  return groups;
}

/// Reads 'param_alignment_paddings': padding elements after each parameter. The pickle may refer to one group's list
/// any number of times, so the copied size is bounded by the pickle's size.
std::vector<std::vector<std::int64_t>> read_alignments(const StateFile& file, const PickleNode& state) {
  constexpr const char* key = "param_alignment_paddings";
  std::vector<std::vector<std::int64_t>> alignments;
  const PickleNode* groups = file.find(state, key);
  if (groups == nullptr) return alignments;
  std::size_t total = 0;
  for (const std::uint32_t group : file.list(*groups, key)) {
    const auto& numbers = file.list(file.node(group), key);
    total += numbers.size();
    if (total > file.pickle().size()) file.fail("'", key, "' repeats the same lists too often");
    auto& of_group = alignments.emplace_back();
    for (const std::uint32_t item : numbers) of_group.push_back(file.integer(file.node(item), key));
  }
  return alignments;
}

/// Groups with shared bytes could turn a small file into large tensors.
void require_apart(const Rank& rank) {
  std::vector<const TorchTensor*> sorted;
  for (const TorchTensor& group : rank.groups)
    if (group.begin != group.end) sorted.push_back(&group);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i]->begin < sorted[i - 1]->end)
      rank.file->fail("'", sorted[i]->name, "' and '", sorted[i - 1]->name, "' overlap");
}

Rank read_rank(std::shared_ptr<StateFile> opened) {
  Rank out;
  out.file = std::move(opened);
  StateFile& file = *out.file;
  const PickleNode& state = file.member(file.root(), "optimizer_state_dict");
  out.stage = read_stage(file, state);
  out.ranks = read_count(file, file.member(state, "partition_count"));
  if (file.find(state, "ds_zero_partition_groups") != nullptr)
    file.fail("its parameters are divided over several groups of ranks (experts), which is not supported");
  out.groups = read_groups(file, state, out.stage);
  if (out.stage < 3) out.alignments = read_alignments(file, state);
  require_apart(out);
  return out;
}

void require_same_run(const Rank& first, const Rank& rank) {
  const auto same = [&](const char* what, std::int64_t here, std::int64_t there) {
    if (here != there)
      rank.file->fail(what, " is ", here, ", but ", there, " in ", first.file->path, ": the files are from two runs");
  };
  same("'zero_stage'", rank.stage, first.stage);
  same("'partition_count'", rank.ranks, first.ranks);
  same("the number of groups", static_cast<std::int64_t>(rank.groups.size()),
       static_cast<std::int64_t>(first.groups.size()));
  const DType here = rank.groups.front().dtype, there = first.groups.front().dtype;
  if (here != there)
    rank.file->fail("its groups are ", dtype_name(here), ", but ", dtype_name(there), " in ", first.file->path);
}

/// The ranks' numbers are unique and below `ranks`, so if there are that many files, none is missing.
void require_all(const Folder& folder, std::int64_t ranks) {
  if (static_cast<std::uint64_t>(ranks) == folder.optimizer.size()) return;
  std::int64_t missing = 0;
  while (folder.optimizer.contains(missing)) ++missing;
  throw InputError(concat(folder.path, ": the checkpoint has ", ranks, " ranks, but only ", folder.optimizer.size(),
                          " of the files *_optim_states.pt; that of rank ", missing,
                          " is missing: copy the files of all nodes into one folder"));
}

}  // namespace

std::vector<Rank> read_ranks(const Folder& folder, const OpenState& open) {
  std::vector<Rank> out;
  for (const auto& [number, name] : folder.optimizer) {
    out.push_back(read_rank(open(path_join(folder.path, name))));
    const Rank& rank = out.back();
    require_same_run(out.front(), rank);
    if (number >= rank.ranks)
      rank.file->fail("belongs to rank ", number, ", but the checkpoint has ", rank.ranks,
                      " ranks: left over from another run; remove it");
  }
  require_all(folder, out.front().ranks);
  return out;
}

}  // namespace tessera::format::deepspeed
