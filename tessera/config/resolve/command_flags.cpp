#include <tessera/base/error.h>
#include <tessera/config/resolve/command_flags.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace tessera::config {

Flags::Flags(const std::string& command, const std::vector<std::string>& arguments,
             const std::vector<std::string>& with_value, const std::vector<std::string>& switches,
             const std::vector<std::string>& repeatable)
    : command_(command) {
  const auto among = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--"))
      throw InputError(
          concat("tessera ", command, ": '", argument, "' is not a flag (see tessera ", command, " --help)"));
    const std::size_t equals = argument.find('=');
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    const bool takes_value = among(with_value, name);
    if (!takes_value && !among(switches, name)) {
      std::vector<std::string> all = with_value;
      all.insert(all.end(), switches.begin(), switches.end());
      const auto near = nearest(name, all);
      throw InputError(
          concat("tessera ", command, ": unknown flag --", name, near ? concat("; did you mean --", *near, "?") : ""));
    }
    if (has(name) && !among(repeatable, name))
      throw InputError(concat("tessera ", command, ": --", name, " is given twice"));
    std::string value;
    if (equals != std::string::npos) {
      if (!takes_value) throw InputError(concat("tessera ", command, ": --", name, " takes no value"));
      value = argument.substr(equals + 1);
    } else if (takes_value) {
      if (i + 1 == arguments.size()) throw InputError(concat("tessera ", command, ": --", name, ": missing value"));
      value = arguments[++i];
    }
    given_.emplace_back(name, value);
  }
}

bool Flags::has(std::string_view name) const { return text(name).has_value(); }

std::optional<std::string> Flags::text(std::string_view name) const {
  for (const auto& [key, value] : given_)
    if (key == name) return value;
  return std::nullopt;
}

std::vector<std::string> Flags::texts(std::string_view name) const {
  std::vector<std::string> all;
  for (const auto& [key, value] : given_)
    if (key == name) all.push_back(value);
  return all;
}

std::string Flags::required(std::string_view name, std::string_view what) const {
  if (const auto value = text(name)) return *value;
  throw InputError(
      concat("tessera ", command_, ": --", name, " is missing (", what, "; see tessera ", command_, " --help)"));
}

std::int64_t Flags::integer(std::string_view name, std::int64_t fallback) const {
  const auto given = text(name);
  if (!given) return fallback;
  const auto value = parse_int(*given);
  if (!value) throw InputError(concat("--", name, ": expected an integer, got '", *given, "'"));
  return *value;
}

double Flags::real(std::string_view name, double fallback) const {
  const auto given = text(name);
  if (!given) return fallback;
  const auto value = parse_real(*given);
  if (!value) throw InputError(concat("--", name, ": expected a number, got '", *given, "'"));
  return *value;
}

void require_new_file(const std::string& path) {
  std::error_code none;
  if (std::filesystem::symlink_status(path, none).type() != std::filesystem::file_type::not_found)
    throw InputError(concat(path, " already exists; choose another name, or use --overwrite"));
}

void Flags::require_new(const std::vector<std::string>& paths) const {
  if (!has("overwrite")) std::for_each(paths.begin(), paths.end(), require_new_file);
}

}  // namespace tessera::config
