#include <tessera/xla/step/compiled_training.h>

#include <ATen/ATen.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/xla/lowering/lowering.h>
#include <tessera/xla/step/programs.h>
#include <tessera/xla/step/update_program.h>

#include <cmath>
#include <utility>

namespace tessera::xla {
namespace {

/// More kinds of micro-batches than this indicate a mistake, because each kind is compiled.
constexpr std::size_t most_kinds = 32;

std::string describe(const std::vector<at::Tensor>& batch) {
  std::string text;
  for (const at::Tensor& tensor : batch)
    text += concat(text.empty() ? "" : ", ", c10::toString(tensor.scalar_type()), " ", c10::str(tensor.sizes()));
  return text;
}

}  // namespace

CompiledTraining::CompiledTraining(std::shared_ptr<const Client> client, torch::nn::Module& module, Loss loss,
                                   TrainingOptions options)
    : client_(std::move(client)),
      parameters_(parallel::parameters_of(module)),
      loss_(std::move(loss)),
      options_(std::move(options)) {
  if (!options_.has_decay) options_.has_decay = [](const std::string&) { return true; };
  units_ = flat_units(parameters_, options_.units, client_->devices(), options_.has_decay);
  weights_ = divide(/*trained_only=*/false, [this](std::size_t p) { return parameters_.parameters[p].tensor; });
  gradients_ = filled(0);
  for (std::size_t s = 0; s < state_names(options_.optimizer).size(); ++s)
    states_.push_back(filled(first_state(options_.optimizer)));
}

Buffer CompiledTraining::upload(const at::Tensor& tensor, std::size_t device) const {
  const at::Tensor dense = tensor.detach().contiguous();
  return client_->upload(dense.const_data_ptr(), element_of(dense.scalar_type()), dense.sizes(),
                         static_cast<int>(device));
}

// ---- states ----

CompiledTraining::Parts CompiledTraining::divide(bool trained_only,
                                                 const std::function<at::Tensor(std::size_t)>& tensor_of) const {
  Parts parts(devices());
  for (const FlatUnit& unit : units_) {
    if (trained_only && !unit.trained) continue;
    const std::int64_t each = length(unit);
    const at::Tensor flat = at::zeros({options_.shard ? each * client_->devices() : each});
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const at::Tensor tensor = tensor_of(unit.parameters[i]).detach().flatten();
      flat.narrow(0, unit.offsets[i], tensor.numel()).copy_(tensor);
    }
    for (std::size_t d = 0; d < devices(); ++d)
      parts[d].push_back(upload(options_.shard ? flat.narrow(0, static_cast<std::int64_t>(d) * each, each) : flat, d));
  }
  return parts;
}

void CompiledTraining::join(const Parts& parts, bool trained_only,
                            const std::function<at::Tensor(std::size_t)>& tensor_of) const {
  std::size_t place = 0;
  for (const FlatUnit& unit : units_) {
    if (trained_only && !unit.trained) continue;
    const std::int64_t each = length(unit);
    const std::size_t pieces = options_.shard ? devices() : 1;
    const at::Tensor flat = at::empty({each * static_cast<std::int64_t>(pieces)});
    for (std::size_t d = 0; d < pieces; ++d)
      parts[d][place].read(flat.data_ptr<float>() + static_cast<std::int64_t>(d) * each,
                           static_cast<std::size_t>(each) * sizeof(float));
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const at::Tensor tensor = tensor_of(unit.parameters[i]);
      tensor.copy_(flat.narrow(0, unit.offsets[i], tensor.numel()).view(tensor.sizes()));
    }
    ++place;
  }
}

CompiledTraining::Parts CompiledTraining::filled(double value) const {
  Parts parts(devices());
  for (const FlatUnit& unit : units_)
    if (unit.trained)
      for (std::size_t d = 0; d < devices(); ++d)
        parts[d].push_back(upload(at::full({length(unit)}, value, at::kFloat), d));
  return parts;
}

void CompiledTraining::write_back() {
  const at::NoGradGuard no_grad;
  join(weights_, /*trained_only=*/false, [this](std::size_t p) { return parameters_.parameters[p].tensor; });
}

