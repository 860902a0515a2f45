#include <tessera/train/saving/save_report.h>

#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/files.h>

namespace tessera::train {
namespace {

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
    for (const PartFile& file : model.weights) {
      std::vector<Value> tensors;
      for (const format::TensorSpec& tensor : file.tensors)
        tensors.push_back(to_value(tensor.name, tensor.dtype, tensor.shape));
      weights.push_back(Value::make_array({Value::of(file.name), Value::make_array(std::move(tensors))}));
    }
    for (const format::StoredTensor& state : model.states) {
      const layout::Region& region = state.pieces.at(0).region;
      states.push_back(
          Value::make_array({to_value(state.name, state.dtype, state.shape), Value::of(state.pieces[0].file),
                             Value::of(region.begin), Value::of(region.end)}));
    }
    models.push_back(Value::make_object(
        {{"weights", Value::make_array(std::move(weights))}, {"states", Value::make_array(std::move(states))}}));
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
    for (const Value& file : one.at("weights").items()) {
      PartFile& weights = model.weights.emplace_back();
      weights.name = file.items().at(0).as_string();
      for (const Value& tensor : file.items().at(1).items()) weights.tensors.push_back(parse_spec(tensor));
    }
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
  std::map<std::string, std::string> files;  // which file each tensor is in; sorted, as Hugging Face writes them
  std::int64_t weight_bytes = 0;
  std::size_t weight_files = 0;
  std::map<std::string, format::StoredTensor> states;
  for (const PartReport& part : parts) {
    const ModelReport& own = part.models.at(place);
    weight_files += own.weights.size();
    for (const PartFile& file : own.weights)
      for (const format::TensorSpec& tensor : file.tensors) {
        files[tensor.name] = file.name;
        weight_bytes += static_cast<std::int64_t>(format::byte_size(tensor));
      }
    for (const format::StoredTensor& state : own.states) {
      auto& pieces = states.try_emplace(state.name, format::StoredTensor{state.name, state.dtype, state.shape, {}})
                         .first->second.pieces;
      pieces.insert(pieces.end(), state.pieces.begin(), state.pieces.end());
    }
  }
  if (weight_files > 1) {
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
