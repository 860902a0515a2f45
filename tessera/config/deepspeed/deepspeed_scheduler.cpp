// scheduler: {type, params}, for optim/schedule.h, which implements DeepSpeed's formulas and its "auto".

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>

#include <algorithm>
#include <cmath>

namespace tessera::config::deepspeed {
namespace {

using Words = std::vector<std::string>;

struct SchedulerType {
  std::string_view name, setting;
  Words parameters, required;
};

const std::vector<SchedulerType>& scheduler_types() {
  static const std::vector<SchedulerType> all = {
      {"WarmupLR", "warmup_lr", {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}, {}},
      {"WarmupDecayLR",
       "warmup_decay_lr",
       {"total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"},
       {}},
      {"WarmupCosineLR",
       "warmup_cosine_lr",
       {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"},
       {}},
      {"OneCycle",
       "one_cycle",
       {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
        "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum", "cycle_min_mom",
        "cycle_max_mom", "decay_mom_rate"},
       {"cycle_min_lr", "cycle_max_lr"}},
      {"LRRangeTest",
       "lr_range_test",
       {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase"},
       {}},
  };
  return all;
}

std::string scheduler_key(std::string_view name) { return concat("scheduler.params.", name); }

/// Parameters that transformers compares with settings of the run.
struct Compared {
  std::string_view name, setting, hf;
};
constexpr Compared compared[] = {{"warmup_max_lr", "learning_rate", "learning_rate"},
                                 {"warmup_num_steps", "warmup_steps", "warmup_steps"},
                                 {"total_num_steps", "max_steps", "num_training_steps (calculated)"}};

class Scheduler {
 public:
  explicit Scheduler(Reading& r) : r_(r) {}

  void read() {
    const auto params = r_.said.find("scheduler.params");
    const auto name = r_.text("scheduler.type");
    if (!name) {
      if (params != r_.said.end() && !params->second->members().empty())
        r_.to.problem(params->second->where(), "scheduler.params requires scheduler.type", {"lr_scheduler_type"});
      return;
    }
    const SourcePos where = r_.value("scheduler.type")->where();
    const auto type = std::find_if(scheduler_types().begin(), scheduler_types().end(),
                                   [&](const SchedulerType& t) { return to_lower(t.name) == to_lower(*name); });
    if (type == scheduler_types().end()) return unknown(*name, where);
    for (const std::string& required : type->required)
      if (r_.value(scheduler_key(required)) == nullptr)
        r_.to.problem(where, concat("scheduler.type ", type->name, " needs ", scheduler_key(required)),
                      {"lr_scheduler_kwargs"});
    beats("lr_scheduler_type", "scheduler.type", *name, where);
    r_.to.give("lr_scheduler_type", "scheduler.type", std::string(type->setting), where);
    r_.to.let_win("lr_scheduler_type");
    const Value given = params == r_.said.end() ? Value::make_object() : parameters(*type, *params->second);
    if (given.members().empty() && !r_.given_elsewhere("lr_scheduler_kwargs")) return;
    beats("lr_scheduler_kwargs", "scheduler.params", "", where);
    r_.to.give("lr_scheduler_kwargs", "scheduler.params", dump_json(given, -1),
               params == r_.said.end() ? where : params->second->where());
    r_.to.let_win("lr_scheduler_kwargs");
  }

 private:
  void unknown(const std::string& name, const SourcePos& where) {
    Words names;
    for (const SchedulerType& type : scheduler_types()) names.emplace_back(type.name);
    const auto near = nearest(name, names);
    r_.to.problem(where,
                  concat("scheduler.type '", name, "' is unknown", near ? concat("; did you mean ", *near, "?") : "",
                         " (the types are ", join(names), "); remove the section to use --lr_scheduler_type"),
                  {"lr_scheduler_type"});
  }

  /// transformers passes the file's schedule to DeepSpeed and ignores its own arguments for one.
  void beats(std::string_view setting, const std::string& path, const std::string& value, const SourcePos& where) {
    const Field* field = find_field(setting);
    RunConfig theirs;
    const bool same = !value.empty() && !field->set(theirs, value) &&
                      dump_json(field->get(theirs)) == dump_json(field->get(r_.so_far.values));
    if (r_.given_elsewhere(setting) && !same)
      r_.to.note(where, concat(path, value.empty() ? "" : " ", value, " is used, not ", setting, " (",
                               r_.so_far.origin(setting), "): DeepSpeed uses its file's schedule"));
  }

  Value parameters(const SchedulerType& type, const Value& section) {
    std::vector<Value::Member> arguments;
    for (const auto& [name, value] : section.members()) {
      if (find_row(scheduler_key(name)) == nullptr || value.is_null()) continue;
      if (std::find(type.parameters.begin(), type.parameters.end(), name) == type.parameters.end()) {
        if (name != "last_batch_iteration")
          r_.to.problem(
              value.where(),
              concat(scheduler_key(name), " is not a parameter of ", type.name, "; it has ", join(type.parameters)),
              {"lr_scheduler_kwargs"});
        continue;
      }
      if (!r_.said.contains(scheduler_key(name))) continue;  // without effect, or invalid
      if (r_.is_auto(scheduler_key(name))) {
        // filled in by transformers; warmup_min_lr with 0, the default
        if (name == "warmup_max_lr" || name == "warmup_num_steps" || name == "total_num_steps")
          arguments.emplace_back(name, Value::of("auto"));
        continue;
      }
      if (auto argument = converted(name, value)) arguments.emplace_back(name, std::move(*argument));
    }
    return Value::make_object(std::move(arguments));
  }

  /// The value converted to its row's type; nullopt after reporting a problem.
  std::optional<Value> converted(const std::string& name, const Value& value) {
    const std::string path = scheduler_key(name);
    if (name == "warmup_type") {
      const std::string word = to_lower(trim(value.as_string()));
      if (word == "log" || word == "linear") return Value::of(word);
      return complain(value, concat(path, " is '", word, "'; it must be one of log, linear"));
    }
    for (const Compared& c : compared)
      if (name == c.name && !matches(c, value)) return std::nullopt;
    switch (find_row(path)->kind) {
      case Kind::flag:
        return Value::of(*r_.flag(path));
      case Kind::whole:
        return Value::of(r_.whole(path).value_or(0));
      default:
        break;
    }
    // learning rates: one number, or a list with one per parameter group
    const Value& one = value.is_array() && value.items().size() == 1 ? value.items().front() : value;
    const auto text = as_text(one, false);
    const auto number = text && !one.is_array() ? parse_real(*text) : std::nullopt;
    if (!number || !(*number >= 0))
      return complain(value, concat(path, " is ", Reading::shown(value), "; it must be a number, at least 0"));
    return Value::of(*number);
  }

  std::optional<Value> complain(const Value& value, const std::string& what) {
    r_.to.problem(value.where(), what, {"lr_scheduler_kwargs"});
    return std::nullopt;
  }

  /// transformers clamps the warm-up to at least one step, and compares max_steps only if it is given.
  bool matches(const Compared& c, const Value& value) {
    const OptimizationConfig& o = r_.so_far.values.optimization;
    if (c.setting == "max_steps" && o.max_steps <= 0) return true;
    const auto text = as_text(value, c.setting != "learning_rate");
    if (!text) return true;  // its type is checked below
    if (c.setting == "warmup_steps" && o.warmup_steps == 0 && *text == "1") return true;
    return c.setting == "warmup_steps" && o.warmup_ratio > 0 && o.max_steps > 0
               ? share_matches(*text, value.where())
               : r_.agrees(c.setting, scheduler_key(c.name), *text, value.where(), c.hf);
  }

  /// A warm-up that the run gives as a share of its steps.
  bool share_matches(const std::string& text, const SourcePos& where) {
    const OptimizationConfig& o = r_.so_far.values.optimization;
    const double steps = std::max(1.0, std::ceil(o.warmup_ratio * static_cast<double>(o.max_steps)));
    if (!r_.given_elsewhere("warmup_ratio") || parse_real(text) == steps) return true;
    r_.to.problem(where,
                  concat(Reading::mismatch(scheduler_key("warmup_num_steps"), text, "warmup_steps", format_real(steps)),
                         " (", r_.so_far.origin("warmup_ratio"), " ", format_real(o.warmup_ratio),
                         "): make them equal, or remove one of them"),
                  {"lr_scheduler_kwargs"});
    return false;
  }

  Reading& r_;
};

}  // namespace

void read_scheduler(Reading& r) { Scheduler(r).read(); }

}  // namespace tessera::config::deepspeed
