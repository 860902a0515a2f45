#pragma once
/// \file
/// Buffers of one module that several threads run at the same time: each thread writes into copies of its own.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace tessera::parallel {

/// While it lives, `buffers` carry a dispatch key that LibTorch leaves to tests, so that operators that receive one of
/// them (or a view made meanwhile) come to us: inside a Use, one that writes it writes a copy, which that Use sees from
/// then on. Nobody writes the buffer itself. What an operator writes is known from its schema; batch and instance
/// norms, whose schemas do not say that they update their statistics, are known by name. Strided CPU tensors that need
/// no gradient; others are left as they are. Make and destroy it while no other thread uses the module.
class PrivateBuffers {
 public:
  explicit PrivateBuffers(const std::vector<at::Tensor>& buffers);
  ~PrivateBuffers();
  PrivateBuffers(const PrivateBuffers&) = delete;
  PrivateBuffers& operator=(const PrivateBuffers&) = delete;

  struct Copies;
  /// While it lives, the calling thread writes to `copies`, which no other thread uses meanwhile. Destroy it there.
  class Use {
   public:
    explicit Use(Copies& copies);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Copies* before_;
  };
  /// A new set of copies, as yet none. Outlives its uses.
  std::shared_ptr<Copies> copies() const;
  /// Makes the values of `copies` those of the buffers, after all uses.
  static void commit(const Copies& copies);

 private:
  std::vector<at::Tensor> buffers_;
};

}  // namespace tessera::parallel
