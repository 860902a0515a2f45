#include <tessera/xla/step/programs.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/error.h>
#include <tessera/xla/capture/capture.h>

namespace tessera::xla {

namespace {

std::vector<NamedParameter> named(const parallel::ModuleParameters& module) {
  std::vector<NamedParameter> parameters;
  for (const auto& [name, tensor] : module.parameters) parameters.push_back({name, tensor});
  return parameters;
}

at::Tensor checked(const at::Tensor& loss) {
  if (loss.dim() != 0 || loss.scalar_type() != at::kFloat)
    throw InputError(concat("device xla: the loss must be a scalar of fp32; it is ", c10::toString(loss.scalar_type()),
                            " ", c10::str(loss.sizes())));
  return loss;
}

GradientOptions gradient_options(const TrainingOptions& options, int devices) {
  return {.devices = devices,
          .shard = options.shard,
          .reshard_after_forward = options.reshard_after_forward,
          .recompute = options.recompute,
          .global = options.global};
}

}  // namespace

Graph capture_step(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledStep::Loss& loss) {
  const std::vector<NamedParameter> parameters = named(module);
  torch::autograd::variable_list trained;
  for (const NamedParameter& parameter : parameters)
    if (parameter.tensor.requires_grad()) trained.push_back(parameter.tensor);
  return capture(parameters, batch, [&](const std::vector<at::Tensor>& inputs) {
    const at::AutoGradMode grad(true);
    const at::Tensor value = checked(loss(inputs));
    auto gradients = torch::autograd::grad({value}, trained, /*grad_outputs=*/{}, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
    std::vector<at::Tensor> outputs = {value.detach()};
    std::size_t next = 0;
    for (const NamedParameter& parameter : parameters)
      outputs.push_back(parameter.tensor.requires_grad() ? gradients[next++] : at::Tensor());
    return outputs;
  });
}

Graph capture_loss(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledStep::Loss& loss) {
  return capture(named(module), batch, [&](const std::vector<at::Tensor>& inputs) {
    const at::NoGradGuard no_grad;
    return std::vector<at::Tensor>{checked(loss(inputs))};
  });
}

std::vector<FlatUnit> units_of(const parallel::ModuleParameters& module, const TrainingOptions& options, int devices) {
  const auto all = [](const std::string&) { return true; };
  const std::function<bool(const std::string&)> has_decay = options.has_decay ? options.has_decay : all;
  return (options.global ? row_units : flat_units)(module, options.units, devices, has_decay);
}

std::vector<ValueInfo> rows_of_program(std::vector<ValueInfo> micro_batch, const TrainingOptions& options,
                                       int devices) {
  if (options.global)
    for (ValueInfo& tensor : micro_batch)
      if (!tensor.sizes.empty()) tensor.sizes.front() *= devices;
  return micro_batch;
}

CompileOptions compile_options(const TrainingOptions& options, int devices) {
  if (options.global) return {.replicas = 1, .partitions = devices};
  return {.replicas = devices, .partitions = 1};
}

GradientProgram program_of_step(const parallel::ModuleParameters& module, const std::vector<FlatUnit>& units,
                                const std::vector<ValueInfo>& batch, const CompiledStep::Loss& loss,
                                const TrainingOptions& options, int devices) {
  return gradient_program(capture_step(module, rows_of_program(batch, options, devices), loss), units,
                          gradient_options(options, devices));
}

GradientProgram program_of_loss(const parallel::ModuleParameters& module, const std::vector<FlatUnit>& units,
                                const std::vector<ValueInfo>& batch, const CompiledStep::Loss& loss,
                                const TrainingOptions& options, int devices) {
  GradientOptions forward = gradient_options(options, devices);
  forward.forward_only = true;
  forward.recompute = false;
  return gradient_program(capture_loss(module, rows_of_program(batch, options, devices), loss), units, forward);
}

Collectives count_collectives(const std::string& program) {
  const auto count = [&](std::string_view name) {
    int found = 0;
    for (std::size_t at = 0; (at = program.find(name, at)) != std::string::npos; at += name.size()) ++found;
    return found;
  };
  return {count("\"stablehlo.all_gather\""), count("\"stablehlo.reduce_scatter\""), count("\"stablehlo.all_reduce\"")};
}

Collectives collectives_added(const std::string& optimized) {
  // In the protocol buffer an instruction's opcode is field 2, a string; in the text it precedes its operands.
  const auto count = [&](const std::string& opcode) {
    int found = 0;
    for (const std::string& name : {opcode, opcode + "-start"})
      for (const std::string& pattern : {concat('\x12', static_cast<char>(name.size()), name), concat(" ", name, "(")})
        for (std::size_t at = 0; (at = optimized.find(pattern, at)) != std::string::npos; at += pattern.size()) ++found;
    return found;
  };
  return {count("all-gather"), count("reduce-scatter"), count("all-reduce")};
}

}  // namespace tessera::xla
