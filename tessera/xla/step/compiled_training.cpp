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

double scalar_of(const Buffer& buffer) {
  float value = 0;
  buffer.read(&value, sizeof value);
  return static_cast<double>(value);
}

}  // namespace

CompiledTraining::CompiledTraining(std::shared_ptr<const Client> client, torch::nn::Module& module, Loss loss,
                                   TrainingOptions options)
    : client_(std::move(client)),
      parameters_(parallel::parameters_of(module)),
      loss_(std::move(loss)),
      options_(std::move(options)) {
  if (options_.global) options_.shard = true;
  units_ = units_of(parameters_, options_, client_->devices());
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
    const at::Tensor flat = at::zeros({divided(unit) ? each * client_->devices() : each});
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const at::Tensor tensor = tensor_of(unit.parameters[i]).detach().flatten();
      flat.narrow(0, unit.offsets[i], tensor.numel()).copy_(tensor);
    }
    for (std::size_t d = 0; d < devices(); ++d)
      parts[d].push_back(upload(
          (divided(unit) ? flat.narrow(0, static_cast<std::int64_t>(d) * each, each) : flat).view(sizes(unit)), d));
  }
  return parts;
}

void CompiledTraining::join(const Parts& parts, bool trained_only,
                            const std::function<at::Tensor(std::size_t)>& tensor_of) const {
  std::size_t place = 0;
  for (const FlatUnit& unit : units_) {
    if (trained_only && !unit.trained) continue;
    const std::int64_t each = length(unit);
    const std::size_t pieces = divided(unit) ? devices() : 1;
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
        parts[d].push_back(upload(at::full(sizes(unit), value, at::kFloat), d));
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
  CompileOptions options = xla::compile_options(options_, client_->devices());
  // XNNPACK 0.81 caches a product's operand by its address and would compute with outdated values.
  if (client_->platform() == "cpu") options.flags["xla_cpu_use_xnnpack"] = false;
  return options;
}

const CompiledTraining::Compiled& CompiledTraining::compiled_for(const std::vector<at::Tensor>& batch,
                                                                 const Loss* evaluation) {
  Kind kind;
  std::vector<ValueInfo> infos;
  for (const at::Tensor& tensor : batch) {
    kind.emplace_back(tensor.sizes().vec(), tensor.scalar_type());
    infos.push_back({tensor.sizes().vec(), tensor.scalar_type()});
  }
  std::map<Kind, Compiled>& known = evaluation == nullptr ? compiled_ : of_evaluations_;
  if (const auto found = known.find(kind); found != known.end()) return found->second;
  if (known.size() == most_kinds)
    throw InputError(concat("device xla: the micro-batches have ", most_kinds + 1,
                            " different shapes, and each needs its own program; the last one is ", describe(batch),
                            ". Use rows of equal length"));
  const std::int64_t begin = monotonic_ns();
  const GradientProgram program =
      evaluation == nullptr ? program_of_step(parameters_, units_, infos, loss_, options_, client_->devices())
                            : program_of_loss(parameters_, units_, infos, *evaluation, options_, client_->devices());
  Compiled compiled{
      .program = client_->compile(program.text, compile_options()), .constants = {}, .draws = program.draws};
  compiled.constants.resize(devices());
  for (std::size_t d = 0; d < devices(); ++d)
    for (const at::Tensor& constant : program.constants) compiled.constants[d].push_back(upload(constant, d));
  if (options_.tell)
    options_.tell(concat("xla: ", compiled.program->from_cache() ? "loaded" : "compiled", " the ",
                         evaluation == nullptr ? "step" : "evaluation", " of a micro-batch (", describe(batch), ") in ",
                         format_real(static_cast<double>(monotonic_ns() - begin) * 1e-9, 3), " s"));
  return known.emplace(std::move(kind), std::move(compiled)).first->second;
}

void CompiledTraining::check_count(const std::vector<MicroBatch>& micro_batches) const {
  if (micro_batches.empty() || micro_batches.size() % devices() != 0)
    throw InputError(concat("device xla: ", micro_batches.size(), " micro-batches for ", devices(),
                            " devices; each device needs the same number of them, at least one"));
}

std::vector<std::vector<Buffer>> CompiledTraining::run(const Compiled& compiled,
                                                       const std::vector<MicroBatch>& micro_batches, std::size_t first,
                                                       const std::vector<std::vector<const Buffer*>>& sums) const {
  const auto passes = [&](const MicroBatch& batch) {
    if (!options_.global) return std::vector<Pass>{{batch.random_key, batch.first_row}};
    std::vector<Pass> all;
    for (std::size_t d = 0; d < devices(); ++d)
      all.push_back({micro_batches[first + d].random_key, micro_batches[first + d].first_row});
    return all;
  };
  std::vector<std::vector<Buffer>> inputs(devices());
  std::vector<std::vector<const Buffer*>> arguments(devices());
  std::vector<Buffer> drawn(devices());
  for (std::size_t d = 0; d < devices(); ++d) {
    const MicroBatch& batch = micro_batches[first + d];
    const std::string sizes = describe(batch.tensors), others = describe(micro_batches[first].tensors);
    if (sizes != others)
      throw InputError(
          concat("device xla: all devices run the same program, but two of them got ", others, " and ", sizes));
    for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
      const at::Tensor& tensor = batch.tensors[i];
      if (options_.global && tensor.dim() == 0 && !tensor.equal(micro_batches[first].tensors[i]))
        throw InputError(concat("device xla: argument ", i, " of the loss, a scalar, differs between devices: ",
                                micro_batches[first].tensors[i].item<double>(), " and ", tensor.item<double>(),
                                "; a global program has one"));
      inputs[d].push_back(upload(tensor, d));
    }
    if (!compiled.draws.empty()) drawn[d] = upload(keys(compiled.draws, passes(batch)), d);
    const auto give = [&](const std::vector<Buffer>& list) {
      for (const Buffer& buffer : list) arguments[d].push_back(&buffer);
    };
    give(weights_[d]);
    arguments[d].insert(arguments[d].end(), sums[d].begin(), sums[d].end());
    give(inputs[d]);
    give(compiled.constants[d]);
    if (!compiled.draws.empty()) arguments[d].push_back(&drawn[d]);
  }
  return compiled.program->run(arguments);
}

