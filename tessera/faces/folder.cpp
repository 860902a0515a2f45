#include <tessera/faces/folder.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <map>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/format/manifest/verify.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/train/core/best_model.h>
#include <tessera/train/loop/setup.h>

namespace tessera::faces {
namespace {

constexpr const char* kRandomFile = "random.safetensors";

/// Frozen parameters and buffers; of buffers rank 0's values are saved.
std::vector<train::UntrainedTensor> untrained_of(Training& training) {
  std::vector<train::UntrainedTensor> untrained = train::frozen_tensors(training.sharded());
  for (const auto& item : training.module().named_buffers()) {
    const at::Tensor buffer = item.value().detach();
    untrained.push_back(
        {item.key(), buffer.scalar_type(), buffer.sizes().vec(), [buffer] { return buffer; }, /*holder=*/0});
  }
  train::put_in_writing_order(untrained);
  return untrained;
}

at::Generator generator_of(c10::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
}

/// The states of all ranks' generators for one kind of device: [ranks, bytes].
at::Tensor gather_random(const comm::Group& group, c10::Device device) {
  const at::Tensor mine = generator_of(device).get_state().to(group.device()).contiguous();  // [bytes], uint8
  const at::Tensor all = at::empty({group.size() * mine.numel()}, mine.options());
  group.all_gather(all, mine).wait();
  return all.cpu().view({group.size(), mine.numel()});
}

checkpoint::NamedTensors random_states(const comm::Group& group) {
  const at::Tensor cpu = gather_random(group, c10::Device(c10::kCPU));
  if (group.device().is_cpu()) return {{"cpu", cpu}};
  return {{"cpu", cpu}, {"device", gather_random(group, group.device())}};
}

void restore_random(const comm::Group& group, const std::string& folder) {
  const format::SafetensorsFile file(path_join(folder, kRandomFile));
  for (const auto& [name, device] : {std::pair("cpu", c10::Device(c10::kCPU)), std::pair("device", group.device())}) {
    const format::TensorInfo* stored = file.find(name);
    if (stored == nullptr) continue;
    at::Generator generator = generator_of(device);
    const at::Tensor all = checkpoint::read_tensor(file, *stored);
    if (all.dim() != 2 || all.size(0) != group.size() || all.size(1) != generator.get_state().numel()) {
      if (group.rank() == 0)
        log::warning(folder, ": saved by ", all.dim() == 2 ? all.size(0) : 0, " ranks, but there are ", group.size(),
                     ": each rank continues with its own random numbers");
      return;
    }
    generator.set_state(all[group.rank()].clone());
  }
}

/// "model", "model_1" and so on.
std::string stem_of(const char* stem, std::size_t i) { return i == 0 ? stem : concat(stem, "_", i); }

/// Removes trailing slashes, so that names can be derived from it.
std::string folder_name(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

/// Returns `state`, completed with the trainings' own values.
checkpoint::RunState complete(checkpoint::RunState state, const std::vector<Training*>& trainings) {
  std::vector<checkpoint::ModelState> models;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    models.push_back(trainings[i]->state());
    if (i < state.models.size()) models[i].torch_scheduler_steps = state.models[i].torch_scheduler_steps;
  }
  trainings[0]->write_to(state, trainings[0]->config());
  state.models = std::move(models);
  return state;
}

std::vector<train::SavedModel> saved_models(const std::vector<Training*>& trainings) {
  std::vector<train::SavedModel> models;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    Training& training = *trainings[i];
    train::SavedModel& model = models.emplace_back(training.saved_model());
    model.untrained = untrained_of(training);
    model.weights_stem = stem_of("model", i);
    model.states_stem = stem_of("optimizer", i);
  }
  return models;
}

}  // namespace

