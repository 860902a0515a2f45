#include <tessera/train/saving/save_plan.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/layout/owners.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/train/saving/stage_parts.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {
namespace {

/// "model-00001-of-00004.safetensors", numbered as by Hugging Face; a single file has the plain name.
std::string part_name(const std::string& stem, std::size_t number, std::size_t parts) {
  if (parts == 1) return concat(stem, ".safetensors");
  char text[48];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu.safetensors", number, parts);
  return stem + text;
}

std::int64_t bytes_of(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(type));
  for (const std::int64_t n : shape) bytes *= n;
  return bytes;
}

/// Splits tensors into files, each of at most max_bytes or with a single tensor; the values of `tensors` in
/// [trained.begin, trained.end) must be finite.
std::vector<PartFile> cut_into_files(const std::vector<format::TensorSpec>& tensors,
                                     const checkpoint::ShardFile::Tensors& trained, std::int64_t max_bytes) {
  std::vector<PartFile> files;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(format::byte_size(tensors[i]));
    if (files.empty() || (filled > 0 && bytes > max_bytes - filled)) {
      files.emplace_back();
      filled = 0;
    }
    filled += bytes;
    PartFile& file = files.back();
    const std::size_t place = file.tensors.size();
    file.tensors.push_back(tensors[i]);
    if (i < trained.begin || i >= trained.end) continue;
    if (file.finite.end == 0) file.finite.begin = place;
    file.finite.end = place + 1;
  }
  return files;
}

/// Names the files of a model's weights, numbered over all stages. Collective over `all` if there are stages. `first`,
/// `files`: number of this rank's first file, and number of files of its stage.
void name_weights(SavePlan& plan, const SavedModel& model, const comm::Group& all, std::size_t first,
                  std::size_t files) {
  if (model.sharded->options().stages) {
    first = files = 0;
    const auto counts = comm::all_gather_numbers(all, {static_cast<std::int64_t>(plan.weights.size())});
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (static_cast<int>(rank) == all.rank()) first = files;
      files += static_cast<std::size_t>(counts[rank][0]);
    }
  }
  for (std::size_t i = 0; i < plan.weights.size(); ++i)
    plan.weights[i].name = part_name(model.weights_stem, first + i + 1, files);
}

void plan_weights(SavePlan& plan, const SavedModel& model, const comm::Group& all, const Dealing& dealing,
                  const SaveForm& form) {
  const Sharded& sharded = *model.sharded;
  const comm::Group& group = dealing.group;
  const std::vector<ShardedParameter>& parameters = sharded.named_parameters();
  std::vector<std::int64_t> bytes;
  for (const ShardedParameter& p : parameters)
    bytes.push_back(is_of_earlier_stage(sharded, p.name) ? 0 : bytes_of(saved_shape(p), p.local.scalar_type()));
  // One of HSDP's copies of a tensor is written, preferably by a rank that has all of it.
  std::vector<int> holders = sharded.whole_holders();
  if (tensor_group(sharded)) std::fill(holders.begin(), holders.end(), -1);  // the ranks that hold the parts may differ
  const std::vector<int> copies = layout::assign_owners(bytes, sharded.replicate_ranks());
  for (std::size_t i = 0; i < holders.size(); ++i)
    if (holders[i] >= 0) holders[i] += copies[i] * sharded.shard_ranks();
  for (const UntrainedTensor& tensor : model.untrained) {
    bytes.push_back(bytes_of(tensor.shape, tensor.type));
    holders.push_back(tensor.holder);
  }
  std::vector<int> owners = layout::assign_owners(bytes, group.size(), holders);
  if (form.full) std::fill(owners.begin(), owners.end(), 0);
  const auto untrained = owners.begin() + static_cast<std::ptrdiff_t>(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (is_of_earlier_stage(sharded, parameters[i].name)) owners[i] = -1;
  plan.owners.assign(owners.begin(), untrained);
  plan.untrained_owners.assign(untrained, owners.end());
  std::vector<format::TensorSpec> tensors;
  const auto add_untrained = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (const UntrainedTensor& tensor = model.untrained[i]; dealing.whole && plan.untrained_owners[i] == group.rank())
        tensors.push_back({tensor.name, checkpoint::dtype_of(tensor.type), tensor.shape});
  };
  plan.untrained_first = count_wider(model.untrained, sharded);
  add_untrained(0, plan.untrained_first);
  checkpoint::ShardFile::Tensors trained{tensors.size(), 0};
  for (const std::size_t i : sharded.gather_order())
    if (dealing.whole && plan.owners[i] == group.rank())
      tensors.push_back({model.weights_prefix + parameters[i].name,
                         checkpoint::dtype_of(parameters[i].local.scalar_type()), saved_shape(parameters[i])});
  trained.end = tensors.size();
  add_untrained(plan.untrained_first, model.untrained.size());
  plan.weights = cut_into_files(tensors, trained, form.full ? form.max_file_bytes : SaveForm().max_file_bytes);
  std::set<int> writers(owners.begin(), owners.end());  // can be fewer than the ranks if the model has few tensors
  writers.erase(-1);
  const auto first = static_cast<std::size_t>(std::distance(writers.begin(), writers.lower_bound(group.rank())));
  name_weights(plan, model, all, first, form.full ? plan.weights.size() : writers.size());
}