double CompiledTraining::accumulate(const std::vector<MicroBatch>& micro_batches) {
  check_count(micro_batches);
  TESSERA_CHECK(!summed_, "gradients are already summed over the devices; call update() or drop_gradients() first");
  std::vector<Buffer> losses(devices());
  for (std::size_t d = 0; d < devices(); ++d) losses[d] = upload(at::zeros({}), d);
  for (std::size_t first = 0; first < micro_batches.size(); first += devices()) {
    const Compiled& compiled = compiled_for(micro_batches[first].tensors, nullptr);
    last_ = &compiled;
    std::vector<std::vector<const Buffer*>> sums(devices());
    for (std::size_t d = 0; d < devices(); ++d) {
      for (const Buffer& buffer : gradients_[d]) sums[d].push_back(&buffer);
      sums[d].push_back(&losses[d]);
    }
    auto results = run(compiled, micro_batches, first, sums);
    for (std::size_t d = 0; d < devices(); ++d) {
      losses[d] = std::move(results[d].back());
      results[d].pop_back();
      gradients_[d] = std::move(results[d]);
    }
  }
  if (options_.global) losses.resize(1);  // every device has the whole sum
  double sum = 0;
  for (const Buffer& buffer : losses) sum += scalar_of(buffer);
  return sum;
}

std::vector<double> CompiledTraining::evaluate(const Loss& loss, const std::vector<MicroBatch>& micro_batches) {
  check_count(micro_batches);
  std::vector<double> losses;
  const std::vector<std::vector<const Buffer*>> none(devices());
  for (std::size_t first = 0; first < micro_batches.size(); first += devices()) {
    const auto results = run(compiled_for(micro_batches[first].tensors, &loss), micro_batches, first, none);
    for (std::size_t d = 0; d < (options_.global ? 1 : devices()); ++d) losses.push_back(scalar_of(results[d].front()));
  }
  return losses;
}

double CompiledTraining::gradient_norm() {
  if (!norm_) norm_ = client_->compile(norm_program(units_, client_->devices(), options_), compile_options());
  TESSERA_CHECK(!summed_, "gradient_norm() was called twice in a step");
  std::vector<std::vector<const Buffer*>> arguments(devices());
  for (std::size_t d = 0; d < devices(); ++d)
    for (const Buffer& buffer : gradients_[d]) arguments[d].push_back(&buffer);
  auto results = norm_->run(arguments);
  const double norm = scalar_of(results[0].back());
  if (!options_.shard) {
    for (std::size_t d = 0; d < devices(); ++d) {
      results[d].pop_back();
      gradients_[d] = std::move(results[d]);
    }
    summed_ = true;
  }
  return norm;
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
