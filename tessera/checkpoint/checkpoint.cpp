#include <tessera/checkpoint/checkpoint.h>

#include <algorithm>
#include <iterator>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/format/manifest.h>

namespace tessera::checkpoint {

std::string save_step_folder(const std::string& output_dir,
                             const std::function<WrittenFiles(const std::string&)>& write_model, const RunState& state,
                             std::int64_t keep) {
  remove_stale_folders(output_dir);
  const std::string saved = publish_step_folder(output_dir, state.step, [&](const std::string& folder) {
    format::Manifest manifest{state.step, write_model(folder)};
    WrittenFiles resuming = write_run_state(folder, state);
    std::move(resuming.begin(), resuming.end(), std::back_inserter(manifest.files));
    format::write_manifest(folder, manifest);
  });
  prune_step_folders(output_dir, state.step, keep, state.best_model_checkpoint);
  return saved;
}

std::string save_checkpoint(const std::string& output_dir, TensorSources weights, const Value& config,
                            const text::Tokenizer* tokenizer, const RunState& state, std::int64_t keep) {
  const auto write = [&](const std::string& folder) {
    return write_hf_files(folder, std::move(weights), config, tokenizer);
  };
  return save_step_folder(output_dir, write, state, keep);
}

std::string save_checkpoint(const std::string& output_dir, const NamedTensors& weights, const Value& config,
                            const text::Tokenizer* tokenizer, const RunState& state, std::int64_t keep) {
  return save_checkpoint(output_dir, sources_of(weights), config, tokenizer, state, keep);
}

void verify_checkpoint(const std::string& folder) {
  if (!is_directory(folder)) throw InputError(concat(folder, ": no such checkpoint folder"));
  const format::Manifest manifest = format::read_manifest(folder);
  const auto lists = [&](const char* name) {
    return std::any_of(manifest.files.begin(), manifest.files.end(), [&](const auto& f) { return f.name == name; });
  };
  if (!lists(kRunStateFile) && !lists(kOptimizerFile) && lists(kTrainerStateFile))
    throw InputError(concat(folder, ": it holds the model only (--save_only_model), so no run can be resumed from it; a new one can start "
                            "from it with --model_name_or_path"));
  const bool adapters = lists(kAdapterConfigFile);  // of a frozen base model, which is elsewhere
  for (const char* needed : {adapters ? kAdapterConfigFile : kConfigFile, adapters ? kAdapterWeightsFile : kWeightsFile,
                             kTrainerStateFile, kRunStateFile, kOptimizerFile}) {
    if (!lists(needed))
      throw InputError(
          concat(folder, ": ", format::kManifestName, " does not list ", needed, ", which a checkpoint needs"));
  }
  format::verify_files(folder, manifest);
}

std::optional<std::string> newest_checkpoint(const std::string& output_dir) {
  for (const StepFolder& folder : step_folders(output_dir)) {
    try {
      verify_checkpoint(folder.path);
      return folder.path;
    } catch (const InputError& error) {
      log::warning("skipping a checkpoint: ", error.what());
    }
  }
  return std::nullopt;
}

}  // namespace tessera::checkpoint
