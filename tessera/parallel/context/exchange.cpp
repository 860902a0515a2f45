#include <tessera/parallel/context/exchange.h>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/comm/recorder.h>

#include <utility>

namespace tessera::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A group in a form that autograd can save.
struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(comm::Group group) : group(std::move(group)) {}
  comm::Group group;
};

/// Swaps part r of every input with rank r: inputs [a, ...] -> outputs [a, ...] of the same sizes, in one message per
/// pair.
variable_list swapped(const variable_list& inputs, const comm::Group& group) {
  const std::int64_t ranks = group.size();
  variable_list flat;
  for (const at::Tensor& x : inputs) flat.push_back(x.reshape({ranks, -1}));
  const at::Tensor sent = at::cat(flat, 1), received = at::empty_like(sent);
  group.all_to_all(received, sent).wait();
  variable_list outputs;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t size = flat[i].size(1);
    outputs.push_back(received.narrow(1, begin, size).reshape(inputs[i].sizes()));
    begin += size;
  }
  return outputs;
}

/// [B, t, heads, D] -> [a, B, t, heads / a, D]: ordered by the rank that will have the heads.
at::Tensor by_heads(const at::Tensor& x, std::int64_t ranks) {
  return x.reshape({x.size(0), x.size(1), ranks, x.size(2) / ranks, x.size(3)}).permute({2, 0, 1, 3, 4});
}
at::Tensor from_heads(const at::Tensor& x) {  // its inverse
  return x.permute({1, 2, 0, 3, 4}).reshape({x.size(1), x.size(2), x.size(0) * x.size(3), x.size(4)});
}
/// [B, a t, heads, D] -> [a, B, t, heads, D]: ordered by the rank that has the tokens.
at::Tensor by_tokens(const at::Tensor& x, std::int64_t ranks) {
  return x.reshape({x.size(0), ranks, x.size(1) / ranks, x.size(2), x.size(3)}).permute({1, 0, 2, 3, 4});
}
at::Tensor from_tokens(const at::Tensor& x) {  // its inverse
  return x.permute({1, 0, 2, 3, 4}).reshape({x.size(1), x.size(0) * x.size(2), x.size(3), x.size(4)});
}

variable_list to_heads(const variable_list& tensors, const comm::Group& group) {
  variable_list parts;
  for (const at::Tensor& x : tensors) parts.push_back(by_heads(x, group.size()));
  variable_list received = swapped(parts, group);
  for (at::Tensor& x : received) x = from_tokens(x);
  return received;
}
variable_list to_tokens(const variable_list& tensors, const comm::Group& group) {
  variable_list parts;
  for (const at::Tensor& x : tensors) parts.push_back(by_tokens(x, group.size()));
  variable_list received = swapped(parts, group);
  for (at::Tensor& x : received) x = from_heads(x);
  return received;
}

comm::Group group_of(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<HeldGroup>(ctx->saved_data["group"].toCapsule())->group;
}
void keep_group(AutogradContext* ctx, const comm::Group& group) {
  ctx->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
}

struct ToHeads : torch::autograd::Function<ToHeads> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const comm::Group& group) {
    const comm::Tag tag("context heads");
    keep_group(ctx, group);
    return to_heads({q, k, v}, group);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const comm::Tag tag("context heads backward");
    variable_list back = to_tokens(gradients, group_of(ctx));
    back.emplace_back();
    return back;
  }
};

struct ToTokens : torch::autograd::Function<ToTokens> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const comm::Group& group) {
    const comm::Tag tag("context tokens");
    keep_group(ctx, group);
    return to_tokens({x}, group).front();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const comm::Tag tag("context tokens backward");
    return {to_heads({gradients[0]}, group_of(ctx)).front(), at::Tensor()};
  }
};

}  // namespace

QueriesKeysValues tokens_for_heads(const QueriesKeysValues& tensors, const comm::Group& group) {
  const variable_list swapped = ToHeads::apply(tensors.q, tensors.k, tensors.v, group);
  return {swapped[0], swapped[1], swapped[2]};
}

at::Tensor heads_for_tokens(const at::Tensor& x, const comm::Group& group) { return ToTokens::apply(x, group); }

}  // namespace tessera::parallel
