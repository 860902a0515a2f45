#include <tessera/nn/linear_maps/fp8.h>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <tessera/base/error.h>
#include <tessera/nn/device/fp8.h>
#include <tessera/nn/device/send.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::nn {
namespace {

thread_local const Fp8Scope* current_scope = nullptr;

/// Values beyond the type's largest number would convert to NaN or infinity.
at::Tensor narrowed(const at::Tensor& scaled, at::ScalarType type) {
  const double most = fp8_most(type);
  return scaled.clamp(-most, most).to(type);
}

/// The value that the largest input is mapped to.
double largest_result(at::ScalarType type, std::int64_t margin) {
  return std::ldexp(fp8_most(type), -static_cast<int>(margin));
}

/// x [R, C], padded with zeros to whole blocks, as [R / rows, rows, C / columns, columns].
at::Tensor in_blocks(const at::Tensor& x, std::int64_t rows, std::int64_t columns) {
  const std::int64_t more_rows = (rows - x.size(0) % rows) % rows, more = (columns - x.size(1) % columns) % columns;
  const at::Tensor full = more_rows + more == 0 ? x.contiguous() : at::constant_pad_nd(x, {0, more, 0, more_rows});
  return full.view({full.size(0) / rows, rows, full.size(1) / columns, columns});
}
/// The inverse, without padding.
at::Tensor from_blocks(const at::Tensor& blocks, std::int64_t rows, std::int64_t columns) {
  const at::Tensor full = blocks.flatten(2, 3).flatten(0, 1);
  return full.slice(0, 0, rows).slice(1, 0, columns).contiguous();
}

/// The smallest power of two >= x; 1 for 0.
at::Tensor power_of_two_above(const at::Tensor& x) {
  const auto [mantissa, exponent] = at::frexp(x);  // x = mantissa 2^exponent, mantissa in [1/2, 1)
  const at::Tensor above = (exponent - mantissa.eq(0.5).to(exponent.scalar_type())).clamp_min(-126);
  return at::where(x.eq(0), at::ones_like(x), at::ldexp(at::ones_like(x), above));
}

}  // namespace

at::ScalarType fp8_type(Fp8Format format, Fp8Operand operand) {
  return format == Fp8Format::hybrid && operand == Fp8Operand::gradient ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
}

double fp8_most(at::ScalarType type) { return type == at::kFloat8_e5m2 ? 57344 : 448; }

Fp8Tensor to_fp8(const at::Tensor& x, at::ScalarType type, const at::Tensor& amax, std::int64_t margin) {
  const double most = largest_result(type, margin);
  const at::Tensor one = at::ones_like(amax);
  // If the largest value is so small that the quotient is infinite, the scale is also 1.
  at::Tensor factor = at::where(amax.gt(0), most / amax, one);
  factor = at::where(factor.isfinite(), factor, one);
  return {narrowed(x.to(at::kFloat) * factor, type).contiguous(), factor.reciprocal().view({1, 1})};
}

Fp8Tensor to_fp8_blocks(const at::Tensor& x, at::ScalarType type, std::int64_t rows, std::int64_t columns) {
  const at::Tensor blocks = in_blocks(x.to(at::kFloat), rows, columns);
  const at::Tensor scale = power_of_two_above(blocks.abs().amax({1, 3}, /*keepdim=*/true) / fp8_most(type));
  return {from_blocks(narrowed(blocks / scale, type), x.size(0), x.size(1)), scale.squeeze(3).squeeze(1), rows,
          columns};
}

at::Tensor widened(const Fp8Tensor& x) {
  const at::Tensor wide = x.values.to(at::kFloat);
  if (x.rows == 0) return wide * x.scale;
  const at::Tensor blocks = in_blocks(wide, x.rows, x.columns);
  return from_blocks(blocks * x.scale.unsqueeze(1).unsqueeze(3), wide.size(0), wide.size(1));
}

Fp8Tensor transposed(const Fp8Tensor& x) {
  return {x.values.t().contiguous(), x.scale.t().contiguous(), x.columns, x.rows};
}

at::Tensor largest_value(const at::Tensor& x) {
  if (x.numel() == 0) return at::zeros({}, x.options().dtype(at::kFloat));
  const auto [least, most] = at::aminmax(x);
  return at::maximum(least.neg(), most).to(at::kFloat);
}

Fp8State::Fp8State(const Fp8Options& options, std::int64_t maps, at::Device device)
    : options_(options),
      now_(at::zeros({maps, 3}, at::TensorOptions(device).dtype(at::kFloat))),
      // amax_compute = most_recent needs only the last step.
      history_(
          at::zeros({options.amax_compute == Fp8Amax::max ? options.amax_history_len : 1, maps, 3}, now_.options())),
      chosen_(at::zeros_like(now_)) {
  TESSERA_CHECK(options.format != Fp8Format::none, "an fp8 state without a format");
}

void Fp8State::begin_step() {
  now_.zero_();
  const std::lock_guard lock(mutex_);
  last_.reset();
  same_input_.clear();
}

const at::Tensor& Fp8State::noted() const {
  const std::lock_guard lock(mutex_);
  if (same_input_.empty()) return now_;
  if (sent_ != same_input_) {
    std::vector<std::int64_t> from, to;
    for (const auto& [map, other] : same_input_) to.push_back(map), from.push_back(other);
    from_ = send(at::tensor(from, at::kLong), now_.device());
    to_ = send(at::tensor(to, at::kLong), now_.device());
    sent_ = same_input_;
  }
  at::Tensor inputs = now_.select(1, static_cast<std::int64_t>(Fp8Operand::input));
  inputs.index_copy_(0, to_, at::maximum(inputs.index_select(0, to_), inputs.index_select(0, from_)));
  return now_;
}

