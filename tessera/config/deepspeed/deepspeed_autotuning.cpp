// autotuning: the planner computes what DeepSpeed finds with many short runs (--strategy auto).

#include <tessera/base/text.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>

#include <string>
#include <tuple>

namespace tessera::config::deepspeed {
namespace {

constexpr const char* enabled_key = "autotuning.enabled";

std::string autotuning_key(const char* name) { return concat("autotuning.", name); }

/// Checks the metric to optimize. DeepSpeed's default is the throughput.
void metric(Reading& r) {
  const std::string key = autotuning_key("metric");
  const auto word = r.text(key);
  if (!word || *word == "throughput") return;
  r.to.problem(
      r.value(key)->where(),
      concat(key, " is \"", *word, "\"; the planner optimizes only throughput: write \"throughput\", or remove it"),
      {"auto_strategy"});
}

/// Reads the bounds of the search for the rows of a micro-batch, which apply only if the file does not set the rows.
void bounds(Reading& r) {
  const bool open = r.value("train_micro_batch_size_per_gpu") == nullptr;
  for (const auto& [name, setting, otherwise] :
       {std::tuple("min_train_micro_batch_size_per_gpu", "auto_min_batch_size", "1"),
        std::tuple("max_train_micro_batch_size_per_gpu", "auto_max_batch_size", "1024")}) {
    const std::string key = autotuning_key(name);
    const Value* const value = r.value(key);
    if (!open) {
      if (value != nullptr)
        r.without_effect(key, "train_micro_batch_size_per_gpu is given, so it is not searched", value->where());
      continue;
    }
    const auto rows = r.whole(key);
    if (rows && *rows < 1)
      r.to.problem(value->where(), concat(key, " is ", *rows, "; a micro-batch has at least one row"), {setting});
    else if (rows)
      r.say(setting, key, concat(*rows), value->where());
    else
      r.otherwise(setting, enabled_key, otherwise, r.value(enabled_key)->where());
  }
}

}  // namespace

void read_autotuning(Reading& r) {
  if (!r.flag(enabled_key).value_or(false)) return;
  const SourcePos where = r.value(enabled_key)->where();
  if (r.alone)
    return r.to.problem(where,
                        "autotuning: the engine runs a module as it is, without planning: remove it, and use tessera "
                        "plan for the module (tessera::record_step records one step of it)",
                        {"auto_strategy"});
  r.say("auto_strategy", enabled_key, "true", where);
  r.to.note(where,
            "autotuning.enabled: instead of tuning runs, the planner computes the fastest ZeRO stage, mesh and "
            "micro-batch at the start, as --strategy auto does, with the same global batch (tessera plan calibrate "
            "measures the machine)");
  metric(r);
  bounds(r);
}

}  // namespace tessera::config::deepspeed
