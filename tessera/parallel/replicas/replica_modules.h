#pragma once
/// \file
/// The modules that replicas call: one shared by all (teams on the CPU), or one each (devices, or a factory).

#include <torch/nn/module.h>

#include <tessera/parallel/replicas/replica_set.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// The devices of all replicas, from the options: one per replica, the module's first. Throws InputError.
std::vector<c10::Device> replica_devices(const torch::nn::Module& module, const DataParallelOptions& options);

class ReplicaModules {
 public:
  /// Creates the other replicas. Throws InputError when one differs from the first in names, shapes or dtypes, or
  /// cannot be created.
  ReplicaModules(std::shared_ptr<torch::nn::Module> first, std::vector<c10::Device> devices,
                 const DataParallelOptions& options);

  int size() const { return static_cast<int>(devices_.size()); }
  c10::Device device(int replica) const { return devices_[static_cast<std::size_t>(replica)]; }
  torch::nn::Module& module(int replica) const {
    return own_.empty() || replica == 0 ? *first_ : *own_[static_cast<std::size_t>(replica) - 1];
  }
  /// All replicas call the first module.
  bool shared() const { return own_.empty(); }

  /// A trained tensor of a replica, and the index of the first module's parameter that its gradient belongs to.
  struct Leaf {
    at::Tensor tensor;
    std::size_t parameter;
  };
  /// The first module's parameters that require grad, without repeating tied ones.
  std::vector<at::Tensor> trained() const;
  /// A replica's tensors that correspond to `trained` (= trained()), each once; more if only the first module ties
  /// them.
  std::vector<Leaf> leaves(int replica, const std::vector<at::Tensor>& trained) const;

  /// Before a call: copies the first module's values, modes (train, eval) and requires_grad to replicas with their own
  /// modules.
  void synchronize(bool records_gradients);
  /// Makes the next call copy the parameters.
  void refresh() { stale_ = true; }

 private:
  std::vector<std::uint32_t> versions() const;

  std::shared_ptr<torch::nn::Module> first_;
  std::vector<c10::Device> devices_;
  std::vector<std::shared_ptr<torch::nn::Module>> own_;  // modules of replicas 1, 2, ...; empty: all replicas call
                                                         // first_
  bool stale_ = true;
  std::vector<std::uint32_t> copied_versions_;
};

}  // namespace tessera::parallel
