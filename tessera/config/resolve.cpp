#include <tessera/base/error.h>
#include <tessera/config/fields.h>
#include <tessera/config/resolve.h>

#include <algorithm>
#include <optional>

namespace tessera::config {
namespace {

bool is_boolean(const Field& field) { return std::holds_alternative<bool& (*)(RunConfig&)>(field.access); }

bool is_truth_word(const std::string& text) {
  static const std::vector<std::string> words = {"true", "false", "1", "0", "yes", "no"};
  return std::find(words.begin(), words.end(), to_lower(text)) != words.end();
}

/// A flag that "--name" spells, or the boolean that "--no_name" turns off.
struct Match {
  const Field* field = nullptr;
  bool negated = false;
};

Match match(const std::string& name) {
  if (const Field* field = find_field(name)) return {field, false};
  if (name.starts_with("no_") || name.starts_with("no-")) {
    const Field* field = find_field(name.substr(3));
    if (field != nullptr && is_boolean(*field)) return {field, true};
  }
  return {};
}

std::string unknown_flag(const std::string& name) {
  std::vector<std::string> names;
  for (const Field& field : fields()) names.push_back(field.name);
  std::string canonical = name;
  std::replace(canonical.begin(), canonical.end(), '-', '_');
  const auto near = nearest(canonical, names);
  return concat("--", name, ": no such flag", near ? concat("; did you mean --", *near, "?") : " (see tessera train --help)");
}

[[noreturn]] void throw_all(const std::vector<std::string>& problems) {
  if (problems.size() == 1) throw InputError(problems[0]);
  throw InputError(concat(problems.size(), " problems in the configuration:\n  ", join(problems, "\n  ")));
}

}  // namespace

Resolved resolve_flags(const std::vector<std::string>& arguments) {
  Resolved resolved;
  for (const Field& field : fields()) resolved.origins[field.name] = "default";
  std::map<std::string, std::string> given;  // setting -> the text of its first appearance
  std::vector<std::string> problems;

  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--") || argument.size() == 2) {
      problems.push_back(concat("'", argument, "': expected a flag (--name value)"));
      continue;
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::optional<std::string> text;
    if (equals != std::string::npos) text = argument.substr(equals + 1);

    const auto [field, negated] = match(name);
    if (field == nullptr) {
      problems.push_back(unknown_flag(name));
      // its value is not a problem of its own
      if (!text && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) ++i;
      continue;
    }
    const std::string flag = "--" + name;
    if (is_boolean(*field)) {
      if (!text && i + 1 < arguments.size() && is_truth_word(arguments[i + 1])) text = arguments[++i];
      if (negated && text) {
        problems.push_back(concat(flag, ": takes no value"));
        continue;
      }
      if (!text) text = negated ? "false" : "true";
    } else if (!text) {
      if (i + 1 >= arguments.size() || arguments[i + 1].starts_with("--")) {
        problems.push_back(concat(flag, ": a value is missing"));
        continue;
      }
      text = arguments[++i];
    }
    const auto [first, is_first] = given.emplace(field->name, *text);
    if (!is_first && first->second != *text) {
      problems.push_back(concat(flag, ": given twice, as '", first->second, "' and as '", *text, "'"));
      continue;
    }
    try {
      set(*field, resolved.values, *text);
      resolved.origins[field->name] = flag;
    } catch (const InputError& e) {
      problems.push_back(concat(flag, ": ", e.what()));
    }
  }
  if (!problems.empty()) throw_all(problems);
  return resolved;
}

Value to_value(const Resolved& resolved) {
  Value sections = Value::make_object();
  std::vector<std::string> names;
  for (const Field& field : fields())
    if (std::find(names.begin(), names.end(), field.section) == names.end()) names.push_back(field.section);
  for (const std::string& name : names) {
    Value section = Value::make_object();
    for (const Field& field : fields()) {
      if (field.section != name) continue;
      section.set(field.name, Value::make_object({{"value", get(field, resolved.values)}, {"origin", Value::of(resolved.origins.at(field.name))}}));
    }
    sections.set(name, std::move(section));
  }
  return sections;
}

}  // namespace tessera::config
