#include <tessera/train/loop/compiled_run.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/user_folders.h>
#include <tessera/nn/autocast.h>
#include <tessera/optim/by_name.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/loop/sharding.h>
#include <tessera/train/saving/tensor_parts.h>
#include <tessera/xla/devices.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::train {
namespace {

/// `tensor` [rows, T], extended with `value` to more rows or columns.
at::Tensor padded(const at::Tensor& tensor, std::int64_t rows, std::int64_t columns, std::int64_t value) {
  if (tensor.size(0) == rows && tensor.size(1) == columns) return tensor;
  const at::Tensor result = at::full({rows, columns}, value, tensor.options());
  result.narrow(0, 0, tensor.size(0)).narrow(1, 0, tensor.size(1)).copy_(tensor);
  return result;
}

/// Throws for batch contents that cannot be arguments of a program.
void check_batch(const data::Batch& batch) {
  if (!batch.document_starts.empty())
    throw InputError(
        "device xla: rows that contain several documents would need a program for each batch; use --packing false");
  if (batch.images.defined()) throw InputError("device xla: batches with images cannot be compiled");
}

bool is_causal(const models::LanguageModel& model) { return model.objective() == data::Objective::Kind::next_token; }

/// Whether rows may have different lengths. Reads all lengths, except those of a stream, whose rows can be read only
/// once.
bool lengths_differ(const data::Dataset& rows) {
  if (rows.streamed()) return true;
  const std::int64_t length = rows.size() > 0 ? rows.length(0) : 0;
  for (std::int64_t row = 1; row < rows.size(); ++row)
    if (rows.length(row) != length) return true;
  return false;
}

/// The folder for compiled programs; "": none.
std::string cache_folder(const std::string& asked) {
  if (asked == "none") return "";
  if (!asked.empty()) return asked;
  const auto folder = user_cache_folder();
  return folder ? path_join(*folder, "xla") : "";
}

/// Rows of different lengths are padded to at most this many lengths, because each needs its own program.
constexpr std::int64_t most_lengths = 8;

}  // namespace

std::shared_ptr<xla::Devices> open_xla(const RunConfig& config, const comm::World& world) {
  if (config.device != Device::xla) return nullptr;
  if (world.size() > 1)
    throw InputError(concat("device xla: one process drives all devices of a host, but there are ", world.size(),
                            " processes; start one (several hosts are not supported)"));
  return xla::open_devices({.plugin = config.parallel.pjrt_plugin,
                            .count = static_cast<int>(config.parallel.xla_devices),
                            .cache_folder = cache_folder(config.parallel.xla_cache_dir)});
}

void check_compilable(const models::LanguageModel& model, const data::Dataset* rows) {
  if (model.balance().experts > 0)
    throw InputError("device xla: models with experts cannot be compiled: the rows of an expert depend on data");
  if (rows == nullptr || !lengths_differ(*rows)) return;
  using Rope = architectures::Rope::Type;
  const Rope rope = model.spec().rope.type;
  if (rope == Rope::dynamic || rope == Rope::longrope)
    throw InputError(
        "device xla: rows are padded to few lengths, and this model's rotations (rope_type dynamic or longrope) depend "
        "on the length: use rows of one length (plain text with block_size)");
}

xla::CompiledStep::Loss compiled_loss(models::LanguageModel& model, const RunConfig& config, bool padded) {
  return [&model, &config, padded](const std::vector<at::Tensor>& given) {
    data::Batch batch;
    batch.ids = given[0];
    batch.labels = given[1];
    batch.random_key = 0;  // each pass sets its own key (MicroBatch::random_key)
    std::size_t next = 3;
    if (padded) batch.seen = at::arange(batch.ids.size(1)).unsqueeze(0).lt(given[next++].unsqueeze(1));
    if (given.size() > next) batch.types = given[next];
    const nn::Autocast precision(training_precision(config), at::kCPU);
    return model.loss(batch, 1.0) * given[2];
  };
}

xla::TrainingOptions compiled_options(const RunConfig& config, const models::LanguageModel& model) {
  const StrategyRow& strategy = row_of(config.sharding.strategy);
  xla::TrainingOptions options;
  options.units = wrap_policy(config, model);
  options.shard = strategy.shard_optimizer;
  options.reshard_after_forward =
      decided(config.sharding.reshard_after_forward).value_or(strategy.reshard_after_forward);
  options.recompute = config.optimization.gradient_checkpointing;
  options.optimizer = optim::elementwise_options(optimizer_choice(config.optimization)).value();
  options.weight_decay = config.optimization.weight_decay;
  options.has_decay = [&model](const std::string& name) { return !model.is_norm_or_bias(name); };
  options.tell = [](const std::string& line) { log::info(line); };
  return options;
}

/// The update on the devices. The host's update keeps the learning rates, and receives the states on request.
class CompiledRun::DeviceUpdate final : public Update {
 public:
  explicit DeviceUpdate(CompiledRun& run) : run_(run) {}

