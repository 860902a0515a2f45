#include <tessera/plan/automatic.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/plan/from_config.h>

#include <algorithm>

namespace tessera::plan {
namespace {

/// The settings to choose, in the order of the file.
constexpr const char* settings[] = {"strategy",
                                    "tp_size",
                                    "cp_size",
                                    "pp_size",
                                    "ep_size",
                                    "sequence_parallel",
                                    "pipeline_schedule",
                                    "pipeline_stages_per_rank",
                                    "shard_group_size",
                                    "per_device_train_batch_size",
                                    "gradient_accumulation_steps",
                                    "gradient_checkpointing",
                                    "gradient_checkpointing_kwargs"};
constexpr const char* world_key = "processes";

/// Whether the rows of a micro-batch are chosen within bounds, ignoring a given value.
bool chooses_rows(const config::Resolved& given) {
  return !given.is_default("auto_min_batch_size") || !given.is_default("auto_max_batch_size");
}

/// Whether the planner may choose a setting.
bool may_choose(const config::Resolved& given, std::string_view name) {
  const bool batch = name == "per_device_train_batch_size" || name == "gradient_accumulation_steps";
  return given.is_default(std::string(name).c_str()) || (batch && chooses_rows(given));
}

std::string text_of_value(const Value& value) { return value.is_string() ? value.as_string() : dump_json(value, -1); }

/// The name of the first GPU according to its driver's file, such as "H100".
std::string driver_gpu() {
  const std::string folder = "/proc/driver/nvidia/gpus";
  if (!is_directory(folder)) return "";
  for (const std::string& gpu : list_folder(folder)) {
    const std::string path = path_join(path_join(folder, gpu), "information");
    if (!path_exists(path)) continue;
    const std::string text = read_file(path, 1 << 16);
    for (const std::string& name : hardware_names())
      if (text.find(name) != std::string::npos) return name;
  }
  return "";
}

std::string hardware_of(const RunConfig& config) {
  std::string measured;
  try {
    measured = calibration_file();
  } catch (const InputError&) {  // without a home folder, nothing is cached
  }
  const std::string gpu = config.device == tessera::Device::cpu ? "" : driver_gpu();
  if (gpu.empty() && config.device != tessera::Device::cuda)
    return !measured.empty() && path_exists(measured) ? "this-machine" : "CPU";
  if (gpu.empty())
    throw InputError(concat("--strategy auto: the planner does not know this machine's GPU (it knows ",
                            join(hardware_names()), "): set a strategy, or plan with tessera plan --gpus FILE.json"));
  return gpu;
}

class Chooser {
 public:
  Chooser(const config::Resolved& resolved, const Processes& processes)
      : given_(resolved), config_(resolved.values), processes_(processes) {}

  Chosen choose(const Check& check) {
    const Question q = question();
    const Answer answer = search(q);
    if (answer.best.empty()) {
      const Candidate& c = *answer.smallest;
      throw InputError(concat("--strategy auto: nothing fits: ", text_of(c.plan), ", which needs the least, takes ",
                              format_bytes(static_cast<std::uint64_t>(c.memory.total())), " of ",
                              format_bytes(static_cast<std::uint64_t>(q.memory_limit)), " available per process, ",
                              name_of(c.memory.largest()),
                              " the largest part; shorter blocks or more processes need less"));
    }
    std::string refused;
    std::vector<Candidate> possible;
    Chosen chosen;
    for (const Candidate& c : answer.best) {
      config::Resolved with = applied(q, c.plan);
      const std::string problem = check(with);
      if (refused.empty()) refused = problem;
      if (!problem.empty()) continue;
      if (possible.empty()) chosen.resolved = std::move(with);
      possible.push_back(c);
    }
    if (possible.empty())
      throw InputError(concat("--strategy auto: none of ", answer.best.size(), " plans can run: ", refused));
    describe(q, possible, chosen);
    if (answer.equal > 1 && text_of(possible.front().plan) == text_of(answer.best.front().plan))
      chosen.lines.insert(
          chosen.lines.begin() + 1,
          concat("  ", answer.equal, " plans are equally fast within the prediction error; this one was chosen for ",
                 answer.decided_by));
    return chosen;
  }