/// A state that this rank writes, whole or in part.
struct PlannedState {
  std::size_t place;                // in SavedModel::states
  std::vector<std::int64_t> shape;  // shape of the part
  bool divided;
};

bool is_cut(const HeldState& state) { return state.parameter != nullptr && lies_in_parts(*state.parameter); }

/// The states that this rank writes, in the order of the reference writer.
std::vector<PlannedState> states_to_write(const SavedModel& model, const Dealing& dealing) {
  const Sharded& sharded = *model.sharded;
  const comm::Group& group = dealing.group;
  std::vector<PlannedState> divided, whole;
  std::vector<std::int64_t> divided_bytes, whole_bytes;
  for (std::size_t i = 0; i < model.states.size(); ++i) {
    const HeldState& state = model.states[i];
    if (is_state_of_earlier_stage(sharded, state.name)) continue;
    const std::vector<std::int64_t> shape =
        state.parameter != nullptr ? state.parameter->shape : state.held.sizes().vec();
    const bool is_divided = state.parameter != nullptr && state.parameter->divided;
    (is_divided ? divided : whole).push_back({i, shape, is_divided});
    (is_divided ? divided_bytes : whole_bytes).push_back(bytes_of(shape, state.held.scalar_type()));
  }
  const int own_copy = group.rank() / sharded.shard_ranks();
  const std::vector<int> copies = layout::assign_owners(divided_bytes, sharded.replicate_ranks());
  const std::vector<int> owners = layout::assign_owners(whole_bytes, group.size());
  std::vector<PlannedState> own;
  for (std::size_t i = 0; i < divided.size(); ++i)
    if (const HeldState& state = model.states[divided[i].place];
        copies[i] == own_copy && state.held.numel() > 0 && (dealing.whole || is_cut(state)))
      own.push_back(divided[i]);
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (owners[i] == group.rank() && (dealing.whole || is_cut(model.states[whole[i].place]))) own.push_back(whole[i]);

  std::sort(own.begin(), own.end(), [&](const PlannedState& a, const PlannedState& b) {
    return model.states[a.place].name < model.states[b.place].name;
  });
  std::erase_if(own, [&](const PlannedState& state) {
    const ShardedParameter* const parameter = model.states[state.place].parameter;
    const bool nothing = is_cut(model.states[state.place]) && model.states[state.place].held.numel() == 0;
    return parameter != nullptr && (nothing || !writes_part(*parameter));
  });
  return own;
}

