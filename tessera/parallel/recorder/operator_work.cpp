#include <tessera/parallel/recorder/operator_work.h>

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace tessera::parallel {
namespace {

using plan::RecordedProduct;
using plan::RecordedWork;

double real(std::int64_t n) { return static_cast<double>(n); }

void add_product(RecordedWork& work, const RecordedProduct& product) {
  work.flop += 2 * product.m * product.n * product.k * product.batch * product.times;
  work.add(product);
}

/// Product of a [.., m, k] and b [.., k, n].
void add_product(RecordedWork& work, const at::Tensor& a, const at::Tensor& b) {
  const double batch = a.dim() == 3 ? real(a.size(0)) : 1;
  const std::int64_t n = b.dim() == 1 ? 1 : b.size(-1);
  add_product(work, {real(a.size(-2)), real(n), real(a.size(-1)), batch});
}

/// The argument of that name as a tensor; undefined if it is missing.
at::Tensor argument(const SeenOperator& seen, std::string_view name) {
  const auto& arguments = seen.op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == name && seen.arguments[i].isTensor()) return seen.arguments[i].toTensor();
  return {};
}

bool flag(const SeenOperator& seen, std::string_view name) {
  const auto& arguments = seen.op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == name && seen.arguments[i].isBool()) return seen.arguments[i].toBool();
  return false;
}

/// input [N, C, ...] with weight [O, C / groups, kernel ...] to output [N, O, ...]; for a transposed convolution input
/// and output are swapped.
void add_convolution(RecordedWork& work, const at::Tensor& weight, const at::Tensor& small, double times) {
  const double places = real(small.numel()) / real(small.size(1)), out = real(weight.size(0));
  add_product(work, {places, out, real(weight.numel()) / out, 1, times});
}

}  // namespace

void add_attention(RecordedWork& work, const at::Tensor& q, const at::Tensor& k, bool causal, double seen,
                   bool backward) {
  const double queries = real(q.size(0) * q.size(2)), width = real(q.size(1) * q.size(3)),
               counted = causal ? std::min(2 * seen, real(k.size(2))) : seen;
  work.flop += (backward ? 8 : 4) * queries * counted * width;
  work.add(plan::RecordedAttention{queries, seen, width, 1, backward});
}

std::vector<at::Tensor> tensors_among(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> all;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) {
      all.push_back(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor() && element.toTensor().defined()) all.push_back(element.toTensor());
    }
  }
  return all;
}

plan::RecordedWork work_of(const SeenOperator& seen) {
  RecordedWork work;
  const std::string& full = seen.op.schema().name();
  const std::string_view name = std::string_view(full).substr(std::min(full.size(), full.find("::") + 2));
  if (name == "mm" || name == "bmm") {
    add_product(work, argument(seen, "self"), argument(seen, "mat2"));
  } else if (name == "mv") {
    add_product(work, argument(seen, "self"), argument(seen, "vec"));
  } else if (name == "addmm" || name == "addmm_" || name == "_addmm_activation") {
    add_product(work, argument(seen, "mat1"), argument(seen, "mat2"));
  } else if (name == "baddbmm" || name == "baddbmm_" || name == "addbmm" || name == "addbmm_") {
    add_product(work, argument(seen, "batch1"), argument(seen, "batch2"));
  } else if (name.find("convolution_backward") != std::string_view::npos) {
    const bool transposed = flag(seen, "transposed");
    const at::Tensor small = argument(seen, transposed ? "input" : "grad_output");
    const auto gradients =
        static_cast<double>(std::count_if(seen.results.begin(), seen.results.end(), [](const c10::IValue& v) {
          return v.isTensor() && v.toTensor().defined() && v.toTensor().dim() > 1;
        }));
    add_convolution(work, argument(seen, "weight"), small, gradients);
  } else if (name.find("convolution") != std::string_view::npos && argument(seen, "weight").defined()) {
    const bool transposed = flag(seen, "transposed");
    add_convolution(work, argument(seen, "weight"), transposed ? argument(seen, "input") : seen.results[0].toTensor(),
                    1);
  } else if (name.starts_with("_scaled_dot_product_") && name.find("attention") != std::string_view::npos) {
    const at::Tensor q = argument(seen, "query"), k = argument(seen, "key");
    if (q.defined() && k.defined() && q.dim() == 4) {
      const bool causal = flag(seen, "is_causal");
      const double keys = real(k.size(2));
      add_attention(work, q, k, causal, causal ? (keys + 1) / 2 : keys, name.ends_with("backward"));
    }
  }
  if (work.flop > 0) return work;
  work.passes = 1;
  std::unordered_set<const void*> counted;  // a tensor that is both read and written in place counts once
  std::vector<at::Tensor> tensors = tensors_among(seen.arguments);
  for (at::Tensor& result : tensors_among(seen.results)) tensors.push_back(std::move(result));
  for (const at::Tensor& tensor : tensors)
    if (counted.insert(tensor.unsafeGetTensorImpl()).second)
      work.pass_bytes += real(tensor.numel()) * real(static_cast<std::int64_t>(tensor.element_size()));
  return work;
}

}  // namespace tessera::parallel
