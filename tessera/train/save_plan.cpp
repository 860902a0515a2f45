#include <tessera/train/save_plan.h>

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
#include <tessera/train/gathered.h>

namespace tessera::train {
namespace {

/// "model-00001-of-00004.safetensors", as Hugging Face numbers them; one of one has the plain name.
std::string part_name(const char* stem, std::size_t number, std::size_t parts) {
  if (parts == 1) return concat(stem, ".safetensors");
  char text[48];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu.safetensors", number, parts);
  return stem + std::string(text);
}

std::int64_t bytes_of(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(type));
  for (const std::int64_t n : shape) bytes *= n;
  return bytes;
}

void plan_weights(SavePlan& plan, const Sharded& sharded, const comm::Group& group) {
  const std::vector<ShardedParameter>& parameters = sharded.named_parameters();
  std::vector<std::int64_t> bytes;
  for (const ShardedParameter& p : parameters) bytes.push_back(bytes_of(p.shape, p.local.scalar_type()));
  // Of HSDP's copies of a tensor one is written; by the rank that has it whole, if one has.
  std::vector<int> holders = sharded.whole_holders();
  const std::vector<int> copies = layout::assign_owners(bytes, sharded.replicate_ranks());
  for (std::size_t i = 0; i < holders.size(); ++i)
    if (holders[i] >= 0) holders[i] += copies[i] * sharded.shard_ranks();
  plan.owners = layout::assign_owners(bytes, group.size(), holders);
  for (const std::size_t i : sharded.delivery_order())
    if (plan.owners[i] == group.rank())
      plan.weights.tensors.push_back(
          {parameters[i].name, checkpoint::dtype_of(parameters[i].local.scalar_type()), parameters[i].shape});
  plan.weights.written = !plan.weights.tensors.empty();
  const std::set<int> writers(plan.owners.begin(), plan.owners.end());  // fewer than ranks, of a model with few tensors
  const auto number = std::distance(writers.begin(), writers.lower_bound(group.rank())) + 1;
  plan.weights.name = part_name("model", static_cast<std::size_t>(number), writers.size());
}

/// A state and who writes this rank's part of it.
struct State {
  std::size_t place;
  std::string name;
  at::Tensor held;
  const ShardedParameter* parameter;  // nullptr: whole on every rank
  std::vector<std::int64_t> shape;    // of the whole
};

void plan_states(SavePlan& plan, const Sharded& sharded, const optim::Optimizer& optimizer, const comm::Group& group) {
  std::vector<State> divided, whole;
  std::vector<std::int64_t> divided_bytes, whole_bytes;
  const auto all = optimizer.state();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, held] = all[i];
    if (!optimizer.is_replicated(name)) {
      const ShardedParameter& parameter = parameter_of_state(sharded, name);
      if (parameter.divided) {
        divided.push_back({i, name, held, &parameter, parameter.shape});
        divided_bytes.push_back(bytes_of(parameter.shape, held.scalar_type()));
        continue;
      }
      whole.push_back({i, name, held, nullptr, parameter.shape});
    } else {
      whole.push_back({i, name, held, nullptr, held.sizes().vec()});
    }
    whole_bytes.push_back(bytes_of(whole.back().shape, held.scalar_type()));
  }
  const int own_copy = group.rank() / sharded.shard_ranks();
  const std::vector<int> copies = layout::assign_owners(divided_bytes, sharded.replicate_ranks());
  const std::vector<int> owners = layout::assign_owners(whole_bytes, group.size());
  std::vector<State> own;
  for (std::size_t i = 0; i < divided.size(); ++i)
    if (copies[i] == own_copy && divided[i].held.numel() > 0) own.push_back(divided[i]);
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (owners[i] == group.rank()) own.push_back(whole[i]);

  // as the reference writer orders them
  std::sort(own.begin(), own.end(), [](const State& a, const State& b) { return a.name < b.name; });
  plan.states.name = part_name(checkpoint::kOptimizerStem, static_cast<std::size_t>(group.rank()) + 1,
                               static_cast<std::size_t>(group.size()));
  plan.states.written = !own.empty() || group.size() == 1;  // one rank has no index that could say that there are none
  for (const State& state : own) {
    const format::DType dtype = checkpoint::dtype_of(state.held.scalar_type());
    const bool plain = group.size() == 1;  // whole tensors, no index
    plan.own_states.push_back(state.place);
    plan.states.tensors.push_back(
        {state.name, dtype, plain ? state.shape : std::vector<std::int64_t>{state.held.numel()}});
    const std::int64_t begin = state.parameter != nullptr ? state.parameter->begin : 0;
    plan.state_pieces.push_back(
        {state.name,
         dtype,
         state.shape,
         {{plan.states.name, state.name, layout::flat_region(state.shape, begin, begin + state.held.numel())}}});
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

}  // namespace

