#include <tessera/train/loop/sharding.h>

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <set>

#include <tessera/base/error.h>
#include <tessera/base/plural.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/hf/sharding.h>
#include <tessera/config/rules/optimizer_states.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/registry.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/dispatch/module_units.h>
#include <tessera/plan/from_config.h>
#include <tessera/plan/memory.h>
#include <tessera/train/core/wide_states.h>

namespace tessera::train {
namespace {

std::optional<at::ScalarType> dtype(FloatType type) {
  if (type == FloatType::fp32) return std::nullopt;  // gathered parameters keep the type of the shards
  return type == FloatType::bf16 ? at::kBFloat16 : at::kHalf;
}

std::vector<std::string> module_names(const torch::nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) names.push_back(item.key());
  return names;
}

/// "h.11" -> {"h.", 11}; -1: the name has no number at its end.
std::pair<std::string, std::int64_t> numbered(const std::string& name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == name.size() || name.size() - digits > 9) return {name, -1};
  return {name.substr(0, digits), *parse_int(name.substr(digits))};
}

std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return right ? blanks + text : text + blanks;
}

/// Bytes per element, on average: Muon keeps one average for matrices that it orthogonalizes and two for all other
/// parameters.
double muon_bytes(const models::LanguageModel& model, const std::vector<layout::Parameter>& parameters,
                  const std::vector<bool>& trained) {
  double elements = 0, numbers = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!trained[i]) continue;
    const auto numel = static_cast<double>(parameters[i].numel());
    const bool matrix = parameters[i].shape.size() == 2 && !model.is_embedding(parameters[i].name);
    elements += numel;
    numbers += numel * (matrix ? 1 : 2);
  }
  return elements > 0 ? 4 * numbers / elements : 0;
}

/// Bytes per element, on average: 8-bit states, or 32-bit states for parameters that need them.
double eight_bit_bytes(const OptimizationConfig& config, const models::LanguageModel& model,
                       const std::vector<layout::Parameter>& parameters, const std::vector<bool>& trained) {
  const double narrow = config::optimizer_state_bytes(config), wide = config::wide_state_bytes(config);
  double elements = 0, bytes = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!trained[i]) continue;
    const auto numel = static_cast<double>(parameters[i].numel());
    const std::string& name = parameters[i].name;
    const bool is_wide = numel < optim::min_8bit_size || (model.is_embedding(name) && !is_head(name));
    elements += numel;
    bytes += numel * (is_wide ? wide : narrow);
  }
  return elements > 0 ? bytes / elements : 0;
}

/// Averages over rows and columns, on every rank, and for parameters of one dimension this rank's share of the squares.
std::int64_t adafactor_bytes(const std::vector<layout::Parameter>& parameters, const std::vector<bool>& trained,
                             int shard_ranks) {
  std::int64_t numbers = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!trained[i] || parameters[i].numel() == 0) continue;
    const std::vector<std::int64_t>& shape = parameters[i].shape;
    numbers += shape.size() < 2
                   ? parameters[i].numel() / shard_ranks
                   : parameters[i].numel() / shape.back() + parameters[i].numel() / shape[shape.size() - 2];
  }
  return 4 * numbers;
}

/// Bytes besides states that a micro-batch of `tokens` tokens needs on this rank: activations, the head, messages; in a
/// pipeline, those on the fullest rank. Assumes one image per row for a model with image input.
std::int64_t predicted_activations(const RunConfig& config, const models::LanguageModel& model, int shard_ranks,
                                   std::int64_t tokens) {
  plan::Model planned = plan::read_model(model.hf_config());
  planned.predicts = model.predicts();
  plan::choose_trained_parts(planned, config);
  const ParallelConfig& p = config.parallel;
  layout::Mesh mesh;
  const auto data = static_cast<int>(p.num_processes / (p.pp_size * p.cp_size * p.tp_size));
  const int shards = std::max(1, shard_ranks / static_cast<int>(p.cp_size));
  mesh.sizes = {static_cast<int>(p.pp_size), std::max(1, data / shards), shards, static_cast<int>(p.cp_size),
                static_cast<int>(p.tp_size)};
  mesh.ep = static_cast<int>(p.ep_size);
  plan::Plan run = plan::plan_on(config, planned, mesh, config.device == Device::cpu);
  run.rows = planned.vision ? config.optimization.per_device_train_batch_size : 1;
  run.sequence = tokens * p.cp_size / run.rows;
  const plan::Memory memory = plan::largest(plan::memory_by_rank(planned, run, 0)).first;
  return static_cast<std::int64_t>(memory[plan::MemoryKind::activations] + memory[plan::MemoryKind::head] +
                                   memory[plan::MemoryKind::communication]);
}

}  // namespace

