#include <tessera/nn/device/head_loss.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/device/send.h>
#include <tessera/nn/softcap.h>

#include <algorithm>
#include <optional>

namespace tessera::nn {
namespace {

/// The type of the products, as at::mm would choose it; nullopt where it would refuse.
std::optional<at::ScalarType> product_type(const at::Tensor& hidden, const at::Tensor& weight) {
  const auto half = libtorch_autocast_type(hidden.device().type());
  const auto type_of = [&](const at::Tensor& t) {
    return half && t.scalar_type() != at::kDouble ? *half : t.scalar_type();
  };
  if (type_of(hidden) != type_of(weight)) return std::nullopt;
  return type_of(hidden);
}

/// [B T] on the labels' device: the label for the prediction at each position.
at::Tensor targets_of(const at::Tensor& labels, LabelPlace place) {
  if (place == LabelPlace::own) return labels.reshape({-1}).contiguous();
  const at::Tensor targets = at::full(labels.sizes(), ignored_label, labels.options());
  const std::int64_t t = labels.size(1);
  targets.narrow(1, 0, t - 1).copy_(labels.narrow(1, 1, t - 1));
  return targets.view({-1});
}

/// Number of rows of the head in products, padded because cuBLAS is 2-3 times slower without vector loads, which need
/// each token's logits to begin at a multiple of 16 bytes (8 numbers in bf16).
std::int64_t padded_vocabulary(std::int64_t v) { return v % 8 == 0 ? v : (v + 63) / 64 * 64; }

/// weight [v, c] in `type`, padded with rows of zeros to `rows` rows.
at::Tensor padded(const at::Tensor& weight, at::ScalarType type, std::int64_t rows) {
  const std::int64_t v = weight.size(0);
  if (rows == v) return weight.to(type);
  const at::Tensor all = at::empty({rows, weight.size(1)}, weight.options().dtype(type));
  all.narrow(0, 0, v).copy_(weight);
  all.narrow(0, v, rows - v).zero_();
  return all;
}

/// The sum over chunks of a^T b, accumulated by the products themselves in fp32.
class WeightGradient {
 public:
  /// `like` [v, c]: the gradient's type, device and shape; a has at least v columns; `whole`: there is only one chunk.
  WeightGradient(const at::Tensor& like, bool whole) : like_(like), type_(whole ? like.scalar_type() : at::kFloat) {}
  void add(const at::Tensor& a, const at::Tensor& b) {
    if (!sum_.defined())
      sum_ = a.scalar_type() == type_ ? at::mm(a.t(), b) : at::mm(a.t(), b, type_);
    else if (a.scalar_type() == type_)
      sum_.addmm_(a.t(), b);
    else
      at::addmm_out(sum_, sum_, a.t(), b, type_);
  }
  at::Tensor get() const { return sum_.narrow(0, 0, like_.size(0)).to(like_.scalar_type()); }

 private:
  const at::Tensor& like_;
  at::ScalarType type_;  // type of the sum: the gradient's own if nothing is accumulated
  at::Tensor sum_;
};

}  // namespace

bool device_computes_head(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias) {
  if (!hidden.is_cuda() || device_kernels({hidden, weight, bias}) == nullptr) return false;
  const auto type = product_type(hidden, weight);
  return type == at::kFloat || type == at::kBFloat16;
}

HeadLoss device_head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                          const at::Tensor& labels, double scale, const LossOptions& form, HeadGradients wanted,
                          std::int64_t chunk) {
  const c10::DeviceGuard guard(hidden.device());
  const DeviceKernels& device = *device_kernels({hidden, weight, bias});
  const at::ScalarType type = *product_type(hidden, weight);
  const std::int64_t c = hidden.size(2), v = weight.size(0), n = hidden.size(0) * hidden.size(1);
  // Enough tokens to fill a device; with C tokens, the logits take no more memory than dWeight.
  chunk = std::min(n, chunk > 0 ? chunk : std::max<std::int64_t>(c, 8192));
  const at::Tensor targets = targets_of(send(labels, hidden.device()), form.place);
  const std::int64_t columns = padded_vocabulary(v);
  const at::Tensor x = hidden.reshape({n, c}).to(type), w = padded(weight, type, columns);
  const at::Tensor buffer = at::empty({chunk, columns}, x.options()),
                   losses = at::empty({n}, x.options().dtype(at::kDouble));
  const at::Tensor dx = wanted.hidden ? at::empty({n, c}, x.options()) : at::Tensor();
  const at::Tensor dbias = wanted.bias ? at::zeros({v}, x.options().dtype(at::kFloat)) : at::Tensor();
  WeightGradient dweight(weight, /*whole=*/chunk == n);
  const bool wide = bias.defined() || form.softcap > 0;
  for (std::int64_t first = 0; first < n; first += chunk) {
    const std::int64_t rows = std::min(chunk, n - first);
    const at::Tensor part = x.narrow(0, first, rows);
    at::Tensor product = buffer.narrow(0, 0, rows);
    at::mm_out(product, part, w.t());
    const at::Tensor logits = wide ? product.to(at::kFloat) : product;
    if (bias.defined()) logits.narrow(1, 0, v).add_(bias);
    softcap_(logits, form.softcap);
    const at::Tensor slope = form.softcap > 0 && wanted.any() ? softcap_slope(logits, form.softcap) : at::Tensor();
    device.softmax_cross_entropy(reals(logits), targets.const_data_ptr<std::int64_t>() + first,
                                 losses.mutable_data_ptr<double>() + first, rows, v,
                                 {.scale = static_cast<float>(scale),
                                  .smoothing = static_cast<float>(form.label_smoothing),
                                  .ignored = ignored_label,
                                  .gradient = wanted.any(),
                                  .padding = columns - v});
    if (!wanted.any()) continue;
    if (slope.defined()) logits.mul_(slope);
    if (wanted.bias) dbias.add_(logits.narrow(1, 0, v).sum(0));
    const at::Tensor dlogits = logits.to(type);
    if (wanted.hidden) {
      at::Tensor own = dx.narrow(0, first, rows);
      at::mm_out(own, dlogits, w);
    }
    if (wanted.weight) dweight.add(dlogits, part);
  }
  HeadLoss formed;
  formed.loss = losses.sum().mul_(scale).to(at::kFloat);
  if (wanted.hidden) formed.dhidden = dx.view(hidden.sizes()).to(hidden.scalar_type());
  if (wanted.weight) formed.dweight = dweight.get();
  if (wanted.bias) formed.dbias = dbias.to(bias.scalar_type());
  return formed;
}

}  // namespace tessera::nn
