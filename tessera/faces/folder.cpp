#include <tessera/faces/folder.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <map>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/comm/agree.h>
#include <tessera/format/manifest/verify.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/train/loop/setup.h>

namespace tessera::faces {
namespace {

constexpr const char* kStateFile = "state.json";
constexpr const char* kRandomFile = "random.safetensors";

/// Frozen parameters, and buffers, of which rank 0's count.
std::vector<train::UntrainedTensor> untrained_of(Training& training) {
  const Sharded& sharded = training.sharded();
  std::vector<train::UntrainedTensor> untrained;
  for (ShardedParameter& frozen : sharded.frozen_parameters()) {
    train::UntrainedTensor& added = untrained.emplace_back(frozen.name, frozen.local.scalar_type(), frozen.shape);
    added.whole = [&sharded, frozen = std::move(frozen)] { return sharded.gather_like(frozen, frozen.local.detach()); };
  }
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

/// The states of all ranks' generators, of one kind of device: [ranks, bytes].
at::Tensor gather_random(const comm::Group& group, c10::Device device) {
  const at::Tensor mine = generator_of(device).get_state().to(group.device()).contiguous();  // [bytes], uint8
  const at::Tensor all = at::empty({group.size() * mine.numel()}, mine.options());
  group.all_gather(all, mine).wait();
  return all.cpu().view({group.size(), mine.numel()});
}

checkpoint::NamedTensors random_states(const comm::Group& group) {
  checkpoint::NamedTensors states{{"cpu", gather_random(group, c10::Device(c10::kCPU))}};
  if (!group.device().is_cpu()) states.emplace_back("device", gather_random(group, group.device()));
  return states;
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
        log::warning(folder, ": saved by ", all.dim() == 2 ? all.size(0) : 0, " ranks, now there are ", group.size(),
                     ": random numbers go on from where each rank is");
      return;
    }
    generator.set_state(all[group.rank()].clone());
  }
}

/// "model", "model_1" and so on.
std::string stem_of(const char* stem, std::size_t i) { return i == 0 ? stem : concat(stem, "_", i); }

/// Without the slashes at the end, so that names can be made of it.
std::string folder_name(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

/// Counts and loss scale of one module.
Value counts_of(Training& training) {
  Value own = Value::make_object({{"optimizer_steps", Value::of(training.update().steps())},
                                  {"schedule_steps", Value::of(training.schedule_steps())}});
  if (const optim::LossScale* scale = training.loss_scale())
    own.set("loss_scale", Value::make_object({{"scale", Value::of(scale->state().scale)},
                                              {"good_steps", Value::of(scale->state().good_steps)},
                                              {"skipped_steps", Value::of(scale->state().skipped_steps)},
                                              {"hysteresis", Value::of(scale->state().hysteresis)}}));
  return own;
}

/// The first module's counts stand in the object itself, those of others in "more".
Value training_state(const std::vector<Training*>& trainings, const Value& state) {
  Value own = Value::make_object({{"format", Value::of("tessera-training-1")}, {"state", state}});
  const Value first = counts_of(*trainings[0]);
  for (const auto& [name, value] : first.members()) own.set(name, value);
  if (trainings.size() == 1) return own;
  Value more = Value::make_array();
  for (std::size_t i = 1; i < trainings.size(); ++i) more.push_back(counts_of(*trainings[i]));
  own.set("more", more);
  return own;
}

/// Of every module. Throws InputError unless there are as many.
std::vector<Value> stored_counts(const Value& own, std::size_t modules, const std::string& folder) {
  std::vector<Value> counts = {own};
  if (const Value* more = own.find("more")) counts.insert(counts.end(), more->items().begin(), more->items().end());
  if (counts.size() != modules)
    throw InputError(concat(folder, ": was saved with ", counts.size(), counts.size() == 1 ? " model" : " models",
                            ", but there are ", modules, ": prepare the same ones, in the same order"));
  return counts;
}

void restore_counts(Training& training, const Value& counts) {
  training.set_schedule_steps(counts.at("schedule_steps").as_int());
  const Value* scale = counts.find("loss_scale");
  if (scale == nullptr || training.loss_scale() == nullptr) return;
  const Value* hysteresis = scale->find("hysteresis");
  training.loss_scale()->set_state({.scale = scale->at("scale").as_real(),
                                    .good_steps = scale->at("good_steps").as_int(),
                                    .skipped_steps = scale->at("skipped_steps").as_int(),
                                    .hysteresis = hysteresis != nullptr ? hysteresis->as_int() : 0});
}

void restore_weights(Training& training, const std::string& folder, const std::string& stem) {
  const format::SafetensorsFolder weights(folder, stem);
  const auto find = [&](const std::string& name) -> const format::SafetensorsFolder::Stored& {
    if (const auto* stored = weights.find(name)) return *stored;
    throw InputError(concat(folder, ": holds no ", name, ", which this model has: it is another model's"));
  };
  const auto check = [&](const std::string& name, at::IntArrayRef sizes) {
    const at::IntArrayRef stored = find(name).info.shape;
    if (stored != sizes)
      throw InputError(concat(folder, ": ", name, " is of shape ", stored, ", this model's of ", sizes));
  };
  const auto read = [&](const std::string& name) {
    const auto& stored = find(name);
    return checkpoint::read_tensor(weights.files()[stored.file], stored.info);
  };
  std::size_t names = training.module().named_buffers().size();
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const ShardedParameter& parameter : training.sharded().named_parameters())
    shapes[parameter.name] = parameter.shape;
  for (const auto& [name, shape] : shapes) check(name, shape);
  training.sharded().load_parameters([&](const std::string& name) {
    ++names;
    return read(name);
  });
  const at::NoGradGuard no_grad;
  for (const auto& item : training.module().named_buffers()) {
    check(item.key(), item.value().sizes());
    at::Tensor(item.value()).copy_(read(item.key()));
  }
  if (names != weights.tensors().size())
    throw InputError(concat(folder, ": holds ", weights.tensors().size(), " tensors, this model has ", names,
                            ": it is another model's"));
}

std::vector<train::SavedModel> saved_models(const std::vector<Training*>& trainings) {
  std::vector<train::SavedModel> models;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    Training& training = *trainings[i];
    models.push_back({.sharded = &training.sharded(),
                      .states = training.update().states(training.sharded()),
                      .untrained = untrained_of(training),
                      .weights_stem = stem_of("model", i),
                      .states_stem = stem_of("optimizer", i)});
  }
  return models;
}