void plan_states(SavePlan& plan, const SavedModel& model, const comm::Group& all, const Dealing& dealing) {
  const std::vector<PlannedState> own = states_to_write(model, dealing);
  if (own.empty() && all.size() > 1) return;  // a single rank has no index in which to record their absence
  PartFile& file = plan.states.emplace_back();
  file.name =
      part_name(model.states_stem, static_cast<std::size_t>(all.rank()) + 1, static_cast<std::size_t>(all.size()));
  for (const PlannedState& state : own) {
    const auto& [name, held, parameter, encoded] = model.states[state.place];
    const format::DType dtype = checkpoint::dtype_of(held.scalar_type());
    const std::int64_t begin = state.divided ? parameter->begin : 0;
    if (all.size() == 1 || !is_cut(model.states[state.place])) {
      const bool plain = all.size() == 1;  // the file contains whole tensors, so no index is needed
      plan.own_states.push_back({state.place});
      file.tensors.push_back({name, dtype, plain ? state.shape : std::vector<std::int64_t>{held.numel()}});
      plan.state_pieces.push_back({name,
                                   dtype,
                                   state.shape,
                                   {{file.name, name, layout::flat_region(state.shape, begin, begin + held.numel())}}});
      continue;
    }
    format::StoredTensor& stored = plan.state_pieces.emplace_back();
    stored.name = name;
    stored.dtype = dtype;
    stored.shape = saved_shape(*parameter);
    for (auto& [whole_box, own_box] : held_boxes(*parameter, begin, held.numel())) {
      const std::string key = stored.pieces.empty() ? name : concat(name, "#", stored.pieces.size());
      file.tensors.push_back({key, dtype, {own_box.numel()}});
      stored.pieces.push_back({file.name, key, std::move(whole_box)});
      plan.own_states.push_back({state.place, std::move(own_box)});
    }
  }
  file.finite.end = file.tensors.size();
}

/// Whole states at rank 0: first lists of states laid out like the parameters (all states of a list share the first
/// word of their names), then states that every rank holds whole. With stages, each stage's first rank has such a file,
/// whose tensors are pieces in an index.
void plan_full_states(SavePlan& plan, const SavedModel& model, const comm::Group&, const Dealing& dealing) {
  const comm::Group& stages = model.sharded->options().stages;
  const std::vector<ShardedParameter>& parameters = model.sharded->named_parameters();
  std::map<const ShardedParameter*, std::size_t> index;
  for (std::size_t i = 0; i < parameters.size(); ++i) index[&parameters[i]] = i;
  std::map<std::string, std::vector<std::size_t>> lists;
  std::vector<std::size_t> whole;
  for (std::size_t i = 0; i < model.states.size(); ++i) {
    const HeldState& state = model.states[i];
    if (is_state_of_earlier_stage(*model.sharded, state.name)) continue;
    if (state.parameter == nullptr) {
      whole.push_back(i);
      continue;
    }
    auto& list = lists[state.name.substr(0, state.name.find('.'))];
    list.resize(parameters.size(), no_state);
    list[index.at(state.parameter)] = i;
  }
  PartFile file{stages ? part_name(model.states_stem, static_cast<std::size_t>(stages.rank()) + 1,
                                   static_cast<std::size_t>(stages.size()))
                       : part_name(model.states_stem, 1, 1),
                {}};
  const auto add = [&](std::size_t place, const std::vector<std::int64_t>& shape) {
    const HeldState& state = model.states[place];
    const format::DType dtype = checkpoint::dtype_of(state.held.scalar_type());
    const layout::Region all = layout::whole_region(shape);
    file.tensors.push_back({state.name, dtype, stages ? std::vector<std::int64_t>{all.numel()} : shape});
    if (stages) plan.state_pieces.push_back({state.name, dtype, shape, {{file.name, state.name, all}}});
  };
  const bool writes = dealing.group.rank() == 0 && dealing.whole;
  for (auto& [field, list] : lists) {
    for (const std::size_t i : model.sharded->gather_order())
      if (writes && list[i] != no_state) add(list[i], saved_shape(parameters[i]));
    plan.delivered_states.push_back(std::move(list));
  }
  for (const std::size_t place : whole) {
    if (!writes) continue;
    add(place, model.states[place].held.sizes().vec());
    plan.own_states.push_back({place});
  }
  file.finite.end = file.tensors.size();
  if (writes && (!stages || !file.tensors.empty())) plan.states.push_back(std::move(file));
}

}  // namespace

