#include <tessera/parallel/tensor/tensor_shard.h>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/embedding.h>
#include <tessera/nn/linear.h>

#include <utility>

namespace tessera::parallel {
namespace {

using layout::TensorStyle;

/// Accesses TensorImpl's protected keys.
struct Keys : c10::TensorImpl {
  static c10::DispatchKeySet& of(c10::TensorImpl& tensor) { return tensor.*(&Keys::key_set_); }
};

/// Makes `parameter` hold `value`, with `cut` (or null) as its metadata. TensorImpl and hooks are kept.
void set_value(const at::Tensor& parameter, const at::Tensor& value, const c10::intrusive_ptr<TensorShard>& cut,
               bool keyed) {
  const c10::InferenceMode normal(false);
  at::Tensor holder = value.detach().contiguous();
  if (keyed) mark_cut(holder, cut);
  parameter.set_data(holder);
  parameter.unsafeGetTensorImpl()->set_backend_meta(cut);
  torch::autograd::impl::set_grad_accumulator(parameter, {});  // the old accumulator expects the old shape
  parameter.mutable_grad().reset();
}

}  // namespace

TensorShard::TensorShard(std::string name, layout::TensorRule rule, std::span<const std::int64_t> shape,
                         comm::Group group, std::shared_ptr<Activations> activations)
    : name_(std::move(name)), rule_(std::move(rule)), group_(std::move(group)), activations_(std::move(activations)) {
  for (int rank = 0; rank < group_.size(); ++rank)
    parts_.push_back(layout::tensor_part(name_, shape, rule_, rank, group_.size()));
}

std::string TensorShard::described() const {
  return divided() ? concat("'", name_, "' (cut in dimension ", part().dim, " over '", group_.name(), "')")
                   : concat("'", name_, "' (used in parts by '", group_.name(), "')");
}

std::string TensorShard::rule_text() const {
  std::string blocks;
  for (const std::int64_t heads : rule_.block_heads) blocks += concat(" + ", heads);
  return concat(style_name(rule_.style), ":", rule_.blocks, " heads ", rule_.heads, blocks,
                rule_.transposed ? " transposed" : "", rule_.whole_input ? " whole_input" : "",
                rule_.holders > 0 ? concat(" on ", rule_.holders, " from ", rule_.first_holder) : std::string());
}

std::vector<Ranges> TensorShard::ranges() const {
  std::vector<Ranges> all;
  for (const layout::TensorPart& part : parts_) all.push_back(part.ranges);
  return all;
}

at::Tensor TensorShard::own(const at::Tensor& whole) const {
  const c10::impl::ExcludeDispatchKeyGuard plain(nn::cut_key);
  return divided() ? take_part(whole, part().dim, part().ranges).clone(at::MemoryFormat::Contiguous) : whole;
}

at::Tensor TensorShard::whole(const at::Tensor& own) const {
  const c10::impl::ExcludeDispatchKeyGuard plain(nn::cut_key);
  return divided() ? gather_parts(own, part().dim, ranges(), group_) : own;
}

at::Tensor TensorShard::sum_gradient(const at::Tensor& gradient) const {
  const comm::Tag tag("gradients of copies");
  if (part().summed) {
    at::Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
    group_.all_reduce(sum).wait();
    return sum;
  }
  // Heads that several ranks hold: every rank contributes to the gradient of all heads, and keeps its own.
  at::Tensor all = at::zeros(part().whole, gradient.options());
  std::int64_t place = 0;
  for (const auto& [begin, end] : part().ranges) {
    all.narrow(part().dim, begin, end - begin).copy_(gradient.narrow(part().dim, place, end - begin));
    place += end - begin;
  }
  group_.all_reduce(all).wait();
  return take_part(all, part().dim, part().ranges).contiguous();
}

at::Tensor TensorShard::linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               nn::WeightLayout layout) const {
  const c10::impl::ExcludeDispatchKeyGuard asked(nn::cut_key);
  const int outputs = layout == nn::WeightLayout::out_in ? 0 : 1;
  if (rule_.style != TensorStyle::embedding_rowwise && rule_.transposed != (outputs == 1))
    throw InputError(concat("tensor parallelism: ", described(), " is used as a matrix [",
                            outputs == 1 ? "in, out" : "out, in", "], but its rule '", rule_.pattern, "' specifies ",
                            rule_.transposed ? "transposed, [in, out]" : "[out, in]", ": set `transposed` in the rule ",
                            outputs == 1 ? "true" : "false"));
  if (part().dim == outputs) {
    const Between before = rule_.whole_input ? Between::whole : between();
    check_tokens(x, before);
    const bool cut_on = rule_.style == TensorStyle::colwise;
    const std::int64_t all = part().whole[static_cast<std::size_t>(outputs)];
    const bool whole_bias = bias.defined() && bias.size(0) == all && all != weight.size(outputs);
    if (whole_bias && cut_on)
      throw InputError(concat("tensor parallelism: ", described(), " has ", weight.size(outputs), " of ", all,
                              " outputs on this rank, but its bias is whole: give both the style ",
                              style_name(rule_.style), " (a pattern that names the module does)"));
    const Entered entered = copy_to_tensor_parallel(x, group_, before);
    const at::Tensor own_bias = whole_bias ? at::Tensor() : bias;
    const at::Tensor y = entered.meanwhile ? nn::linear_late(entered.x, weight, own_bias, layout, *entered.meanwhile)
                                           : nn::linear(entered.x, weight, own_bias, layout);
    if (cut_on) return y;
    const at::Tensor gathered = gather_from_tensor_parallel(y, ranges(), group_);
    return whole_bias ? gathered + bias : gathered;
  }
  const at::Tensor own = rule_.style == TensorStyle::rowwise_split_input ? scatter_to_tensor_parallel(x, group_) : x;
  if (own.size(-1) != weight.size(1 - outputs))
    throw InputError(
        concat("tensor parallelism: ", described(), " has, as ", style_name(rule_.style), ", ",
               weight.size(1 - outputs), " of ", part().whole[static_cast<std::size_t>(1 - outputs)],
               " inputs on this rank but was given ", own.size(-1),
               ": the layer before it must also be cut (colwise), or its style must be rowwise_split_input"
               "; a module must infer heads and tokens from its activations (view({b, q.size(1), -1, d}))"));
  const bool in_parts = activations_->product_parts > 1 && at::GradMode::is_enabled() && own.dim() >= 3;
  const at::Tensor y =
      in_parts ? reduce_from_tensor_parallel_in_parts(
                     [&](const auto& computed) {
                       return nn::linear_in_parts(own, weight, layout, {activations_->product_parts, computed});
                     },
                     group_, between())
               : reduce_from_tensor_parallel(nn::linear(own, weight, {}, layout), group_, between());
  return bias.defined() ? y + bias : y;
}

