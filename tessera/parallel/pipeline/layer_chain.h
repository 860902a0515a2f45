#pragma once
/// \file
/// Internal to PipelineParallel: a user's module as a chain of layers, and dropping the layers of other ranks.

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <ATen/core/Tensor.h>

#include <tessera/parallel/pipeline/pipeline_parallel.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// A module as layers 0 .. n - 1, each of which takes the output of the previous one.
class LayerChain {
 public:
  struct Layer {
    std::string name;
    std::vector<std::string> modules;  ///< dotted names below the root: the modules, or single parameters, that it uses
  };

  LayerChain(torch::nn::Module& root, std::vector<Layer> layers) : root_(&root), layers_(std::move(layers)) {}
  virtual ~LayerChain() = default;
  torch::nn::Module& root() const { return *root_; }
  const std::vector<Layer>& layers() const { return layers_; }

  /// Runs layers [first, past). `input`: the previous layer's output, undefined for layer 0; `batch`: the input of the
  /// model, which only layer 0 takes, unless needs_batch().
  virtual at::Tensor run(std::size_t first, std::size_t past, const at::Tensor& batch, const at::Tensor& input) = 0;
  /// Releases the chain's references to layers that are not kept; these are never run again.
  virtual void drop_layers(const std::vector<bool>& kept) = 0;
  /// Whether every rank needs the inputs of a batch and calls all modules.
  virtual bool needs_batch() const { return false; }
  /// Returns a hint for a user who requested more layers or an unknown layer; "" without one.
  virtual std::string remark() const { return ""; }

 private:
  torch::nn::Module* root_;
  std::vector<Layer> layers_;
};

std::unique_ptr<LayerChain> chain_of(torch::nn::SequentialImpl& sequential);
/// Throws InputError for a layer without name or function, a duplicate name, and an unknown module.
std::unique_ptr<LayerChain> chain_of(torch::nn::Module& root, std::vector<PipelineLayer> layers);

/// The tensors of each layer, each once, with their first names in the whole module.
struct LayerTensors {
  struct Item {
    std::string name;  ///< the first one in registration order
    at::Tensor tensor;
    bool is_buffer = false;
  };
  std::vector<std::vector<Item>> of_layer;

  std::int64_t parameters(std::size_t layer) const;  ///< elements
};
/// Throws InputError for parameters that a sharding engine manages, for one that does not belong to any layer, and for
/// layers whose parameters share memory although they are not the same tensor. Buffers outside of all layers are kept
/// on every rank.
LayerTensors tensors_of(const LayerChain& chain);

/// Removes the modules of other ranks from the tree. They are replaced by empty ones of the same names, which hold
/// tensors shared with kept layers (tied parameters) under their first names. The memory of dropped layers is freed,
/// even if the modules are referenced elsewhere, and operators that receive their tensors throw an InputError that
/// states which rank has them.
class LetGo {
 public:
  /// kept[i]: whether layer i is kept. place_of[i]: "stage 2 on rank 1", for errors.
  LetGo(LayerChain& chain, const LayerTensors& tensors, const std::vector<bool>& kept,
        const std::vector<std::string>& place_of);
  ~LetGo();
  LetGo(const LetGo&) = delete;
  LetGo& operator=(const LetGo&) = delete;

 private:
  class Absent;
  std::vector<std::unique_ptr<Absent>> absent_;
};

}  // namespace tessera::parallel