std::vector<train::SavedModel> fill(train::SaveContents& contents, const std::vector<Training*>& trainings,
                                    checkpoint::RunState state, const JsonFiles& files) {
  const comm::Group& group = trainings.at(0)->all();
  checkpoint::NamedTensors random = random_states(group);
  if (group.rank() == 0)
    contents.small_files = [random = std::move(random), state = complete(std::move(state), trainings),
                            files](const std::string& folder) {
      checkpoint::WrittenFiles written = checkpoint::write_run_state(folder, state);
      written.push_back(checkpoint::write_tensors_file(folder, kRandomFile, checkpoint::sources_of(random)));
      for (const auto& [name, value] : files)
        written.push_back(checkpoint::write_json_file(folder, name.c_str(), value));
      return written;
    };
  return saved_models(trainings);
}

void save_training(const std::vector<Training*>& trainings, const std::string& folder, bool full,
                   checkpoint::RunState state, const JsonFiles& files) {
  const Training& first = *trainings.at(0);
  train::SaveContents contents{
      .step = first.state().optimizer_steps, .form = {.full = full}, .folder = folder_name(folder)};
  state.trainer_state = false;
  std::vector<train::SavedModel> models = fill(contents, trainings, std::move(state), files);
  train::save_now(first.all(), std::move(models), std::move(contents));
}

checkpoint::RunState load_training(const std::vector<Training*>& trainings, const std::string& folder,
                                   bool with_optimizer, bool with_random, bool verified) {
  checkpoint::RunState state;
  const comm::Group& group = trainings.at(0)->all();
  comm::run_on_all_ranks(
      group, [&] {  // each rank checks a share of the bytes; nothing is read before all have found theirs intact
        if (!is_directory(folder)) throw InputError(concat(folder, ": no such checkpoint folder"));
        if (!verified) {
          const format::Verdict verdict = format::verify_folder(folder, {group.rank(), group.size()});
          if (!verdict.whole()) throw InputError(concat(folder, ": the checkpoint is damaged: ", verdict.text()));
        }
        state = checkpoint::read_run_state(folder);
        if (const std::size_t saved = state.models.size(); saved != trainings.size())
          throw InputError(concat(folder, ": was saved with ", saved, saved == 1 ? " model" : " models",
                                  ", but there are ", trainings.size(), ": prepare the same ones, in the same order"));
      });
  comm::run_on_all_ranks(group, [&] {
    for (std::size_t i = 0; i < trainings.size(); ++i) {
      Training& training = *trainings[i];
      train::load_weights(training.module(), training.sharded(), folder, stem_of("model", i));
      if (with_optimizer) training.restore(state.models[i], folder, {}, stem_of("optimizer", i));
      training.zero_grad();
    }
    if (with_random) restore_random(group, folder);
  });
  return state;
}

std::string why_not_resumable(const format::Manifest& manifest) {
  const auto lists = [&](const char* name) {
    return std::any_of(manifest.files.begin(), manifest.files.end(),
                       [&](const auto& file) { return file.name == name; });
  };
  if (!lists(kRandomFile))
    return concat(format::kManifestName, " does not list ", kRandomFile,
                  ", which tessera::Trainer needs to resume: another program wrote it");
  // Older checkpoints of tessera::Trainer have an optimizer but no file of the run's state.
  return lists(checkpoint::kRunStateFile) || lists(checkpoint::kOptimizerFile) || lists(checkpoint::kOptimizerIndexFile)
             ? ""
             : "it contains only the model (--save_only_model), so no training can be resumed from it";
}

void save_weights(Training& training, const std::string& folder, std::int64_t max_shard_bytes) {
  if (max_shard_bytes < 1)
    throw InputError(concat("save_model: max_shard_size is ", max_shard_bytes, " bytes; it must be at least 1"));
  const std::string target = folder_name(folder);
  train::save_now(training.all(), {{.sharded = &training.sharded(), .untrained = untrained_of(training)}},
                  {.step = training.update().steps(),
                   .form = {.optimizer = false, .full = true, .max_file_bytes = max_shard_bytes, .finite = false},
                   .folder = target,
                   .model = train::ModelFolder{checkpoint::is_weights_file}});
}

}  // namespace tessera::faces
