#include <tessera/comm/kernel_types.h>

#include <tessera/base/error.h>

namespace tessera::comm {

std::optional<kernels::Number> number_of(at::ScalarType dtype) {
  using kernels::Number;
  switch (dtype) {
    case at::kFloat:
      return Number::fp32;
    case at::kDouble:
      return Number::fp64;
    case at::kBFloat16:
      return Number::bf16;
    case at::kHalf:
      return Number::fp16;
    case at::kChar:
      return Number::int8;
    case at::kByte:
      return Number::uint8;
    case at::kInt:
      return Number::int32;
    case at::kLong:
      return Number::int64;
    default:
      return std::nullopt;
  }
}

kernels::Fold fold_of(Reduction op) {
  using kernels::Fold;
  switch (op) {
    case Reduction::sum:
      return Fold::sum;
    case Reduction::mean:
      return Fold::mean;
    case Reduction::min:
      return Fold::min;
    case Reduction::max:
      return Fold::max;
    case Reduction::product:
      return Fold::product;
  }
  throw Error("unknown reduction");
}

}  // namespace tessera::comm
