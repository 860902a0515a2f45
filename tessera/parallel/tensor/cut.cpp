#include <tessera/parallel/tensor/cut.h>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/variable.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/embedding.h>
#include <tessera/nn/linear.h>

#include <utility>

namespace tessera::parallel {
namespace {

using layout::TensorStyle;

/// Makes `parameter` hold `value`, with the cut (or none) hanging on it. TensorImpl and hooks survive.
void set_value(const at::Tensor& parameter, const at::Tensor& value, const c10::intrusive_ptr<Cut>& cut, bool keyed) {
  const c10::InferenceMode normal(false);
  at::Tensor holder = value.detach().contiguous();
  if (keyed) {
    holder = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(value.storage()),
        c10::DispatchKeySet(c10::computeDispatchKey(value.scalar_type(), c10::Layout::Strided, value.device()))
            .add(nn::cut_key),
        value.dtype());
    holder.unsafeGetTensorImpl()->set_storage_offset(value.storage_offset());
    holder.unsafeGetTensorImpl()->set_sizes_and_strides(value.sizes(), value.strides());
  }
  parameter.set_data(holder);
  parameter.unsafeGetTensorImpl()->set_backend_meta(cut);
  torch::autograd::impl::set_grad_accumulator(parameter, {});  // the old one expects the old shape
  parameter.mutable_grad().reset();
}

}  // namespace

Cut::Cut(std::string name, layout::TensorRule rule, std::span<const std::int64_t> shape, comm::Group group,
         std::shared_ptr<Activations> activations)
    : name_(std::move(name)), rule_(std::move(rule)), group_(std::move(group)), activations_(std::move(activations)) {
  for (int rank = 0; rank < group_.size(); ++rank)
    parts_.push_back(layout::tensor_part(name_, shape, rule_, rank, group_.size()));
}

std::vector<Ranges> Cut::ranges() const {
  std::vector<Ranges> all;
  for (const layout::TensorPart& part : parts_) all.push_back(part.ranges);
  return all;
}

at::Tensor Cut::own(const at::Tensor& whole) const {
  return divided() ? take_part(whole, part().dim, part().ranges).clone(at::MemoryFormat::Contiguous) : whole;
}

at::Tensor Cut::whole(const at::Tensor& own) const {
  return divided() ? gather_parts(own, part().dim, ranges(), group_) : own;
}

at::Tensor Cut::sum_gradient(const at::Tensor& gradient) const {
  const comm::Tag tag("gradients of copies");
  if (part().summed) {
    at::Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
    group_.all_reduce(sum).wait();
    return sum;
  }
  // Heads that several ranks hold: everyone adds to the gradient of all heads, and keeps its own.
  at::Tensor all = at::zeros(part().whole, gradient.options());
  std::int64_t place = 0;
  for (const auto& [begin, end] : part().ranges) {
    all.narrow(part().dim, begin, end - begin).copy_(gradient.narrow(part().dim, place, end - begin));
    place += end - begin;
  }
  group_.all_reduce(all).wait();
  return take_part(all, part().dim, part().ranges).contiguous();
}

at::Tensor Cut::linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       nn::WeightLayout layout) const {
  const c10::impl::ExcludeDispatchKeyGuard asked(nn::cut_key);
  const int outputs = layout == nn::WeightLayout::out_in ? 0 : 1;
  if (part().dim == outputs) {
    const Between before = rule_.whole_input ? Between::whole : between();
    const at::Tensor y = nn::linear(enter_columns(x, group_, before), weight, bias, layout);
    const bool cut_on = rule_.style == TensorStyle::colwise;
    return cut_on ? y : gather_columns(y, ranges(), group_);
  }
  const at::Tensor own = rule_.style == TensorStyle::rowwise_split_input ? split_columns(x, group_) : x;
  if (own.size(-1) != weight.size(1 - outputs))
    throw InputError(concat("tensor parallelism: ", name_, " (", style_name(rule_.style), ") has ",
                            weight.size(1 - outputs), " of ", part().whole[static_cast<std::size_t>(1 - outputs)],
                            " inputs on this rank and is given ", own.size(-1),
                            ": what comes before it must be cut, too (colwise), or its style be rowwise_split_input"));
  const at::Tensor y = leave_rows(nn::linear(own, weight, {}, layout), group_, between());
  return bias.defined() ? y + bias : y;
}

at::Tensor Cut::embedding(const at::Tensor& weight, const at::Tensor& ids, std::int64_t padding_idx, bool whole) const {
  const c10::impl::ExcludeDispatchKeyGuard asked(nn::cut_key);
  if (!whole) begin_pass();
  const auto [begin, end] = part().ranges.front();
  const std::int64_t rows = part().whole[0];
  if (ids.numel() > 0) {
    const auto [least, most] = at::aminmax(ids);
    if (least.item<std::int64_t>() < 0 || most.item<std::int64_t>() >= rows)
      throw InputError(concat("tensor parallelism: ", name_, " has ", rows, " rows; ids reach from ",
                              least.item<std::int64_t>(), " to ", most.item<std::int64_t>()));
  }
  const at::Tensor elsewhere = ids.lt(begin).logical_or_(ids.ge(end));
  const at::Tensor own = (ids - begin).masked_fill_(elsewhere, 0);
  const bool pads = padding_idx >= begin && padding_idx < end;
  const at::Tensor y =
      at::embedding(weight, own, pads ? padding_idx - begin : -1).masked_fill(elsewhere.unsqueeze(-1), 0);
  return leave_rows(y, group_, whole ? Between::whole : between());
}

/// Without gradients nothing is kept for backward, so whole activations cost little, and rows of any length go
/// (generation).
void Cut::begin_pass() const { activations_->whole_now = !at::GradMode::is_enabled(); }

at::Tensor Cut::own_tokens(const at::Tensor& x) const {
  begin_pass();
  return between() == Between::whole ? x : parallel::own_tokens(x, group_);
}

std::int64_t Cut::first_token(std::int64_t tokens) const {
  return between() == Between::whole ? 0 : tokens / group_.size() * group_.rank();
}

std::int64_t Cut::first_along(int dim) const { return part().dim == dim ? part().ranges.front().first : 0; }

std::int64_t Cut::whole_numel() const { return c10::multiply_integers(part().whole); }

at::Tensor Cut::all_tokens(const at::Tensor& x) const {
  return between() == Between::whole ? x : parallel::all_tokens(x, group_);
}

const Cut* cut_of(const at::Tensor& parameter) {
  if (!parameter.defined()) return nullptr;
  return dynamic_cast<const Cut*>(parameter.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr().get());
}

void share_cut(const at::Tensor& parameter, const at::Tensor& other) {
  if (cut_of(parameter) != nullptr)
    other.unsafeGetTensorImpl()->set_backend_meta(parameter.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
}

void apply_cut(const at::Tensor& parameter, const c10::intrusive_ptr<Cut>& cut) {
  register_cut_operators();
  const at::NoGradGuard no_grad;
  set_value(parameter, cut->own(parameter.detach()), cut, cut->divided() && parameter.dim() > 1);
}

void undo_cut(const at::Tensor& parameter) {
  const Cut* const cut = cut_of(parameter);
  TESSERA_CHECK(cut != nullptr, "the parameter is not cut");
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard plain(nn::cut_key);
  set_value(parameter, cut->whole(parameter.detach()), {}, false);
}

}  // namespace tessera::parallel
