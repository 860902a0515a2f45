// DeepSpeed's loop around your own module: deepspeed_simple.json sets batch size, optimizer, fp16 and ZeRO-2.
//
//   tessera launch --nproc_per_node 2 build/examples/deepspeed_simple
//   tessera launch --num_gpus=2 build/examples/deepspeed_simple --deepspeed_config other.json

#include <tessera/faces.h>
#include <tessera/tessera.h>
#include "digits.h"
#include "run_main.h"

#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <exception>
#include <filesystem>

struct SimpleModelImpl : torch::nn::Module {
  SimpleModelImpl() { register_module("layers", layers); }
  at::Tensor forward(at::Tensor x) { return layers->forward(x); }

  torch::nn::Sequential layers{torch::nn::Linear(784, 1024), torch::nn::Functional(at::relu),
                               torch::nn::Linear(1024, 1024), torch::nn::Functional(at::relu),
                               torch::nn::Linear(1024, 10)};
};
TORCH_MODULE(SimpleModel);

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // read_rank_environment removes --local_rank=N; a GPU is used if there is one.
  tessera::init(tessera::launch::read_rank_environment(&arguments), {.device = tessera::Device::automatic});
  const tessera::ConfigArguments given = tessera::add_config_arguments(arguments);
  if (!arguments.empty()) throw tessera::InputError("deepspeed_simple: unknown argument '" + arguments[0] + "'");
  std::filesystem::path settings = std::filesystem::path(argv[0]).replace_filename("deepspeed_simple.json");
  if (!std::filesystem::exists(settings))
    settings = settings.filename();  // if it is not next to the program, it is in the working directory

  SimpleModel model;
  auto [engine, optimizer, loader, scheduler] = tessera::initialize(
      model, {.config = given.deepspeed_config.empty() ? settings.string() : given.deepspeed_config,
              .training_data = synthetic_digits(192)});  // the loader yields this rank's micro-batches

  const bool talks = engine.global_rank() == 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    double sum = 0;
    for (const auto& batch : loader) {
      const at::Tensor loss = at::cross_entropy_loss(engine(batch[0]), batch[1]);
      engine.backward(loss);
      engine.step();
      sum += loss.item<double>();
    }
    if (talks)
      std::printf("epoch %d: loss %.4f (%d ranks)\n", epoch, sum / static_cast<double>(loader.size()),
                  engine.dp_world_size());
  }
  if (talks)
    std::printf("ZeRO-%d, batch %lld = %lld x %lld x %d, loss scale %g, %lld of %lld steps skipped\n",
                engine.zero_optimization_stage(), static_cast<long long>(engine.train_batch_size()),
                static_cast<long long>(engine.train_micro_batch_size_per_gpu()),
                static_cast<long long>(engine.gradient_accumulation_steps()), engine.dp_world_size(),
                engine.loss_scale(), static_cast<long long>(engine.skipped_steps()),
                static_cast<long long>(engine.global_steps()));
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