std::vector<HeldState> held_states(const Sharded& sharded, const optim::Optimizer& optimizer) {
  std::vector<HeldState> states;
  for (const auto& [name, held] : optimizer.state())
    states.push_back({name, held, optimizer.is_replicated(name) ? nullptr : &parameter_of_state(sharded, name)});
  for (optim::EncodedState& encoded : optimizer.encoded_states()) {
    // one element that stands for all positions
    const at::Tensor form = at::zeros({}, at::kFloat).expand(encoded.shape);
    const ShardedParameter& parameter = parameter_of_state(sharded, encoded.name);
    states.push_back({encoded.name, form, &parameter, std::make_shared<const optim::EncodedState>(std::move(encoded))});
  }
  return states;
}

std::int64_t HeldState::bytes() const {
  return encoded ? encoded->bytes : held.defined() ? static_cast<std::int64_t>(held.nbytes()) : 0;
}

const ShardedParameter& parameter_of_state(const Sharded& sharded, const std::string& state_name) {
  const std::string name = state_name.substr(state_name.find('.') + 1);
  const auto& all = sharded.named_parameters();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ShardedParameter& p) { return p.name == name; });
  TESSERA_CHECK(found != all.end(), "optimizer state ", state_name, " belongs to no trained parameter");
  return *found;
}

std::vector<UntrainedTensor> frozen_tensors(const Sharded& sharded) {
  std::vector<UntrainedTensor> tensors;
  for (ShardedParameter& frozen : sharded.frozen_parameters()) {
    if (is_of_earlier_stage(sharded, frozen.name)) continue;
    const std::string name = frozen.name;
    tensors.push_back(copy_of(sharded, std::move(frozen), name));
  }
  return tensors;
}

UntrainedTensor copy_of(const Sharded& sharded, ShardedParameter parameter, const std::string& name) {
  UntrainedTensor copy{name, parameter.local.scalar_type(), saved_shape(parameter), {}};
  copy.whole = [&sharded, parameter = std::move(parameter)] {
    return gather_tensor_parts(parameter.local, sharded.gather_like(parameter, parameter.local.detach()));
  };
  return copy;
}

void put_in_writing_order(std::vector<UntrainedTensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const UntrainedTensor& a, const UntrainedTensor& b) {
    return c10::elementSize(a.type) > c10::elementSize(b.type);
  });
}

std::size_t count_wider(const std::vector<UntrainedTensor>& tensors, const Sharded& sharded) {
  std::size_t narrowest = 16;
  for (const ShardedParameter& p : sharded.named_parameters())
    narrowest = std::min(narrowest, static_cast<std::size_t>(p.local.element_size()));
  return static_cast<std::size_t>(std::count_if(tensors.begin(), tensors.end(), [&](const UntrainedTensor& tensor) {
    return c10::elementSize(tensor.type) > narrowest;
  }));
}

SavePlan plan_save(const SavedModel& model, const comm::Group& group, const SaveForm& form) {
  SavePlan plan;
  const Dealing dealing = dealing_of(*model.sharded, group);
  plan.rank = dealing.group.rank();
  plan.whole = dealing.whole;
  plan_weights(plan, model, group, dealing, form);
  if (form.optimizer) (form.full ? plan_full_states : plan_states)(plan, model, group, dealing);
  for (auto* files : {&plan.weights, &plan.states})
    for (PartFile& file : *files)
      if (!form.finite) file.finite = {};
  return plan;
}

}  // namespace tessera::train
