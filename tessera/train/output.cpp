#include <tessera/train/output.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/train/report.h>

namespace tessera::train {
namespace {

/// Makes the folder ready and returns it, so that the metrics file can be opened in the initialiser.
std::string make_ready(const Setup& setup) {
  const OutputConfig& output = setup.config.output;
  try {
    make_folders(output.output_dir);
  } catch (const Error& error) {
    throw InputError(concat("--output_dir: ", error.what()));
  }
  if (output.overwrite_output_dir && setup.resume_folder.empty()) {
    for (const auto& checkpoint : checkpoint::step_folders(output.output_dir)) remove_tree(checkpoint.path);
    for (const char* name : {"metrics.jsonl", "report.html", "runs", "trainer_state.json"})
      remove_tree(path_join(output.output_dir, name));
  }
  return output.output_dir;
}

checkpoint::NamedTensors weights_of(const models::CausalLm& model) {
  checkpoint::NamedTensors weights;
  for (const auto& item : model.named_parameters()) weights.emplace_back(item.key(), item.value().detach());
  return weights;
}

}  // namespace

OutputFolder::OutputFolder(const Setup& setup)
    : folder_(make_ready(setup)), metrics_(path("metrics.jsonl"), setup.resume ? setup.resume->step : -1) {}

std::string OutputFolder::path(const std::string& name) const { return path_join(folder_, name); }

std::string OutputFolder::save_checkpoint(const Setup& setup, const checkpoint::RunState& state) {
  return checkpoint::save_checkpoint(folder_, weights_of(*setup.model), setup.model->hf_config(),
                                     setup.tokenizer_fits_data ? setup.tokenizer.get() : nullptr, state,
                                     setup.config.output.save_total_limit);
}

void OutputFolder::save_model(const Setup& setup, const checkpoint::RunState& state) {
  checkpoint::write_hf_folder(folder_, weights_of(*setup.model), setup.model->hf_config(),
                              setup.tokenizer_fits_data ? setup.tokenizer.get() : nullptr);
  checkpoint::write_trainer_state(folder_, state);
}

void OutputFolder::write_report(const Report& report) { write_file_atomically(path("report.html"), render(report)); }

}  // namespace tessera::train
