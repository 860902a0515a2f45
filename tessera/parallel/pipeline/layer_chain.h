#pragma once
/// \file
/// Internal to PipelineParallel: somebody's module as a chain of layers, and letting go of those of other ranks.

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

/// A module as layers 0 .. n - 1, each taking the output of the one before.
class LayerChain {
 public:
  struct Layer {
    std::string name;
    std::vector<std::string> modules;  ///< dotted names below the root: modules that it uses, or single parameters
  };

  LayerChain(torch::nn::Module& root, std::vector<Layer> layers) : root_(&root), layers_(std::move(layers)) {}
  virtual ~LayerChain() = default;
  torch::nn::Module& root() const { return *root_; }
  const std::vector<Layer>& layers() const { return layers_; }

  /// Layers [first, past). `input`: what the layer before gave, undefined for layer 0; `batch`: the input of the model,
  /// which only layer 0 takes, unless needs_batch().
  virtual at::Tensor run(std::size_t first, std::size_t past, const at::Tensor& batch, const at::Tensor& input) = 0;
  /// Layers of other ranks are never run again: lets go of its references to them.
  virtual void drop_layers(const std::vector<bool>& kept) = 0;
  /// Every rank needs the inputs of a batch, and calls all modules.
  virtual bool needs_batch() const { return false; }
  /// What a person should know who asked for more layers, or for one of another name; "" if nothing.
  virtual std::string remark() const { return ""; }

 private:
  torch::nn::Module* root_;
  std::vector<Layer> layers_;
};

std::unique_ptr<LayerChain> chain_of(torch::nn::SequentialImpl& sequential);
/// Throws InputError for a layer without name or function, a name that is there twice, and a module that is not.
std::unique_ptr<LayerChain> chain_of(torch::nn::Module& root, std::vector<PipelineLayer> layers);

/// What a layer has: its tensors, each once, with their first names in the whole module.
struct LayerTensors {
  struct Item {
    std::string name;  ///< the first one in the order of registration
    at::Tensor tensor;
    bool is_buffer = false;
  };
  std::vector<std::vector<Item>> of_layer;

  std::int64_t parameters(std::size_t layer) const;  ///< elements
};
/// Throws InputError for parameters that a sharding engine manages, for one that belongs to no layer, and for layers
/// whose parameters share memory although they are not the same tensor. Buffers of no layer are everybody's.
LayerTensors tensors_of(const LayerChain& chain);

/// Takes the modules of other ranks out of the tree. In their places stand empty ones of the same names, which hold
/// what kept layers have in common with them (tied parameters), under its first name. The memory of what is let go is
/// freed, whoever else refers to the modules, and operators that receive it throw an InputError that says where it is.
class LetGo {
 public:
  /// kept[i]: layer i stays. place_of[i]: "stage 2 on rank 1", for errors.
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
