#include <tessera/optim/flat_state.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/layout/flat.h>
#include <tessera/nn/parallel_for.h>

#include <algorithm>
#include <numeric>

namespace tessera::optim {
namespace {

constexpr std::int64_t block_numel =
    1 << 16;  // 256 KiB per operand: large relative to the overhead of a task, small relative to a core's share

void check_piece(const Slot& slot) {
  const at::Tensor& p = slot.parameter;
  if (slot.shape.empty() && slot.begin == 0) return;
  const std::int64_t numel = layout::Parameter{slot.name, slot.shape}.numel();
  if (p.dim() != 1 || slot.begin < 0 || slot.begin + p.numel() > numel)
    throw InputError(concat("optimizer: the piece of '", slot.name, "' has shape ", p.sizes(), " from element ",
                            slot.begin, ", but the parameter has ", numel,
                            " elements; a piece must be 1-D and inside its parameter"));
  if (p.numel() > 0 && slot.begin % layout::flat_alignment != 0)
    throw InputError(concat("optimizer: the piece of '", slot.name, "' begins at element ", slot.begin,
                            "; shards must be cut at multiples of ", layout::flat_alignment));
}

kernels::EightBitMap map_of(const StateKind& kind) {
  return kind.negative ? kernels::EightBitMap::with_sign : kernels::EightBitMap::without_sign;
}

/// Decided by the size of the whole parameter, of which this may be a piece.
bool has_eight_bits(const Slot& slot, const CommonOptions& common) {
  return common.eight_bit_state && !slot.wide_states &&
         layout::Parameter{slot.name, whole_shape(slot)}.numel() >= min_8bit_size;
}

/// A flat buffer for tensors of one type, and a view of it for each tensor.
struct FlatBuffer {
  at::Tensor flat;
  std::vector<at::Tensor> views;
};

FlatBuffer make_buffer(const std::vector<layout::Parameter>& tensors, at::TensorOptions options,
                       const StateAllocator& allocate) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const layout::FlatLayout flat = layout::make_flat_layout(tensors, order, 1);
  FlatBuffer buffer;
  buffer.flat = allocate && flat.padded > 0 ? allocate({flat.padded}, options) : at::zeros({flat.padded}, options);
  TESSERA_CHECK(buffer.flat.defined() && buffer.flat.numel() == flat.padded && buffer.flat.dtype() == options.dtype() &&
                    buffer.flat.is_contiguous() && buffer.flat.device().type() == options.device().type(),
                "optimizer: the state allocator did not return ", flat.padded, " contiguous elements of ",
                options.dtype(), " on ", options.device().str(),
                "; host states for parameters on a device need make_offloaded()");
  buffer.views.resize(tensors.size());
  for (const layout::Segment& segment : flat.segments)
    buffer.views[segment.parameter] =
        buffer.flat.narrow(0, segment.offset, segment.numel).view(tensors[segment.parameter].shape);
  return buffer;
}

void check(const std::vector<Slot>& slots, const CommonOptions& common) {
  if (common.eight_bit_state && common.bf16_state)
    throw InputError(
        "optimizer: states cannot be stored both in bfloat16 (--bf16_optimizer_states) and in 8 bits (--optim); remove "
        "one of them");
  for (const Slot& slot : slots) {
    const at::Tensor& p = slot.parameter;
    if (!p.defined()) throw InputError(concat("optimizer: parameter '", slot.name, "' is undefined"));
    if (p.scalar_type() != at::kFloat && p.scalar_type() != at::kDouble)
      throw InputError(
          concat("optimizer: parameter '", slot.name, "' is ", c10::toString(p.scalar_type()),
                 "; it must be float32 or float64 (keep a float32 master copy of half-precision weights)"));
    if (common.bf16_state && p.scalar_type() != at::kFloat)
      throw InputError(concat("optimizer: parameter '", slot.name, "' is ", c10::toString(p.scalar_type()),
                              "; bfloat16 states are for float32 parameters"));
    if (common.eight_bit_state && (p.scalar_type() != at::kFloat || !p.device().is_cpu()))
      throw InputError(concat("optimizer: parameter '", slot.name, "' is ", c10::toString(p.scalar_type()), " on ",
                              p.device().str(),
                              "; states of 8 bits are for float32 parameters on the CPU: use adamw or lion with "
                              "--bf16_optimizer_states, or --device cpu"));
    if (!p.is_contiguous())
      throw InputError(
          concat("optimizer: parameter '", slot.name, "' is not contiguous; call contiguous() on it before training"));
    const at::Tensor& first = slots.front().parameter;
    if (p.scalar_type() != first.scalar_type() || p.device() != first.device())
      throw InputError(concat("optimizer: parameter '", slot.name, "' is ", c10::toString(p.scalar_type()), " on ",
                              p.device().str(), " but '", slots.front().name, "' is ",
                              c10::toString(first.scalar_type()), " on ", first.device().str(),
                              "; one optimizer needs one dtype and device"));
    check_piece(slot);
  }
}

}  // namespace

