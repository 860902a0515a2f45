#include <tessera/xla/step/compiled_training.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/error.h>
#include <tessera/xla/lowering/lowering.h>

#include <cmath>
#include <utility>

namespace tessera::xla {
namespace {

/// The step that is captured: the loss and the gradients of all parameters.
Graph capture_step(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledTraining::Loss& loss) {
  std::vector<NamedParameter> parameters;
  torch::autograd::variable_list trained;
  for (const auto& [name, tensor] : module.parameters) {
    parameters.push_back({name, tensor});
    if (tensor.requires_grad()) trained.push_back(tensor);
  }
  return capture(parameters, batch, [&](const std::vector<at::Tensor>& inputs) {
    const at::AutoGradMode grad(true);
    const at::Tensor value = loss(inputs);
    auto gradients = torch::autograd::grad({value}, trained, /*grad_outputs=*/{}, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
    std::vector<at::Tensor> outputs = {value.detach()};
    std::size_t next = 0;
    for (const NamedParameter& parameter : parameters)
      outputs.push_back(parameter.tensor.requires_grad() ? gradients[next++] : at::Tensor());
    return outputs;
  });
}

}  // namespace

CompiledTraining::CompiledTraining(std::shared_ptr<const Client> client, torch::nn::Module& module,
                                   const std::vector<ValueInfo>& batch, const Loss& loss, TrainingOptions options)
    : client_(std::move(client)),
      parameters_(parallel::parameters_of(module)),
      batch_(batch),
      options_(std::move(options)) {
  if (!options_.has_decay) options_.has_decay = [](const std::string&) { return true; };
  units_ = flat_units(parameters_, options_.units, client_->devices(), options_.has_decay);
  const Graph graph = capture_step(parameters_, batch, loss);
  const GradientProgram program = gradient_program(graph, units_,
                                                   {.devices = client_->devices(),
                                                    .shard = options_.shard,
                                                    .reshard_after_forward = options_.reshard_after_forward,
                                                    .recompute = options_.recompute});
  // XNNPACK of version 0.81 keeps a product's operand by its address and computes with what was there before.
  const CompileOptions compiling{.replicas = client_->devices(),
                                 .flags = client_->platform() == "cpu"
                                              ? std::map<std::string, bool>{{"xla_cpu_use_xnnpack", false}}
                                              : std::map<std::string, bool>{}};
  gradients_ = client_->compile(program.text, compiling);
  update_ = client_->compile(update_program(units_, {.devices = client_->devices(),
                                                     .shard = options_.shard,
                                                     .max_grad_norm = options_.max_grad_norm,
                                                     .adamw = options_.adamw}),
                             compiling);
  constants_.resize(static_cast<std::size_t>(client_->devices()));
  for (int d = 0; d < client_->devices(); ++d)
    for (const at::Tensor& constant : program.constants)
      constants_[static_cast<std::size_t>(d)].push_back(upload(constant, d));
  upload_states();
}

Buffer CompiledTraining::upload(const at::Tensor& tensor, int device) const {
  const at::Tensor dense = tensor.detach().contiguous();
  return client_->upload(dense.const_data_ptr(), element_of(dense.scalar_type()), dense.sizes(), device);
}

void CompiledTraining::upload_states() {
  const auto devices = static_cast<std::size_t>(client_->devices());
  for (auto* const list : {&weights_, &first_, &second_, &sums_}) list->resize(devices);
  for (const FlatUnit& unit : units_) {
    const std::int64_t length = options_.shard ? unit.shard : unit.elements;
    const at::Tensor flat = at::zeros({options_.shard ? unit.shard * client_->devices() : unit.elements});
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const at::Tensor& parameter = parameters_.parameters[unit.parameters[i]].tensor;
      flat.narrow(0, unit.offsets[i], parameter.numel()).copy_(parameter.detach().flatten());
    }
    const at::Tensor zeros = at::zeros({length});
    for (int d = 0; d < client_->devices(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      weights_[at].push_back(upload(options_.shard ? flat.narrow(0, d * length, length) : flat, d));
      if (!unit.trained) continue;
      for (auto* const list : {&first_, &second_, &sums_}) (*list)[at].push_back(upload(zeros, d));
    }
  }
}

StepResult CompiledTraining::step(const std::vector<std::vector<at::Tensor>>& micro_batches, double learning_rate) {
  const auto devices = static_cast<std::size_t>(client_->devices());
  if (micro_batches.empty() || micro_batches.size() % devices != 0)
    throw InputError(concat("device xla: ", micro_batches.size(), " micro-batches for ", devices,
                            " devices; every device needs the same number of them, one at least"));
  for (const auto& batch : micro_batches) {
    if (batch.size() != batch_.size())
      throw InputError(concat("device xla: a micro-batch of ", batch.size(), " tensors; the step was captured with ",
                              batch_.size()));
    for (std::size_t i = 0; i < batch.size(); ++i)
      if (batch[i].sizes() != at::IntArrayRef(batch_[i].sizes) || batch[i].scalar_type() != batch_[i].type)
        throw InputError(concat("device xla: tensor ", i, " of a micro-batch is ",
                                c10::toString(batch[i].scalar_type()), " ", concat(batch[i].sizes()),
                                "; the step was captured with ", c10::toString(batch_[i].type), " ",
                                concat(at::IntArrayRef(batch_[i].sizes))));
  }
  std::vector<Buffer> losses(devices);
  for (std::size_t d = 0; d < devices; ++d) losses[d] = upload(at::zeros({}), static_cast<int>(d));

  // Gradients of every micro-batch.
  for (std::size_t first = 0; first < micro_batches.size(); first += devices) {
    std::vector<std::vector<Buffer>> inputs(devices);
    std::vector<std::vector<const Buffer*>> arguments(devices);
    for (std::size_t d = 0; d < devices; ++d) {
      for (const at::Tensor& tensor : micro_batches[first + d])
        inputs[d].push_back(upload(tensor, static_cast<int>(d)));
      const auto give = [&](const std::vector<Buffer>& list) {
        for (const Buffer& buffer : list) arguments[d].push_back(&buffer);
      };
      give(weights_[d]);
      give(sums_[d]);
      arguments[d].push_back(&losses[d]);
      give(inputs[d]);
      give(constants_[d]);
    }
    auto results = gradients_->run(arguments);
    for (std::size_t d = 0; d < devices; ++d) {
      losses[d] = std::move(results[d].back());
      results[d].pop_back();
      sums_[d] = std::move(results[d]);
    }
  }

  // The update.
  ++steps_;
  const auto step = static_cast<double>(steps_);
  const double scalars[] = {learning_rate, 1.0 / static_cast<double>(micro_batches.size()),
                            1 / (1 - std::pow(options_.adamw.beta1, step)),
                            1 / (1 - std::pow(options_.adamw.beta2, step))};
  std::vector<std::vector<Buffer>> numbers(devices);
  std::vector<std::vector<const Buffer*>> arguments(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    for (const double scalar : scalars)
      numbers[d].push_back(upload(at::scalar_tensor(scalar, at::kFloat), static_cast<int>(d)));
    std::size_t trained = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].trained) continue;
      for (const Buffer* const buffer :
           {&weights_[d][u], &first_[d][trained], &second_[d][trained], &sums_[d][trained]})
        arguments[d].push_back(buffer);
      ++trained;
    }
    for (const Buffer& number : numbers[d]) arguments[d].push_back(&number);
  }
  auto results = update_->run(arguments);
  StepResult result;
  for (std::size_t d = 0; d < devices; ++d) {
    std::size_t next = 0, trained = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].trained) continue;
      weights_[d][u] = std::move(results[d][next++]);
      first_[d][trained] = std::move(results[d][next++]);
      second_[d][trained] = std::move(results[d][next++]);
      sums_[d][trained++] = std::move(results[d][next++]);
    }
    float loss = 0;
    losses[d].read(&loss, sizeof loss);
    result.loss += static_cast<double>(loss) / static_cast<double>(micro_batches.size());
  }
  float norm = 0;
  results[0].back().read(&norm, sizeof norm);
  result.gradient_norm = static_cast<double>(norm);
  return result;
}

void CompiledTraining::write_back() {
  const at::NoGradGuard no_grad;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const FlatUnit& unit = units_[u];
    if (!unit.trained) continue;
    const std::int64_t length = options_.shard ? unit.shard : unit.elements;
    const int parts = options_.shard ? client_->devices() : 1;
    const at::Tensor flat = at::empty({length * parts});
    for (int d = 0; d < parts; ++d)
      weights_[static_cast<std::size_t>(d)][u].read(flat.data_ptr<float>() + d * length,
                                                    static_cast<std::size_t>(length) * sizeof(float));
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      at::Tensor parameter = parameters_.parameters[unit.parameters[i]].tensor;
      parameter.copy_(flat.narrow(0, unit.offsets[i], parameter.numel()).view(parameter.sizes()));
    }
  }
}

TrainingMemory CompiledTraining::memory() const {
  TrainingMemory memory{.gradients = gradients_->memory(), .update = update_->memory()};
  for (const FlatUnit& unit : units_)
    memory.states += (unit.trained ? 16 : 4) * (options_.shard ? unit.shard : unit.elements);
  return memory;
}

}  // namespace tessera::xla
