#include <tessera/train/reporting/output.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/system/abandoned.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/config/core/mesh.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/load.h>
#include <tessera/models/vision/llava.h>
#include <tessera/plan/automatic.h>
#include <tessera/train/loop/restart.h>
#include <tessera/train/reporting/report.h>

namespace tessera::train {
namespace {

std::string made_folder(const OutputConfig& output) {
  try {
    make_folders(output.output_dir);
  } catch (const Error& error) {
    throw InputError(concat("--output_dir: ", error.what()));
  }
  return output.output_dir;
}

/// Prepares the folder and returns it, so that the metrics file can be opened in the initializer.
std::string make_ready(const Setup& setup) {
  const OutputConfig& output = setup.config.output;
  prepare_output_folder(output, setup.resume_folder, this_restart().generation == 0,
                        setup.lora && setup.config.model.lora_merge);
  mark_output(output.output_dir, this_restart());
  // Removes the files left behind by runs that were killed while writing; the folder is locked, so no other run is
  // using it.
  remove_abandoned(output.output_dir, [](const std::string& name) {
    const std::string whole = name_of_temporary(name);
    return whole == kRunFilesList || (!whole.empty() && is_run_name(whole));
  });
  if (setup.config.sharding.auto_strategy) {
    const std::int64_t processes = setup.plan.data_ranks * config::ranks_per_sample(setup.config.parallel);
    RunFiles(output.output_dir).add({plan::chosen_file});
    write_file_atomically(path_join(output.output_dir, plan::chosen_file),
                          plan::chosen_text(setup.config, static_cast<int>(processes)));
  }
  return output.output_dir;
}

checkpoint::NamedTensors weights_of(const models::LanguageModel& model) {
  checkpoint::NamedTensors weights;
  for (const auto& item : model.named_parameters()) weights.emplace_back(item.key(), item.value().detach());
  return weights;
}

/// The preprocessing of the model's images; null: the model has no image input.
Value preprocessor_of(const models::LanguageModel& model) {
  const auto* const llava = dynamic_cast<const models::Llava*>(&model);
  return llava == nullptr ? Value() : llava->preprocessor();
}

std::shared_ptr<const text::Tokenizer> tokenizer_of(const Setup& setup) {
  return setup.tokenizer_fits_data ? setup.tokenizer : nullptr;
}

}  // namespace

OutputFolder::OutputFolder(const Setup& setup)
    : lock_(made_folder(setup.config.output), this_restart().job),
      folder_(make_ready(setup)),
      files_(folder_),
      metrics_(path("metrics.jsonl"), setup.resume ? setup.resume->step : -1) {}

std::string OutputFolder::path(const std::string& name) const { return path_join(folder_, name); }

std::function<std::vector<format::ManifestFile>(const std::string&)> OutputFolder::small_files(
    const Setup& setup, checkpoint::RunState state) {
  return [config = setup.saved_config, lora = setup.lora, tokenizer = tokenizer_of(setup),
          preprocessor = preprocessor_of(*setup.model), generation = setup.generation_config,
          state = std::move(state)](const std::string& folder) {
    checkpoint::WrittenFiles written =
        lora ? checkpoint::write_adapter_settings(folder, *lora, tokenizer.get())
             : checkpoint::write_hf_settings(folder, config, tokenizer.get(), preprocessor, generation);
    checkpoint::WrittenFiles resuming = checkpoint::write_run_state(folder, state);
    std::move(resuming.begin(), resuming.end(), std::back_inserter(written));
    return written;
  };
}

void OutputFolder::append(const Value& line) {
  renew_lock();
  metrics_.append(line);
}

void OutputFolder::note_new_files(const std::vector<std::string>& names) {
  const std::vector<std::string> there = list_folder(folder_);
  std::vector<std::string> fresh;
  for (const std::string& name : names)
    if (is_run_name(name) && !std::binary_search(there.begin(), there.end(), name)) fresh.push_back(name);
  files_.add(fresh);
}

void OutputFolder::save_merged(const Setup& setup) {
  if (!setup.lora || !setup.config.model.lora_merge) return;
  const auto merged = models::load_language_folder(folder_);
  // The adapters were trained on top of the quantized weights, so they are added to the dequantized values.
  if (const auto form = models::quantized_form(setup.config.model)) models::quantize(*merged, *form, nullptr);
  models::merge_lora(*merged);
  checkpoint::publish_folder(path(kMergedFolder), [&](const std::string& folder) {
    checkpoint::write_hf_folder(folder, weights_of(*merged), merged->hf_config(), tokenizer_of(setup).get(),
                                preprocessor_of(*merged), setup.generation_config);
    std::vector<std::string> names;
    for (const std::string& name : list_folder(folder)) names.push_back(concat(kMergedFolder, "/", name));
    files_.add(names);
  });
}

void OutputFolder::write_cards(CardFacts facts) {
  const auto write = [&](const std::string& folder) {
    try {
      if (!write_model_card(folder, model_card(facts)))
        log::info(path_join(folder, "README.md"), " was not written by a run, so it is kept");
    } catch (const Error& error) {
      log::warning("the model card could not be written: ", error.what());
    }
  };
  write(folder_);
  if (!facts.adapters || !is_directory(path(kMergedFolder))) return;
  facts.adapters = false;  // the whole model
  write(path(kMergedFolder));
}

void OutputFolder::write_report(Report report) {
  const auto or_warn = [](const auto& write) {
    try {
      write();
    } catch (const std::exception& error) {
      log::warning("the report could not be updated, and training continues: ", error.what());
    }
  };
  or_warn([&] {
    files_.add({"report.html"});
    reports_.submit([or_warn, file = path("report.html"), shown = std::make_shared<const Report>(std::move(report))] {
      or_warn([&] { write_file_atomically(file, render(*shown)); });
    });
  });
}

}  // namespace tessera::train
