#include <tessera/optim/flat_state.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <tessera/base/error.h>

#include <numeric>

namespace tessera::optim {
namespace {

constexpr std::int64_t block_numel =
    1 << 16;  // 256 KiB of each operand: large against the cost of a task, small against a core's share

void check(const std::vector<Slot>& slots) {
  for (const Slot& slot : slots) {
    const at::Tensor& p = slot.parameter;
    if (!p.defined()) throw InputError(concat("optimizer: parameter '", slot.name, "' is undefined"));
    if (p.scalar_type() != at::kFloat && p.scalar_type() != at::kDouble)
      throw InputError(
          concat("optimizer: parameter '", slot.name, "' is ", c10::toString(p.scalar_type()),
                 "; it must be float32 or float64 (keep a float32 master copy of half-precision weights)"));
    if (!p.is_contiguous())
      throw InputError(
          concat("optimizer: parameter '", slot.name, "' is not contiguous; call contiguous() on it before training"));
    const at::Tensor& first = slots.front().parameter;
    if (p.scalar_type() != first.scalar_type() || p.device() != first.device())
      throw InputError(concat("optimizer: parameter '", slot.name, "' is ", c10::toString(p.scalar_type()), " on ",
                              p.device().str(), " but '", slots.front().name, "' is ",
                              c10::toString(first.scalar_type()), " on ", first.device().str(),
                              "; one optimizer needs one dtype and device"));
  }
}

}  // namespace

FlatState::FlatState(std::vector<Slot> slots, std::vector<std::string> names)
    : slots_(std::move(slots)), names_(std::move(names)) {
  check(slots_);
  std::vector<layout::Parameter> parameters;
  for (const Slot& slot : slots_)
    parameters.push_back(
        {slot.name, slot.parameter.sizes().vec(), static_cast<std::int64_t>(slot.parameter.element_size())});
  std::vector<std::size_t> order(slots_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const layout::FlatLayout flat = layout::make_flat_layout(parameters, order, 1);
  const auto options =
      slots_.empty() ? at::TensorOptions(at::kFloat) : slots_.front().parameter.options().requires_grad(false);
  flat_ = at::zeros({static_cast<std::int64_t>(names_.size()) * flat.padded}, options);
  has_kernels_ = flat_.is_cpu() && flat_.scalar_type() == at::kFloat;
  views_.resize(names_.size());
  for (std::size_t k = 0; k < names_.size(); ++k)
    for (const layout::Segment& segment : flat.segments)
      views_[k].push_back(flat_.narrow(0, static_cast<std::int64_t>(k) * flat.padded + segment.offset, segment.numel)
                              .view(slots_[segment.parameter].parameter.sizes()));
}

std::vector<std::pair<std::string, at::Tensor>> FlatState::named() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (std::size_t k = 0; k < names_.size(); ++k)
    for (std::size_t i = 0; i < slots_.size(); ++i) result.emplace_back(names_[k] + "." + slots_[i].name, views_[k][i]);
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
                         " on ", p.device().str(), "; they must agree (dense)"));
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
  at::parallel_for(0, static_cast<std::int64_t>(blocks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) update(blocks[static_cast<std::size_t>(i)]);
  });
}

}  // namespace tessera::optim
