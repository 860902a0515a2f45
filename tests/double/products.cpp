#include <tests/double/products.h>

#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <map>

namespace cuda_double {

bool products_are_skipped() {
  static const bool skipped = std::getenv("DOUBLE_SKIP_PRODUCTS") != nullptr;
  return skipped;
}

int first_matrix_of(const std::string& name) {
  static const std::map<std::string, int> products = {{"aten::mm", 0},    {"aten::bmm", 0},    {"aten::_grouped_mm", 0},
                                                      {"aten::addmm", 1}, {"aten::addmm_", 1}, {"aten::baddbmm", 1}};
  const auto found = products.find(name);
  return found == products.end() ? -1 : found->second;
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

at::Tensor zero_product(const at::Tensor& a, const at::Tensor& b, std::optional<std::int64_t> groups) {
  if (groups && b.dim() == 2) return at::zeros({*groups, a.size(0), b.size(1)}, a.options());
  std::vector<std::int64_t> sizes(a.sizes().begin(), a.sizes().end() - 1);
  sizes.push_back(b.size(-1));
  return at::zeros(sizes, a.options());
}

}  // namespace cuda_double
