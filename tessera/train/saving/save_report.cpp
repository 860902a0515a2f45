#include <tessera/train/saving/save_report.h>

#include <cstddef>
#include <deque>
#include <map>
#include <set>
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

}  // namespace

ModelReport report_of(const SavePlan& plan) {
  ModelReport report{.files = static_cast<std::int64_t>(plan.weights.size()), .states = plan.state_pieces};
  for (const PartFile& file : plan.weights)
    for (const format::TensorSpec& tensor : file.tensors) {
      report.file_of[tensor.name] = file.name;
      report.bytes += static_cast<std::int64_t>(format::byte_size(tensor));
    }
  return report;
}

Value to_value(const PartReport& report) {
  Value models = Value::make_array();
  for (const ModelReport& model : report.models) {
    Value file_of = Value::make_object(), states = Value::make_array();
    for (const auto& [tensor, file] : model.file_of) file_of.set(tensor, Value::of(file));
    for (const format::StoredTensor& state : model.states)
      for (const format::StoredPiece& piece : state.pieces)
        states.push_back(Value::make_array({Value::of(state.name), Value::of(format::dtype_name(state.dtype)),
                                            to_value(state.shape), Value::of(piece.file), Value::of(piece.key),
                                            to_value(piece.region.offset), to_value(piece.region.shape),
                                            Value::of(piece.region.begin), Value::of(piece.region.end)}));
    models.push_back(Value::make_array({Value::of(model.files), Value::of(model.bytes), file_of, states}));
  }
  return Value::make_object({{"files", Value::of(format::manifest_text({0, report.files}))},
                             {"models", std::move(models)},
                             {"bytes", Value::of(report.bytes)}});
}

PartReport parse_report(const Value& value) {
  PartReport report{.files = format::parse_manifest(value.at("files").as_string(), "a rank's report").files,
                    .bytes = value.at("bytes").as_int()};
  for (const Value& one : value.at("models").items()) {
    const std::vector<Value>& parts = one.items();
    ModelReport& model = report.models.emplace_back(parts.at(0).as_int(), parts.at(1).as_int());
    for (const auto& [tensor, file] : parts.at(2).members()) model.file_of[tensor] = file.as_string();
    for (const Value& state : parts.at(3).items()) {
      const std::vector<Value>& items = state.items();
      const std::string& name = items.at(0).as_string();
      const std::vector<std::int64_t> shape = parse_numbers(items.at(2));
      const auto dtype = format::parse_dtype(items.at(1).as_string());
      TESSERA_CHECK(dtype.has_value(), "a rank reports the dtype ", items.at(1).as_string());
      layout::Region region{parse_numbers(items.at(5)), parse_numbers(items.at(6)), items.at(7).as_int(),
                            items.at(8).as_int()};
      layout::check_region(region, shape, concat("a rank's report of ", name));
      model.states.push_back(
          {name, *dtype, shape, {{items.at(3).as_string(), items.at(4).as_string(), std::move(region)}}});
    }
  }
  return report;
}

std::optional<format::ManifestFile> join_weights(const std::string& folder, const SavedModel& model, std::size_t place,
                                                 const std::vector<PartReport>& parts,
                                                 std::vector<format::ManifestFile>& files) {
  std::set<std::string> names;
  for (const PartReport& part : parts)
    for (const auto& [tensor, file] : part.models.at(place).file_of) names.insert(file);
  if (!model.one_file || names.size() < 2) return std::nullopt;
  std::deque<format::SafetensorsFile> opened;  // a deque, so that elements keep their addresses
  format::ManifestFile joined;
  {
    checkpoint::TensorSources tensors;
    for (const std::string& name : names) {
      const format::SafetensorsFile& file = opened.emplace_back(path_join(folder, name));
      for (const format::TensorInfo& info : file.tensors())
        tensors.push_back({info.name, info.dtype, info.shape, [&file, &info] { return file.bytes(info); }});
    }
    joined = checkpoint::write_tensors_file(folder, (model.weights_stem + ".safetensors").c_str(), std::move(tensors));
  }
  opened.clear();
  for (const std::string& name : names) remove_tree(path_join(folder, name));
  std::erase_if(files, [&](const format::ManifestFile& file) { return names.contains(file.name); });
  files.push_back(joined);
  return joined;
}

std::vector<format::ManifestFile> write_indexes(const std::string& folder, const SavedModel& model, std::size_t place,
                                                const std::vector<PartReport>& parts, bool with_states_index) {
  const auto index_name = [](const std::string& stem) { return stem + ".safetensors.index.json"; };
  std::vector<format::ManifestFile> written;
  std::map<std::string, std::string> files;  // the file of each tensor; sorted by name, as in Hugging Face's indexes
  std::int64_t weight_bytes = 0, weight_files = 0;
  std::map<std::string, format::StoredTensor> states;
  for (const PartReport& part : parts) {
    const ModelReport& own = part.models.at(place);
    weight_files += own.files;
    weight_bytes += own.bytes;
    for (const auto& [tensor, file] : own.file_of)
      TESSERA_CHECK(files.emplace(tensor, file).second, tensor, " was written twice, into ", files[tensor], " and ",
                    file, ": a later stage must list it in held_by_earlier_stage");
    for (const format::StoredTensor& state : own.states) {
      auto& pieces = states.try_emplace(state.name, format::StoredTensor{state.name, state.dtype, state.shape, {}})
                         .first->second.pieces;
      pieces.insert(pieces.end(), state.pieces.begin(), state.pieces.end());
    }
  }
  if (weight_files > 1 && !model.one_file) {
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
