#include <tessera/config/rules/block_routing.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/json/json_lenient.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/core/translation.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tessera::config {
namespace {

constexpr std::uint64_t most_section_bytes = 1 << 20;
constexpr std::size_t most_remarks = 20, most_layers = 10000;
constexpr std::int64_t most_steps = std::int64_t{1} << 40;

/// One object of a section; messages start with its path.
class SectionObject {
 public:
  SectionObject(const Value* value, std::string path, const std::vector<std::string>& names,
                CompressionRemarks& remarks)
      : path_(std::move(path)), remarks_(remarks) {
    if (value == nullptr || value->is_null()) return;
    where_ = value->where();
    if (!value->is_object()) {
      problem(where_, path_, " must be an object {...}");
      return;
    }
    object_ = value;
    for (const auto& [name, item] : value->members())
      if (!name.starts_with('_') && std::find(names.begin(), names.end(), name) == names.end())
        problem(item.where(), "unknown key ", path_, ".", name.substr(0, 80), "; the keys are ", join(names));
  }

  /// nullptr if absent or null.
  const Value* find(const char* name) const {
    const Value* const value = object_ ? object_->find(name) : nullptr;
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  bool flag(const char* name) {
    const Value* const value = find(name);
    if (value == nullptr) return false;
    const auto text = as_text(*value, false);
    const auto read = text ? parse_bool(*text) : std::nullopt;
    if (!read) problem(value->where(), path_, ".", name, " must be true or false");
    return read.value_or(false);
  }
  double number(const char* name, double otherwise, double least, double most) {
    const Value* const value = find(name);
    if (value == nullptr) return otherwise;
    const auto text = as_text(*value, false);
    const auto read = text && value->kind() != Value::Kind::boolean ? parse_real(*text) : std::nullopt;
    if (read && *read >= least && *read <= most) return *read;
    problem(value->where(), path_, ".", name, text ? concat(" is ", text->substr(0, 80), "; it") : std::string(),
            " must be a number from ", least, " to ", most);
    return otherwise;
  }
  /// A required whole number.
  std::int64_t whole(const char* name, std::int64_t least, std::int64_t most) {
    const Value* const value = find(name);
    if (value == nullptr) {
      problem(where_, path_, ".", name, " is missing; it must be a whole number from ", least, " to ", most);
      return least;
    }
    return whole(*value, name, least, most);
  }
  std::int64_t whole(const Value& value, const char* name, std::int64_t least, std::int64_t most) {
    const auto text = as_text(value, false);
    const auto read = text && value.kind() != Value::Kind::boolean ? parse_int(*text) : std::nullopt;
    if (read && *read >= least && *read <= most) return *read;
    problem(value.where(), path_, ".", name, text ? concat(" is ", text->substr(0, 80), "; it") : std::string(),
            " must be a whole number from ", least, " to ", most);
    return least;
  }
  /// Reads a required text, one of `words`.
  void word(const char* name, const std::vector<std::string>& words, const char* why) {
    const Value* const value = find(name);
    const auto text = value ? as_text(*value, false) : std::nullopt;
    if (text && std::find(words.begin(), words.end(), *text) != words.end()) return;
    problem(value ? value->where() : where_, path_, ".", name,
            text ? concat(" is '", text->substr(0, 80), "'") : std::string(" is missing"), "; it must be ",
            join(words, " or "), why);
  }
  template <class... Parts>
  void problem(const SourcePos& where, const Parts&... parts) {
    if (remarks_.problems.size() < most_remarks) remarks_.problems.push_back({where, concat(parts...)});
  }
  const SourcePos& where() const { return where_; }
  const std::string& path() const { return path_; }

 private:
  const Value* object_ = nullptr;
  SourcePos where_;
  std::string path_;
  CompressionRemarks& remarks_;
};

void read_layers(SectionObject& ltd, RandomLtd& read) {
  const std::int64_t count = ltd.whole("random_ltd_layer_num", 1, read.total_layers);
  const Value* const list = ltd.find("random_ltd_layer_id");
  if (list == nullptr || !list->is_array() || list->items().size() > most_layers)
    return ltd.problem(
        list ? list->where() : ltd.where(), ltd.path(),
        ".random_ltd_layer_id must be a list of the indices of the layers that process a subset of the tokens");
  for (const Value& item : list->items())
    read.layers.push_back(ltd.whole(item, "random_ltd_layer_id", 0, read.total_layers - 1));
  std::sort(read.layers.begin(), read.layers.end());
  if (std::adjacent_find(read.layers.begin(), read.layers.end()) != read.layers.end())
    ltd.problem(list->where(), ltd.path(), ".random_ltd_layer_id contains a layer twice; list each layer once");
  if (static_cast<std::int64_t>(read.layers.size()) != count)
    ltd.problem(list->where(), ltd.path(), ".random_ltd_layer_id contains ", read.layers.size(),
                " layers, but random_ltd_layer_num is ", count, ": they must be equal");
}

RandomLtd read_random_ltd(SectionObject& ltd, CompressionRemarks& remarks) {
  RandomLtd read;
  read.total_layers = ltd.whole("total_layer_num", 1, most_layers);
  read_layers(ltd, read);
  ltd.word("hidden_state_order", {"batch_seq_dim", "seq_batch_dim"}, ", which have the same effect here");
  ltd.word("model_type", {"decoder"}, ": only causal models drop tokens; remove data_routing.random_ltd for others");
  const std::string path = ltd.path();
  SectionObject rates(ltd.find("layer_token_lr_schedule"), path + ".layer_token_lr_schedule",
                      {"enabled", "total_layer_tokens", "warmup_layer_tokens", "warmup_type", "min_lr", "lr_range"},
                      remarks);
  if (rates.flag("enabled"))
    rates.problem(rates.where(), rates.path(),
                  ".enabled: rates that depend on the tokens seen are not implemented (DeepSpeed raises "
                  "NotImplementedError); set it to false");
  if (ltd.find("random_ltd_schedule") == nullptr)
    ltd.problem(ltd.where(), path,
                ".random_ltd_schedule is missing: set min_value, max_value, schedule_type and schedule_config");
  SectionObject schedule(ltd.find("random_ltd_schedule"), path + ".random_ltd_schedule",
                         {"min_value", "max_value", "schedule_type", "schedule_config"}, remarks);
  if (schedule.find("min_value") == nullptr && ltd.find("random_ltd_schedule") == nullptr) return read;
  read.min_value = schedule.whole("min_value", 1, most_steps);
  read.max_value = schedule.whole("max_value", read.min_value, most_steps);
  schedule.word("schedule_type", {"fixed_linear"}, "");
  SectionObject steps(schedule.find("schedule_config"), schedule.path() + ".schedule_config",
                      {"require_steps", "seq_per_step"}, remarks);
  read.require_steps = steps.whole("require_steps", 1, most_steps);
  read.seq_per_step = steps.whole("seq_per_step", 1, read.min_value);
  return read;
}

/// The section that the setting's text denotes.
Value routing_section_of(const std::string& given, const std::string& name) {
  const bool is_text = trim(given).starts_with("{");
  if (!is_text && !path_exists(given))
    throw InputError(concat("--", name, " ", given, ": no such file; use a file with DeepSpeed's section ", name,
                            ", or the section itself as a JSON object, starting with '{'"));
  if (!is_text && is_directory(given))
    throw InputError(concat("--", name, " ", given, " is a folder; expected a JSON file"));
  Value root = is_text ? parse_hjson(given, name) : parse_hjson(read_file(given, most_section_bytes), given);
  const Value* const inner = root.is_object() ? root.find(name) : nullptr;
  return inner ? *inner : root;
}

template <class Read>
void settle(std::string& text, const std::string& name, Problems& problems, Read read) {
  if (text.empty() || problems.doubtful.contains(name)) return;
  CompressionRemarks remarks;
  try {
    const Value section = routing_section_of(text, name);
    text = read(section, remarks) ? dump_json(section, -1) : std::string();
  } catch (const InputError& error) {
    problems.lines.emplace_back(error.what());
    problems.doubtful.insert(name);
  }
  for (const CompressionRemark& remark : remarks.problems) {
    problems.lines.push_back(concat(remark.where.str(), ": ", remark.text));
    problems.doubtful.insert(name);
  }
}

template <class Read>
auto parse(const std::string& text, const std::string& name, Read read)
    -> decltype(read(Value(), std::declval<CompressionRemarks&>())) {
  if (text.empty()) return std::nullopt;
  CompressionRemarks remarks;
  auto asked = read(parse_json(text, name), remarks);
  if (!remarks.problems.empty())
    throw InputError(concat(remarks.problems.front().where.str(), ": ", remarks.problems.front().text));
  return asked;
}

}  // namespace

double ProgressiveLayerDrop::theta_at(std::int64_t steps) const {
  const std::int64_t counted = std::max<std::int64_t>(0, steps - 1);
  return (1 - theta) * std::exp(-gamma * static_cast<double>(counted)) + theta;
}

double ProgressiveLayerDrop::keep_probability(std::int64_t block, std::int64_t blocks, std::int64_t steps) const {
  return 1 - static_cast<double>(block) / static_cast<double>(blocks) * (1 - theta_at(steps));
}

std::int64_t RandomLtd::tokens_at(std::int64_t steps) const {
  const double linear = std::floor(static_cast<double>(steps) / static_cast<double>(require_steps) *
                                       static_cast<double>(max_value - min_value) +
                                   static_cast<double>(min_value));
  // If max_value is not a multiple, DeepSpeed continues to the next multiple before it stops at max_value.
  if (linear >= static_cast<double>(max_value + seq_per_step)) return max_value;
  const auto tokens = static_cast<std::int64_t>(linear);
  return std::min(tokens - tokens % seq_per_step, max_value);
}

std::optional<ProgressiveLayerDrop> read_progressive_layer_drop(const Value& section, CompressionRemarks& remarks) {
  SectionObject object(&section, "progressive_layer_drop", {"enabled", "theta", "gamma"}, remarks);
  if (!object.flag("enabled")) return std::nullopt;
  ProgressiveLayerDrop drop;
  drop.theta = object.number("theta", drop.theta, 1e-6, 1);
  drop.gamma = object.number("gamma", drop.gamma, 0, 1e6);
  return drop;
}

std::optional<RandomLtd> read_data_efficiency(const Value& section, CompressionRemarks& remarks) {
  SectionObject all(&section, "data_efficiency", {"enabled", "seed", "data_sampling", "data_routing"}, remarks);
  if (!all.flag("enabled")) return std::nullopt;
  const auto seed = static_cast<std::uint64_t>(
      all.find("seed") ? all.whole("seed", 0, std::numeric_limits<std::int64_t>::max()) : 1234);
  SectionObject sampling(all.find("data_sampling"), "data_efficiency.data_sampling",
                         {"enabled", "num_epochs", "num_workers", "pin_memory", "curriculum_learning"}, remarks);
  if (sampling.flag("enabled"))
    sampling.problem(sampling.where(), sampling.path(),
                     ".enabled: sampling by difficulty is not implemented; set it to false");
  SectionObject routing(all.find("data_routing"), "data_efficiency.data_routing", {"enabled", "random_ltd"}, remarks);
  if (!routing.flag("enabled")) return std::nullopt;
  SectionObject ltd(
      routing.find("random_ltd"), "data_efficiency.data_routing.random_ltd",
      {"enabled", "total_layer_num", "random_ltd_layer_num", "random_ltd_layer_id", "model_mask_name", "model_type",
       "hidden_state_order", "random_ltd_schedule", "layer_token_lr_schedule", "global_batch_size", "micro_batch_size"},
      remarks);
  if (!ltd.flag("enabled")) return std::nullopt;
  RandomLtd read = read_random_ltd(ltd, remarks);
  read.seed = seed;
  return read;
}

std::optional<ProgressiveLayerDrop> parse_progressive_layer_drop(const std::string& text) {
  return parse(text, "progressive_layer_drop", read_progressive_layer_drop);
}
std::optional<RandomLtd> parse_data_efficiency(const std::string& text) {
  return parse(text, "data_efficiency", read_data_efficiency);
}

void settle_block_routing(Resolved& resolved, Problems& problems) {
  OptimizationConfig& o = resolved.values.optimization;
  settle(o.progressive_layer_drop, "progressive_layer_drop", problems, read_progressive_layer_drop);
  settle(o.data_efficiency, "data_efficiency", problems, read_data_efficiency);
}

}  // namespace tessera::config
