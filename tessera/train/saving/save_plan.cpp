#include <tessera/train/saving/save_plan.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/layout/owners.h>
#include <tessera/train/saving/gathered.h>

namespace tessera::train {
namespace {

/// "model-00001-of-00004.safetensors", as Hugging Face numbers them; one of one has the plain name.
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

void plan_weights(SavePlan& plan, const SavedModel& model, const comm::Group& group, bool full) {
  const Sharded& sharded = *model.sharded;
  const std::vector<ShardedParameter>& parameters = sharded.named_parameters();
  std::vector<std::int64_t> bytes;
  for (const ShardedParameter& p : parameters) bytes.push_back(bytes_of(p.shape, p.local.scalar_type()));
  // Of HSDP's copies of a tensor one is written; by the rank that has it whole, if one has.
  std::vector<int> holders = sharded.whole_holders();
  const std::vector<int> copies = layout::assign_owners(bytes, sharded.replicate_ranks());
  for (std::size_t i = 0; i < holders.size(); ++i)
    if (holders[i] >= 0) holders[i] += copies[i] * sharded.shard_ranks();
  for (const UntrainedTensor& tensor : model.untrained) {
    bytes.push_back(bytes_of(tensor.shape, tensor.type));
    holders.push_back(tensor.holder);
  }
  std::vector<int> owners = layout::assign_owners(bytes, group.size(), holders);
  if (full) std::fill(owners.begin(), owners.end(), 0);
  const auto untrained = owners.begin() + static_cast<std::ptrdiff_t>(parameters.size());
  plan.owners.assign(owners.begin(), untrained);
  plan.untrained_owners.assign(untrained, owners.end());
  std::vector<format::TensorSpec>& tensors = plan.weights.tensors;
  const auto add_untrained = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (const UntrainedTensor& tensor = model.untrained[i]; plan.untrained_owners[i] == group.rank())
        tensors.push_back({tensor.name, checkpoint::dtype_of(tensor.type), tensor.shape});
  };
  plan.untrained_first = count_wider(model.untrained, sharded);
  add_untrained(0, plan.untrained_first);
  plan.trained.begin = tensors.size();
  for (const std::size_t i : sharded.delivery_order())
    if (plan.owners[i] == group.rank())
      tensors.push_back(
          {parameters[i].name, checkpoint::dtype_of(parameters[i].local.scalar_type()), parameters[i].shape});
  plan.trained.end = tensors.size();
  add_untrained(plan.untrained_first, model.untrained.size());
  plan.weights.written = !plan.weights.tensors.empty();
  const std::set<int> writers(owners.begin(), owners.end());  // fewer than ranks, of a model with few tensors
  const auto number = std::distance(writers.begin(), writers.lower_bound(group.rank())) + 1;
  plan.weights.name = part_name(model.weights_stem, static_cast<std::size_t>(number), writers.size());
}

void plan_states(SavePlan& plan, const SavedModel& model, const comm::Group& group) {
  const Sharded& sharded = *model.sharded;
  struct State {
    std::size_t place;
    std::vector<std::int64_t> shape;  // of the whole
    bool divided;
  };
  std::vector<State> divided, whole;
  std::vector<std::int64_t> divided_bytes, whole_bytes;
  for (std::size_t i = 0; i < model.states.size(); ++i) {
    const HeldState& state = model.states[i];
    const std::vector<std::int64_t> shape =
        state.parameter != nullptr ? state.parameter->shape : state.held.sizes().vec();
    const bool is_divided = state.parameter != nullptr && state.parameter->divided;
    (is_divided ? divided : whole).push_back({i, shape, is_divided});
    (is_divided ? divided_bytes : whole_bytes).push_back(bytes_of(shape, state.held.scalar_type()));
  }
  const int own_copy = group.rank() / sharded.shard_ranks();
  const std::vector<int> copies = layout::assign_owners(divided_bytes, sharded.replicate_ranks());
  const std::vector<int> owners = layout::assign_owners(whole_bytes, group.size());
  std::vector<State> own;
  for (std::size_t i = 0; i < divided.size(); ++i)
    if (copies[i] == own_copy && model.states[divided[i].place].held.numel() > 0) own.push_back(divided[i]);
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (owners[i] == group.rank()) own.push_back(whole[i]);

  // as the reference writer orders them
  std::sort(own.begin(), own.end(),
            [&](const State& a, const State& b) { return model.states[a.place].name < model.states[b.place].name; });
  plan.states.name =
      part_name(model.states_stem, static_cast<std::size_t>(group.rank()) + 1, static_cast<std::size_t>(group.size()));
  plan.states.written = !own.empty() || group.size() == 1;  // one rank has no index that could say that there are none
  for (const State& state : own) {
    const auto& [name, held, parameter] = model.states[state.place];
    const format::DType dtype = checkpoint::dtype_of(held.scalar_type());
    const bool plain = group.size() == 1;  // whole tensors, no index
    plan.own_states.push_back(state.place);
    plan.states.tensors.push_back({name, dtype, plain ? state.shape : std::vector<std::int64_t>{held.numel()}});
    const std::int64_t begin = state.divided ? parameter->begin : 0;
    plan.state_pieces.push_back(
        {name,
         dtype,
         state.shape,
         {{plan.states.name, name, layout::flat_region(state.shape, begin, begin + held.numel())}}});
  }
}

Value to_value(const std::vector<std::int64_t>& numbers) {
  std::vector<Value> values;
  for (const std::int64_t n : numbers) values.push_back(Value::of(n));
  return Value::make_array(std::move(values));
}

std::vector<std::int64_t> parse_numbers(const Value& value) {
  std::vector<std::int64_t> numbers;
  for (const Value& n : value.items()) numbers.push_back(n.as_int());
  return numbers;
}

/// [name, dtype, [shape]]
Value to_value(const std::string& name, format::DType dtype, const std::vector<std::int64_t>& shape) {
  return Value::make_array({Value::of(name), Value::of(format::dtype_name(dtype)), to_value(shape)});
}

format::TensorSpec parse_spec(const Value& value) {
  const auto dtype = format::parse_dtype(value.items().at(1).as_string());
  TESSERA_CHECK(dtype.has_value(), "a rank reports the dtype ", value.items().at(1).as_string());
  return {value.items().at(0).as_string(), *dtype, parse_numbers(value.items().at(2))};
}

/// Whole, at rank 0: lists of states that are laid out like the parameters (those of a list have the names' first word
/// in common), then what every rank has whole anyway.
void plan_full_states(SavePlan& plan, const SavedModel& model, const comm::Group& group) {
  const std::vector<ShardedParameter>& parameters = model.sharded->named_parameters();
  std::map<const ShardedParameter*, std::size_t> index;
  for (std::size_t i = 0; i < parameters.size(); ++i) index[&parameters[i]] = i;
  std::map<std::string, std::vector<std::size_t>> lists;
  std::vector<std::size_t> whole;
  for (std::size_t i = 0; i < model.states.size(); ++i) {
    const HeldState& state = model.states[i];
    if (state.parameter == nullptr) {
      whole.push_back(i);
      continue;
    }
    auto& list = lists[state.name.substr(0, state.name.find('.'))];
    list.resize(parameters.size(), no_state);
    list[index.at(state.parameter)] = i;
  }
  const auto add = [&](std::size_t place, const std::vector<std::int64_t>& shape) {
    const HeldState& state = model.states[place];
    plan.states.tensors.push_back({state.name, checkpoint::dtype_of(state.held.scalar_type()), shape});
  };
  const bool writes = group.rank() == 0;
  for (auto& [field, list] : lists) {
    for (const std::size_t i : model.sharded->delivery_order())
      if (writes && list[i] != no_state) add(list[i], parameters[i].shape);
    plan.delivered_states.push_back(std::move(list));
  }
  for (const std::size_t place : whole) {
    if (!writes) continue;
    add(place, model.states[place].held.sizes().vec());
    plan.own_states.push_back(place);
  }
  plan.states.name = part_name(model.states_stem, 1, 1);
  plan.states.written = writes;
}

}  // namespace

