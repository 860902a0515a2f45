#include <tessera/parallel/compression/method.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/launch/watch/record.h>

#include <algorithm>

namespace tessera::parallel {

std::vector<FlatRange> complement(std::span<const FlatRange> taken, std::int64_t n) {
  std::vector<FlatRange> sorted(taken.begin(), taken.end());
  std::sort(sorted.begin(), sorted.end(), [](const FlatRange& a, const FlatRange& b) { return a.begin < b.begin; });
  sorted.push_back({n, 0});
  std::vector<FlatRange> rest;
  std::int64_t end = 0;
  for (const FlatRange& range : sorted) {
    TESSERA_CHECK(range.begin >= end && range.begin + range.numel <= n, "compression: segment [", range.begin, ", ",
                  range.begin + range.numel, ") overlaps another segment or exceeds the flat gradient of ", n,
                  " elements");
    if (range.begin > end) rest.push_back({end, range.begin - end});
    end = range.begin + range.numel;
  }
  return rest;
}

at::Tensor packed(const at::Tensor& flat, std::span<const FlatRange> ranges) {
  if (ranges.empty()) return at::empty({0}, flat.options());
  std::vector<at::Tensor> parts;
  for (const FlatRange& range : ranges) parts.push_back(flat.narrow(0, range.begin, range.numel));
  return at::cat(parts);
}

std::int64_t numel_of(std::span<const FlatRange> ranges) {
  std::int64_t sum = 0;
  for (const FlatRange& range : ranges) sum += range.numel;
  return sum;
}

namespace {

std::int64_t payload(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

}  // namespace

void CompressionMethod::begin(const ReductionRequest& request) {
  const std::int64_t n = request.flat.numel(), size = request.group.size();
  TESSERA_CHECK(request.reduction == comm::Reduction::mean || request.reduction == comm::Reduction::sum,
                "compression '", name(), "' supports only mean and sum");
  TESSERA_CHECK(request.flat.dim() == 1 && request.flat.is_contiguous() && request.flat.is_floating_point(),
                "compression '", name(), "': flat gradient '", request.key,
                "' must be contiguous, 1-D and floating point");
  TESSERA_CHECK(request.output.dim() == 1 && request.output.is_contiguous() &&
                    request.output.numel() * (request.scatter ? size : 1) == n,
                "compression '", name(), "': flat gradient '", request.key, "' has ", n, " elements, but its output ",
                request.output.numel(), request.scatter ? " per rank of " : ", ranks: ", size);
  if (!counts_step_done_) {
    const std::int64_t count = ++reductions_.try_emplace(std::string(request.key), 0).first->second;
    most_reductions_ = std::max(most_reductions_, count);
  }
  const launch::Op op = request.scatter ? launch::Op::reduce_scatter : launch::Op::all_reduce;
  plain_bytes_ += launch::wire_bytes(op, payload(request.flat), static_cast<int>(size));
}

void CompressionMethod::step_done() {
  ++steps_;
  counts_step_done_ = true;
  reductions_.clear();
}

std::int64_t CompressionMethod::steps() const {
  return counts_step_done_ ? steps_ : steps_ + std::max<std::int64_t>(most_reductions_ - 1, 0);
}

void CompressionMethod::add_steps(std::vector<std::pair<std::string, at::Tensor>>& state) const {
  state.emplace_back("steps", at::scalar_tensor(counts_step_done_ ? steps_ : steps_ + most_reductions_, at::kLong));
  if (counts_step_done_) state.emplace_back("told", at::scalar_tensor(1, at::kLong));
}

void CompressionMethod::restore_steps(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  for (const auto& [name, tensor] : state) {
    if (name == "steps") steps_ = tensor.item<std::int64_t>();
    if (name == "told") counts_step_done_ = true;
  }
}

comm::Work CompressionMethod::plain(const ReductionRequest& request) {
  const launch::Op op = request.scatter ? launch::Op::reduce_scatter : launch::Op::all_reduce;
  sent_bytes_ += launch::wire_bytes(op, payload(request.flat), request.group.size());
  const bool same_type = request.output.scalar_type() == request.flat.scalar_type();
  if (!request.scatter && same_type) {
    if (!request.output.is_same(request.flat)) request.output.copy_(request.flat);
    return request.group.all_reduce(request.output, request.reduction);
  }
  if (same_type) return request.group.reduce_scatter(request.output, request.flat, request.reduction);
  const at::Tensor result = at::empty({request.output.numel()}, request.flat.options());
  if (request.scatter) {
    request.group.reduce_scatter(result, request.flat, request.reduction).wait();
  } else {
    result.copy_(request.flat);
    request.group.all_reduce(result, request.reduction).wait();
  }
  request.output.copy_(result);
  return {};
}

comm::Work CompressionMethod::all_reduce(const comm::Group& group, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  sent_bytes_ += launch::wire_bytes(launch::Op::all_reduce, payload(tensor), group.size());
  return group.all_reduce(tensor);
}

comm::Work CompressionMethod::all_gather(const comm::Group& group, const at::Tensor& output, const at::Tensor& input) {
  sent_bytes_ += launch::wire_bytes(launch::Op::all_gather, payload(output), group.size());
  return group.all_gather(output, input);
}

comm::Work CompressionMethod::all_to_all(const comm::Group& group, const at::Tensor& output, const at::Tensor& input) {
  sent_bytes_ += launch::wire_bytes(launch::Op::all_to_all, payload(input), group.size());
  return group.all_to_all(output, input);
}

comm::Work CompressionMethod::accumulate_scatter(const comm::Group& group, const at::Tensor& accumulator,
                                                 const at::Tensor& input) {
  sent_bytes_ += launch::wire_bytes(launch::Op::reduce_scatter, payload(input), group.size());
  return group.accumulate_scatter(accumulator, input);
}

FlatRange output_range(const ReductionRequest& request) {
  const std::int64_t m = request.output.numel();
  return {request.scatter ? m * request.group.rank() : 0, m};
}

void write_output(const ReductionRequest& request, std::int64_t begin, const at::Tensor& values) {
  const FlatRange out = output_range(request);
  const std::int64_t from = std::max(begin, out.begin), to = std::min(begin + values.numel(), out.begin + out.numel);
  if (from >= to) return;
  request.output.narrow(0, from - out.begin, to - from).copy_(values.narrow(0, from - begin, to - from));
}

void write_output(const ReductionRequest& request, std::span<const FlatRange> ranges, const at::Tensor& packed_values) {
  std::int64_t at = 0;
  for (const FlatRange& range : ranges) {
    write_output(request, range.begin, packed_values.narrow(0, at, range.numel));
    at += range.numel;
  }
}

double divisor(const ReductionRequest& request) {
  return request.reduction == comm::Reduction::mean ? request.group.size() : 1;
}

at::Tensor in_compute_dtype(const at::Tensor& flat) {
  return flat.scalar_type() == at::kDouble ? flat : flat.to(at::kFloat);
}

bool all_finite(const at::Tensor& tensor) {
  return tensor.numel() == 0 || at::isfinite(tensor.abs().max()).item<bool>();
}

at::Tensor& KeptTensors::of(std::string_view key, std::int64_t step) {
  constexpr std::int64_t long_enough = 8;
  std::erase_if(kept_, [&](const auto& item) { return item.first != key && item.second.used + long_enough < step; });
  Kept& kept = kept_.try_emplace(std::string(key)).first->second;
  kept.used = step;
  return kept.tensor;
}

std::vector<std::pair<std::string, at::Tensor>> KeptTensors::state() const {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& [key, kept] : kept_) {
    if (kept.tensor.defined()) result.emplace_back(key + suffix_, kept.tensor);
  }
  return result;
}

void KeptTensors::restore(const std::vector<std::pair<std::string, at::Tensor>>& state, std::int64_t step) {
  for (const auto& [name, tensor] : state) {
    if (name.ends_with(suffix_)) of(name.substr(0, name.size() - suffix_.size()), step) = tensor.clone();
  }
}

at::Tensor& error_of(KeptTensors& errors, std::string_view key, std::int64_t step, std::int64_t numel,
                     const at::TensorOptions& options) {
  at::Tensor& error = errors.of(key, step);
  if (error.defined() && error.device() != options.device()) error = error.to(options.device());
  if (!error.defined() || error.numel() != numel || error.scalar_type() != c10::typeMetaToScalarType(options.dtype())) {
    error = at::zeros({numel}, options);
  }
  return error;
}

}  // namespace tessera::parallel
