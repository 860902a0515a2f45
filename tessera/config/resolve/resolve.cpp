#include <tessera/config/resolve/resolve.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/sharding.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/megatron/megatron_args.h>
#include <tessera/config/resolve/flag_reader.h>
#include <tessera/config/resolve/front_ends.h>
#include <tessera/config/rules/block_routing.h>
#include <tessera/config/rules/compression.h>
#include <tessera/config/rules/validate_preferences.h>

#include <algorithm>

namespace tessera::config {
namespace {

void read_environment(Resolved& resolved, Problems& problems, const GetEnvironment& environment) {
  for (const Field& field : fields()) {
    if (field.environment.empty()) continue;
    const std::string variable(field.environment);
    const auto text = look_up(environment, variable);
    if (!text || text->empty()) continue;
    const std::string name(field.name);
    if (!resolved.is_default(name)) continue;  // flags take precedence over the environment
    if (const auto wrong = field.set(resolved.values, *text)) {
      problems.lines.push_back(concat("the environment variable ", variable, " ", *wrong));
      problems.doubtful.insert(name);
    } else {
      resolved.origins[name] = Origin::environment(variable);
    }
  }
}

/// Derives settings from the given ones.
void derive(Resolved& resolved) {
  OutputConfig& output = resolved.values.output;
  const auto is_default = [&](const char* name) { return resolved.is_default(name); };
  const auto derived = [&](const char* name, const char* why) { resolved.origins[name] = Origin::derived(why); };
  if (!is_default("validation_file") && is_default("validation_split_percentage")) {
    resolved.values.data.validation_split_percentage = 0;
    derived("validation_split_percentage", "validation_file is given");
  }
  if (output.eval_strategy == Interval::steps && output.eval_steps == 0) {
    output.eval_steps = output.logging_steps;
    derived("eval_steps", "logging_steps");
  }
  DataConfig& data = resolved.values.data;
  if (data.group_by_length && is_default("train_sampling_strategy")) {
    data.train_sampling_strategy = SamplingStrategy::group_by_length;
    derived("train_sampling_strategy", "group_by_length is given");
  }
  if (data.group_by_modality_length && is_default("train_sampling_strategy")) {
    data.train_sampling_strategy = SamplingStrategy::group_by_modality_length;
    derived("train_sampling_strategy", "group_by_modality_length is given");
  }
  OptimizationConfig& optimization = resolved.values.optimization;
  derive_preferences(resolved);
  if (optimization.warmup_steps > 0 && optimization.warmup_ratio > 0) {
    resolved.notes.push_back(concat("warmup_ratio (", resolved.origin("warmup_ratio"),
                                    ") has no effect with warmup_steps (", resolved.origin("warmup_steps"), ")"));
    optimization.warmup_ratio = 0;
  }
  ParallelConfig& parallel = resolved.values.parallel;
  if (resolved.values.device == Device::xla && parallel.xla_devices == 0 && parallel.num_processes > 0) {
    // other systems start a process per device; here one process has all of them
    parallel.xla_devices = parallel.num_processes;
    derived("xla_devices", "num_processes, with --device xla");
    parallel.num_processes = 1;
  }
  // boolean in transformers' Python interface
  if (const auto resume = parse_bool(output.resume_from_checkpoint))
    output.resume_from_checkpoint = *resume ? "last" : "";
}

/// Flags of two systems for the same setting must agree.
void hear_megatron(Translation megatron, Resolved& resolved, Problems& problems) {
  for (const FileSetting& setting : megatron.settings) {
    const Origin& origin = resolved.origin(setting.name);
    RunConfig theirs;
    const Field* field = find_field(setting.name);
    field->set(theirs, setting.text);
    if (origin.is_default() || dump_json(field->get(theirs)) == dump_json(field->get(resolved.values))) continue;
    problems.doubtful.insert(setting.name);
    problems.lines.push_back(concat(setting.where.line > 0 ? file_and_line(setting.where) + ": " : "", setting.key, " ",
                                    setting.text, " contradicts ", origin, "; keep one of them"));
  }
  apply(std::move(megatron), resolved);
}

}  // namespace

Resolved resolve_flags(const std::vector<std::string>& arguments, Problems& problems,
                       const GetEnvironment& environment) {
  Resolved resolved;
  std::vector<FileWord> ours = typed_words(arguments);
  std::optional<Translation> megatron = translate_megatron_flags(ours, problems, environment);
  FlagReader(resolved, problems, megatron.has_value()).read(std::move(ours));
  problems.unknown = resolved.values.files.unknown;
  if (megatron) hear_megatron(std::move(*megatron), resolved, problems);
  read_environment(resolved, problems, environment);
  read_front_ends(resolved, problems, environment);
  apply_compat(resolved);
  resolve_sharding(resolved, problems);
  derive(resolved);
  settle_compression(resolved, problems);
  settle_block_routing(resolved, problems);
  return resolved;
}

Resolved resolve_flags(const std::vector<std::string>& arguments, const GetEnvironment& environment) {
  Problems problems;
  Resolved resolved = resolve_flags(arguments, problems, environment);
  throw_if_any(problems);
  return resolved;
}

Resolved resolve_and_validate(const std::vector<std::string>& arguments, const GetEnvironment& environment) {
  Problems problems;
  Resolved resolved = resolve_flags(arguments, problems, environment);
  validate(resolved, problems);
  throw_if_any(problems);
  return resolved;
}

}  // namespace tessera::config
