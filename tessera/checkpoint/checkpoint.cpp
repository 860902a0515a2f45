#include <tessera/checkpoint/checkpoint.h>

#include <iterator>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/checkpoint/read_back.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/verify.h>

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
    // read back before it gets its name, and before older ones go
    for (const std::string& name : list_folder(folder)) forget_pages(path_join(folder, name));
    if (const format::Verdict verdict = format::verify_folder(folder); !verdict.whole())
      throw Error(concat(folder, ": came back different from what was written: ", verdict.text()));
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
  const Finding finding = examine(folder, {});
  if (finding.kind != Finding::Kind::whole) throw InputError(finding.text);
}

}  // namespace tessera::checkpoint
