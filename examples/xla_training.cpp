// Trains the unmodified module of user_module.h with steps compiled by XLA: on a TPU with
// TPU_LIBRARY_PATH=.../libtpu.so, or on virtual CPU devices with a PJRT plug-in of XLA's CPU backend (docs/tpu.md).
// Parameters, gradients and the optimizer's states are divided over the devices.
//
//   TESSERA_PJRT_PLUGIN=.../pjrt_c_api_cpu_plugin.so build/examples/xla_training 4

#include <tessera/tessera.h>
#include <tessera/xla/devices.h>
#include "run_main.h"
#include "user_module.h"

#include <ATen/ATen.h>
#include <torch/serialize.h>

#include <cstdio>
#include <string>

namespace xla = tessera::xla;

/// Rows in which every token is the previous one plus the row's step.
static xla::CompiledStep::MicroBatch counting(const MyConfig& config) {
  const at::Tensor first = at::randint(config.vocabulary, {8, 1}, at::kLong),
                   step = at::randint(1, 4, {8, 1}, at::kLong);
  const at::Tensor rows = (first + step * at::arange(config.longest + 1)) % config.vocabulary;
  return {{rows.narrow(1, 0, config.longest), rows.narrow(1, 1, config.longest)}};
}

static void example(int argc, char** argv) {
  xla::DeviceRequest request;
  if (argc > 1) request.count = std::stoi(argv[1]);  // number of virtual devices; a TPU's number is fixed
  const auto devices = xla::open_devices(request);
  std::printf("%s\n", devices->describe().c_str());
  at::manual_seed(0);
  const MyConfig config{.width = 32, .layers = 2};
  MyTransformer model(config);

  xla::TrainingOptions options;
  options.units = {.kind = tessera::layout::WrapPolicy::Kind::by_class, .classes = {"MyBlock"}};
  options.optimizer = tessera::optim::AdamWOptions{.beta2 = 0.99};
  options.weight_decay = 0.01;
  options.has_decay = [](const std::string& name) { return !name.ends_with("bias"); };
  const auto loss = [&](const std::vector<at::Tensor>& batch) {
    return at::cross_entropy_loss(model->forward(batch[0]).flatten(0, 1), batch[1].flatten());
  };
  const auto step = devices->compile(*model, loss, options);

  const double share = 1.0 / devices->count();  // every device computes its own micro-batch
  for (int i = 1; i <= 60; ++i) {
    std::vector<xla::CompiledStep::MicroBatch> batches;
    for (int d = 0; d < devices->count(); ++d) batches.push_back(counting(config));
    const double mean = step->accumulate(batches) * share;
    const double norm = step->gradient_norm() * share;
    // clips the gradient to a norm of 1
    step->update(/*learning_rate=*/5e-3, share * std::min(1.0, 1.0 / (norm + 1e-6)));
    if (i % 10 == 0) std::printf("step %d: loss %.4f, gradient norm %.3f\n", i, mean, norm);
  }
  std::printf("bytes of parameters, gradients and states on each device: %lld\n",
              static_cast<long long>(step->memory().states));
  step->write_back();  // the module now holds the trained weights and can be saved, evaluated or resumed like any other
  std::printf("on the CPU: loss %.4f\n", loss(counting(config).tensors).item<double>());
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