  void step(double gradient_scale) override {
    run_.step_->update(run_.host_->learning_rates().front(), gradient_scale);
    run_.leftover_ = false;
    run_.stale_ = true;
  }
  std::optional<double> gradient_norm() override { return run_.step_->gradient_norm(); }
  void set_learning_rates(const std::function<double(double, std::size_t)>& rate) override {
    run_.host_->set_learning_rates(rate);
  }
  std::vector<double> learning_rates() const override { return run_.host_->learning_rates(); }
  std::vector<HeldState> states(const Sharded& sharded) const override { return run_.host_->states(sharded); }
  std::int64_t steps() const override { return run_.step_->steps_taken(); }
  void restore(const Sharded& sharded, std::int64_t steps, const std::string& folder,
               const std::shared_ptr<format::ReadSums>& sums, const std::string& stem) override {
    run_.host_->restore(sharded, steps, folder, sums, stem);
    const std::vector<xla::CompiledStep::State> states = run_.step_->states();
    run_.each_state(states, sharded, [](const at::Tensor& device, const at::Tensor& host) { device.copy_(host); });
    run_.step_->set_states(states, steps);
  }

 private:
  CompiledRun& run_;
};

void CompiledRun::each_state(const std::vector<xla::CompiledStep::State>& states, const Sharded& sharded,
                             const std::function<void(const at::Tensor&, const at::Tensor&)>& copy) const {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> of_host;
  for (const HeldState& state : host_->states(sharded)) of_host[state.name] = state.held;
  for (const auto& [name, tensor] : states) {
    const auto found = of_host.find(name);
    TESSERA_CHECK(found != of_host.end() && found->second.numel() == tensor.numel(), "no host copy of ", name);
    copy(tensor, found->second.view(tensor.sizes()));
  }
}

class CompiledRun::Passes final : public StepPasses {
 public:
  explicit Passes(CompiledRun& run) : run_(run) {}

  void compute(const std::vector<data::Batch>& batches, std::int64_t, const LossScales& scales) override {
    PassParts& parts = run_.parts_;
    parts.clock.enter(Phase::forward);
    if (run_.leftover_) run_.step_->drop_gradients();
    run_.leftover_ = true;
    const double sum = run_.step_->accumulate(arguments(batches, scales.scale));
    if (!std::exchange(told_, true)) {
      const xla::StepMemory memory = run_.step_->memory();
      const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); };
      log::info("xla: each device has ", text(memory.states),
                " of parameters, gradients and the optimizer's states, and ", text(memory.temporary),
                " while a step is computed, by the compiler's count");
    }
    parts.window.add_loss(scales.scale == 0 ? 0 : sum / scales.scale * scales.logged);
    parts.model.core.gradients_changed();
  }
  void rehearse(const data::Batch&) override { throw Error("a compiled step is not rehearsed"); }
  std::string describe() const override { return concat("devices: ", run_.parts_.setup.xla->describe()); }

 private:
  /// Pads the micro-batches to one size and to a multiple of the number of devices; the padding has no weight.
  std::vector<xla::CompiledStep::MicroBatch> arguments(const std::vector<data::Batch>& batches, double scale) const {
    const Setup& setup = run_.parts_.setup;
    std::int64_t rows = setup.plan.batch_size * run_.parts_.objective.rows_of_sample(), columns = 0;
    for (const data::Batch& batch : batches) {
      check_batch(batch);
      rows = std::max(rows, batch.ids.size(0));
      columns = std::max(columns, batch.ids.size(1));
    }
    if (run_.lengths_differ_) {
      const std::int64_t most = setup.datasets.train->max_length(), step = (most + most_lengths - 1) / most_lengths;
      columns = std::max(columns, std::min(most, (columns + step - 1) / step * step));
    }
    const at::Tensor factor = at::scalar_tensor(scale, at::kFloat);
    std::vector<xla::CompiledStep::MicroBatch> result;
    for (const data::Batch& batch : batches) {
      const std::int64_t labels = batch.labels.size(1) == batch.ids.size(1) ? columns : batch.labels.size(1);
      xla::CompiledStep::MicroBatch& given = result.emplace_back();
      given.tensors = {padded(batch.ids, rows, columns, 0), padded(batch.labels, rows, labels, -100), factor};
      if (run_.masks_padding()) {
        const at::Tensor lengths = at::full({rows}, columns, at::kLong);  // for rows of padding, any length will do
        std::ranges::copy(batch.lengths, lengths.data_ptr<std::int64_t>());
        given.tensors.push_back(lengths);
      }
      if (batch.types.defined()) given.tensors.push_back(padded(batch.types, rows, columns, 0));
      given.random_key = batch.random_key.value();
      given.first_row = batch.first_row;
    }
    while (result.size() % static_cast<std::size_t>(setup.devices()) != 0) {
      result.push_back(result.front());
      result.back().tensors[1] = at::full_like(result.front().tensors[1], -100);
    }
    return result;
  }

  CompiledRun& run_;
  bool told_ = false;
};

CompiledRun::CompiledRun(const PassParts& parts)
    : parts_(parts), lengths_differ_(lengths_differ(*parts.setup.datasets.train)) {
  models::LanguageModel& model = *parts.setup.model;
  step_ = parts.setup.xla->compile(model, compiled_loss(model, parts.setup.config, masks_padding()),
                                   compiled_options(parts.setup.config, model));
}

bool CompiledRun::masks_padding() const { return lengths_differ_ && !is_causal(*parts_.setup.model); }

std::unique_ptr<StepPasses> CompiledRun::passes() { return std::make_unique<Passes>(*this); }

std::unique_ptr<Update> CompiledRun::update(std::unique_ptr<Update> host) {
  host_ = std::move(host);
  return std::make_unique<DeviceUpdate>(*this);
}

void CompiledRun::bring_back() {
  if (!std::exchange(stale_, false)) return;
  step_->write_back();
  each_state(step_->states(), parts_.model.sharded(),
             [](const at::Tensor& device, const at::Tensor& host) { host.copy_(device); });
}

}  // namespace tessera::train