SavePlan plan_save(const Sharded& sharded, const optim::Optimizer& optimizer, const comm::Group& group,
                   bool with_optimizer) {
  SavePlan plan;
  plan_weights(plan, sharded, group);
  if (with_optimizer) plan_states(plan, sharded, optimizer, group);
  return plan;
}

Value to_value(const PartReport& report) {
  std::vector<Value> files, weights, states;
  for (const format::ManifestFile& file : report.files) {
    std::vector<std::int64_t> chunks(file.digest.chunks.begin(), file.digest.chunks.end());
    files.push_back(Value::make_object({{"name", Value::of(file.name)},
                                        {"size", Value::of(static_cast<std::int64_t>(file.digest.size))},
                                        {"chunk_bytes", Value::of(static_cast<std::int64_t>(file.digest.chunk_bytes))},
                                        {"chunks", to_value(chunks)}}));
  }
  for (const format::TensorSpec& tensor : report.weights.tensors)
    weights.push_back(to_value(tensor.name, tensor.dtype, tensor.shape));
  for (const format::StoredTensor& state : report.states) {
    const layout::Region& region = state.pieces.at(0).region;
    states.push_back(Value::make_array({to_value(state.name, state.dtype, state.shape), Value::of(state.pieces[0].file),
                                        Value::of(region.begin), Value::of(region.end)}));
  }
  return Value::make_object({{"files", Value::make_array(std::move(files))},
                             {"weights_file", Value::of(report.weights.name)},
                             {"weights", Value::make_array(std::move(weights))},
                             {"states", Value::make_array(std::move(states))},
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
  report.weights.name = value.at("weights_file").as_string();
  for (const Value& tensor : value.at("weights").items()) report.weights.tensors.push_back(parse_spec(tensor));
  for (const Value& state : value.at("states").items()) {
    const auto& items = state.items();
    format::TensorSpec spec = parse_spec(items.at(0));
    report.states.push_back({spec.name,
                             spec.dtype,
                             spec.shape,
                             {{items.at(1).as_string(), spec.name,
                               layout::flat_region(spec.shape, items.at(2).as_int(), items.at(3).as_int())}}});
  }
  report.bytes = value.at("bytes").as_int();
  return report;
}

std::vector<format::ManifestFile> write_indexes(const std::string& folder, const std::vector<PartReport>& parts,
                                                int ranks, bool with_optimizer) {
  std::vector<format::ManifestFile> written;
  std::map<std::string, std::string> files;  // of tensors; sorted, as Hugging Face writes them
  std::int64_t weight_bytes = 0;
  std::set<std::string> weight_files;
  std::map<std::string, format::StoredTensor> states;
  for (const PartReport& part : parts) {
    for (const format::TensorSpec& tensor : part.weights.tensors) {
      files[tensor.name] = part.weights.name;
      weight_files.insert(part.weights.name);
      weight_bytes += bytes_of(tensor.shape, checkpoint::scalar_type(tensor.dtype));
    }
    for (const format::StoredTensor& state : part.states) {
      auto& pieces = states.try_emplace(state.name, format::StoredTensor{state.name, state.dtype, state.shape, {}})
                         .first->second.pieces;
      pieces.insert(pieces.end(), state.pieces.begin(), state.pieces.end());
    }
  }
  if (weight_files.size() > 1) {
    Value map = Value::make_object();
    for (const auto& [tensor, file] : files) map.set(tensor, Value::of(file));
    written.push_back(checkpoint::write_json_file(
        folder, checkpoint::kWeightsIndexFile,
        Value::make_object({{"metadata", Value::make_object({{"total_size", Value::of(weight_bytes)}})},
                            {"weight_map", std::move(map)}})));
  }
  if (with_optimizer && ranks > 1) {
    format::StateIndex index;
    for (auto& [name, state] : states) index.tensors.push_back(std::move(state));
    const std::string text = format::state_index_text(index);
    write_file_atomically(path_join(folder, checkpoint::kOptimizerIndexFile), text);
    written.push_back({checkpoint::kOptimizerIndexFile, format::digest_of(std::as_bytes(std::span(text)))});
  }
  return written;
}

}  // namespace tessera::train