std::vector<std::int64_t> whole_shape(const Slot& slot) {
  return slot.shape.empty() && slot.begin == 0 ? slot.parameter.sizes().vec() : slot.shape;
}

FlatState::FlatState(std::vector<Slot> slots, std::vector<StateKind> kinds, const CommonOptions& common)
    : slots_(std::move(slots)), kinds_(std::move(kinds)) {
  check(slots_, common);
  at::TensorOptions options =
      slots_.empty() ? at::TensorOptions(at::kFloat) : slots_.front().parameter.options().requires_grad(false);
  has_kernels_ = options.device().is_cpu() && at::typeMetaToScalarType(options.dtype()) == at::kFloat;
  if (common.bf16_state) options = options.dtype(at::kBFloat16);

  for (const Slot& slot : slots_) eight_bit_.push_back(has_eight_bits(slot, common));
  std::vector<layout::Parameter> tensors;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // (kind, slot) of each
  for (std::size_t k = 0; k < kinds_.size(); ++k)
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const auto shape = kinds_[k].shape ? kinds_[k].shape(slots_[i]) : slots_[i].parameter.sizes().vec();
      if (!shape || eight_bit_[i]) continue;
      tensors.push_back(
          {kinds_[k].name + "." + slots_[i].name, *shape, static_cast<std::int64_t>(options.dtype().itemsize())});
      places.emplace_back(k, i);
    }
  FlatBuffer buffer = make_buffer(tensors, options, common.allocate);
  flat_ = std::move(buffer.flat);
  views_.assign(kinds_.size(), std::vector<at::Tensor>(slots_.size()));
  for (std::size_t t = 0; t < places.size(); ++t) views_[places[t].first][places[t].second] = buffer.views[t];
  if (common.eight_bit_state) make_eight_bits(common);
}

void FlatState::make_eight_bits(const CommonOptions& common) {
  std::vector<layout::Parameter> codes, scales;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t k = 0; k < kinds_.size(); ++k)
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!eight_bit_[i]) continue;
      const std::string name = kinds_[k].name + "." + slots_[i].name;
      const std::int64_t n = slots_[i].parameter.numel(), block = kernels::eight_bit_block;
      codes.push_back({name, {n}, 1});
      scales.push_back({name, {(n + block - 1) / block}, 4});
      places.emplace_back(k, i);
    }
  FlatBuffer code_buffer = make_buffer(codes, at::TensorOptions(at::kByte), common.allocate);
  FlatBuffer scale_buffer = make_buffer(scales, at::TensorOptions(at::kFloat), common.allocate);
  flat_codes_ = std::move(code_buffer.flat);
  flat_scales_ = std::move(scale_buffer.flat);
  codes_.assign(kinds_.size(), std::vector<at::Tensor>(slots_.size()));
  scales_ = codes_;
  for (std::size_t t = 0; t < places.size(); ++t) {
    const auto [k, i] = places[t];
    codes_[k][i] = code_buffer.views[t];
    scales_[k][i] = scale_buffer.views[t];
    const float zero = 0;  // all codes start as the encoding of zero
    std::uint8_t code = 0;
    float scale = 0;
    kernels::encode_eight_bits(&zero, 1, map_of(kinds_[k]), {&code, &scale});
    codes_[k][i].fill_(static_cast<std::int64_t>(code));
  }
}

