#include <tessera/engine/folder.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/read_into.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/safetensors_index.h>
#include <tessera/format/verify.h>
#include <tessera/train/setup.h>

namespace tessera::engine {
namespace {

constexpr const char* kStateFile = "state.json";
constexpr const char* kRandomFile = "random.safetensors";
constexpr const char* kUntrainedFile = "untrained.safetensors";  // of a SHARDED checkpoint

/// Frozen parameters and buffers, which most models have few of, at once; on rank 0. Collective.
checkpoint::TensorSources untrained_tensors(Training& training) {
  checkpoint::TensorSources others;
  std::set<std::string> trained;
  for (const ShardedParameter& parameter : training.sharded().named_parameters()) trained.insert(parameter.name);
  const bool writes = training.group().rank() == 0;
  std::size_t parameters = 0;
  for (const auto& item : training.module().named_parameters()) parameters += item.value().requires_grad() ? 0 : 1;
  if (parameters > 0)
    training.sharded().visit_parameters([&](const std::string& name, const at::Tensor& value) {
      if (writes && !trained.count(name)) others.push_back(checkpoint::tensor_source(name, value.detach().clone()));
    });
  if (writes)
    for (const auto& item : training.module().named_buffers())
      others.push_back(checkpoint::tensor_source(item.key(), item.value().detach()));
  return others;
}

/// Trained parameters are gathered one by one.
struct Weights {
  train::GatheredTensors trained;
  checkpoint::TensorSources others;
};

Weights weights_of(Training& training) {
  return {train::trained_weights(training.sharded()), untrained_tensors(training)};
}

checkpoint::TensorSources sources_of(Weights& weights) {
  checkpoint::TensorSources sources = weights.trained.sources();
  sources.insert(sources.end(), weights.others.begin(), weights.others.end());
  return sources;
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
std::string file_of(const char* stem, std::size_t i) { return stem_of(stem, i) + ".safetensors"; }

/// Counts and loss scale of one module.
Value counts_of(Training& training) {
  Value own = Value::make_object({{"optimizer_steps", Value::of(training.update().steps())},
                                  {"schedule_steps", Value::of(training.schedule_steps())}});
  if (const auto& scale = training.loss_scale())
    own.set("loss_scale", Value::make_object({{"scale", Value::of(scale->state().scale)},
                                              {"good_steps", Value::of(scale->state().good_steps)},
                                              {"skipped_steps", Value::of(scale->state().skipped_steps)}}));
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
  if (scale != nullptr && training.loss_scale())
    training.loss_scale()->set_state(
        {scale->at("scale").as_real(), scale->at("good_steps").as_int(), scale->at("skipped_steps").as_int()});
}

/// Gives `made` the name `target`, whose former folder goes.
void put_in_place(const std::string& made, const std::string& target) {
  const std::string aside = target + ".old";
  remove_tree(aside);
  if (path_exists(target) && std::rename(target.c_str(), aside.c_str()) != 0)
    throw Error(concat("cannot rename ", target));
  if (std::rename(made.c_str(), target.c_str()) != 0) throw Error(concat("cannot rename ", made, " to ", target));
  remove_tree(aside);
}

/// Of one module: STEM.safetensors, or shards and their index, and untrained.safetensors beside them.
class StoredWeights {
 public:
  StoredWeights(const std::string& folder, const std::string& stem) : folder_(folder), weights_(folder, stem) {
    const std::string untrained = path_join(folder, kUntrainedFile);
    if (path_exists(untrained)) untrained_.emplace(untrained);
  }
  std::size_t size() const { return weights_.tensors().size() + (untrained_ ? untrained_->tensors().size() : 0); }
  const std::vector<std::int64_t>& shape(const std::string& name) const { return *find(name).first; }
  at::Tensor read(const std::string& name) const { return find(name).second(); }

 private:
  std::pair<const std::vector<std::int64_t>*, std::function<at::Tensor()>> find(const std::string& name) const {
    if (const auto* stored = weights_.find(name))
      return {&stored->info.shape, [this, stored] {
                return checkpoint::read_tensor(weights_.files()[stored->file], stored->info);
              }};
    if (const auto* info = untrained_ ? untrained_->find(name) : nullptr)
      return {&info->shape, [this, info] { return checkpoint::read_tensor(*untrained_, *info); }};
    throw InputError(concat(folder_, ": holds no ", name, ", which this model has: it is another model's"));
  }

  std::string folder_;
  format::SafetensorsFolder weights_;
  std::optional<format::SafetensorsFile> untrained_;
};

void restore_weights(Training& training, const std::string& folder, const std::string& stem) {
  const StoredWeights weights(folder, stem);
  const auto check = [&](const std::string& name, at::IntArrayRef sizes) {
    if (at::IntArrayRef(weights.shape(name)) != sizes)
      throw InputError(concat(folder, ": ", name, " is of shape ", at::IntArrayRef(weights.shape(name)),
                              ", this model's of ", sizes));
  };
  std::size_t names = training.module().named_buffers().size();
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const ShardedParameter& parameter : training.sharded().named_parameters())
    shapes[parameter.name] = parameter.shape;
  for (const auto& [name, shape] : shapes) check(name, shape);
  training.sharded().load_parameters([&](const std::string& name) {
    ++names;
    return weights.read(name);
  });
  const at::NoGradGuard no_grad;
  for (const auto& item : training.module().named_buffers()) {
    check(item.key(), item.value().sizes());
    at::Tensor(item.value()).copy_(weights.read(item.key()));
  }
  if (names != weights.size())
    throw InputError(concat(folder, ": holds ", weights.size(), " tensors, this model has ", names,
                            ": it is another model's"));
}

}  // namespace

void save_training(const std::vector<Training*>& trainings, const std::string& folder, const Value& state,
                   const JsonFiles& files) {
  const comm::Group& group = trainings.at(0)->group();
  std::vector<Weights> weights;
  std::vector<train::GatheredTensors> states;
  for (Training* training : trainings) {
    weights.push_back(weights_of(*training));
    states.push_back(training->update().states(training->sharded()));
  }
  std::vector<train::GatheredTensors*> in_order;
  for (Weights& own : weights) in_order.push_back(&own.trained);
  for (train::GatheredTensors& own : states) in_order.push_back(&own);
  const checkpoint::NamedTensors random = random_states(group);
  std::function<void()> write;
  if (group.rank() == 0)
    write = [&] {
      const std::string temporary = folder + ".tmp";
      remove_tree(temporary);
      make_folders(temporary);
      format::Manifest manifest{trainings[0]->update().steps(), {}};
      const auto tensors = [&](const std::string& name, checkpoint::TensorSources sources) {
        manifest.files.push_back(checkpoint::write_tensors_file(temporary, name.c_str(), std::move(sources)));
      };
      for (std::size_t i = 0; i < weights.size(); ++i) tensors(file_of("model", i), sources_of(weights[i]));
      for (std::size_t i = 0; i < states.size(); ++i) tensors(file_of("optimizer", i), states[i].sources());
      tensors(kRandomFile, checkpoint::sources_of(random));
      manifest.files.push_back(checkpoint::write_json_file(temporary, kStateFile, training_state(trainings, state)));
      for (const auto& [name, value] : files)
        manifest.files.push_back(checkpoint::write_json_file(temporary, name.c_str(), value));
      format::write_manifest(temporary, manifest);
      put_in_place(temporary, folder);
    };
  train::agree(group, [&] { train::write_gathered(in_order, write); });
}

void save_training_parts(Training& training, train::Saver& saver, std::int64_t step, const Value& state) {
  const optim::Optimizer* optimizer = training.update().own_optimizer();
  TESSERA_CHECK(optimizer != nullptr, "an optimizer of torch::optim is saved whole");
  train::SaveContents contents{.step = step};
  checkpoint::TensorSources untrained = untrained_tensors(training);
  const checkpoint::NamedTensors random = random_states(training.group());
  if (training.group().rank() == 0)
    contents.small_files = [&](const std::string& folder) {
      std::vector<format::ManifestFile> files = {
          checkpoint::write_tensors_file(folder, kRandomFile, checkpoint::sources_of(random)),
          checkpoint::write_json_file(folder, kStateFile, training_state({&training}, state))};
      if (!untrained.empty())
        files.push_back(checkpoint::write_tensors_file(folder, kUntrainedFile, std::move(untrained)));
      return files;
    };
  saver.save(training.sharded(), *optimizer, std::move(contents));
  const auto outcome = saver.finish();
  if (outcome && !outcome->error.empty()) throw Error(concat(outcome->folder, " is not saved: ", outcome->error));
}

Value load_training(const std::vector<Training*>& trainings, const std::string& folder, bool with_optimizer,
                    bool with_random) {
  Value state;
  const comm::Group& group = trainings.at(0)->group();
  std::vector<Value> counts;
  train::agree(group, [&] {  // each rank a share of the bytes; nothing is read before all have found theirs whole
    if (!is_directory(folder)) throw InputError(concat(folder, ": no such checkpoint folder"));
    const format::Verdict verdict = format::verify_folder(folder, {group.rank(), group.size()});
    if (!verdict.whole()) throw InputError(concat(folder, ": the checkpoint is damaged: ", verdict.text()));
    const Value own = read_json(path_join(folder, kStateFile));
    counts = stored_counts(own, trainings.size(), folder);
    state = own.at("state");
  });
  train::agree(group, [&] {
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

Value read_state(const std::string& folder) { return read_json(path_join(folder, kStateFile)).at("state"); }
Value read_json_file(const std::string& folder, const std::string& name) { return read_json(path_join(folder, name)); }

void save_weights(Training& training, const std::string& folder, std::int64_t max_shard_bytes) {
  if (max_shard_bytes < 1)
    throw InputError(concat("save_model: max_shard_size is ", max_shard_bytes, " bytes, must be at least 1"));
  Weights weights = weights_of(training);
  const auto write = [&] {
    make_folders(folder);
    for (const std::string& name : list_folder(folder))
      if (name == checkpoint::kWeightsFile || name == checkpoint::kWeightsIndexFile ||
          (name.starts_with("model-") && name.ends_with(".safetensors")))
        remove_tree(path_join(folder, name));
    checkpoint::TensorSources all = sources_of(weights);
    format::sort_for_writing(all);  // each shard asks for its tensors in this order, and shards follow one another
    std::vector<checkpoint::TensorSources> shards(1);
    std::int64_t bytes = 0, total = 0;
    for (format::TensorSource& source : all) {
      std::int64_t size = static_cast<std::int64_t>(format::dtype_size(source.dtype));
      for (const std::int64_t n : source.shape) size *= n;
      if (bytes > 0 && bytes + size > max_shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      bytes += size;
      total += size;
      shards.back().push_back(std::move(source));
    }
    if (shards.size() == 1) {
      checkpoint::write_tensors_file(folder, checkpoint::kWeightsFile, std::move(shards[0]));
      return;
    }
    Value map = Value::make_object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      char name[64];
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
      for (const format::TensorSource& source : shards[i]) map.set(source.name, Value::of(name));
      checkpoint::write_tensors_file(folder, name, std::move(shards[i]));
    }
    checkpoint::write_json_file(
        folder, checkpoint::kWeightsIndexFile,
        Value::make_object(
            {{"metadata", Value::make_object({{"total_size", Value::of(total)}})}, {"weight_map", map}}));
  };
  train::agree(training.group(), [&] {
    train::write_gathered({&weights.trained}, training.group().rank() == 0 ? std::function<void()>(write) : nullptr);
  });
}

}  // namespace tessera::engine