/// Collective.
void add_small_files(train::SaveContents& contents, const std::vector<Training*>& trainings, const Value& state,
                     const JsonFiles& files) {
  const comm::Group& group = trainings.at(0)->group();
  checkpoint::NamedTensors random = random_states(group);
  if (group.rank() != 0) return;
  JsonFiles all = {{kStateFile, training_state(trainings, state)}};
  all.insert(all.end(), files.begin(), files.end());
  contents.small_files = [random = std::move(random), all = std::move(all)](const std::string& folder) {
    checkpoint::WrittenFiles written = {
        checkpoint::write_tensors_file(folder, kRandomFile, checkpoint::sources_of(random))};
    for (const auto& [name, value] : all) written.push_back(checkpoint::write_json_file(folder, name.c_str(), value));
    return written;
  };
}

void throw_unless_saved(const comm::Group& group, const train::SaveOutcome& outcome) {
  comm::agree(group, [&] {
    if (!outcome.error.empty() && group.rank() == 0)
      throw Error(concat(outcome.folder, " is not saved: ", outcome.error));
  });
}

void save_in_folder(const std::vector<Training*>& trainings, const std::string& folder, const Value& state,
                    const JsonFiles& files, bool full) {
  Training& first = *trainings.at(0);
  train::SaveContents contents{.step = first.update().steps(), .form = {.full = full}, .folder = folder_name(folder)};
  add_small_files(contents, trainings, state, files);
  throw_unless_saved(first.group(), train::save_now(first.group(), saved_models(trainings), std::move(contents)));
}

}  // namespace

void start_saving(const std::vector<Training*>& trainings, train::Saver& saver, train::SaveContents contents,
                  const Value& state, const JsonFiles& files) {
  add_small_files(contents, trainings, state, files);
  saver.save(saved_models(trainings), std::move(contents));
}

void save_training(const std::vector<Training*>& trainings, const std::string& folder, const Value& state,
                   const JsonFiles& files) {
  save_in_folder(trainings, folder, state, files, /*full=*/true);
}

void save_training_as_configured(const std::vector<Training*>& trainings, const std::string& folder, const Value& state,
                                 const JsonFiles& files) {
  const bool full = trainings.at(0)->config().output.save_state_dict_type == StateDictType::full;
  save_in_folder(trainings, folder, state, files, full);
}

Value load_training(const std::vector<Training*>& trainings, const std::string& folder, bool with_optimizer,
                    bool with_random, bool verified) {
  Value state;
  const comm::Group& group = trainings.at(0)->group();
  std::vector<Value> counts;
  comm::agree(group, [&] {  // each rank a share of the bytes; nothing is read before all have found theirs whole
    if (!is_directory(folder)) throw InputError(concat(folder, ": no such checkpoint folder"));
    if (!verified) {
      const format::Verdict verdict = format::verify_folder(folder, {group.rank(), group.size()});
      if (!verdict.whole()) throw InputError(concat(folder, ": the checkpoint is damaged: ", verdict.text()));
    }
    const Value own = read_json(path_join(folder, kStateFile));
    counts = stored_counts(own, trainings.size(), folder);
    state = own.at("state");
  });
  comm::agree(group, [&] {
    for (std::size_t i = 0; i < trainings.size(); ++i) {
      Training& training = *trainings[i];
      restore_weights(training, folder, stem_of("model", i));
      if (with_optimizer) {
        training.update().restore(training.sharded(), folder, stem_of("optimizer", i),
                                  counts[i].at("optimizer_steps").as_int());
        restore_counts(training, counts[i]);
      }
      training.zero_grad();
    }
    if (with_random) restore_random(group, folder);
  });
  return state;
}

std::string why_not_resumable(const format::Manifest& manifest) {
  for (const format::ManifestFile& file : manifest.files)
    if (file.name == kStateFile) return "";
  return concat(format::kManifestName, " does not list ", kStateFile,
                ", with which tessera::Trainer goes on: another program wrote it");
}

Value read_state(const std::string& folder) { return read_json(path_join(folder, kStateFile)).at("state"); }
Value read_json_file(const std::string& folder, const std::string& name) { return read_json(path_join(folder, name)); }

void save_weights(Training& training, const std::string& folder, std::int64_t max_shard_bytes) {
  if (max_shard_bytes < 1)
    throw InputError(concat("save_model: max_shard_size is ", max_shard_bytes, " bytes, must be at least 1"));
  const std::string target = folder_name(folder);
  const train::SaveOutcome outcome =
      train::save_now(training.group(), {{.sharded = &training.sharded(), .untrained = untrained_of(training)}},
                      {.step = training.update().steps(),
                       .form = {.optimizer = false, .full = true, .max_file_bytes = max_shard_bytes, .finite = false},
                       .folder = target,
                       .model = train::ModelFolder{checkpoint::is_weights_file}});
  throw_unless_saved(training.group(), outcome);
}

}  // namespace tessera::faces