namespace {

/// Recomputation in backward repeats a pass with gradients, no matter which forward passes have run since.
bool in_graph_task() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace

Between TensorShard::between() const {
  return activations_->whole_now && !in_graph_task() ? Between::whole : activations_->between;
}

/// With sequence parallelism: checks that x holds the tokens of this pass's embedding, not transposed or flattened
/// since.
void TensorShard::check_tokens(const at::Tensor& x, Between before) const {
  if (before != Between::own_tokens || in_graph_task()) return;
  const auto [rows, tokens] = activations_->tokens;
  if (rows < 0)
    throw InputError(
        concat("sequence parallelism: ", described(),
               " runs before any embedding has distributed the tokens, so every rank would compute all of them. "
               "Give the embedding the style embedding_rowwise or, if there is no embedding, disable "
               "sequence_parallel for this module"));
  if (x.dim() >= 2 && (rows == 1 || x.size(0) == rows || x.size(0) == 1) && x.size(1) == tokens) return;
  throw InputError(concat("sequence parallelism: ", described(), " was given activations ", c10::str(x.sizes()),
                          ", but this pass has tokens [", rows, ", ", tokens,
                          ", ...] on each rank: activations must stay [B, T, ...] between layers "
                          "(torch::nn::MultiheadAttention uses [T, B, ...]); disable sequence_parallel for this "
                          "module"));
}

at::Tensor TensorShard::embedding(const at::Tensor& weight, const at::Tensor& ids, std::int64_t padding_idx,
                                  bool whole) const {
  const c10::impl::ExcludeDispatchKeyGuard asked(nn::cut_key);
  if (part().dim != 0 || part().ranges.size() != 1)
    throw InputError(concat("tensor parallelism: ", described(), " is an embedding but cut as ",
                            style_name(rule_.style), ": give it the style embedding_rowwise"));
  if (!whole) activations_->whole_now = !at::GradMode::is_enabled();
  const auto [begin, end] = part().ranges.front();
  const std::int64_t rows = part().whole[0];
  if (ids.numel() > 0) {
    const auto [least, most] = at::aminmax(ids);
    if (least.item<std::int64_t>() < 0 || most.item<std::int64_t>() >= rows)
      throw InputError(concat("tensor parallelism: ", name_, " has ", rows, " rows, but ids range from ",
                              least.item<std::int64_t>(), " to ", most.item<std::int64_t>()));
  }
  const at::Tensor elsewhere = ids.lt(begin).logical_or_(ids.ge(end));
  const at::Tensor own = (ids - begin).masked_fill_(elsewhere, 0);
  const bool pads = padding_idx >= begin && padding_idx < end;
  const at::Tensor y =
      at::embedding(weight, own, pads ? padding_idx - begin : -1).masked_fill(elsewhere.unsqueeze(-1), 0);
  if (whole || between() == Between::whole) return reduce_from_tensor_parallel(y, group_, Between::whole);
  // Positions [T] are one row shared by every sequence.
  if (ids.dim() == 1) return reduce_from_tensor_parallel(y.unsqueeze(0), group_, between()).squeeze(0);
  const at::Tensor out = reduce_from_tensor_parallel(y, group_, between());
  // Positions [1, T] after tokens [B, T].
  const bool shared_row =
      out.size(0) == 1 && activations_->tokens.first > 1 && out.size(1) == activations_->tokens.second;
  if (!shared_row) activations_->tokens = {out.size(0), out.size(1)};
  return out;
}

/// Without gradients nothing is kept for backward, so whole activations cost little, and rows of any length work
/// (generation).
void TensorShard::begin_pass() const {
  activations_->whole_now = !at::GradMode::is_enabled();
  activations_->tokens = {-1, -1};
}

at::Tensor TensorShard::own_tokens(const at::Tensor& x) const {
  begin_pass();
  if (between() == Between::whole) return x;
  const at::Tensor own = parallel::own_tokens(x, group_);
  activations_->tokens = {own.size(0), own.size(1)};
  return own;
}

void TensorShard::begin_with(const at::Tensor& x) const {
  begin_pass();
  if (between() == Between::own_tokens) activations_->tokens = {x.size(0), x.size(1)};
}

std::int64_t TensorShard::first_token(std::int64_t tokens) const {
  return between() == Between::whole ? 0 : tokens / group_.size() * group_.rank();
}

std::int64_t TensorShard::first_along(int dim) const {
  const bool seen_whole =
      rule_.style == TensorStyle::colwise_gather_output || rule_.style == TensorStyle::rowwise_split_input;
  return part().dim == dim && !seen_whole && !part().ranges.empty() ? part().ranges.front().first : 0;
}

std::int64_t TensorShard::whole_numel() const { return c10::multiply_integers(part().whole); }

at::Tensor TensorShard::all_tokens(const at::Tensor& x) const {
  return between() == Between::whole ? x : parallel::all_tokens(x, group_);
}

const TensorShard* cut_of(const at::Tensor& parameter) {
  if (!parameter.defined()) return nullptr;
  return dynamic_cast<const TensorShard*>(parameter.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr().get());
}

void share_cut(const at::Tensor& parameter, const at::Tensor& other) {
  if (cut_of(parameter) != nullptr)
    other.unsafeGetTensorImpl()->set_backend_meta(parameter.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
}

void mark_cut(const at::Tensor& tensor, const c10::intrusive_ptr<c10::BackendMeta>& cut) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  Keys::of(impl) = impl.key_set().add(nn::cut_key);
  impl.set_backend_meta(cut);
}

void apply_cut(const at::Tensor& parameter, const c10::intrusive_ptr<TensorShard>& cut) {
  register_cut_operators();
  const at::NoGradGuard no_grad;
  set_value(parameter, cut->own(parameter.detach()), cut, cut->divided());
  cut->parameter = parameter.unsafeGetTensorImpl();
}

void undo_cut(const at::Tensor& parameter, const TensorShard& cut) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard plain(nn::cut_key);
  const bool part = parameter.sizes() == at::IntArrayRef(cut.part().shape());
  if (!part && parameter.sizes() != at::IntArrayRef(cut.part().whole))
    throw InputError(concat("tensor parallelism: ", cut.described(), " cannot be made whole: it was replaced by ",
                            c10::str(parameter.sizes()), ", which has neither the shape of the part ",
                            c10::str(at::IntArrayRef(cut.part().shape())), " nor that of the whole ",
                            c10::str(at::IntArrayRef(cut.part().whole))));
  // A part replaced on one rank is replaced on all: whether it is whole again does not differ between ranks.
  set_value(parameter, part ? cut.whole(parameter.detach()) : parameter.detach(), {}, false);
}

}  // namespace tessera::parallel