std::vector<CompiledStep::State> CompiledTraining::states() const {
  std::vector<State> result;
  const std::vector<std::string> kinds = state_names(options_.optimizer);
  for (std::size_t s = 0; s < kinds.size(); ++s)
    join(states_[s], /*trained_only=*/true, [&](std::size_t p) {
      const auto& [name, tensor] = parameters_.parameters[p];
      return result.emplace_back(State{concat(kinds[s], ".", name), at::empty(tensor.sizes())}).tensor;
    });
  return result;
}

void CompiledTraining::set_states(const std::vector<State>& states, std::int64_t steps) {
  std::map<std::string, at::Tensor> by_name;
  for (const State& state : states) by_name[state.name] = state.tensor;
  const std::vector<std::string> kinds = state_names(options_.optimizer);
  for (std::size_t s = 0; s < kinds.size(); ++s)
    states_[s] = divide(/*trained_only=*/true, [&](std::size_t p) {
      const std::string name = concat(kinds[s], ".", parameters_.parameters[p].name);
      const auto found = by_name.find(name);
      if (found == by_name.end()) throw InputError(concat("device xla: missing optimizer state ", name));
      return found->second;
    });
  steps_ = steps;
}

// ---- the step ----

CompileOptions CompiledTraining::compile_options() const {
  CompileOptions options{.replicas = client_->devices()};
  // XNNPACK 0.81 caches a product's operand by its address and would compute with outdated values.
  if (client_->platform() == "cpu") options.flags["xla_cpu_use_xnnpack"] = false;
  return options;
}

const CompiledTraining::Compiled& CompiledTraining::compiled_for(const std::vector<at::Tensor>& batch) {
  Kind kind;
  std::vector<ValueInfo> infos;
  for (const at::Tensor& tensor : batch) {
    kind.emplace_back(tensor.sizes().vec(), tensor.scalar_type());
    infos.push_back({tensor.sizes().vec(), tensor.scalar_type()});
  }
  if (const auto found = compiled_.find(kind); found != compiled_.end()) return found->second;
  if (compiled_.size() == most_kinds)
    throw InputError(concat("device xla: the micro-batches have ", most_kinds + 1,
                            " different shapes, and each needs its own program; the last one is ", describe(batch),
                            ". Use rows of equal length"));
  const std::int64_t begin = monotonic_ns();
  const GradientProgram program = program_of_step(parameters_, units_, infos, loss_, options_, client_->devices());
  Compiled compiled{
      .program = client_->compile(program.text, compile_options()), .constants = {}, .draws = program.draws};
  compiled.constants.resize(devices());
  for (std::size_t d = 0; d < devices(); ++d)
    for (const at::Tensor& constant : program.constants) compiled.constants[d].push_back(upload(constant, d));
  if (options_.tell)
    options_.tell(concat("xla: ", compiled.program->from_cache() ? "loaded" : "compiled",
                         " the step of a micro-batch (", describe(batch), ") in ",
                         format_real(static_cast<double>(monotonic_ns() - begin) * 1e-9, 3), " s"));
  return compiled_.emplace(std::move(kind), std::move(compiled)).first->second;
}

