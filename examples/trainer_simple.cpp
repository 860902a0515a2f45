// Hugging Face's Trainer around your own module: the flags are those of TrainingArguments.
//
//   tessera launch --num_processes 2 build/examples/trainer_simple --learning_rate 1e-3 --fsdp "full_shard auto_wrap"
//   build/examples/trainer_simple --replicas 2        one process, two replicas: nn.DataParallel

#include <tessera/faces.h>
#include <tessera/tessera.h>
#include "digits.h"
#include "run_main.h"

#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <exception>

struct SimpleModel : torch::nn::Module {
  SimpleModel() { register_module("layers", layers); }
  at::Tensor forward(at::Tensor x) { return layers->forward(x); }

  torch::nn::Sequential layers{torch::nn::Linear(784, 64), torch::nn::Functional(at::relu), torch::nn::Linear(64, 10)};
};

/// Stops the training when the loss is low enough.
struct StopWhenGood : tessera::TrainerCallback {
  void on_log(const tessera::TrainerState& state, tessera::TrainerControl& control,
              const tessera::Metrics& logs) override {
    const auto loss = logs.find("loss");
    if (loss != logs.end() && loss->second < 0.02) control.should_training_stop = true;
  }
};

static void example(int argc, char** argv) {
  std::vector<std::string> flags;
  tessera::TrainerOptions options;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--replicas" && i + 1 < argc)
      options.data_parallel = tessera::DataParallelOptions{.replicas = std::atoi(argv[++i])};
    else
      flags.push_back(argv[i]);
  }
  options.arguments =
      tessera::TrainingArguments(flags, {"--per_device_train_batch_size=16", "--learning_rate=2e-3",
                                         "--num_train_epochs=4", "--lr_scheduler_type=cosine", "--logging_steps=10"});
  options.model = std::make_shared<SimpleModel>();
  options.loss = tessera::loss_of<SimpleModel>(
      [](SimpleModel& net, const auto& batch) { return at::cross_entropy_loss(net.forward(batch[0]), batch[1]); });
  options.outputs =
      tessera::loss_of<SimpleModel>([](SimpleModel& net, const auto& batch) { return net.forward(batch[0]); });
  options.train_dataset = synthetic_digits(512);
  options.eval_dataset = synthetic_digits(203, /*seed=*/2);
  options.compute_metrics = [](const at::Tensor& outputs, const tessera::TensorBatch& rows) {
    return tessera::Metrics{{"accuracy", outputs.argmax(1).eq(rows[1]).to(at::kDouble).mean().item<double>()}};
  };
  options.callbacks.push_back(std::make_shared<StopWhenGood>());

  tessera::Trainer trainer(std::move(options));
  trainer.train();
  trainer.evaluate();
  if (trainer.is_fsdp_enabled()) trainer.set_state_dict_type("FULL_STATE_DICT");
  if (!trainer.arguments().values.output.output_dir.empty()) trainer.save_model();
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