std::optional<Fp8State::LastInput> Fp8State::last_input(const at::Tensor& x, bool note) {
  if (x.is_inference()) return std::nullopt;  // inference tensors have no version counter
  return LastInput{.storage = x.storage().getWeakStorageImpl(),
                   .data = x.const_data_ptr(),
                   .version = static_cast<std::uint32_t>(x._version()),
                   .sizes = x.sizes().vec(),
                   .strides = x.strides().vec(),
                   .stream = c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()),
                   .noted = note,
                   .map = 0,
                   .ways = {}};
}

void Fp8State::end_step() {
  static_cast<void>(noted());
  const at::Tensor newest = at::where(now_.isfinite(), now_, history_[0]).unsqueeze(0);
  history_ = at::cat({newest, history_.slice(0, 0, history_.size(0) - 1)});
  choose();
  begin_step();
}

void Fp8State::set_history(const at::Tensor& history) {
  TESSERA_CHECK(history.dim() == 3 && history.size(1) == maps() && history.size(2) == 3, "an fp8 history of ",
                history.dim() == 3 ? history.size(1) : 0, " linear maps for a model with ", maps());
  const std::int64_t same = std::min(history.size(0), history_.size(0));
  history_.zero_();
  history_.slice(0, 0, same).copy_(history.slice(0, 0, same));
  choose();
}

void Fp8State::choose() { chosen_ = options_.amax_compute == Fp8Amax::max ? history_.amax(0) : history_[0].clone(); }

bool Fp8Map::one_scale() const {
  return options().recipe == Fp8Recipe::delayed || options().recipe == Fp8Recipe::tensorwise;
}

const DeviceKernels* Fp8Map::kernels(const at::Tensor& x) const {
  if (!x.is_cuda() || !one_scale() || state_->now_.device() != x.device()) return nullptr;
  return device_kernels({x});
}

Fp8Ways Fp8Map::rounded_ways(const DeviceKernels& kernels, const at::Tensor& x, Fp8Operand operand, bool note,
                             bool straight, bool turned) const {
  const Fp8Options& o = options();
  const at::ScalarType type = fp8_type(o.format, operand);
  const std::int64_t place = map_ * state_->now_.size(1) + static_cast<std::int64_t>(operand);
  const bool delayed = o.recipe == Fp8Recipe::delayed;
  const DeviceFp8 out =
      device_fp8(kernels, {.x = x.contiguous(),
                           .type = type,
                           .most = largest_result(type, o.margin),
                           .chosen = delayed ? state_->chosen_.const_data_ptr<float>() + place : nullptr,
                           .noted = delayed && note ? state_->now_.mutable_data_ptr<float>() + place : nullptr,
                           .straight = straight,
                           .turned = turned});
  return {{out.values, out.scale}, {out.turned, out.scale}};
}

Fp8Ways Fp8Map::rounded_input(const DeviceKernels& kernels, const at::Tensor& x, bool note, bool turned) const {
  auto now = state_->last_input(x, note);
  if (!now) return rounded_ways(kernels, x, Fp8Operand::input, note, /*straight=*/true, turned);
  {
    const std::lock_guard lock(state_->mutex_);
    const auto& last = state_->last_;
    const bool same = last && last->map != map_ && !last->storage.expired() &&
                      last->storage._unsafe_get_target() == now->storage._unsafe_get_target() &&
                      last->data == now->data && last->version == now->version && last->sizes == now->sizes &&
                      last->strides == now->strides && last->stream == now->stream && last->noted == note &&
                      (!turned || last->ways.turned.values.defined());
    if (same) {
      if (note && state_->keeps_history()) state_->same_input_[map_] = last->map;
      return {last->ways.straight, turned ? last->ways.turned : Fp8Tensor{}};
    }
  }
  now->map = map_;
  now->ways = rounded_ways(kernels, x, Fp8Operand::input, note, /*straight=*/true, turned);
  const Fp8Ways ways = now->ways;
  const std::lock_guard lock(state_->mutex_);
  state_->last_ = std::move(now);
  return ways;
}

Fp8Tensor Fp8Map::rounded(const at::Tensor& x, Fp8Operand operand, bool note) const {
  if (const DeviceKernels* const device = kernels(x))
    return rounded_ways(*device, x, operand, note, /*straight=*/true, /*turned=*/false).straight;
  const Fp8Options& o = options();
  const at::ScalarType type = fp8_type(o.format, operand);
  if (o.recipe == Fp8Recipe::blockwise) return to_fp8_blocks(x, type, operand == Fp8Operand::weight ? 128 : 1, 128);
  if (o.recipe == Fp8Recipe::mxfp8) return to_fp8_blocks(x, type, 1, 32);
  at::Tensor amax = largest_value(x);
  if (o.recipe == Fp8Recipe::delayed) {
    const auto place = static_cast<std::int64_t>(operand);
    const at::Tensor chosen = state_->chosen_[map_][place];
    if (note) {
      at::Tensor noted = state_->now_[map_][place];
      at::maximum_out(noted, noted, amax);
    }
    amax = at::where(chosen.gt(0), chosen, amax);
  }
  return to_fp8(x, type, amax, o.margin);
}

Fp8Scope::Fp8Scope(const std::shared_ptr<const Fp8Map>& map, bool training)
    : map_(map), training_(training), outer_(std::exchange(current_scope, map ? this : nullptr)) {}
Fp8Scope::~Fp8Scope() { current_scope = outer_; }
const Fp8Scope* Fp8Scope::current() { return current_scope; }

}  // namespace tessera::nn
