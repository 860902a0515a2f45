#pragma once
/// \file
/// Buffers of one module that several threads run at the same time: each thread writes into its own copies.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace tessera::parallel {

/// While this object exists, `buffers` carry a dispatch key that LibTorch reserves for tests, so that operators on them
/// (or on views made during that time) are dispatched to our fallback: inside a Use, an operator that writes a buffer
/// writes a copy instead, which that Use sees from then on. The buffer itself is never written. The schema shows what
/// an operator writes; batch and instance norms, whose schemas do not declare that they update their statistics, are
/// recognised by name. Covers strided CPU tensors without gradient; others are unchanged. Construct and destroy it
/// while no other thread uses the module.
class PrivateBuffers {
 public:
  explicit PrivateBuffers(const std::vector<at::Tensor>& buffers);
  ~PrivateBuffers();
  PrivateBuffers(const PrivateBuffers&) = delete;
  PrivateBuffers& operator=(const PrivateBuffers&) = delete;

  struct Copies;
  /// During its lifetime, the calling thread writes to `copies`, which no other thread may use. Destroy it on that
  /// thread.
  class Use {
   public:
    explicit Use(Copies& copies);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Copies* before_;
  };
  /// A new, empty set of copies. Must outlive its uses.
  std::shared_ptr<Copies> copies() const;
  /// Writes the values of `copies` into the buffers. Call after all uses.
  static void commit(const Copies& copies);

 private:
  std::vector<at::Tensor> buffers_;
};

}  // namespace tessera::parallel