double CompiledTraining::accumulate(const std::vector<MicroBatch>& micro_batches) {
  if (micro_batches.empty() || micro_batches.size() % devices() != 0)
    throw InputError(concat("device xla: ", micro_batches.size(), " micro-batches for ", devices(),
                            " devices; each device needs the same number of them, at least one"));
  TESSERA_CHECK(!summed_, "gradients are already summed over the devices; call update() or drop_gradients() first");
  std::vector<Buffer> losses(devices());
  for (std::size_t d = 0; d < devices(); ++d) losses[d] = upload(at::zeros({}), d);
  for (std::size_t first = 0; first < micro_batches.size(); first += devices()) {
    const Compiled& compiled = compiled_for(micro_batches[first].tensors);
    last_ = &compiled;
    std::vector<std::vector<Buffer>> inputs(devices());
    std::vector<std::vector<const Buffer*>> arguments(devices());
    std::vector<Buffer> drawn(devices());
    for (std::size_t d = 0; d < devices(); ++d) {
      const MicroBatch& batch = micro_batches[first + d];
      const std::string sizes = describe(batch.tensors), others = describe(micro_batches[first].tensors);
      if (sizes != others)
        throw InputError(
            concat("device xla: all devices run the same program, but two of them got ", others, " and ", sizes));
      for (const at::Tensor& tensor : batch.tensors) inputs[d].push_back(upload(tensor, d));
      if (!compiled.draws.empty()) drawn[d] = upload(keys(compiled.draws, batch.random_key, batch.first_row), d);
      const auto give = [&](const std::vector<Buffer>& list) {
        for (const Buffer& buffer : list) arguments[d].push_back(&buffer);
      };
      give(weights_[d]);
      give(gradients_[d]);
      arguments[d].push_back(&losses[d]);
      give(inputs[d]);
      give(compiled.constants[d]);
      if (!compiled.draws.empty()) arguments[d].push_back(&drawn[d]);
    }
    auto results = compiled.program->run(arguments);
    for (std::size_t d = 0; d < devices(); ++d) {
      losses[d] = std::move(results[d].back());
      results[d].pop_back();
      gradients_[d] = std::move(results[d]);
    }
  }
  double sum = 0;
  for (const Buffer& buffer : losses) {
    float loss = 0;
    buffer.read(&loss, sizeof loss);
    sum += static_cast<double>(loss);
  }
  return sum;
}

double CompiledTraining::gradient_norm() {
  if (!norm_) norm_ = client_->compile(norm_program(units_, client_->devices(), options_.shard), compile_options());
  TESSERA_CHECK(!summed_, "gradient_norm() was called twice in a step");
  std::vector<std::vector<const Buffer*>> arguments(devices());
  for (std::size_t d = 0; d < devices(); ++d)
    for (const Buffer& buffer : gradients_[d]) arguments[d].push_back(&buffer);
  auto results = norm_->run(arguments);
  float norm = 0;
  results[0].back().read(&norm, sizeof norm);
  if (!options_.shard) {
    for (std::size_t d = 0; d < devices(); ++d) {
      results[d].pop_back();
      gradients_[d] = std::move(results[d]);
    }
    summed_ = true;
  }
  return static_cast<double>(norm);
}

void CompiledTraining::each_updated(std::size_t device, const std::function<void(Buffer&)>& f) {
  std::size_t trained = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].trained) continue;
    f(weights_[device][u]);
    for (Parts& state : states_) f(state[device][trained]);
    f(gradients_[device][trained++]);
  }
}

void CompiledTraining::update(double learning_rate, double factor) {
  if (!options_.shard && !summed_) gradient_norm();
  if (!update_) update_ = client_->compile(update_program(units_, client_->devices(), options_), compile_options());
  const std::vector<double> scalars = update_scalars(options_.optimizer, learning_rate, factor, ++steps_);
  std::vector<std::vector<Buffer>> numbers(devices());
  std::vector<std::vector<const Buffer*>> arguments(devices());
  for (std::size_t d = 0; d < devices(); ++d) {
    for (const double scalar : scalars) numbers[d].push_back(upload(at::scalar_tensor(scalar, at::kFloat), d));
    each_updated(d, [&](Buffer& buffer) { arguments[d].push_back(&buffer); });
    for (const Buffer& number : numbers[d]) arguments[d].push_back(&number);
  }
  auto results = update_->run(arguments);
  for (std::size_t d = 0; d < devices(); ++d) {
    std::size_t next = 0;
    each_updated(d, [&](Buffer& buffer) { buffer = std::move(results[d][next++]); });
  }
  summed_ = false;
}

void CompiledTraining::drop_gradients() {
  gradients_ = filled(0);
  summed_ = false;
}

StepMemory CompiledTraining::memory() const {
  StepMemory memory{.states = bytes_of_states(units_, options_)};
  if (last_ == nullptr) return memory;
  const ProgramMemory program = last_->program->memory();
  memory.arguments = program.arguments;
  memory.temporary = program.temporary;
  return memory;
}

}  // namespace tessera::xla