layout::WrapPolicy wrap_policy(const RunConfig& config, const torch::nn::Module& model) {
  layout::WrapPolicy policy = config::wrap_policy(config.sharding, block_classes(model), module_names(model));
  policy.class_aliases = models::block_class_aliases();
  return policy;
}

// A setting that does not apply to the strategy is dropped: the configuration has warned the user, and Sharded would
// refuse it.
ShardingOptions sharding_options(const RunConfig& config, const torch::nn::Module& model, const comm::Group& group) {
  const ShardingConfig& s = config.sharding;
  const ParallelConfig& p = config.parallel;
  const StrategyRow& strategy = row_of(s.strategy);
  ShardingOptions options;
  options.group = group;
  if (config.device == Device::xla) {  // the devices divide states among themselves; the host keeps a whole copy
    options.strategy = Strategy::ddp;
    return options;
  }
  options.strategy = s.strategy;
  options.param_dtype = dtype(s.param_dtype);
  options.reduce_dtype = dtype(s.reduce_dtype);
  options.buffer_dtype = dtype(s.buffer_dtype);
  options.reduction = comm::Reduction::sum;
  // The loss is divided by all ranks' tokens, so a rank's gradients are those of its mean loss, already divided by the
  // number of ranks.
  const int ranks = group ? group.size() : static_cast<int>(p.num_processes);
  if (const double factor = config.optimization.gradient_predivide_factor; factor != 1 && ranks > 1)
    options.gradient_predivide_factor = factor / ranks;
  options.logical_shards = p.deterministic_reduce ? p.logical_shards : 0;
  options.find_unused_parameters = p.ddp_find_unused_parameters;
  options.data_dependent = s.data_dependent;
  if (strategy.shard_group != ShardGroup::none) {
    options.shard_group_size = static_cast<int>(s.shard_group_size);
    options.forward_prefetch = s.forward_prefetch;
    options.limit_all_gathers = s.limit_all_gathers;
  }
  if (strategy.shard_parameters) {
    options.wrap = wrap_policy(config, model);
    options.reshard_after_forward = decided(s.reshard_after_forward);
    options.persistence_threshold = s.persistence_threshold;
    if (options.reshard_after_forward.value_or(strategy.reshard_after_forward))
      options.backward_prefetch = s.backward_prefetch;
  } else {
    options.bucket_mb = p.ddp_bucket_cap_mb;
  }
  options.overlap_comm = s.overlap_comm;
  options.sync_module_states = s.sync_module_states;
  options.broadcast_buffers = p.ddp_broadcast_buffers;
  options.offload = s.cpu_offload;
  if (options.offload != Offload::none) options.offload_folder = s.offload_folder;
  options.compression = parallel::make_compression(s.grad_compression);
  options.check_finite = !config.optimization.fp16;
  return options;
}

std::vector<std::string> block_classes(const torch::nn::Module& model) {
  std::set<std::string> classes;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const std::size_t dot = item.key().rfind('.');
    if (dot != std::string::npos && parse_int(item.key().substr(dot + 1)))
      classes.emplace(layout::short_class_name(item.value()->name()));
  }
  return {classes.begin(), classes.end()};
}

