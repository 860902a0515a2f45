#pragma once
/// \file
/// Halves the bytes: gradients are sent as fp16 or bf16 and added in fp32. A scattered result is the fp32 sum of the
/// rounded gradients; a whole one is rounded once more before it is sent back to the ranks. fp16: values beyond 65504
/// become infinite (use loss scaling, or bf16).

#include <tessera/parallel/compression/method.h>

namespace tessera::parallel {

class HalfCompression final : public CompressionMethod {
 public:
  explicit HalfCompression(at::ScalarType dtype) : dtype_(dtype) {}
  std::string name() const override;
  comm::Work reduce(const ReductionRequest& request) override;

 private:
  at::ScalarType dtype_;
};

}  // namespace tessera::parallel
