#pragma once
/// \file
/// The training task of tessera::Trainer's tests: SimpleModel on the batches of loop.h.

#include <tests/faces/loop.h>

#include <tessera/faces/trainer.h>

#include <string>
#include <vector>

namespace tessera::testing {

/// The rows of `steps` global batches one after another, as a sequential pass reads them.
inline RowSource steps_of(int steps) {
  std::vector<at::Tensor> x, y;
  for (int step = 0; step < steps; ++step) {
    x.push_back(global_batch(step, all_rows).x);
    y.push_back(global_batch(step, all_rows).y);
  }
  return tensor_rows({at::cat(x), at::cat(y)});
}

inline TrainerOptions options(const std::vector<std::string>& more, int steps = 6) {
  TrainerOptions options;
  options.model = make_net();
  options.arguments = TrainingArguments(
      more, {"--learning_rate=0.002", "--weight_decay=0.01", "--lr_scheduler_type=constant",
             "--train_sampling_strategy=sequential", "--num_train_epochs=1", "--logging_steps=2", "--disable_tqdm"});
  options.loss = loss_of<SimpleModel>(
      [](SimpleModel& net, const TensorBatch& batch) { return (net.forward(batch[0]) - batch[1]).square().mean(); });
  options.outputs =
      loss_of<SimpleModel>([](SimpleModel& net, const TensorBatch& batch) { return net.forward(batch[0]); });
  options.train_dataset = steps_of(steps);
  return options;
}

}  // namespace tessera::testing
