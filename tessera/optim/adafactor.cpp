// Adafactor: first the sums of squares of all parameters over all shards, then the second moments, the sizes of the
// updates over all shards, and the updates. CPU float32 uses the kernels; everything else uses ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/adafactor.h>
#include <tessera/kernels/cpu/block_squares.h>
#include <tessera/optim/factored_sums.h>
#include <tessera/optim/fused.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace tessera::optim {
namespace {

constexpr std::size_t row_state = 0, column_state = 1, whole_state = 2, first_moment = 3;  // kinds

std::vector<StateKind> state_kinds(bool with_first_moment) {
  using Shape = std::optional<std::vector<std::int64_t>>;
  const auto without = [](std::size_t from_end) {
    return [from_end](const Slot& slot) -> Shape {
      std::vector<std::int64_t> shape = whole_shape(slot);
      if (shape.size() < 2) return std::nullopt;
      shape.erase(shape.end() - static_cast<std::ptrdiff_t>(from_end));
      return shape;
    };
  };
  std::vector<StateKind> kinds = {{"exp_avg_sq_row", without(1), true},
                                  {"exp_avg_sq_col", without(2), true},
                                  {"exp_avg_sq", [](const Slot& slot) -> Shape {
                                     return whole_shape(slot).size() >= 2 ? Shape()
                                                                          : Shape(slot.parameter.sizes().vec());
                                   }}};
  if (with_first_moment) kinds.push_back({"exp_avg"});
  return kinds;
}

/// Working data of one slot during a step.
struct Work {
  bool updated = false;  ///< whether any rank has a gradient
  MatrixShape shape;     ///< factored
  FactoredSums sums;
  at::Tensor row_factor, column_factor;  ///< with the parameter's dtype and device
  at::Tensor direction;                  ///< only without kernels
  ExactSum direction_squares;
  double parameter_rms = 0;
  std::size_t place = 0;
};

class Adafactor final : public FusedOptimizer {
 public:
  Adafactor(std::vector<Slot> slots, const AdafactorOptions& options, const CommonOptions& common)
      : FusedOptimizer(std::move(slots), state_kinds(options.beta1 > 0), common), options_(options) {
    for (std::size_t i = 0; i < slot_count(); ++i) factored_.push_back(whole_shape(slot(i)).size() >= 2);
  }

 private:
  void update(const std::vector<at::Tensor>& gradients, const StepFactors& factors) override {
    std::vector<Work> work(slot_count());
    sum_squares(gradients, factors, work);
    update_moments(gradients, factors, work);
    measure_directions(gradients, factors, work);
    const std::vector<kernels::AdafactorArgs> arguments = sizes(factors, work);
    if (flat().has_kernels()) {
      flat().for_each_block(gradients, [&](const Block& b) {
        for_each_chunk(b, [&](const Block& chunk, float* u) {
          direct(chunk, gradients[b.slot], factors, work[b.slot], u);
          kernels::adafactor_apply(parameter_data(chunk), u,
                                   options_.beta1 > 0 ? state_data(first_moment, chunk) : nullptr, chunk.numel,
                                   arguments[b.slot]);
        });
      });
      return;
    }
    for (std::size_t i = 0; i < slot_count(); ++i)
      if (gradients[i].defined()) generic_apply(i, work[i].direction, arguments[i]);
  }

  /// Sums rows and columns of factored parameters, and sizes of parameters; one exchange.
  void sum_squares(const std::vector<at::Tensor>& gradients, const StepFactors& factors, std::vector<Work>& work) {
    ShardSums sums(common().sum_over_shards);
    for (std::size_t i = 0; i < slot_count(); ++i) {
      Work& w = work[i];
      const double present = gradients[i].defined() ? 1 : 0;
      w.place = sums.put(std::span<const double>(&present, 1));
      if (options_.scale_parameter) sums.put(squares_of_tensor(slot(i).parameter.detach()));
      if (!factored_[i]) continue;
      w.shape = matrix_shape(whole_shape(slot(i)));
      w.sums = FactoredSums(w.shape, flat().has_kernels());
      if (gradients[i].defined()) w.sums.add(gradients[i], factors.gradient_scale, slot(i).begin);
      w.sums.put(sums);
    }
    sums.exchange();
    for (std::size_t i = 0; i < slot_count(); ++i) {
      Work& w = work[i];
      w.updated = sums.values(w.place, 1)[0] > 0;
      if (options_.scale_parameter) w.parameter_rms = std::sqrt(sums.exact(w.place + 1) / numel(i));
      if (factored_[i]) w.sums.get(sums);
    }
  }

