// --load: the checkpoint to resume from, if any.
#include <tessera/config/megatron/megatron_reading.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <algorithm>

namespace tessera::config {
namespace {

bool holds_checkpoints(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with("checkpoint-"); });
}

/// Whether these are checkpoints in Megatron's format.
bool holds_megatrons(const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), "latest_checkpointed_iteration.txt") != names.end();
}

bool is_saved_there(MegatronArguments& arguments, const std::string& load) {
  const auto save = arguments.text("save");
  return save && absolute_path(load) == absolute_path(*save);
}

}  // namespace

bool loads_nothing(MegatronArguments& arguments) {
  const auto load = arguments.text("load");
  if (!load || !path_exists(*load)) return true;
  if (!is_directory(*load)) return false;
  const auto names = list_folder(*load);
  return !holds_megatrons(names) && !holds_checkpoints(names) && (names.empty() || is_saved_there(arguments, *load));
}

void translate_megatron_load(MegatronArguments& arguments) {
  const auto load = arguments.text("load");
  if (!load) return;
  if (path_exists(*load) && !is_directory(*load))
    return arguments.problem("load",
                             concat(*load, " is a file; use a folder with checkpoints, or a checkpoint-N in one"),
                             {"resume_from_checkpoint"});
  const bool saved_here = is_saved_there(arguments, *load);
  std::string last = *load;
  while (last.size() > 1 && last.ends_with('/')) last.pop_back();
  last = last.substr(last.rfind('/') + 1);
  if (!saved_here && last.starts_with("checkpoint-") && parse_int(last.substr(last.find('-') + 1)))
    return arguments.give("load", "resume_from_checkpoint", *load);
  const auto names = is_directory(*load) ? list_folder(*load) : std::vector<std::string>{};
  if (holds_megatrons(names))
    return arguments.problem("load",
                             concat(*load,
                                    " contains checkpoints in Megatron's format, which cannot be read: convert them to "
                                    "a Hugging Face folder and pass it as --model_name_or_path"),
                             {"resume_from_checkpoint"});
  const bool has_some = holds_checkpoints(names);
  if (has_some && !saved_here)
    return arguments.problem("load",
                             concat(*load, " is not the folder of --save: specify a checkpoint-N folder inside it"),
                             {"resume_from_checkpoint"});
  if (!loads_nothing(arguments)) return arguments.give("load", "resume_from_checkpoint", has_some ? "last" : *load);
  if (arguments.has("exit_on_missing_checkpoint"))
    return arguments.problem("load", concat(*load, " contains no checkpoint: remove it"), {"resume_from_checkpoint"});
  arguments.note("load", concat(*load, " contains no checkpoint: the run starts from scratch"));
}

}  // namespace tessera::config
