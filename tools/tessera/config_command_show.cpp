/// \file
/// tessera config show, check and convert: resolves and reports a configuration.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/print.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/config/resolve/validate_said.h>
#include <tools/tessera/config_command.h>
#include <tools/tessera/take_flag.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>

namespace tessera::tool {
namespace {

using config::Field;
using config::FileKind;

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

/// The environment for checking a file: excludes the shell's settings for accelerate; includes the launcher's variables
/// and those that the file refers to.
std::optional<std::string> environment_of_files(const std::string& name) {
  for (const char* prefix : {"ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_"})
    if (name.starts_with(prefix)) return std::nullopt;
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string text_of(const Value& value) { return value.is_string() ? value.as_string() : dump_json(value, -1); }

/// Formats "  name = value   (origin)" by section, in columns that fit 100 characters if the values are short.
std::string tree_text(const config::Resolved& resolved, bool all) {
  constexpr std::size_t widest = 44;
  std::size_t names = 0, values = 0;
  std::vector<const Field*> shown;
  for (const Field& field : config::fields()) {
    if (!all && resolved.is_default(field.name)) continue;
    shown.push_back(&field);
    names = std::max(names, field.name.size());
    values = std::max(values, std::min(widest, text_of(field.get(resolved.values)).size()));
  }
  std::string out;
  for (const config::Section section : config::all_sections) {
    bool first = true;
    for (const Field* field : shown) {
      if (field->section != section) continue;
      if (first) out += concat(out.empty() ? "" : "\n", section_title(section), "\n");
      first = false;
      const std::string value = text_of(field->get(resolved.values));
      out += concat("  ", field->name, std::string(names - field->name.size(), ' '), " = ", value,
                    std::string(values - std::min(values, value.size()), ' '), "   (", resolved.origin(field->name),
                    ")\n");
    }
  }
  if (shown.empty()) out = "every setting has its default (--all shows them)\n";
  return out;
}

/// config::to_value() without settings that have their default values, unless `all`.
Value tree_value(const config::Resolved& resolved, bool all) {
  Value out = Value::make_object();
  const Value whole = config::to_value(resolved);
  for (const auto& [section, members] : whole.members()) {
    Value kept = Value::make_object();
    for (const auto& [name, leaf] : members.members())
      if (all || !resolved.is_default(name)) kept.set(name, leaf);
    if (!kept.members().empty()) out.set(section, std::move(kept));
  }
  return out;
}

/// Prints "a.yaml: accelerate's file, ok: 3 settings, 8 of ds.json", and the warnings of `config show`.
void print_summary(const std::string& path, FileKind kind, const config::Resolved& resolved) {
  std::map<std::string, std::size_t> counts = {{path, 0}};
  for (const auto& [setting, origin] : resolved.origins)
    if (origin.kind == config::Origin::Kind::file) ++counts[origin.file];
  const std::size_t own = counts.extract(path).mapped();
  std::cout << path << ": " << kind_title(kind) << ", ok: " << own << (own == 1 ? " setting" : " settings");
  for (const auto& [other, count] : counts) std::cout << ", " << count << " of " << other;
  std::cout << '\n';
  for (const std::string& line : config::unused_settings(resolved)) std::cout << "  " << line << '\n';
}

/// The line number of a problem that begins with "FILE:LINE"; problems without one sort last.
std::int64_t line_number(const std::string& path, const std::string& problem) {
  if (!problem.starts_with(path + ":")) return std::numeric_limits<std::int64_t>::max();
  const std::string rest = problem.substr(path.size() + 1);
  return parse_int(rest.substr(0, rest.find(':'))).value_or(std::numeric_limits<std::int64_t>::max());
}

/// Resolves only the settings of files, given as flags: settings that every run requires may be missing.
config::Resolved resolve_files(Arguments flags, const std::optional<std::string>& processes,
                               config::Problems& problems) {
  if (processes) flags.insert(flags.end(), {"--num_processes", *processes});
  config::Resolved resolved = config::resolve_flags(flags, problems, environment_of_files);
  config::validate_said(resolved, problems);
  return resolved;
}

/// Prints the file's problems, or a summary. Returns whether it is valid.
bool check_file(const std::string& path, const std::optional<std::string>& word,
                const std::optional<std::string>& processes) {
  config::Problems problems;
  try {
    const FileKind kind = kind_of_file(path, word);
    const config::Resolved resolved = resolve_files({std::string(config::kind_flag(kind)), path}, processes, problems);
    if (problems.told().empty()) {
      print_summary(path, kind, resolved);
      return true;
    }
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
  }
  std::vector<std::string> told = problems.told();
  std::stable_sort(told.begin(), told.end(), [&](const std::string& a, const std::string& b) {
    return line_number(path, a) < line_number(path, b);
  });
  for (const std::string& line : told) std::cout << line << '\n';
  return false;
}

/// Files of different kinds can describe one run: prints their contradictions. Returns whether they are consistent.
bool check_together(const Arguments& paths, const std::optional<std::string>& processes) {
  Arguments flags;
  for (const std::string& path : paths) {
    const std::string flag(config::kind_flag(kind_of_file(path, std::nullopt)));
    if (std::find(flags.begin(), flags.end(), flag) != flags.end()) return true;
    flags.insert(flags.end(), {flag, path});
  }
  config::Problems problems;
  try {
    resolve_files(std::move(flags), processes, problems);
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
  }
  for (const std::string& line : problems.told()) std::cout << "in one run: " << line << '\n';
  return problems.told().empty();
}

/// Inserts the flag for its kind before a leading FILE.
void name_file(Arguments& arguments, const std::optional<std::string>& kind) {
  if (!arguments.empty() && !arguments[0].starts_with("--"))
    arguments.insert(arguments.begin(), std::string(config::kind_flag(kind_of_file(arguments[0], kind))));
}

}  // namespace

config::Resolved resolve_arguments(const Arguments& arguments, bool environment, config::Problems& problems) {
  return environment ? config::resolve_flags(arguments, problems)
                     : config::resolve_flags(arguments, problems, no_environment);
}

void print_notes(const config::Resolved& resolved) {
  for (const std::string& line : config::unused_settings(resolved)) std::cerr << "warning: " << line << '\n';
}

int config_show(const Arguments& given) {
  Arguments arguments = given;
  const bool all = take_switch(arguments, "all");
  const std::string format = take_flag(arguments, "tessera config show", "format").value_or("text");
  if (format != "text" && format != "json" && format != "yaml")
    throw InputError(concat("tessera config show: --format is '", format, "'; it must be one of text, json, yaml"));
  name_file(arguments, take_flag(arguments, "tessera config show", "kind"));
  config::Problems problems;
  const config::Resolved resolved = resolve_arguments(arguments, true, problems);
  config::validate_said(resolved, problems);
  config::throw_if_any(problems);
  if (format == "text") std::cout << tree_text(resolved, all);
  if (format == "json") std::cout << dump_json(tree_value(resolved, all)) << '\n';
  if (format == "yaml") std::cout << config::dump_yaml(tree_value(resolved, all));
  std::cout.flush();
  print_notes(resolved);
  return 0;
}

int config_check(const Arguments& given) {
  Arguments arguments = given;
  const auto kind = take_flag(arguments, "tessera config check", "kind"),
             processes = take_flag(arguments, "tessera config check", "num_processes");
  for (const std::string& argument : arguments)
    if (argument.starts_with("--"))
      throw InputError(concat("tessera config check: unknown flag ", argument, " (see tessera config --help)"));
  if (arguments.empty()) throw InputError("tessera config check: no file is named (tessera config check FILE...)");
  bool right = true;
  for (const std::string& path : arguments) right = check_file(path, kind, processes) && right;
  if (right && arguments.size() > 1 && !kind) right = check_together(arguments, processes);
  std::cout.flush();
  return static_cast<int>(right ? ExitCode::done : ExitCode::bad_input);
}

int config_convert(const Arguments& given) {
  Arguments arguments = given;
  const auto to = take_flag(arguments, "tessera config convert", "to"),
             kind = take_flag(arguments, "tessera config convert", "kind"),
             output = take_flag(arguments, "tessera config convert", "output");
  const bool overwrite = take_switch(arguments, "overwrite");
  const auto target = to ? config::kind_of_word(*to) : std::nullopt;
  if (!target)
    throw InputError(concat("tessera config convert: ", to ? concat("--to is '", *to, "'; it") : "--to",
                            " must be one of tessera, accelerate, deepspeed, fsdp_config, training_args"));
  name_file(arguments, kind);
  if (arguments.empty())
    throw InputError("tessera config convert: no file is named (tessera config convert FILE --to KIND)");
  config::Problems problems;
  const config::Resolved resolved = resolve_arguments(arguments, false, problems);
  config::throw_if_any(problems);
  const config::Converted converted = config::convert(resolved, *target);
  const bool json = output && to_lower(*output).ends_with(".json");
  const std::string text = config::file_text(converted.file, *target, json);
  if (output)
    write_configuration(*output, text, overwrite);
  else
    std::cout << text << std::flush;
  print_notes(resolved);
  for (const std::string& line : converted.lost) std::cerr << "warning: " << line << '\n';
  return 0;
}

}  // namespace tessera::tool