 private:
  bool is_free(const char* name) const { return may_choose(given_, name); }

  Question question() {
    Question q;
    q.model = model_of(config_);
    const int per_host = std::max(1, processes_.per_host);
    q.cluster = parse_cluster(concat(processes_.world_size, "x", hardware_of(config_), "/", per_host));
    const ParallelConfig& p = config_.parallel;
    const Plan plain = plan_on(config_, q.model, layout::Mesh{}, q.cluster.on_cpu);
    q.sequence = plain.sequence;
    q.precision = plain.precision;
    const auto fixed = [&](const char* name, std::int64_t value) {
      return is_free(name) ? 0 : static_cast<int>(value);
    };
    q.tp = fixed("tp_size", p.tp_size);
    q.cp = fixed("cp_size", p.cp_size);
    q.pp = fixed("pp_size", p.pp_size);
    q.ep = fixed("ep_size", p.ep_size);
    const std::int64_t taken = std::int64_t{std::max(1, q.tp)} * std::max(1, q.cp) * std::max(1, q.pp);
    if (processes_.world_size % taken != 0)
      throw InputError(concat("--strategy auto: tp_size x cp_size x pp_size is ", taken, ", which does not divide the ",
                              processes_.world_size, " processes"));
    q.rows = fixed("per_device_train_batch_size", plain.rows);
    q.least_rows = config_.sharding.auto_min_batch_size;
    q.most_rows = config_.sharding.auto_max_batch_size;
    q.micro_batches = fixed("gradient_accumulation_steps", plain.micro_batches);
    q.global_batch = plain.rows * plain.micro_batches * (processes_.world_size / taken);
    if (!is_free("gradient_checkpointing")) q.recompute = plain.recompute;
    if (!is_free("strategy")) q.strategy = config_.sharding.strategy;
    if (!q.strategy && offloads_parameters(config_.sharding.cpu_offload)) q.strategy = Strategy::full_shard;
    if (!is_free("pipeline_schedule")) q.schedule = p.pipeline_schedule;
    q.memory_limit = 0.94 * q.cluster.device.memory;
    if (q.cluster.on_cpu && processes_.free_bytes > 0) q.memory_limit = 0.94 * processes_.free_bytes / per_host;
    q.keep = 24;
    return q;
  }

  /// Converts the plan to settings; given settings keep their values.
  config::Resolved applied(const Question& q, const Plan& plan) const {
    config::Resolved with = given_;
    const config::Origin why = config::Origin::derived("auto_strategy");
    const auto put = [&](const char* name, const std::string& text) {
      if (!is_free(name)) return;
      const config::Field* field = config::find_field(name);
      RunConfig values = with.values;
      if (const auto wrong = field->set(values, text))
        throw Error(concat("--strategy auto: ", name, " ", *wrong));  // an error of the planner
      with.values = std::move(values);
      with.origins[name] = why;
    };
    put("strategy", word_of(plan.strategy));
    const auto axis = [&](const char* name, std::int64_t size) {
      if (size > 1) put(name, std::to_string(size));
    };
    axis("tp_size", plan.tp());
    axis("cp_size", plan.cp());
    axis("pp_size", plan.pp());
    axis("ep_size", plan.mesh.ep);
    if (plan.tp() > 1) put("sequence_parallel", plan.sequence_parallel ? "true" : "false");
    if (plan.pp() > 1) {
      put("pipeline_schedule", plan.schedule);
      put("pipeline_stages_per_rank", std::to_string(plan.stages_per_rank));
    }
    if (row_of(plan.strategy).shard_group == ShardGroup::host)
      put("shard_group_size", std::to_string(plan.mesh.size(layout::Axis::dp_shard) * plan.cp()));
    put("per_device_train_batch_size", std::to_string(plan.rows));
    put("gradient_accumulation_steps", std::to_string(plan.micro_batches));
    if (plan.recompute > 0) put("gradient_checkpointing", "true");
    if (plan.recompute > 1) put("gradient_checkpointing_kwargs", concat("every=", plan.recompute));
    return with;
  }

