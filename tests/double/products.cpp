#include <tests/double/products.h>

#include <ATen/ATen.h>

#include <cstdlib>
#include <map>

namespace cuda_double {

bool products_are_skipped() {
  static const bool skipped = std::getenv("DOUBLE_SKIP_PRODUCTS") != nullptr;
  return skipped;
}

int first_matrix_of(const std::string& name) {
  static const std::map<std::string, int> products = {
      {"aten::mm", 0},     {"aten::bmm", 0},     {"aten::_grouped_mm", 0}, {"aten::addmm", 1},
      {"aten::addmm_", 1}, {"aten::baddbmm", 1}, {"aten::_scaled_mm", 0}};
  const auto found = products.find(name);
  return found == products.end() ? -1 : found->second;
}

void check_scaled_product(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor &a = arguments[0].toTensor(), &b = arguments[1].toTensor();
  TORCH_CHECK(a.stride(1) == 1 && b.stride(0) == 1, "mat1 must be row-major, mat2 column-major");
  TORCH_CHECK(a.size(1) % 16 == 0 && b.size(0) % 16 == 0 && b.size(1) % 16 == 0,
              "mat1's and mat2's sizes must be divisible by 16, got ", a.sizes(), " and ", b.sizes());
  TORCH_CHECK(is_aligned(a) && is_aligned(b), "rows of mat1 and columns of mat2 must begin at multiples of 16 bytes");
  TORCH_CHECK(a.scalar_type() != at::kFloat8_e5m2 || b.scalar_type() != at::kFloat8_e5m2,
              "Multiplication of two Float8_e5m2 matrices is not supported");
  for (const std::size_t scale : {2, 3}) {
    const at::Tensor& s = arguments[scale].toTensor();
    TORCH_CHECK(s.numel() == 1 && s.scalar_type() == at::kFloat, "a scale must be one number of fp32");
  }
  const at::ScalarType type = arguments[6].isNone() ? a.scalar_type() : arguments[6].toScalarType();
  if (arguments[4].isTensor()) {
    TORCH_CHECK(type != at::kFloat, "Bias is not supported when out_dtype is set to Float32");
    TORCH_CHECK(arguments[4].toTensor().scalar_type() == type, "Bias must be of the type of the result");
  }
  if (arguments.size() > 8)
    TORCH_CHECK(arguments[8].toTensor().scalar_type() == type, "out_dtype must match output matrix type");
}

at::Tensor wide_product(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  const bool adds = first_matrix_of(name) == 1;
  const std::size_t first = adds ? 1 : 0;
  const at::Tensor &a = arguments[first].toTensor(), &b = arguments[first + 1].toTensor();
  const at::ScalarType type = arguments[first + 2].toScalarType();
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mat1 and mat2 must have the same dtype, but got ", a.scalar_type(),
              " and ", b.scalar_type());
  TORCH_CHECK(type == a.scalar_type() || (type == at::kFloat && at::isReducedFloatingType(a.scalar_type())),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
  at::Tensor product = at::matmul(a.to(at::kFloat), b.to(at::kFloat));
  if (adds) {
    const at::Tensor& self = arguments[0].toTensor();
    TORCH_CHECK(self.scalar_type() == type || self.scalar_type() == a.scalar_type(),
                "self dtype must match either out_dtype or mat1 dtype");
    product = at::add(product.mul(arguments[5].toScalar()), self.to(at::kFloat), arguments[4].toScalar());
  }
  product = product.to(type);
  if (!arguments.back().isTensor()) return product;
  at::Tensor out = arguments.back().toTensor();
  TORCH_CHECK(out.scalar_type() == type, "out_dtype must be the same as the dtype of the provided out tensor");
  return out.resize_(product.sizes()).copy_(product);
}

double product_flops(const at::Tensor& a, const at::Tensor& b) {
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

bool is_aligned(const at::Tensor& matrix) {
  for (const std::int64_t stride : matrix.strides()) {
    if (stride != 1 && stride * matrix.element_size() % 16 != 0) return false;
  }
  return true;
}

at::Tensor zero_product(const at::Tensor& a, const at::Tensor& b, std::optional<std::int64_t> groups,
                        std::optional<at::ScalarType> type) {
  const at::TensorOptions options = a.options().dtype(type.value_or(a.scalar_type()));
  if (groups && b.dim() == 2) return at::zeros({*groups, a.size(0), b.size(1)}, options);
  std::vector<std::int64_t> sizes(a.sizes().begin(), a.sizes().end() - 1);
  sizes.push_back(b.size(-1));
  return at::zeros(sizes, options);
}

}  // namespace cuda_double
