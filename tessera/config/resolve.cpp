#include <tessera/config/resolve.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/fields.h>
#include <tessera/config/sharding.h>

#include <algorithm>
#include <cstdlib>

namespace tessera::config {
namespace {

std::string underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

/// The setting that "--name" spells, or the boolean that "--no_name" turns off.
struct Match {
  const Field* field = nullptr;
  bool negated = false;
};

Match match(const std::string& spelled) {
  std::string name = underscored(spelled);
  for (const auto& [alias, ours] : aliases())
    if (name == alias) name = ours;
  if (const Field* field = find_field(name)) return {field, false};
  if (!name.starts_with("no_")) return {};
  const Field* field = find_field(std::string_view(name).substr(3));
  return field != nullptr && field->is_boolean() ? Match{field, true} : Match{};
}

/// Whether an argument is a flag rather than a value: negative numbers are values.
bool looks_like_flag(const std::string& argument) { return argument.size() > 2 && argument.starts_with("--"); }

class FlagReader {
 public:
  FlagReader(const std::vector<std::string>& arguments, Resolved& resolved, Problems& problems)
      : arguments_(arguments), resolved_(resolved), problems_(problems) {}

  void read() {
    while (next_ < arguments_.size()) read_one(arguments_[next_++]);
  }

 private:
  template <class... Parts>
  void problem(const Parts&... parts) {
    problems_.lines.push_back(concat(parts...));
  }

  bool value_follows() const { return next_ < arguments_.size() && !looks_like_flag(arguments_[next_]); }

  void read_one(const std::string& argument) {
    if (!looks_like_flag(argument))
      return problem("unexpected argument '", argument, "': settings are given as --name value");
    const std::size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    std::optional<std::string> text;
    if (equals != std::string::npos) text = argument.substr(equals + 1);

    const auto [field, negated] = match(flag.substr(2));
    if (field == nullptr) return unknown(flag, text.has_value());
    if (negated && text) return problem(flag, " takes no value; write --", field->name, "=", *text);
    if (field->is_boolean()) {
      if (negated) text = "false";
      if (!text && value_follows() && parse_bool(arguments_[next_])) text = arguments_[next_++];
      if (!text) text = "true";
    } else if (!text) {
      if (!value_follows()) {
        problems_.doubtful.emplace(field->name);
        return problem(flag, " needs a value (", field->placeholder(), ")");
      }
      text = arguments_[next_++];
      while (field->name == "fsdp" && value_follows()) *text += " " + arguments_[next_++];  // --fsdp full_shard auto_wrap
    }
    store(*field, flag, *text);
  }

  void unknown(const std::string& flag, bool has_value) {
    std::vector<std::string> names;
    for (const Field& field : fields()) names.emplace_back(field.name);
    for (const auto& [alias, ours] : aliases()) names.emplace_back(alias);
    const auto near = nearest(underscored(flag.substr(2)), names);
    if (near) problems_.doubtful.insert(*near);
    problem("unknown flag ", flag,
            near ? concat("; did you mean --", *near, "?") : "; tessera train --help lists all flags");
    if (!has_value && value_follows()) ++next_;  // its value is no problem of its own
  }

  void store(const Field& setting, const std::string& flag, std::string text) {
    const Field* field = &setting;
    // transformers v5: warmup_steps between 0 and 1 is a share of all steps
    if (field->name == "warmup_steps")
      if (const auto share = parse_real(text); share && *share > 0 && *share < 1) field = find_field("warmup_ratio");
    if (text.empty()) {
      problems_.doubtful.emplace(field->name);
      return problem(flag, " has an empty value; leave the flag out to keep the default");
    }
    const std::string name(field->name);
    const auto [first, is_first] = given_.emplace(name, std::pair(flag, text));
    if (!is_first) {
      if (first->second.second != text) {
        problem(flag, " ", text, " contradicts ", first->second.first, " ", first->second.second, " given before");
        problems_.doubtful.insert(name);
      }
      return;
    }
    if (const auto wrong = field->set(resolved_.values, text)) {
      problem(flag, " ", *wrong);
      problems_.doubtful.insert(name);
      return;
    }
    resolved_.origins[name] = flag;
  }

  const std::vector<std::string>& arguments_;
  Resolved& resolved_;
  Problems& problems_;
  std::size_t next_ = 0;
  std::map<std::string, std::pair<std::string, std::string>> given_;  ///< setting -> flag as typed, text
};

std::optional<std::string> process_environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

void read_environment(Resolved& resolved, Problems& problems, const GetEnvironment& environment) {
  for (const Field& field : fields()) {
    if (field.environment.empty()) continue;
    const std::string variable(field.environment);
    const auto text = environment ? environment(variable) : process_environment(variable);
    if (!text || text->empty()) continue;
    const std::string name(field.name);
    std::string& origin = resolved.origins[name];
    if (origin != "default") continue;  // a flag beats the environment
    if (const auto wrong = field.set(resolved.values, *text)) {
      problems.lines.push_back(concat("the environment variable ", variable, " ", *wrong));
      problems.doubtful.insert(name);
    } else {
      origin = concat("environment ", variable);
    }
  }
}

/// What follows from what was given.
void derive(Resolved& resolved) {
  OutputConfig& output = resolved.values.output;
  const auto is_default = [&](const char* name) { return resolved.origins.at(name) == "default"; };
  const auto derived = [&](const char* name, const char* why) {
    resolved.origins[name] = concat("derived (", why, ")");
  };
  if (output.eval_steps > 0 && is_default("eval_strategy")) {
    output.eval_strategy = "steps";
    derived("eval_strategy", "eval_steps is given");
  }
  if (!is_default("validation_file") && is_default("validation_split_percentage")) {
    resolved.values.data.validation_split_percentage = 0;
    derived("validation_split_percentage", "validation_file is given");
  }
  if (output.eval_strategy == "steps" && output.eval_steps == 0) {
    output.eval_steps = output.logging_steps;
    derived("eval_steps", "logging_steps");
  }
  DataConfig& data = resolved.values.data;
  if (data.group_by_length && is_default("train_sampling_strategy")) {
    data.train_sampling_strategy = "group_by_length";
    derived("train_sampling_strategy", "group_by_length is given");
  }
  // a boolean in transformers' Python interface
  if (const auto resume = parse_bool(output.resume_from_checkpoint))
    output.resume_from_checkpoint = *resume ? "last" : "";
}

}  // namespace

Resolved resolve_flags(const std::vector<std::string>& arguments, Problems& problems,
                       const GetEnvironment& environment) {
  Resolved resolved;
  for (const Field& field : fields()) resolved.origins[std::string(field.name)] = "default";
  FlagReader(arguments, resolved, problems).read();
  read_environment(resolved, problems, environment);
  resolve_sharding(resolved, problems);
  derive(resolved);
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

void throw_if_any(const Problems& problems) {
  if (problems.lines.empty()) return;
  if (problems.lines.size() == 1) throw InputError(problems.lines.front());
  throw InputError(concat(problems.lines.size(), " problems in the configuration:\n  ", join(problems.lines, "\n  ")));
}

}  // namespace tessera::config
