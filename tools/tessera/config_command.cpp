/// \file
/// tessera config: shows, checks, converts and creates configurations.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/kinds/key_tables.h>
#include <tessera/config/megatron/megatron_args.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/config/resolve/schema.h>
#include <tools/tessera/config_command.h>

#include <algorithm>
#include <cstdio>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera config: configurations of runs\n\n"
    "usage: tessera config                             interactive questionnaire\n"
    "       tessera config show [FILE] [settings]      all settings and where each\n"
    "                                                  came from\n"
    "       tessera config check FILE...               all problems of each file, and\n"
    "                                                  of kinds that form one run\n"
    "       tessera config convert FILE --to KIND      the same run in another\n"
    "                                                  system's format\n"
    "       tessera config default                     accelerate's default file\n"
    "       tessera config update                      a file with current key names\n"
    "       tessera config to-fsdp2 --config_file FILE from FSDP version 1 to 2\n"
    "       tessera config schema                      JSON Schema of our own file\n"
    "       tessera config docs                        keys of all formats and their\n"
    "                                                  translation (Markdown)\n\n"
    "flags:\n"
    "  show      the flags of `tessera train`, and\n"
    "            --all            also defaults\n"
    "            --format F       text (default), json or yaml\n"
    "            --kind KIND      of FILE, instead of guessing it from the keys\n"
    "  check     --kind KIND      the same\n"
    "            --num_processes N  of the run\n"
    "  convert   --to KIND        accelerate, deepspeed, training_args, fsdp_config\n"
    "                             or tessera; settings may follow as for train\n"
    "            --kind KIND      the same\n"
    "            --output FILE    instead of standard output; .json and .yaml decide\n"
    "                             the format where both are possible\n"
    "            --overwrite      replaces an existing FILE\n"
    "  default   --mixed_precision no|fp16|bf16|fp8, --config_file FILE\n"
    "  update    --config_file FILE (default: accelerate's default file)\n"
    "  to-fsdp2  --config_file FILE, and --output_file FILE or --overwrite\n"
    "  (none)    --config_file FILE receives the answers (default: accelerate's)\n\n"
    "KIND is tessera, accelerate, deepspeed, fsdp_config, training_args or megatron\n"
    "(input only).\n"
    "Exit codes: 0 done, 2 a problem in the configuration (nothing was written).\n";

struct Row {
  const char* name;
  int (*run)(const Arguments&);
};

void without_arguments(const char* command, const Arguments& arguments) {
  if (!arguments.empty())
    throw InputError(concat("tessera config ", command, " takes no arguments, not '", arguments[0], "'"));
}

int config_schema(const Arguments& arguments) {
  without_arguments("schema", arguments);
  std::puts(dump_json(config::file_schema()).c_str());
  return 0;
}

int config_docs(const Arguments& arguments) {
  without_arguments("docs", arguments);
  std::fputs(config::key_tables_markdown().c_str(), stdout);
  return 0;
}

constexpr Row rows[] = {{"show", config_show},         {"check", config_check},   {"convert", config_convert},
                        {"default", config_default},   {"update", config_update}, {"to-fsdp2", config_to_fsdp2},
                        {"to_fsdp2", config_to_fsdp2}, {"schema", config_schema}, {"docs", config_docs}};

/// Megatron's arguments are under the key MODEL_ARGS and those of transformers are not, so neither file is read as the
/// other kind.
void deny_other_arguments(const std::string& path, config::FileKind kind) {
  const bool megatron = kind == config::FileKind::megatron;
  if ((!megatron && kind != config::FileKind::training_args) || to_lower(path).ends_with(".args")) return;
  const Value file = config::read_any(path);
  if (!file.is_object() || (file.find(config::model_args_key) != nullptr) == megatron) return;
  throw InputError(concat(path, ": ", megatron ? "has no " : "has ", config::model_args_key,
                          megatron ? ", which contains Megatron-LM's arguments" : ": use --kind megatron"));
}

}  // namespace

config::FileKind kind_of_file(const std::string& path, const std::optional<std::string>& word) {
  std::vector<std::string> words;
  for (const config::FileKind kind : config::all_file_kinds) words.emplace_back(config::kind_word(kind));
  if (word) {
    if (const auto kind = config::kind_of_word(*word)) {
      deny_other_arguments(path, *kind);
      return *kind;
    }
    const auto near = nearest(*word, words);
    throw InputError(concat("--kind is '", *word, "'; it must be one of ", join(words),
                            near ? concat(" (did you mean ", *near, "?)") : ""));
  }
  if (to_lower(path).ends_with(".args")) return config::FileKind::training_args;
  const Value file = config::read_any(path);
  if (file.is_null()) throw InputError(concat(path, ": the file is empty; expected settings"));
  if (!file.is_object()) throw InputError(concat(file.where().str(), ": expected settings by name, such as seed: 5"));
  if (const auto kind = config::guess_kind(file)) return *kind;
  throw InputError(
      concat(path, ": it contains no known key, so its kind cannot be guessed; use --kind, one of ", join(words)));
}

void write_configuration(const std::string& path, const std::string& text, bool overwrite) {
  if (!overwrite) config::require_new_file(path);
  if (is_directory(path)) throw InputError(concat(path, " is a folder; expected a file to write"));
  write_file_atomically(path, text);
}

int config_command(const Arguments& arguments) {
  for (const std::string& argument : arguments)
    if (argument == "--help" || argument == "-h") {
      std::fputs(help, stdout);
      return 0;
    }
  if (arguments.empty() || arguments[0].starts_with("--")) return config_questionnaire(arguments);
  std::vector<std::string> names;
  for (const Row& row : rows) {
    if (arguments[0] == row.name) return row.run(Arguments(arguments.begin() + 1, arguments.end()));
    names.emplace_back(row.name);
  }
  std::erase(names, "to_fsdp2");
  const auto near = nearest(arguments[0], names);
  throw InputError(concat("tessera config has no command '", arguments[0], "'; ",
                          near ? concat("did you mean '", *near, "'?") : concat("the commands are ", join(names))));
}

}  // namespace tessera::tool