void FlatState::set_learning_rate_scales(const std::vector<double>& scales) {
  TESSERA_CHECK(scales.size() == slots_.size(), scales.size(), " scales of rates for ", slots_.size(), " slots");
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].learning_rate_scale = scales[i];
}

std::vector<std::pair<std::string, at::Tensor>> FlatState::named() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (std::size_t k = 0; k < kinds_.size(); ++k)
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (views_[k][i].defined()) result.emplace_back(kinds_[k].name + "." + slots_[i].name, views_[k][i]);
  return result;
}

bool FlatState::is_replicated(const std::string& state_name) const {
  return std::any_of(kinds_.begin(), kinds_.end(),
                     [&](const StateKind& kind) { return kind.replicated && state_name.starts_with(kind.name + "."); });
}

kernels::EightBits FlatState::eight_bits(std::size_t k, std::size_t i, std::int64_t offset) const {
  return {codes_[k][i].data_ptr<std::uint8_t>() + offset,
          scales_[k][i].data_ptr<float>() + offset / kernels::eight_bit_block};
}

std::vector<EncodedState> FlatState::encoded() const {
  std::vector<EncodedState> result;
  for (std::size_t k = 0; k < kinds_.size(); ++k)
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!eight_bit_[i]) continue;
      const std::vector<std::int64_t> shape = slots_[i].parameter.sizes().vec();
      const std::int64_t n = slots_[i].parameter.numel();
      result.push_back(
          {.name = kinds_[k].name + "." + slots_[i].name,
           .shape = shape,
           .bytes = static_cast<std::int64_t>(codes_[k][i].nbytes() + scales_[k][i].nbytes()),
           .decode =
               [this, k, i, n, shape] {
                 at::Tensor values = at::empty(shape, at::kFloat);
                 kernels::decode_eight_bits(eight_bits(k, i), n, map_of(kinds_[k]), values.data_ptr<float>());
                 return values;
               },
           .encode =
               [this, k, i, n](const at::Tensor& values) {
                 const at::Tensor flat = values.to(at::kFloat).contiguous();
                 TESSERA_CHECK(flat.numel() == n, "a state of ", n, " elements from ", flat.numel());
                 kernels::encode_eight_bits(flat.const_data_ptr<float>(), n, map_of(kinds_[k]), eight_bits(k, i));
               }});
    }
  return result;
}

std::vector<at::Tensor> FlatState::gradients() const {
  std::vector<at::Tensor> result;
  for (const Slot& slot : slots_) {
    const at::Tensor& p = slot.parameter;
    const at::Tensor& g = p.grad();
    if (g.defined() && (g.scalar_type() != p.scalar_type() || g.device() != p.device() || g.sizes() != p.sizes() ||
                        g.layout() != at::kStrided))
      throw Error(concat("optimizer: the gradient of '", slot.name, "' is ", c10::toString(g.scalar_type()), g.sizes(),
                         " on ", g.device().str(), " but the parameter is ", c10::toString(p.scalar_type()), p.sizes(),
                         " on ", p.device().str(), "; both must be dense and agree"));
    result.push_back(g.defined() ? g.detach().contiguous() : at::Tensor());
  }
  return result;
}

void FlatState::for_each_block(const std::vector<at::Tensor>& gradients,
                               const std::function<void(const Block&)>& update) const {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const std::int64_t numel = gradients[i].numel();
    for (std::int64_t offset = 0; offset < numel; offset += block_numel)
      blocks.push_back({i, offset, std::min(block_numel, numel - offset)});
  }
  nn::parallel_for(0, static_cast<std::int64_t>(blocks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) update(blocks[static_cast<std::size_t>(i)]);
  });
}

}  // namespace tessera::optim
