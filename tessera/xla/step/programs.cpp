#include <tessera/xla/step/programs.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/error.h>
#include <tessera/xla/capture/capture.h>

namespace tessera::xla {

Graph capture_step(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledStep::Loss& loss) {
  std::vector<NamedParameter> parameters;
  torch::autograd::variable_list trained;
  for (const auto& [name, tensor] : module.parameters) {
    parameters.push_back({name, tensor});
    if (tensor.requires_grad()) trained.push_back(tensor);
  }
  return capture(parameters, batch, [&](const std::vector<at::Tensor>& inputs) {
    const at::AutoGradMode grad(true);
    const at::Tensor value = loss(inputs);
    if (value.dim() != 0 || value.scalar_type() != at::kFloat)
      throw InputError(concat("device xla: the loss must be a scalar of fp32; it is ",
                              c10::toString(value.scalar_type()), " ", c10::str(value.sizes())));
    auto gradients = torch::autograd::grad({value}, trained, /*grad_outputs=*/{}, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
    std::vector<at::Tensor> outputs = {value.detach()};
    std::size_t next = 0;
    for (const NamedParameter& parameter : parameters)
      outputs.push_back(parameter.tensor.requires_grad() ? gradients[next++] : at::Tensor());
    return outputs;
  });
}

GradientProgram program_of_step(const parallel::ModuleParameters& module, const std::vector<FlatUnit>& units,
                                const std::vector<ValueInfo>& batch, const CompiledStep::Loss& loss,
                                const TrainingOptions& options, int devices) {
  return gradient_program(capture_step(module, batch, loss), units,
                          {.devices = devices,
                           .shard = options.shard,
                           .reshard_after_forward = options.reshard_after_forward,
                           .recompute = options.recompute});
}

Collectives count_collectives(const std::string& program) {
  const auto count = [&](std::string_view name) {
    int found = 0;
    for (std::size_t at = 0; (at = program.find(name, at)) != std::string::npos; at += name.size()) ++found;
    return found;
  };
  return {count("\"stablehlo.all_gather\""), count("\"stablehlo.reduce_scatter\""), count("\"stablehlo.all_reduce\"")};
}

}  // namespace tessera::xla