std::vector<std::vector<std::string>> unit_table(std::vector<ShardingUnit> units, bool prefetches) {
  const bool known =
      std::any_of(units.begin(), units.end(), [](const ShardingUnit& unit) { return !unit.prefetch.empty(); });
  if (prefetches && !known)
    for (std::size_t i = 0; i + 1 < units.size(); ++i) units[i].prefetch = units[i + 1].name;
  struct Row {
    std::string name, prefetch;
    std::int64_t count, first, last, numel, shard, present;
  };
  std::vector<Row> rows;
  for (const ShardingUnit& unit : units) {
    const auto [prefix, number] = numbered(unit.name);
    Row row{prefix, unit.prefetch, 1, number, number, unit.numel, unit.shard_bytes, unit.present_bytes};
    if (!rows.empty() && number >= 0) {
      Row& before = rows.back();
      if (before.name == prefix && before.last + 1 == number && before.numel == row.numel &&
          before.present == row.present) {
        before.last = number;
        ++before.count;
        if (!before.prefetch.empty()) before.prefetch = "the next one";
        continue;
      }
    }
    rows.push_back(std::move(row));
  }
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<std::uint64_t>(n)); };
  std::vector<std::vector<std::string>> table = {{"unit", "parameters", "shard", "present"}};
  if (prefetches) table.front().push_back("gathered meanwhile");
  for (const Row& row : rows) {
    const std::string name = row.first < 0           ? row.name
                             : row.first == row.last ? concat(row.name, row.first)
                                                     : concat(row.name, row.first, "-", row.last);
    const std::string each = row.count > 1 ? " each" : "";
    table.push_back({name, format_count(static_cast<double>(row.numel)) + each, bytes(row.shard), bytes(row.present)});
    if (prefetches) table.back().push_back(row.prefetch.empty() ? "-" : row.prefetch);
  }
  return table;
}

std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& table) {
  std::vector<std::string> lines;
  for (const auto& cells : table) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : table) width = std::max(width, other[column].size());
      line += "  " + pad(cells[column], width, column > 0 && column < 4);
    }
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return lines;
}

std::string describe_strategy(const RunConfig& config, const Sharded& sharded) {
  const ShardingConfig& s = config.sharding;
  if (s.strategy == Strategy::ddp && s.cpu_offload == Offload::none && s.grad_compression == "none") return "";
  std::string text = word_of(s.strategy);
  if (sharded.shard_ranks() > 1) text += concat(" over ", sharded.shard_ranks(), " processes");
  if (sharded.shard_ranks() > 1 && sharded.replicate_ranks() > 1)
    text += concat(", ", sharded.replicate_ranks(), " copies");
  if (s.cpu_offload != Offload::none) text += ", offload " + word_of(s.cpu_offload);
  if (s.param_dtype != FloatType::fp32) text += ", parameters " + word_of(s.param_dtype);
  if (s.reduce_dtype != FloatType::fp32) text += ", gradients reduced in " + word_of(s.reduce_dtype);
  if (s.grad_compression == "none") return text;
  const std::int64_t whole = layout::parse_gradient_compression(s.grad_compression).whole_steps();
  text += ", gradients sent as " + s.grad_compression;
  return whole > 0 ? concat(text, " (whole in the first ", plural(whole, "step"), ")") : text;
}

void check_same_quantized(const models::LanguageModel& model, const comm::Group& group) {
  if (group.size() == 1 || models::quantized_sizes(model).maps == 0) return;
  const auto checksums = comm::all_gather_numbers(group, {models::quantized_checksum(model)});
  for (std::size_t rank = 1; rank < checksums.size(); ++rank)
    if (checksums[rank] != checksums[0])
      throw InputError(concat("the quantized weights of process ", rank, " of ", group.size(),
                              " differ from those of process 0: each reads --model_name_or_path on its own, so all "
                              "of them need the same copy of the base model"));
}

