#include <tessera/config/resolve/front_ends.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_environment.h>
#include <tessera/config/accelerate/accelerate_file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/kinds/args_file.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/config/resolve/tessera_file.h>

#include <functional>

namespace tessera::config {
namespace {

/// Applies the result of `read` to settings that no stronger source has given. If the file cannot be read at all, the
/// setting that names it becomes doubtful: the values it would have set are unknown, not wrong.
void hear(const char* named_by, Resolved& resolved, Problems& problems, const std::function<Translation()>& read) {
  if (problems.doubtful.contains(named_by)) return;
  try {
    apply(read(), resolved);
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
    problems.doubtful.insert(named_by);
  }
}

/// Values in accelerate's file must agree with other sources, as transformers requires of DeepSpeed's values. The
/// number of processes belongs to the launcher, whose flag overrides accelerate's file in accelerate as well.
void check_agreement(const Translation& file, Resolved& resolved, Problems& problems) {
  for (const FileSetting& setting : file.settings) {
    const Origin& origin = resolved.origin(setting.name);
    const Field* field = find_field(setting.name);
    RunConfig theirs;
    if (!origin.is_given() || field->set(theirs, setting.text)) continue;
    const Value here = field->get(resolved.values), there = field->get(theirs);
    if (dump_json(here) == dump_json(there) || setting.text == "auto") continue;
    const auto shown = [](const Value& value) { return value.is_string() ? value.as_string() : dump_json(value, -1); };
    const std::string both = concat(file_and_line(setting.where), ": ", setting.key, " ",
                                    setting.key == "mixed_precision" ? setting.name : shown(there), " contradicts ",
                                    setting.name, " ", shown(here), " (", origin, ")");
    if (setting.name == "num_processes") {
      resolved.notes.push_back(concat(both, ", which is used"));
      continue;
    }
    problems.lines.push_back(concat(both, ": make them equal, or remove one of them"));
    problems.doubtful.insert(setting.name);
  }
}

/// accelerate writes "no" by default, so --bf16 and --fp16 take precedence over it, as in transformers.
void tell_precision(const Value& file, Resolved& resolved) {
  const Value* word = file.find("mixed_precision");
  const auto text = word == nullptr ? std::nullopt : as_text(*word, false);
  if (!text || (to_lower(*text) != "no" && to_lower(*text) != "false")) return;
  for (const char* name : {"bf16", "fp16"})
    if (resolved.origin(name).is_given() && resolved.origin(name).kind != Origin::Kind::environment &&
        find_field(name)->get(resolved.values).as_bool())
      resolved.notes.push_back(concat(file_and_line(word->where()), ": mixed_precision no contradicts ", name,
                                      " true (", resolved.origin(name), "), which is used"));
}

}  // namespace

void read_front_ends(Resolved& resolved, Problems& problems, const GetEnvironment& given) {
  const GetEnvironment environment = [&](const std::string& variable) { return look_up(given, variable); };
  const FilesConfig& files = resolved.values.files;  // a file may name the next one

  apply(read_accelerate_environment(environment, problems), resolved);
  if (!files.args_file.empty() &&
      !to_lower(files.args_file).ends_with(".args"))  // .args files are words before the typed ones
    hear("args_file", resolved, problems, [&] { return read_training_args_file(files.args_file, resolved, problems); });
  if (!files.config.empty())
    hear("config", resolved, problems, [&] { return read_tessera_file(files.config, problems); });
  if (!files.config_file.empty())
    hear("config_file", resolved, problems, [&] {
      const std::size_t before = problems.lines.size();
      Translation file = read_accelerate_file(files.config_file, problems);
      const bool readable = problems.lines.size() == before;
      check_agreement(file, resolved, problems);
      std::vector<std::string> repeated;  // already reported
      if (readable) tell_precision(load_accelerate_file(files.config_file, &repeated), resolved);
      return file;
    });
  apply_implied(resolved);
  if (!files.deepspeed.empty())
    hear("deepspeed", resolved, problems, [&] { return read_deepspeed(files.deepspeed, resolved, problems); });
  settle_implied(resolved);  // DeepSpeed's file takes precedence over implied settings
}

}  // namespace tessera::config