  void update_moments(const std::vector<at::Tensor>& gradients, const StepFactors& factors, std::vector<Work>& work) {
    const double rate = std::pow(static_cast<double>(steps()), options_.decay_rate);  // 1 - beta2
    for (std::size_t i = 0; i < slot_count(); ++i)
      if (work[i].updated && factored_[i]) update_factors(i, rate, work[i]);
    if (flat().has_kernels()) {
      flat().for_each_block(gradients, [&](const Block& b) {
        if (factored_[b.slot]) return;
        kernels::adafactor_moment(gradients[b.slot].const_data_ptr<float>() + b.offset,
                                  static_cast<float>(factors.gradient_scale), state_data(whole_state, b), b.numel, rate,
                                  options_.epsilon1);
      });
      return;
    }
    for (std::size_t i = 0; i < slot_count(); ++i)
      if (gradients[i].defined() && !factored_[i])
        state_of(whole_state, i).lerp_((gradients[i] * factors.gradient_scale).square_().add_(options_.epsilon1), rate);
  }

  /// As in transformers/optimization.py, Adafactor._approx_sq_grad, but with averages in double, from double sums.
  void update_factors(std::size_t i, double rate, Work& w) {
    const at::Tensor &row = state_of(row_state, i), &column = state_of(column_state, i);
    if (w.shape.rows == 0 || w.shape.columns == 0) return;
    const auto move = [&](const at::Tensor& state, const at::Tensor& sums, std::int64_t addends) {
      const at::Tensor mean = sums / static_cast<double>(addends) + options_.epsilon1;
      const at::Tensor old = state.to(at::kCPU, at::kDouble).view({-1});
      state.view({-1}).copy_(old + (mean - old) * rate);
      return state.to(at::kCPU, at::kDouble).view({w.shape.matrices(), -1});
    };
    const at::Tensor rows = move(row, w.sums.row_sums(), w.shape.columns);
    const at::Tensor columns = move(column, w.sums.column_sums(), w.shape.period);
    const auto options = row.options();
    w.row_factor = (rows / rows.mean(-1, true)).rsqrt_().view({-1}).to(options);
    w.column_factor = columns.rsqrt().view({-1}).to(options);
  }

  /// Sums the squares of all directions; without kernels, also computes the directions.
  void measure_directions(const std::vector<at::Tensor>& gradients, const StepFactors& factors,
                          std::vector<Work>& work) {
    if (flat().has_kernels()) {
      std::mutex mutex;
      flat().for_each_block(gradients, [&](const Block& b) {
        ExactSum part;
        for_each_chunk(b, [&](const Block& chunk, float* u) {
          direct(chunk, gradients[b.slot], factors, work[b.slot], u);
          double squares[chunk_numel / kernels::square_block];
          kernels::block_squares(u, chunk.numel, squares);
          part.add(
              {squares, static_cast<std::size_t>((chunk.numel + kernels::square_block - 1) / kernels::square_block)});
        });
        const std::lock_guard lock(mutex);
        work[b.slot].direction_squares.merge(part);
      });
    } else {
      for (std::size_t i = 0; i < slot_count(); ++i) {
        if (!gradients[i].defined() || gradients[i].numel() == 0) continue;
        work[i].direction = generic_direction(i, gradients[i] * factors.gradient_scale, work[i]);
        work[i].direction_squares = squares_of_tensor(work[i].direction);
      }
    }
  }

  /// Does one exchange; returns how to apply each slot's direction.
  std::vector<kernels::AdafactorArgs> sizes(const StepFactors& factors, std::vector<Work>& work) {
    ShardSums sums(common().sum_over_shards);
    for (Work& w : work) w.place = sums.put(w.direction_squares);
    sums.exchange();
    std::vector<kernels::AdafactorArgs> result;
    for (std::size_t i = 0; i < slot_count(); ++i) {
      const double rate = learning_rate(factors.learning_rate, work[i].parameter_rms) * slot(i).learning_rate_scale;
      const double rms = std::sqrt(sums.exact(work[i].place) / numel(i));
      const double excess = rms / options_.clip_threshold;
      result.push_back({.rate = rate / (excess <= 1 ? 1 : excess),  // keeps a NaN visible
                        .decay = slot(i).weight_decay * rate,
                        .beta1 = options_.beta1});
    }
    return result;
  }

