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

/// Whether padding a row changes its positions' rotations.
bool rotations_depend_on_length(const models::LanguageModel& model) {
  using Rope = architectures::Rope::Type;
  const Rope rope = model.spec().rope.type;
  return rope == Rope::dynamic || rope == Rope::longrope;
}

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
  if (rows != nullptr && lengths_differ(*rows) && rotations_depend_on_length(model))
    throw InputError(
        "device xla: rows are padded to few lengths, and this model's rotations (rope_type dynamic or longrope) depend "
        "on the length: use rows of one length (plain text with block_size)");
}

xla::CompiledStep::Loss compiled_loss(models::LanguageModel& model, std::optional<at::ScalarType> narrow, bool padded) {
  return [&model, narrow, padded](const std::vector<at::Tensor>& given) {
    data::Batch batch;
    batch.ids = given[0];
    batch.labels = given[1];
    batch.random_key = 0;  // each pass sets its own key (MicroBatch::random_key)
    std::size_t next = 3;
    if (padded) batch.seen = at::arange(batch.ids.size(1)).unsqueeze(0).lt(given[next++].unsqueeze(1));
    if (given.size() > next) batch.types = given[next];
    const nn::Autocast precision(narrow, at::kCPU);
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
  options.global = config.parallel.xla_fsdp_v2 && options.shard;
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
    const Setup& setup = run_.parts_.setup;
    const Shape shape = shape_of(batches, setup.plan.batch_size * run_.parts_.objective.rows_of_sample(),
                                 *setup.datasets.train, run_.lengths_differ_, run_.masks_padding());
    std::vector<xla::CompiledStep::MicroBatch> given;
    for (const data::Batch& batch : batches) given.push_back(argument(batch, scales.scale, shape));
    fill(given);
    const double sum = run_.step_->accumulate(given);
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
  /// The host evaluates where the devices cannot: a classifier's predictions are counted, and padding would change the
  /// loss of a model whose rotations depend on the length.
  LossesOf losses() override {
    const Setup& setup = run_.parts_.setup;
    if (setup.model->num_labels() > 0) return {};
    const data::Dataset* const rows = setup.datasets.validation.get();
    if (rows != nullptr && lengths_differ(*rows) && rotations_depend_on_length(*setup.model)) return {};
    return [this](const std::vector<data::Batch>& batches, const std::vector<double>& scales) {
      return evaluated(batches, scales);
    };
  }
  std::string describe() const override { return concat("devices: ", run_.parts_.setup.xla->describe()); }

 private:
  /// The size to which the micro-batches of a pass are padded.
  struct Shape {
    std::int64_t rows = 0, columns = 0;
    bool masks = false;  // the rows' lengths are an argument
  };
  static Shape shape_of(const std::vector<data::Batch>& batches, std::int64_t rows, const data::Dataset& dataset,
                        bool lengths_differ, bool masks) {
    Shape shape{.rows = rows, .columns = 0, .masks = masks};
    for (const data::Batch& batch : batches) {
      check_batch(batch);
      shape.rows = std::max(shape.rows, batch.ids.size(0));
      shape.columns = std::max(shape.columns, batch.ids.size(1));
    }
    if (lengths_differ) {
      const std::int64_t most = dataset.max_length(), step = (most + most_lengths - 1) / most_lengths;
      shape.columns = std::max(shape.columns, std::min(most, (shape.columns + step - 1) / step * step));
    }
    return shape;
  }
  /// The padding has no weight.
  static xla::CompiledStep::MicroBatch argument(const data::Batch& batch, double scale, const Shape& shape) {
    const std::int64_t labels = batch.labels.size(1) == batch.ids.size(1) ? shape.columns : batch.labels.size(1);
    xla::CompiledStep::MicroBatch given;
    given.tensors = {padded(batch.ids, shape.rows, shape.columns, 0), padded(batch.labels, shape.rows, labels, -100),
                     at::scalar_tensor(scale, at::kFloat)};
    if (shape.masks) {
      const at::Tensor lengths =
          at::full({shape.rows}, shape.columns, at::kLong);  // for rows of padding, any length will do
      std::ranges::copy(batch.lengths, lengths.data_ptr<std::int64_t>());
      given.tensors.push_back(lengths);
    }
    if (batch.types.defined()) given.tensors.push_back(padded(batch.types, shape.rows, shape.columns, 0));
    given.random_key = batch.random_key.value_or(0);  // an evaluation drops nothing
    given.first_row = batch.first_row;
    return given;
  }
  /// Adds micro-batches without weight, up to a multiple of the number of devices.
  void fill(std::vector<xla::CompiledStep::MicroBatch>& given) const {
    while (given.size() % static_cast<std::size_t>(run_.parts_.setup.devices()) != 0) {
      given.push_back(given.front());
      given.back().tensors[1] = at::full_like(given.front().tensors[1], -100);
    }
  }
  /// A global program divides a batch's rows over the devices; otherwise each device has a batch of its own.
  std::vector<double> evaluated(const std::vector<data::Batch>& batches, const std::vector<double>& scales) const {
    const Setup& setup = run_.parts_.setup;
    const std::int64_t devices = run_.global_ ? setup.devices() : 1;
    const std::int64_t rows = setup.config.optimization.per_device_eval_batch_size;
    const data::Dataset& dataset = *setup.datasets.validation;
    const bool differ = run_.evaluated_lengths_differ_;
    const Shape shape = shape_of(batches, (rows + devices - 1) / devices * devices, dataset, differ,
                                 differ && !is_causal(*setup.model));
    std::vector<xla::CompiledStep::MicroBatch> given;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const xla::CompiledStep::MicroBatch whole = argument(batches[i], scales[i], shape);
      for (std::int64_t d = 0; d < devices; ++d) {
        xla::CompiledStep::MicroBatch& part = given.emplace_back(whole);
        const std::int64_t each = shape.rows / devices;
        for (at::Tensor& tensor : part.tensors)
          if (tensor.dim() > 0) tensor = tensor.narrow(0, d * each, each);
      }
    }
    fill(given);
    std::vector<double> losses = run_.step_->evaluate(run_.evaluation_loss_, given);
    losses.resize(batches.size());
    return losses;
  }

  CompiledRun& run_;
  bool told_ = false;
};

CompiledRun::CompiledRun(const PassParts& parts)
    : parts_(parts), lengths_differ_(lengths_differ(*parts.setup.datasets.train)) {
  models::LanguageModel& model = *parts.setup.model;
  const RunConfig& config = parts.setup.config;
  const xla::TrainingOptions options = compiled_options(config, model);
  global_ = options.global;
  step_ = parts.setup.xla->compile(model, compiled_loss(model, training_precision(config), masks_padding()), options);
  const auto& validation = parts.setup.datasets.validation;
  if (!validation) return;
  evaluated_lengths_differ_ = lengths_differ(*validation);
  evaluation_loss_ = compiled_loss(model, evaluation_precision(config), evaluated_lengths_differ_ && !is_causal(model));
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
