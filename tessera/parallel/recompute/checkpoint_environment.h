#pragma once
/// \file
/// What a region of the model reads besides tensors: grad mode, dispatch state (autocast), random generators, and
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

/// As it was when the region began.
class Environment {
 public:
  /// The calling thread's, and the default generators of the CPU and of the devices of `inputs`.
  static Environment capture(std::span<const at::Tensor> inputs, bool random);
  /// At the end of the region: forgets the generators from which nothing was drawn.
  void end();

  /// Puts it in place, with grad mode on; the present one is back when this ends.
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
  c10::intrusive_ptr<nn::WeightGradients> late_;  // linear maps save other tensors under it
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

/// Whether the calling thread runs a region again: a forward, though backward asks for it.
bool in_recomputation();

}  // namespace tessera::parallel
