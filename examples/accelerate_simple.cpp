// Accelerate's loop around your own module and torch::optim's optimizer: gradient accumulation, clipping, metrics over
// all ranks, a checkpoint and a saved model. Settings determine what is divided over the ranks:
//
//   tessera launch --num_processes 2 build/examples/accelerate_simple
//   tessera launch --num_processes 2 build/examples/accelerate_simple --fsdp "full_shard auto_wrap" --project_dir out

#include <tessera/faces.h>
#include <tessera/tessera.h>
#include "digits.h"
#include "run_main.h"

#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cstdio>
#include <exception>

struct SimpleModelImpl : torch::nn::Module {
  SimpleModelImpl() { register_module("layers", layers); }
  at::Tensor forward(at::Tensor x) { return layers->forward(x); }

  torch::nn::Sequential layers{torch::nn::Linear(784, 64), torch::nn::Functional(at::relu), torch::nn::Linear(64, 10)};
};
TORCH_MODULE(SimpleModel);

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // A GPU is used if there is one.
  tessera::init(tessera::launch::read_rank_environment(&arguments), {.device = tessera::Device::automatic});
  std::string project_dir;
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i)
    if (arguments[i] == "--project_dir") {
      project_dir = arguments[i + 1];
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i),
                      arguments.begin() + static_cast<std::ptrdiff_t>(i) + 2);
      break;
    }
  tessera::Accelerator accelerator(
      {.gradient_accumulation_steps = 2, .project_dir = project_dir, .total_limit = 1, .arguments = arguments});

  SimpleModel net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(2e-3));
  torch::optim::StepLR decay(adamw, /*step_size=*/10, /*gamma=*/0.5);
  tessera::DataLoader training(synthetic_digits(500), {.batch_size = 16, .shuffle = true});
  auto [model, optimizer, loader, scheduler] = accelerator.prepare(net, adamw, training, decay);
  auto evaluation = accelerator.prepare(tessera::DataLoader(synthetic_digits(203, /*seed=*/2), {.batch_size = 16}));

  for (int epoch = 0; epoch < 4; ++epoch) {
    model.train();
    double sum = 0;
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate();
      const at::Tensor loss = at::cross_entropy_loss(model(batch[0]), batch[1]);
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(1.0);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      sum += loss.item<double>();
    }
    const double mean =
        accelerator.gather(at::full({1}, sum / static_cast<double>(loader.size()))).mean().item<double>();

    model.eval();
    std::int64_t right = 0, all = 0;
    for (const auto& batch : evaluation) {
      const at::NoGradGuard no_grad;
      const at::Tensor correct = accelerator.gather_for_metrics(model(batch[0]).argmax(1).eq(batch[1]));
      right += correct.sum().item<std::int64_t>();
      all += correct.numel();
    }
    accelerator.print("epoch ", epoch, ": loss ", mean, ", ", right, " of ", all, " right (",
                      accelerator.num_processes(), " ranks)");
    if (!project_dir.empty()) accelerator.save_state();
  }
  if (!project_dir.empty()) accelerator.save_model(project_dir);
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
