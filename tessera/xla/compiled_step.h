#pragma once
/// \file
/// xla/: training steps compiled by XLA, for TPUs and any other device with a PJRT plug-in (docs/tpu.md); a separate
/// library. This header: the interface of the plug-in libtessera_xla.so, the devices of a PJRT plug-in and a module's
/// training step on them. The training loop uses only these interfaces.

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

/// How a step is divided over the devices, and the optimizer.
struct TrainingOptions {
  layout::WrapPolicy units = {};      ///< FSDP units; kind none: one unit
  bool shard = true;                  ///< parameters, gradients and states are divided over the devices (FSDP)
  bool reshard_after_forward = true;  ///< free gathered parameters between forward and backward
  bool recompute = false;             ///< activation checkpointing of every unit except the root
  /// One program over the rows of all devices (FSDPv2): the compiler divides it by annotations of parameters and of
  /// units' outputs, on dimension 0. Implies `shard`; `reshard_after_forward` has no effect.
  bool global = false;
  optim::ElementwiseOptions optimizer = optim::AdamWOptions{};  ///< kind and hyperparameters
  double weight_decay = 0;                                      ///< decoupled in AdamW and Lion, otherwise added to
                                                                ///< gradients
  std::function<bool(const std::string&)> has_decay = {};       ///< by parameter name; empty: decay applies to all
  std::function<void(const std::string&)> tell = {};            ///< receives one line per slow operation; may be empty
};

/// Memory on each device, in bytes.
struct StepMemory {
  std::int64_t states = 0;     ///< parameters, gradients and optimizer states, by our own count
  std::int64_t arguments = 0;  ///< arguments of the gradient program, by the compiler's count
  std::int64_t temporary = 0;  ///< temporaries while the program runs, by the compiler's count
};

/// A module's training step on all devices. The module's own parameters do not change until write_back(). One thread at
/// a time.
class CompiledStep {
 public:
  /// Arguments of the loss, and the key and row offset of its dropout by place (nn/dropout.h).
  struct MicroBatch {
    std::vector<at::Tensor> tensors;  ///< the loss's arguments, of any sizes, on the CPU
    std::uint64_t random_key = 0;     ///< key of the pass; overrides the keys of the places
    std::int64_t first_row = 0;       ///< added to row indices
  };
  using Loss = std::function<at::Tensor(const std::vector<at::Tensor>& tensors)>;
  virtual ~CompiledStep() = default;

  /// Adds the gradients of micro_batches[m * devices + d], the m-th of device d, to the accumulated ones. Devices do
  /// not rescale: the loss defines a micro-batch's weight. Returns the sum of all losses. New combinations of sizes and
  /// types are captured and compiled first. With TrainingOptions::global, the loss gets the m-th micro-batches of all
  /// devices at once, joined on dimension 0, so that a loss that is a mean is one over all of their rows; scalars must
  /// be equal on all devices. Throws InputError for a step that cannot be compiled, for unequal scalars, and unless the
  /// number of micro-batches is a multiple of the devices.
  virtual double accumulate(const std::vector<MicroBatch>& micro_batches) = 0;
  /// Losses without gradients, by `loss`, which may differ from the step's own and is captured in the module's present
  /// mode: one for each micro-batch or, with TrainingOptions::global, one for all of each `devices` micro-batches.
  /// Always give the same `loss`. Throws like accumulate().
  virtual std::vector<double> evaluate(const Loss& loss, const std::vector<MicroBatch>& micro_batches) = 0;
  /// The norm of the accumulated gradients over all devices.
  virtual double gradient_norm() = 0;
  /// Applies the optimizer to the accumulated gradients times `factor`, then zeroes them.
  virtual void update(double learning_rate, double factor) = 0;
  /// Zeroes the accumulated gradients.
  virtual void drop_gradients() = 0;

  /// Copies the trained parameters into the module.
  virtual void write_back() = 0;
  /// The optimizer's states of trained parameters, in the parameters' shapes: fp32 on the CPU. set_states() copies them
  /// to the devices and sets steps_taken() to `steps`.
  struct State {
    std::string name;   ///< "exp_avg.h.0.attn.c_attn.weight"
    at::Tensor tensor;  ///< whole
  };
  virtual std::vector<State> states() const = 0;
  virtual void set_states(const std::vector<State>& states, std::int64_t steps) = 0;
  virtual std::int64_t steps_taken() const = 0;

  /// Memory of the program that ran last.
  virtual StepMemory memory() const = 0;
};

/// The devices of this process.
class Devices {
 public:
  virtual ~Devices() = default;
  virtual int count() const = 0;             ///< how many
  virtual std::string describe() const = 0;  ///< "4 x cpu (PJRT plug-in /path)"
  /// `loss`: returns a micro-batch's loss, an fp32 scalar. `module` must outlive the step.
  virtual std::unique_ptr<CompiledStep> compile(torch::nn::Module& module, CompiledStep::Loss loss,
                                                TrainingOptions options) const = 0;
};

/// Number of collectives between devices in a program.
struct Collectives {
  int gathers = 0, reduce_scatters = 0, all_reduces = 0;  ///< one count per kind
};
/// The compiler's report on one program.
struct ProgramReport {
  std::string name;         ///< "gradients", "norm", "update"
  ProgramMemory memory;     ///< on each device
  double seconds = 0;       ///< compile time
  Collectives collectives;  ///< number in one run of the program
};
/// Report on a step compiled for devices that this machine does not have.
struct TopologyReport {
  int devices = 0;                      ///< how many
  std::string kind;                     ///< "TPU v5 lite"
  std::int64_t states = 0;              ///< bytes of parameters, gradients and optimizer states on each device
  std::vector<ProgramReport> programs;  ///< a step's programs, in order
};
/// The name of a topology, and the shape of one device's micro-batch.
struct TopologyRequest {
  std::string plugin;    ///< the PJRT plug-in's file; "": from the environment
  std::string topology;  ///< "v5e:2x2"
  std::vector<std::pair<std::vector<std::int64_t>, at::ScalarType>> micro_batch;  ///< sizes and types
};

/// The devices to open.
struct DeviceRequest {
  std::string plugin;  ///< the PJRT plug-in's file; "": from the environment (find_plugin())
  /// A CPU plug-in creates this many devices (0: one); other plug-ins must have exactly this many (0: any number).
  int count = 0;
  std::string cache_folder;  ///< folder for compiled programs (pjrt/program_cache.h); "": none
};

/// The function table that libtessera_xla.so exports as tessera_xla_plugin().
struct XlaPlugin {
  static constexpr const char* symbol = "tessera_xla_plugin";  ///< the C function's name
  static constexpr int current_abi = 5;                        ///< this header's
  int abi = current_abi;                                       ///< the library's
  /// Throws InputError without a plug-in or without a device, or if the number of devices is not the requested one.
  std::unique_ptr<Devices> (*open)(const DeviceRequest& request) = nullptr;
  /// Compiles the step of `module` for a topology. The module's parameters need no memory; if they have
  /// any, it is released.
  /// Throws like open() and CompiledStep::accumulate().
  TopologyReport (*compile_ahead)(const TopologyRequest& request, torch::nn::Module& module,
                                  const CompiledStep::Loss& loss, const TrainingOptions& options) = nullptr;
};

}  // namespace tessera::xla
