#pragma once
/// \file
/// Training of any torch::nn::Module on the devices of a PJRT plug-in.
///
///   auto client = std::make_shared<xla::Client>(xla::Plugin::load(xla::find_plugin()));
///   xla::CompiledTraining training(client, *model, [&](const auto& batch) {
///     return loss(model->forward(batch[0]), batch[1]);
///   }, options);
///   training.accumulate({{{ids, labels}}, ...});                 // a multiple of the devices
///   training.update(learning_rate, 1.0 / micro_batches.size());  // the mean of their gradients
///   training.write_back();  // before saving: the module has the trained parameters again

#include <tessera/xla/capture/capture.h>
#include <tessera/xla/compiled_step.h>
#include <tessera/xla/pjrt/client.h>
#include <tessera/xla/step/gradient_program.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::xla {

class CompiledTraining final : public CompiledStep {
 public:
  /// Throws InputError for parameters that are not fp32 and units that do not exist.
  CompiledTraining(std::shared_ptr<const Client> client, torch::nn::Module& module, Loss loss, TrainingOptions options);

  double accumulate(const std::vector<MicroBatch>& micro_batches) override;
  std::vector<double> evaluate(const Loss& loss, const std::vector<MicroBatch>& micro_batches) override;
  double gradient_norm() override;
  void update(double learning_rate, double factor) override;
  void drop_gradients() override;
  void write_back() override;
  std::vector<State> states() const override;
  void set_states(const std::vector<State>& states, std::int64_t steps) override;
  std::int64_t steps_taken() const override { return steps_; }
  StepMemory memory() const override;

  /// The program for the newest micro-batches.
  const Program& gradients() const { return *last_->program; }
  const std::vector<FlatUnit>& units() const { return units_; }

 private:
  /// [device][unit]: the device's part of each unit or, for states and gradients, of each trained unit.
  using Parts = std::vector<std::vector<Buffer>>;
  /// Compiled code for one kind of micro-batch.
  struct Compiled {
    std::unique_ptr<Program> program;
    std::vector<std::vector<Buffer>> constants;  // by device
    std::vector<Draw> draws;
  };
  using Kind = std::vector<std::pair<std::vector<std::int64_t>, at::ScalarType>>;

  /// Whether devices have different parts of the unit; else each has all of it.
  bool divided(const FlatUnit& unit) const { return options_.shard && !(options_.global && unit.sizes.empty()); }
  /// Elements of the unit on each device, and their sizes.
  std::int64_t length(const FlatUnit& unit) const { return options_.shard ? unit.shard : unit.elements; }
  std::vector<std::int64_t> sizes(const FlatUnit& unit) const {
    if (options_.global) return sizes_of_part(unit, client_->devices());
    return {length(unit)};
  }
  std::size_t devices() const { return static_cast<std::size_t>(client_->devices()); }
  Buffer upload(const at::Tensor& tensor, std::size_t device) const;
  Parts filled(double value) const;
  CompileOptions compile_options() const;
  /// `evaluation`: the loss of evaluate(); null: the step's.
  const Compiled& compiled_for(const std::vector<at::Tensor>& batch, const Loss* evaluation);
  /// Runs a program for micro_batches[first + d] of each device; `sums[d]` are its arguments between weights and
  /// inputs.
  std::vector<std::vector<Buffer>> run(const Compiled& compiled, const std::vector<MicroBatch>& micro_batches,
                                       std::size_t first, const std::vector<std::vector<const Buffer*>>& sums) const;
  void check_count(const std::vector<MicroBatch>& micro_batches) const;
  /// Splits flat vectors into parts, and joins parts; `trained_only`: of trained units. tensor_of(i) has the sizes of
  /// parameter i.
  Parts divide(bool trained_only, const std::function<at::Tensor(std::size_t)>& tensor_of) const;
  void join(const Parts& parts, bool trained_only, const std::function<at::Tensor(std::size_t)>& tensor_of) const;

  /// Visits the buffers that the update reads and writes on a device, in the order of update_program()'s arguments.
  void each_updated(std::size_t device, const std::function<void(Buffer&)>& f);

  std::shared_ptr<const Client> client_;
  parallel::ModuleParameters parameters_;
  Loss loss_;
  TrainingOptions options_;
  std::vector<FlatUnit> units_;
  std::map<Kind, Compiled> compiled_, of_evaluations_;
  const Compiled* last_ = nullptr;
  std::unique_ptr<Program> norm_, update_;
  std::int64_t steps_ = 0;
  bool summed_ = false;  // not sharded: gradients are already summed over the devices
  Parts weights_, gradients_;
  std::vector<Parts> states_;  // by state_names()
};

}  // namespace tessera::xla
