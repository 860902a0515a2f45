#include <tessera/parallel/compression/topk.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::parallel {

namespace {

// The bits of |x|, which are ordered like the magnitudes, with NaN above all.
std::uint32_t magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

}  // namespace

// Two passes: a histogram over the upper 16 bits finds the bin of the k-th element, and only that bin is sorted. Ten
// times as fast as at::topk (8 M elements: 10 to 16 ms against 170).
at::Tensor largest_magnitudes(const at::Tensor& values, std::int64_t k) {
  if (!values.is_cpu() || values.scalar_type() != at::kFloat) {
    return std::get<0>(std::get<1>(values.abs().topk(k, 0, /*largest=*/true, /*sorted=*/false)).sort());
  }
  const std::int64_t n = values.numel();
  const float* const x = values.const_data_ptr<float>();
  std::vector<std::int64_t> count(1 << 16);
  for (std::int64_t i = 0; i < n; ++i) ++count[magnitude(x[i]) >> 15];
  std::size_t bin = count.size() - 1;
  std::int64_t above = 0;
  while (bin > 0 && above + count[bin] < k) above += count[bin--];

  std::vector<std::int64_t> sure, maybe;
  sure.reserve(static_cast<std::size_t>(above));
  maybe.reserve(static_cast<std::size_t>(count[bin]));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::size_t b = magnitude(x[i]) >> 15;
    if (b > bin) sure.push_back(i);
    if (b == bin) maybe.push_back(i);
  }
  const auto chosen = maybe.begin() + static_cast<std::ptrdiff_t>(k - above);
  std::nth_element(maybe.begin(), chosen, maybe.end(), [&](std::int64_t a, std::int64_t b) {
    return std::pair(~magnitude(x[a]), a) < std::pair(~magnitude(x[b]), b);
  });
  std::sort(maybe.begin(), chosen);
  const at::Tensor result = at::empty({k}, at::kLong);
  std::merge(sure.begin(), sure.end(), maybe.begin(), chosen, result.data_ptr<std::int64_t>());
  return result;
}

comm::Work TopKCompression::reduce(const ReductionRequest& request) {
  const at::NoGradGuard no_grad;
  begin(request);
  const comm::Group& group = request.group;
  if (group.size() == 1) return plain(request);
  const std::int64_t n = request.flat.numel();
  TESSERA_CHECK(n <= std::numeric_limits<std::int32_t>::max(), "compression 'topk': flat gradient '", request.key,
                "' has ", n, " elements, more than a 32-bit index can address; use smaller units");
  std::vector<FlatRange> segments;
  for (const CompressedSegment& s : request.segments) segments.push_back({s.offset, s.numel});
  const std::vector<FlatRange> rest = complement(segments, n);
  const std::int64_t k = static_cast<std::int64_t>(std::ceil(ratio_ * static_cast<double>(numel_of(segments))));

  const at::Tensor gradient = in_compute_dtype(request.flat);
  const at::Tensor exact = packed(gradient, rest);
  all_reduce(group, exact).wait();

  at::Tensor& error = error_of(errors_, request.key, steps(), n, gradient.options());
  const at::Tensor corrected = gradient.add(error);
  for (const FlatRange& range : rest) corrected.narrow(0, range.begin, range.numel).zero_();
  // Ascending, so that each rank's part of the indices is contiguous.
  const at::Tensor chosen = largest_magnitudes(corrected, k);
  const at::Tensor values = corrected.index_select(0, chosen);
  if (all_finite(corrected)) error.copy_(corrected).index_fill_(0, chosen, 0);

  const std::int64_t size = group.size();
  const at::Tensor all_indices = at::empty({size, k}, chosen.options().dtype(at::kInt));
  const at::Tensor all_values = at::empty({size, k}, values.options());
  if (k > 0) {
    comm::Work indices_work = all_gather(group, all_indices.view({-1}), chosen.to(at::kInt));
    all_gather(group, all_values.view({-1}), values).wait();
    indices_work.wait();
  }
  const FlatRange out = output_range(request);
  const at::Tensor sum = at::zeros({out.numel}, values.options());
  const at::Tensor bounds = at::tensor({out.begin, out.begin + out.numel}, all_indices.options());
  for (std::int64_t r = 0; r < size; ++r) {  // in rank order: the same bits on every rank
    const at::Tensor ends = at::searchsorted(all_indices[r], bounds).cpu();
    const std::int64_t from = ends[0].item<std::int64_t>(), count = ends[1].item<std::int64_t>() - from;
    sum.index_add_(0, all_indices[r].narrow(0, from, count).to(at::kLong) - out.begin,
                   all_values[r].narrow(0, from, count));
  }
  request.output.copy_(sum.div_(divisor(request)));
  write_output(request, rest, exact.div(divisor(request)));
  return {};
}

std::vector<std::pair<std::string, at::Tensor>> TopKCompression::state() const {
  auto result = errors_.state();
  add_steps(result);
  return result;
}

void TopKCompression::restore(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  restore_steps(state);
  errors_.restore(state, steps());
}

}  // namespace tessera::parallel
