// Sums in rank order, from all_to_all and all_gather, for backends without their own accumulate().
#include <ATen/ATen.h>

#include <tessera/comm/backend.h>
#include <tessera/comm/kernel_types.h>

#include <algorithm>
#include <optional>

namespace tessera::comm {
namespace {

void finish(const Backend::Started& started) {
  if (started) started->wait();
}

/// Splits a flat tensor into `count` equal parts, one per rank.
std::vector<at::Tensor> parts(const at::Tensor& flat, int count) {
  const std::int64_t numel = flat.numel() / count;
  std::vector<at::Tensor> result;
  for (int r = 0; r < count; ++r) result.push_back(flat.narrow(0, r * numel, numel));
  return result;
}

/// accumulator [n] = ((accumulator + inputs[0]) + inputs[1]) + ..., strictly in this order. Inputs [n]: 1..64, of the
/// accumulator's dtype, or bf16/fp16 for an fp32 accumulator. Contiguous, on one device.
void add_in_order(const at::Tensor& accumulator, const std::vector<at::Tensor>& inputs) {
  const auto number = number_of(inputs.front().scalar_type());
  if (!accumulator.is_cpu() || !number) {
    at::Tensor sum = accumulator;
    for (const at::Tensor& input : inputs) sum.add_(input.view(sum.sizes()));  // elementwise, one rounding each
    return;
  }
  kernels::Reduce what;
  what.number = *number;
  what.fp32_output = accumulator.scalar_type() != inputs.front().scalar_type();
  what.start = accumulator.const_data_ptr();
  void* const output = accumulator.mutable_data_ptr();
  what.outputs = &output;
  // The kernel takes a bounded number of inputs; each call continues from the last sum.
  for (std::size_t begin = 0; begin < inputs.size(); begin += kernels::max_reduce_inputs) {
    const std::size_t count = std::min<std::size_t>(kernels::max_reduce_inputs, inputs.size() - begin);
    std::vector<const void*> pointers;
    for (std::size_t i = 0; i < count; ++i) pointers.push_back(inputs[begin + i].const_data_ptr());
    what.inputs = pointers.data();
    what.input_count = static_cast<int>(count);
    kernels::reduce(what, accumulator.numel());
  }
}

}  // namespace

Backend::Started Backend::accumulate(at::Tensor accumulator, at::Tensor input) {
  if (size() == 1) {
    add_in_order(accumulator, {input});
    return nullptr;
  }
  const std::int64_t n = input.numel(), slice = (n + size() - 1) / size();
  at::Tensor sum = accumulator.view(-1), everything = input.view(-1);
  if (slice * size() != n) {  // all slices have the same size: pad the end
    everything = at::zeros({slice * size()}, input.options());
    everything.narrow(0, 0, n).copy_(input.view(-1));
    sum = at::zeros({slice * size()}, accumulator.options());
    sum.narrow(0, 0, n).copy_(accumulator.view(-1));
  }
  const std::vector<std::int64_t> splits(static_cast<std::size_t>(size()), slice);
  const at::Tensor received = at::empty_like(everything);  // [ranks x slice]: every rank's copy of this rank's slice
  finish(all_to_all(received, everything, splits, splits));
  const at::Tensor own = sum.narrow(0, rank() * slice, slice);
  add_in_order(own, parts(received, size()));
  finish(all_gather(sum, own));
  if (slice * size() != n) accumulator.view(-1).copy_(sum.narrow(0, 0, n));
  return nullptr;
}

Backend::Started Backend::accumulate_scatter(at::Tensor accumulator, at::Tensor input) {
  const at::Tensor everything = input.view(-1);
  if (size() == 1) {
    add_in_order(accumulator.view(-1), {everything});
    return nullptr;
  }
  const std::vector<std::int64_t> splits(static_cast<std::size_t>(size()), accumulator.numel());
  const at::Tensor received = at::empty_like(everything);
  finish(all_to_all(received, everything, splits, splits));
  add_in_order(accumulator.view(-1), parts(received, size()));
  return nullptr;
}

}  // namespace tessera::comm