layout::StateBytes predicted_bytes(const RunConfig& config, const models::LanguageModel& model, int shard_ranks,
                                   int rank) {
  parallel::ModuleParameters parameters = parallel::parameters_of(model);
  if (dtype(config.sharding.param_dtype))  // only the gathered parameters are narrow; the shards are fp32
    for (layout::Parameter& parameter : parameters.tree.parameters) parameter.element_size = 4;
  std::vector<bool> trained;
  for (const parallel::NamedTensor& parameter : parameters.parameters)
    trained.push_back(parameter.tensor.requires_grad());
  layout::StateBytesOptions options;
  options.strategy = row_of(config.sharding.strategy);
  if (const auto asked = decided(config.sharding.reshard_after_forward))
    options.strategy.reshard_after_forward = *asked;
  options.shard_ranks = shard_ranks;
  options.rank = rank;
  options.wrap = wrap_policy(config, model);
  options.persistence_threshold = config.sharding.persistence_threshold;
  options.bucket_bytes = static_cast<std::int64_t>(config.parallel.ddp_bucket_cap_mb * (1 << 20));
  options.whole_element = dtype(config.sharding.param_dtype) ? 2 : 0;
  options.wire_element = dtype(config.sharding.reduce_dtype) ? 2 : 4;
  options.optimizer_per_element = config::optimizer_state_bytes(config.optimization);
  if (config.optimization.optim == OptimizerKind::muon)
    options.optimizer_per_element = muon_bytes(model, parameters.tree.parameters, trained);
  if (config::has_eight_bit_states(config.optimization.optim))
    options.optimizer_per_element = eight_bit_bytes(config.optimization, model, parameters.tree.parameters, trained);
  options.accumulates = config.optimization.gradient_accumulation_steps > 1;
  layout::StateBytes bytes = layout::state_bytes(parameters.tree, trained, options);
  if (config.optimization.optim == OptimizerKind::adafactor)
    bytes.optimizer = adafactor_bytes(parameters.tree.parameters, trained, shard_ranks);
  bytes.parameters += models::quantized_sizes(model).bytes;  // quantized weights are whole on every rank
  return bytes;
}

Value predicted_memory(const RunConfig& config, const models::LanguageModel& model, int shard_ranks, std::int64_t rank,
                       std::int64_t tokens) {
  const layout::StateBytes bytes = predicted_bytes(config, model, shard_ranks, static_cast<int>(rank % shard_ranks));
  return Value::make_object({{"parameters", Value::of(bytes.parameters)},
                             {"gradients", Value::of(bytes.gradients)},
                             {"optimizer", Value::of(bytes.optimizer)},
                             {"buffers", Value::of(bytes.buffers)},
                             {"activations", Value::of(predicted_activations(config, model, shard_ranks, tokens))}});
}

std::vector<std::string> describe_sharding(const RunConfig& config, const models::LanguageModel& model,
                                           const Sharded& sharded, std::int64_t rank) {
  const std::string strategy = describe_strategy(config, sharded);
  if (strategy.empty()) return {};
  std::vector<std::string> lines = {"sharding: " + strategy};
  if (config.device == Device::xla) return lines;  // the compiled step reports what is on its devices
  for (std::string& line : aligned(unit_table(sharded.units(), row_of(config.sharding.strategy).shard_parameters)))
    lines.push_back(std::move(line));
  const layout::StateBytes bytes =
      predicted_bytes(config, model, sharded.shard_ranks(), static_cast<int>(rank % sharded.shard_ranks()));
  const auto text = [](std::int64_t n) { return format_bytes(static_cast<std::uint64_t>(n)); };
  lines.push_back(concat("state per process: ", text(bytes.parameters), " parameters + ", text(bytes.gradients),
                         " gradients + ", text(bytes.optimizer), " optimizer, and at most ", text(bytes.buffers),
                         " in transit"));
  return lines;
}

std::string compare_memory(const Value& predicted, const Value& measured) {
  const auto text = [](const Value& n) { return format_bytes(static_cast<std::uint64_t>(n.as_int())); };
  std::vector<std::string> parts;
  for (const auto& [kind, bytes] : predicted.members())
    parts.push_back(concat(kind, " ", text(measured.at(kind)), " (predicted ", text(bytes), ")"));
  return join(parts);
}

}  // namespace tessera::train
