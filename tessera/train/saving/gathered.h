#pragma once
/// \file
/// Tensors that ranks hold parts of, made whole one by one while a file is written: no rank ever holds more than one of
/// them.

#include <ATen/core/Tensor.h>

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::train {

/// The tensors of one file. Every rank makes the same list; the rank that writes gives sources() to the writer, then
/// all ranks call finish(). Gathering happens in the writer's order (format::sort_for_writing) on every rank. Not
/// thread-safe; sources() refer to this object.
class GatheredTensors {
 public:
  /// `whole` is called once, on every rank; collective where parts are elsewhere.
  void add(const std::string& name, at::ScalarType type, std::vector<std::int64_t> shape,
           std::function<at::Tensor()> whole);
  checkpoint::TensorSources sources();
  /// Gathers what nobody has asked for: on ranks that do not write, everything; after an error of the writer, the rest,
  /// so that the other ranks do not wait for ever.
  void finish();

 private:
  void sort();
  at::Tensor make(std::size_t index);

  struct Item {
    format::TensorSource source;  // only its name, type and shape: what sorting looks at
    at::ScalarType type;
    std::function<at::Tensor()> whole;
  };
  std::vector<Item> items_;
  bool sorted_ = false;
  std::size_t next_ = 0;
};

/// Trained parameters under their names (of a run that trains adapters: the adapters), and the optimizer's states under
/// theirs.
GatheredTensors trained_weights(const Sharded& sharded);
GatheredTensors optimizer_states(const Sharded& sharded, const optim::Optimizer& optimizer);

/// Calls `write` where there is one (on the rank that writes), then lets all ranks gather the rest, then throws what
/// `write` threw.
void write_gathered(const std::vector<GatheredTensors*>& in_order, const std::function<void()>& write);

/// The parameter whose state this is: "exp_avg.h.0.weight" is h.0.weight's. Throws Error for other names.
const ShardedParameter& parameter_of_state(const Sharded& sharded, const std::string& state_name);

}  // namespace tessera::train
