#pragma once
/// \file
/// State besides tensors that a region of the model reads: grad mode, dispatch state (autocast), random generators, and
/// whether backward is divided.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tessera/nn/weight_gradients.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// The state at the start of the region.
class Environment {
 public:
  /// Returns the calling thread's state, and the state of the default generators of the CPU and of the devices of
  /// `inputs`.
  static Environment capture(std::span<const at::Tensor> inputs, bool random);
  /// Call at the end of the region: drops the generators from which nothing was drawn.
  void end();

  /// Its constructor restores the captured state, with grad mode on; its destructor restores the previous state.
  class Restored;

 private:
  struct Generators {
    at::Generator generator;
    at::Tensor state;
  };
  struct Autocast {
    c10::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };

  c10::impl::LocalDispatchKeySet keys_ = c10::impl::tls_local_dispatch_key_set();
  std::vector<Autocast> autocast_;
  bool autocast_cache_ = true;
  std::optional<at::ScalarType> rounding_;
  std::vector<Generators> generators_;
  c10::intrusive_ptr<nn::WeightGradients> late_;  // affects which tensors linear maps save
};

class Environment::Restored {
 public:
  explicit Restored(const Environment& environment);
  ~Restored();
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

/// Whether the calling thread is recomputing a region, which is a forward although backward requests it.
bool in_recomputation();

}  // namespace tessera::parallel