  double learning_rate(double given, double parameter_rms) const {
    const double step = static_cast<double>(steps());
    const double relative = std::min(options_.warmup_init ? 1e-6 * step : 1e-2, 1 / std::sqrt(step));
    const double scale = options_.scale_parameter ? std::max(options_.epsilon2, parameter_rms) : 1;
    return scale * (options_.relative_step ? relative : given);
  }

  static constexpr std::int64_t chunk_numel = 1024;
  /// Calls f(chunk, buffer for its direction) for each chunk of a block; a chunk is small enough to stay in the L1
  /// cache.
  template <class F>
  static void for_each_chunk(const Block& b, const F& f) {
    float u[chunk_numel];
    for (std::int64_t done = 0; done < b.numel; done += chunk_numel)
      f({b.slot, b.offset + done, std::min(chunk_numel, b.numel - done)}, u);
  }

  void direct(const Block& chunk, const at::Tensor& gradient, const StepFactors& factors, const Work& w,
              float* u) const {
    const float* g = gradient.const_data_ptr<float>() + chunk.offset;
    const auto scale = static_cast<float>(factors.gradient_scale);
    if (factored_[chunk.slot])
      kernels::factored_direction(g, scale, slot(chunk.slot).begin + chunk.offset, chunk.numel,
                                  {.row = w.row_factor.const_data_ptr<float>(),
                                   .column = w.column_factor.const_data_ptr<float>(),
                                   .columns = w.shape.columns,
                                   .period = w.shape.period},
                                  u);
    else
      kernels::adafactor_direction(g, scale, state_data(whole_state, chunk), chunk.numel, u);
  }

  at::Tensor generic_direction(std::size_t i, const at::Tensor& gradient, const Work& w) const {
    if (!factored_[i]) return gradient / state_of(whole_state, i).sqrt();
    const auto [row, column] = places_of(w.shape, slot(i).begin, gradient.numel(), gradient.device());
    return (w.row_factor.index_select(0, row) * w.column_factor.index_select(0, column)).view_as(gradient) * gradient;
  }

  void generic_apply(std::size_t i, const at::Tensor& direction, const kernels::AdafactorArgs& a) {
    if (!direction.defined()) return;  // an empty piece
    const at::Tensor p = slot(i).parameter;
    at::Tensor u = direction * a.rate;
    if (options_.beta1 > 0) u = state_of(first_moment, i).lerp_(u, 1 - a.beta1);
    p.mul_(1 - a.decay).sub_(u);
  }

  /// Number of elements of the whole parameter; at least 1.
  double numel(std::size_t i) const {
    std::int64_t n = 1;
    for (const std::int64_t size : whole_shape(slot(i))) n *= size;
    return static_cast<double>(std::max<std::int64_t>(n, 1));
  }

  AdafactorOptions options_;
  std::vector<bool> factored_;  ///< by slot
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(std::vector<Slot> slots, const AdafactorOptions& options,
                                          const CommonOptions& common) {
  if (!(options.epsilon1 > 0) || !(options.epsilon2 >= 0) || !(options.clip_threshold > 0) ||
      !(options.decay_rate < 0) || !(options.beta1 >= 0 && options.beta1 < 1))
    throw InputError(
        concat("Adafactor: epsilon1 = ", options.epsilon1, ", epsilon2 = ", options.epsilon2, ", clip_threshold = ",
               options.clip_threshold, ", decay_rate = ", options.decay_rate, ", beta1 = ", options.beta1,
               "; needed: epsilon1 > 0, epsilon2 >= 0, clip_threshold > 0, decay_rate < 0, beta1 in [0, 1)"));
  if (options.warmup_init && !options.relative_step)
    throw InputError("Adafactor: warmup_init requires relative_step, which is off; set relative_step as well");
  refuse_bf16(common, "Adafactor");
  return std::make_unique<Adafactor>(std::move(slots), options, common);
}

}  // namespace tessera::optim
