// Muon: orthogonalizes the updates of matrices and uses AdamW for everything else, with ATen's operators. The
// Newton-Schulz iteration takes nearly all of the time, and it consists of matrix products.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/optim/fused.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace tessera::optim {
namespace {

using Triple = std::array<double, 3>;

std::span<const Triple> triples(MuonCoefficients coefficients) {
  static constexpr std::array<Triple, 1> simple = {{{3.4445, -4.7750, 2.0315}}};
  static constexpr std::array<Triple, 5> quintic = {{{4.0848, -6.8946, 2.9270},
                                                     {3.9505, -6.3029, 2.6377},
                                                     {3.7418, -5.5913, 2.3037},
                                                     {2.8769, -3.1427, 1.2046},
                                                     {2.8366, -3.0525, 1.2012}}};
  return coefficients == MuonCoefficients::simple ? std::span<const Triple>(simple) : std::span<const Triple>(quintic);
}

/// An approximation of U V' for the matrix U S V': singular values close to 1.
at::Tensor orthogonalized(const at::Tensor& matrix, const MuonOptions& options) {
  const bool tall = matrix.size(0) > matrix.size(1);  // the smaller product is x x'
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / x.norm().clamp_min(options.epsilon);
  const std::span<const Triple> all = triples(options.coefficients);
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const auto [a, b, c] = all[static_cast<std::size_t>(step) % all.size()];
    const at::Tensor square = x.mm(x.t());
    x = at::addmm(x, at::addmm(square, square, square, b, c), x, a);
  }
  return tall ? x.t() : x;
}

double scale_of(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const double quotient = static_cast<double>(rows) / static_cast<double>(columns);
  if (scale == MuonScale::spectral) return std::sqrt(static_cast<double>(std::max(rows, columns)));
  return std::sqrt(scale == MuonScale::unit_rms_norm ? quotient : std::max(1.0, quotient));
}

std::optional<std::vector<std::int64_t>> sizes_where(const Slot& slot, bool orthogonal) {
  return slot.orthogonal == orthogonal ? std::optional(slot.parameter.sizes().vec()) : std::nullopt;
}

std::vector<StateKind> state_kinds() {
  const auto matrices = [](const Slot& slot) { return sizes_where(slot, true); };
  const auto others = [](const Slot& slot) { return sizes_where(slot, false); };
  return {{"momentum_buffer", matrices}, {"exp_avg", others}, {"exp_avg_sq", others}};
}

class Muon final : public FusedOptimizer {
 public:
  Muon(std::vector<Slot> slots, const MuonOptions& options, const CommonOptions& common)
      : FusedOptimizer(std::move(slots), state_kinds(), common), options_(options) {
    for (std::size_t i = 0; i < slot_count(); ++i)
      if (slot(i).orthogonal && whole_shape(slot(i)).size() != 2)
        throw InputError(concat("Muon: parameter '", slot(i).name, "' has ", whole_shape(slot(i)).size(),
                                " dimensions; only matrices can be orthogonalized"));
  }

 private:
  void update(const std::vector<at::Tensor>& gradients, const StepFactors& factors) override {
    for (std::size_t i = 0; i < slot_count(); ++i) {
      const double rate = factors.learning_rate * slot(i).learning_rate_scale;
      if (slot(i).orthogonal)
        update_matrix(i, gradients[i], rate, factors.gradient_scale);
      else if (gradients[i].defined())
        update_other(i, gradients[i] * factors.gradient_scale, rate);
    }
  }

  /// Collective if the matrix is in pieces: a rank without a piece participates in the gather.
  void update_matrix(std::size_t i, const at::Tensor& gradient, double rate, double gradient_scale) {
    const at::Tensor& p = slot(i).parameter;
    const at::Tensor& average = state_of(0, i);
    at::Tensor direction;
    if (gradient.defined()) {
      const at::Tensor g = gradient * gradient_scale;
      average.lerp_(g, 1 - options_.momentum);
      direction = options_.nesterov ? g.lerp(average, options_.momentum) : average;
    }
    const std::vector<std::int64_t> shape = whole_shape(slot(i));
    const at::Tensor whole = gathered(i, direction, shape);
    if (!gradient.defined() || p.numel() == 0) return;
    const at::Tensor update = orthogonalized(whole, options_);
    const double scale = scale_of(options_.scale, shape[0], shape[1]) * options_.extra_scale;
    p.mul_(1 - rate * slot(i).weight_decay)
        .add_(update.reshape(-1).narrow(0, slot(i).begin, p.numel()).view(p.sizes()), -rate * scale);
  }

  /// Assembles the whole matrix on every rank from its pieces. Sums of one number and zeros are exact. A parameter that
  /// every rank has whole is counted once per rank, as the number of elements reveals.
  at::Tensor gathered(std::size_t i, const at::Tensor& piece, const std::vector<std::int64_t>& shape) const {
    if (!common().sum_over_shards) return piece.defined() ? piece.view(shape) : piece;
    const auto numel = static_cast<std::size_t>(shape[0] * shape[1]);
    std::vector<double> values(numel + 1);
    if (piece.defined() && piece.numel() > 0) {
      const at::Tensor own = piece.to(at::kCPU, at::kDouble).contiguous().view(-1);
      std::copy_n(own.const_data_ptr<double>(), own.numel(), values.begin() + slot(i).begin);
      values.back() = static_cast<double>(own.numel());
    }
    common().sum_over_shards(values);
    const double copies = values.back() / static_cast<double>(numel);
    const at::Tensor sum = at::tensor(at::ArrayRef<double>(values.data(), numel), at::kDouble);
    return (copies > 1 ? sum / copies : sum).view(shape).to(slot(i).parameter.options().requires_grad(false));
  }

  /// Same as AdamW.
  void update_other(std::size_t i, const at::Tensor& g, double rate) {
    const AdamWOptions& o = options_.others;
    const at::Tensor& p = slot(i).parameter;
    const at::Tensor &m = state_of(1, i), &v = state_of(2, i);
    m.lerp_(g, 1 - o.beta1);
    v.mul_(o.beta2).addcmul_(g, g, 1 - o.beta2);
    const auto step = static_cast<double>(steps());
    const double correction1 = o.bias_correction ? 1 - std::pow(o.beta1, step) : 1;
    const double correction2 = o.bias_correction ? 1 - std::pow(o.beta2, step) : 1;
    p.mul_(1 - rate * slot(i).weight_decay)
        .addcdiv_(m, (v.sqrt() / std::sqrt(correction2)).add_(o.epsilon), -rate / correction1);
  }

  MuonOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(std::vector<Slot> slots, const MuonOptions& options, const CommonOptions& common) {
  check_betas("Muon (AdamW of vectors and embeddings)", options.others.beta1, options.others.beta2);
  if (!(options.momentum >= 0 && options.momentum < 1) || options.steps < 1 || options.steps > 100 ||
      !(options.epsilon > 0) || !(options.others.epsilon >= 0) || !(options.extra_scale > 0))
    throw InputError(concat("Muon: momentum = ", options.momentum, ", ns_steps = ", options.steps,
                            ", ns_eps = ", options.epsilon, ", adam_epsilon = ", options.others.epsilon,
                            ", extra_scale_factor = ", options.extra_scale,
                            "; momentum must be in [0, 1), ns_steps from 1 to 100, ns_eps and extra_scale_factor above "
                            "0, and adam_epsilon not below 0"));
  refuse_bf16(common, "Muon");
  return std::make_unique<Muon>(std::move(slots), options, common);
}

}  // namespace tessera::optim
