#pragma once
/// \file
/// A checkpoint in which every number follows from its step, so that a reader can identify the save that it reads and
/// check that it is complete. Written by the saver of a training run (train/saving/saver.h) on the ranks of a job.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <tessera/base/error.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/comm/world.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/saving/saver.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tessera::testing {

/// Elements [begin, begin + count) of the flattened tensor `name` at `step`: 24 bits of noise each, exact in float32,
/// and the same however the tensor is cut. No two steps, tensors or elements of a small model share long stretches.
inline at::Tensor mock_data(const std::string& name, std::int64_t step, std::int64_t begin, std::int64_t count) {
  std::int64_t salt = step * 7919;
  for (const char c : name) salt = (salt * 31 + c) & 0xffffff;
  at::Tensor x = at::arange(begin, begin + count, at::kLong).add_(salt).mul_(2654435761);
  x = at::bitwise_xor(x, at::bitwise_right_shift(x, 15)).mul_(2246822519);
  return at::bitwise_and(at::bitwise_right_shift(x, 13), 0xffffff).to(at::kFloat).div_(float{1 << 24}).sub_(0.5F);
}

/// TESSERA_SEED, to repeat a seed that a test printed; otherwise a random one.
inline unsigned test_seed() {
  const char* asked = std::getenv("TESSERA_SEED");
  return asked != nullptr ? static_cast<unsigned>(std::strtoul(asked, nullptr, 10)) : std::random_device()();
}

/// Feature sizes along a chain of linear maps: map i goes from widths[i] to widths[i + 1].
using Widths = std::vector<std::int64_t>;

inline torch::nn::Sequential make_maps(const Widths& widths) {
  torch::nn::Sequential maps;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) maps->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
  return maps;
}

/// A rank of a training run that only saves.
class SavingRank {
 public:
  SavingRank(comm::World& world, const Widths& widths, const std::string& output_dir)
      : output_dir_(output_dir),
        maps_(make_maps(widths)),
        sharded_(*maps_, {.strategy = "full_shard", .wrap = by_class({"Linear"})}),
        optimizer_(optim::make_adamw(sharded_.slots(), {})),
        saver_(world.group(), {.output_dir = output_dir}) {}

  /// Starts the save of `step`, which proceeds as advance() is called.
  void begin(std::int64_t step, std::int64_t keep) {
    const at::NoGradGuard no_grad;
    for (const ShardedParameter& p : sharded_.named_parameters())
      at::Tensor(p.local).view(-1).copy_(mock_data(p.name, step, p.begin, p.local.numel()));
    for (const auto& [name, state] : optimizer_->state()) {
      const std::string parameter = name.substr(name.find('.') + 1);
      for (const ShardedParameter& p : sharded_.named_parameters())
        if (p.name == parameter) at::Tensor(state).view(-1).copy_(mock_data(name, step, p.begin, state.numel()));
    }
    train::SaveContents contents{.step = step};
    checkpoint::RunState run;
    run.step = run.models[0].optimizer_steps = step;
    run.samples = 16 * step;
    contents.small_files = [run](const std::string& folder) {
      checkpoint::WrittenFiles files = checkpoint::write_hf_settings(
          folder,
          Value::make_object(
              {{"model_type", Value::of("maps")}, {"vocab_size", Value::of(257)}, {"rate", Value::of(0.5)}}),
          nullptr);
      for (auto& file : checkpoint::write_run_state(folder, run)) files.push_back(std::move(file));
      return files;
    };
    contents.prune = [this, step, keep] { checkpoint::prune_step_folders(output_dir_, step, keep); };
    saver_.save(sharded_, *optimizer_, std::move(contents));
  }
  bool busy() const { return saver_.busy(); }
  /// As in a training step: starts the next phase once every rank has finished its part. Returns the outcome if this
  /// call ended the save.
  std::optional<train::SaveOutcome> advance(comm::World& world) {
    at::Tensor ended = at::full({}, saver_.ended() ? 1 : 0, at::kLong);
    world.group().all_reduce(ended, comm::Reduction::min).wait();
    return ended.item<std::int64_t>() == 1 ? saver_.advance() : std::nullopt;
  }
  train::SaveOutcome save(std::int64_t step, std::int64_t keep) {
    begin(step, keep);
    return saver_.finish().value();
  }

 private:
  std::string output_dir_;
  torch::nn::Sequential maps_;
  Sharded sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  train::Saver saver_;
};

/// The newest complete checkpoint, as a resuming process finds it.
inline std::optional<std::string> newest_checkpoint(const std::string& output_dir) {
  return checkpoint::choose_newest(checkpoint::step_folders(output_dir), {});
}

/// Describes how the folder differs from the save of `step`; "": it contains exactly every weight and every state.
/// Reads without checksums.
inline std::string difference_from(const std::string& folder, std::int64_t step, const Widths& widths) {
  const std::size_t tensors = 2 * (widths.size() - 1);
  const checkpoint::NamedTensors weights = checkpoint::read_hf_weights(folder);
  if (weights.size() != tensors) return concat(weights.size(), " weights instead of ", tensors);
  for (const auto& [name, value] : weights)
    if (!at::equal(value.view(-1), mock_data(name, step, 0, value.numel())))
      return concat(name, " is not that of step ", step);
  const checkpoint::StoredState states(folder);
  if (states.tensors().size() != 2 * tensors)
    return concat(states.tensors().size(), " states instead of ", 2 * tensors);
  for (const auto& state : states.tensors()) {
    std::int64_t count = 1;
    for (const std::int64_t size : state.shape) count *= size;
    const at::Tensor value = at::empty({count});
    states.read(state.name, 0, value);
    if (!at::equal(value, mock_data(state.name, step, 0, count)))
      return concat(state.name, " is not that of step ", step);
  }
  const checkpoint::RunState run = checkpoint::read_run_state(folder);
  if (run.step != step || run.models[0].optimizer_steps != step || run.samples != 16 * step)
    return concat("the run's state is that of step ", run.step);
  return "";
}

}  // namespace tessera::testing