std::vector<HeldState> held_states(const Sharded& sharded, const optim::Optimizer& optimizer) {
  std::vector<HeldState> states;
  for (const auto& [name, held] : optimizer.state())
    states.push_back({name, held, optimizer.is_replicated(name) ? nullptr : &parameter_of_state(sharded, name)});
  return states;
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

SavePlan plan_save(const SavedModel& model, const comm::Group& group, bool with_optimizer, bool full) {
  SavePlan plan;
  plan_weights(plan, model, group, full);
  if (with_optimizer) (full ? plan_full_states : plan_states)(plan, model, group);
  return plan;
}

Value to_value(const PartReport& report) {
  std::vector<Value> files, models;
  for (const format::ManifestFile& file : report.files) {
    std::vector<std::int64_t> chunks(file.digest.chunks.begin(), file.digest.chunks.end());
    files.push_back(Value::make_object({{"name", Value::of(file.name)},
                                        {"size", Value::of(static_cast<std::int64_t>(file.digest.size))},
                                        {"chunk_bytes", Value::of(static_cast<std::int64_t>(file.digest.chunk_bytes))},
                                        {"chunks", to_value(chunks)}}));
  }
  for (const ModelReport& model : report.models) {
    std::vector<Value> weights, states;
    for (const format::TensorSpec& tensor : model.weights.tensors)
      weights.push_back(to_value(tensor.name, tensor.dtype, tensor.shape));
    for (const format::StoredTensor& state : model.states) {
      const layout::Region& region = state.pieces.at(0).region;
      states.push_back(
          Value::make_array({to_value(state.name, state.dtype, state.shape), Value::of(state.pieces[0].file),
                             Value::of(region.begin), Value::of(region.end)}));
    }
    models.push_back(Value::make_object({{"weights_file", Value::of(model.weights.name)},
                                         {"weights", Value::make_array(std::move(weights))},
                                         {"states", Value::make_array(std::move(states))}}));
  }
  return Value::make_object({{"files", Value::make_array(std::move(files))},
                             {"models", Value::make_array(std::move(models))},
                             {"bytes", Value::of(report.bytes)}});
}

PartReport parse_report(const Value& value) {
  PartReport report;
  for (const Value& file : value.at("files").items()) {
    format::Digest digest;
    digest.size = static_cast<std::uint64_t>(file.at("size").as_int());
    digest.chunk_bytes = static_cast<std::uint64_t>(file.at("chunk_bytes").as_int());
    for (const std::int64_t chunk : parse_numbers(file.at("chunks")))
      digest.chunks.push_back(static_cast<std::uint32_t>(chunk));
    report.files.push_back({file.at("name").as_string(), std::move(digest)});
  }
  for (const Value& one : value.at("models").items()) {
    ModelReport& model = report.models.emplace_back();
    model.weights.name = one.at("weights_file").as_string();
    for (const Value& tensor : one.at("weights").items()) model.weights.tensors.push_back(parse_spec(tensor));
    for (const Value& state : one.at("states").items()) {
      const auto& items = state.items();
      format::TensorSpec spec = parse_spec(items.at(0));
      model.states.push_back({spec.name,
                              spec.dtype,
                              spec.shape,
                              {{items.at(1).as_string(), spec.name,
                                layout::flat_region(spec.shape, items.at(2).as_int(), items.at(3).as_int())}}});
    }
  }
  report.bytes = value.at("bytes").as_int();
  return report;
}

std::vector<format::ManifestFile> write_indexes(const std::string& folder, const SavedModel& model, std::size_t place,
                                                const std::vector<PartReport>& parts, bool with_states_index) {
  const auto index_name = [](const std::string& stem) { return stem + ".safetensors.index.json"; };
  std::vector<format::ManifestFile> written;
  std::map<std::string, std::string> files;  // of tensors; sorted, as Hugging Face writes them
  std::int64_t weight_bytes = 0;
  std::set<std::string> weight_files;
  std::map<std::string, format::StoredTensor> states;
  for (const PartReport& part : parts) {
    const ModelReport& own = part.models.at(place);
    for (const format::TensorSpec& tensor : own.weights.tensors) {
      files[tensor.name] = own.weights.name;
      weight_files.insert(own.weights.name);
      weight_bytes += bytes_of(tensor.shape, checkpoint::scalar_type(tensor.dtype));
    }
    for (const format::StoredTensor& state : own.states) {
      auto& pieces = states.try_emplace(state.name, format::StoredTensor{state.name, state.dtype, state.shape, {}})
                         .first->second.pieces;
      pieces.insert(pieces.end(), state.pieces.begin(), state.pieces.end());
    }
  }
  if (weight_files.size() > 1) {
    Value map = Value::make_object();
    for (const auto& [tensor, file] : files) map.set(tensor, Value::of(file));
    written.push_back(checkpoint::write_json_file(
        folder, index_name(model.weights_stem).c_str(),
        Value::make_object({{"metadata", Value::make_object({{"total_size", Value::of(weight_bytes)}})},
                            {"weight_map", std::move(map)}})));
  }
  if (with_states_index) {
    format::StateIndex index;
    for (auto& [name, state] : states) index.tensors.push_back(std::move(state));
    const std::string text = format::state_index_text(index), name = index_name(model.states_stem);
    write_file_atomically(path_join(folder, name), text);
    written.push_back({name, format::digest_of(std::as_bytes(std::span(text)))});
  }
  return written;
}

}  // namespace tessera::train