  static std::string settings_of(const Plan& p) {
    return concat(text_of(p), ", ", p.rows, p.rows == 1 ? " row x " : " rows x ", p.micro_batches,
                  p.pp() > 1 ? ", " + p.schedule : "", p.recompute > 0 ? ", recomputation" : "");
  }

  void describe(const Question& q, const std::vector<Candidate>& possible, Chosen& chosen) const {
    const Candidate& best = possible.front();
    const bool measured = q.cluster.device.measured != nullptr;
    chosen.lines.push_back(
        concat("strategy auto: ", settings_of(best.plan), ": ", format_real(best.seconds, 3), " s per step, ",
               format_count(best.tokens_per_second), " tokens/s, ",
               format_bytes(static_cast<std::uint64_t>(best.memory.total())), " of ",
               format_bytes(static_cast<std::uint64_t>(q.memory_limit)), " per process; ", limit_of(q, best), " (",
               measured ? concat("figures for ", q.cluster.device.name, " from tessera plan calibrate")
                        : concat("built-in figures for ", q.cluster.device.name,
                                 q.cluster.on_cpu ? "; tessera plan calibrate measures this machine" : ""),
               ")"));
    for (std::size_t i = 1; i < possible.size() && i < 3; ++i)
      chosen.lines.push_back(
          concat("  next: ", settings_of(possible[i].plan), ": ", format_real(possible[i].seconds, 3), " s per step"));
    std::size_t shown = 0;
    for (const Neighbour& n : neighbours(q, best))
      if (shown++ < 3) chosen.lines.push_back(concat("  ", n.change, ": ", n.verdict));
  }

  const config::Resolved& given_;
  const RunConfig& config_;
  const Processes& processes_;
};

}  // namespace

Chosen choose_plan(const config::Resolved& resolved, const Processes& processes, const Check& check) {
  return Chooser(resolved, processes).choose(check);
}

std::string chosen_text(const RunConfig& config, int world_size) {
  std::string text = "# Chosen by --strategy auto; a run that resumes from a checkpoint uses the same settings.\n";
  text += concat("# ", world_key, ": ", world_size, "\n");
  for (const char* name : settings) {
    const Value value = config::find_field(name)->get(config);
    text += concat(name, ": ", dump_json(value, -1), "\n");
  }
  return text;
}

std::optional<Chosen> chosen_before(const config::Resolved& resolved, const std::string& path, int world_size,
                                    std::string& note) {
  if (!path_exists(path)) return std::nullopt;
  const std::string text = read_file(path, 1 << 20);
  const std::string mark = concat("# ", world_key, ": ", world_size, "\n");
  if (text.find(mark) == std::string::npos) {
    note = concat(path, " is for a different number of processes; planning again");
    return std::nullopt;
  }
  const Value file = parse_yaml(text, path);
  Chosen chosen{resolved, {concat("strategy auto: settings from ", path)}};
  for (const char* name : settings) {
    const Value* value = file.find(name);
    if (value == nullptr) continue;
    const config::Field* field = config::find_field(name);
    if (!may_choose(resolved, name)) {
      if (text_of_value(field->get(resolved.values)) == text_of_value(*value)) continue;
      note = concat(value->where().str(), ": ", name, " is ", text_of_value(*value), ", but ", resolved.origin(name),
                    " sets ", text_of_value(field->get(resolved.values)), "; planning again");
      return std::nullopt;
    }
    if (text_of_value(field->get(resolved.values)) == text_of_value(*value)) continue;  // the default
    if (const auto wrong = field->set(chosen.resolved.values, text_of_value(*value)))
      throw InputError(concat(value->where().str(), ": ", name, " ", *wrong));
    chosen.resolved.origins[name] = config::Origin::derived("auto_strategy");
  }
  return chosen;
}

}  // namespace tessera::plan
