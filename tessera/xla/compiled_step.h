#pragma once
/// \file
/// xla/: training steps that XLA compiles, for TPUs and whatever else has a PJRT plug-in (docs/tpu.md); a library of
/// its own. This header: what the plug-in libtessera_xla.so offers, the devices of a PJRT plug-in and a module's
/// training step on them. The training loop knows these interfaces only.

#include <torch/nn/module.h>

#include <tessera/layout/units.h>
#include <tessera/optim/elementwise_options.h>
#include <tessera/xla/pjrt/program_memory.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::xla {

/// How a step is divided over the devices, and what updates the parameters.
struct TrainingOptions {
  layout::WrapPolicy units = {};      ///< what is gathered together; kind none: all at once
  bool shard = true;                  ///< parameters, gradients and states are divided over the devices (FSDP)
  bool reshard_after_forward = true;  ///< gathered parameters are dropped between forward and backward
  bool recompute = false;             ///< activation checkpointing of every unit but the root
  optim::ElementwiseOptions optimizer = optim::AdamWOptions{};  ///< which one, and its numbers
  double weight_decay = 0;                                 ///< decoupled with AdamW and Lion, else added to gradients
  std::function<bool(const std::string&)> has_decay = {};  ///< by a parameter's name; empty: all have
  std::function<void(const std::string&)> tell = {};       ///< what takes long, a line each; empty: nobody listens
};

/// Bytes on each device as the compiler counts them.
struct StepMemory {
  std::int64_t states = 0;     ///< parameters, gradients and the optimizer's, by our own count
  std::int64_t arguments = 0;  ///< those of the gradients' program, by the compiler's count
  std::int64_t temporary = 0;  ///< while it runs
};

/// A module's training step on all devices. The module keeps its parameters, which do not change until write_back().
/// Threads: one at a time.
class CompiledStep {
 public:
  /// Arguments of the loss, and what its dropout by place (nn/dropout.h) belongs to.
  struct MicroBatch {
    std::vector<at::Tensor> tensors;  ///< the loss's arguments, of any sizes, on the CPU
    std::uint64_t random_key = 0;     ///< the pass's, whatever key the places in the step have
    std::int64_t first_row = 0;       ///< added to their rows
  };
  using Loss = std::function<at::Tensor(const std::vector<at::Tensor>& tensors)>;
  virtual ~CompiledStep() = default;

  /// Adds the gradients of micro_batches[m * devices + d], the m-th of device d, to those that are there; every device
  /// divides nothing: the loss decides what a micro-batch counts. Returns the losses' sum over all of them. Sizes and
  /// types that were not there before are captured and compiled. Throws InputError for a step that cannot be compiled,
  /// and for another number of micro-batches than a multiple of the devices.
  virtual double accumulate(const std::vector<MicroBatch>& micro_batches) = 0;
  /// The norm of the accumulated gradients over all devices.
  virtual double gradient_norm() = 0;
  /// The optimizer's step with the accumulated gradients times `factor`; they are zeros afterwards.
  virtual void update(double learning_rate, double factor) = 0;
  /// The accumulated gradients become zeros.
  virtual void drop_gradients() = 0;

  /// Copies the trained parameters into the module.
  virtual void write_back() = 0;
  /// The optimizer's states of trained parameters, in their shapes: fp32 on the CPU. `set`: the devices get those, and
  /// steps_taken() becomes `steps`.
  struct State {
    std::string name;   ///< "exp_avg.h.0.attn.c_attn.weight"
    at::Tensor tensor;  ///< whole
  };
  virtual std::vector<State> states() const = 0;
  virtual void set_states(const std::vector<State>& states, std::int64_t steps) = 0;
  virtual std::int64_t steps_taken() const = 0;

  /// What the program that ran last needs.
  virtual StepMemory memory() const = 0;
};

/// The devices of this process.
class Devices {
 public:
  virtual ~Devices() = default;
  virtual int count() const = 0;             ///< how many
  virtual std::string describe() const = 0;  ///< "4 x cpu (PJRT plug-in /path)"
  /// `loss`: of a micro-batch, a scalar of fp32. `module` outlives the step.
  virtual std::unique_ptr<CompiledStep> compile(torch::nn::Module& module, CompiledStep::Loss loss,
                                                TrainingOptions options) const = 0;
};

/// Collectives between devices in a program.
struct Collectives {
  int gathers = 0, reduce_scatters = 0, all_reduces = 0;  ///< how many of each
};
/// What a compiler says of one program.
struct ProgramReport {
  std::string name;         ///< "gradients", "norm", "update"
  ProgramMemory memory;     ///< on each device
  double seconds = 0;       ///< time of compiling
  Collectives collectives;  ///< in one run
};
/// A step for devices that are not here.
struct TopologyReport {
  int devices = 0;                      ///< how many
  std::string kind;                     ///< "TPU v5 lite"
  std::int64_t states = 0;              ///< bytes of parameters, gradients and the optimizer's on each device
  std::vector<ProgramReport> programs;  ///< a step's, in their order
};
/// A topology by its name, and one device's micro-batch.
struct TopologyRequest {
  std::string plugin;    ///< the PJRT plug-in's file, "" for the environment's
  std::string topology;  ///< "v5e:2x2"
  std::vector<std::pair<std::vector<std::int64_t>, at::ScalarType>> micro_batch;  ///< sizes and types
};

/// Which devices are opened.
struct DeviceRequest {
  std::string plugin;  ///< the PJRT plug-in's file, "" for the environment's (find_plugin())
  int count = 0;  ///< devices of a CPU plug-in, which makes as many as it is asked for; 0: one. Of others: how many
                  ///< there must be; 0: all
  std::string cache_folder;  ///< compiled programs are kept there (pjrt/program_cache.h); "": nowhere
};

/// The table that libtessera_xla.so exports as tessera_xla_plugin().
struct XlaPlugin {
  static constexpr const char* symbol = "tessera_xla_plugin";  ///< the C function's name
  static constexpr int current_abi = 4;                        ///< this header's
  int abi = current_abi;                                       ///< the library's
  /// Throws InputError: no plug-in, none of its devices, or another number of them.
  std::unique_ptr<Devices> (*open)(const DeviceRequest& request) = nullptr;
  /// Compiles the step of `module` for a topology. The module's parameters have no memory afterwards, and need none
  /// before. Throws as open() and CompiledStep::accumulate().
  TopologyReport (*compile_ahead)(const TopologyRequest& request, torch::nn::Module& module,
                                  const CompiledStep::Loss& loss, const TrainingOptions& options) = nullptr;
};

}  // namespace tessera::xla
