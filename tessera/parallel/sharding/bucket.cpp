#include <tessera/parallel/sharding/bucket.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/layout/flat.h>

namespace tessera::parallel {
namespace {

std::vector<layout::Parameter> to_layout(std::span<const NamedTensor> parameters) {
  std::vector<layout::Parameter> result;
  for (const NamedTensor& p : parameters)
    result.push_back({p.name, p.tensor.sizes().vec(), static_cast<std::int64_t>(p.tensor.element_size())});
  return result;
}

/// A gradient's place in the flat buffer, in the parameter's memory order when that is dense (channels-last weights),
/// as autograd lays gradients out.
at::Tensor view_of(const at::Tensor& flat, const at::Tensor& parameter, const layout::Segment& segment) {
  if (parameter.is_non_overlapping_and_dense())
    return flat.as_strided(parameter.sizes(), parameter.strides(), segment.offset);
  return flat.narrow(0, segment.offset, segment.numel).view(parameter.sizes());
}

}  // namespace

std::vector<std::vector<std::size_t>> assign(std::span<const NamedTensor> parameters,
                                             std::span<const std::size_t> order, std::int64_t first_bucket_bytes,
                                             std::int64_t bucket_bytes) {
  std::vector<std::vector<std::size_t>> result;
  // The layout knows element sizes, not dtypes: float16 and bfloat16 may still share a list, but never a bucket.
  for (const auto& list : layout::assign_buckets(to_layout(parameters), order, first_bucket_bytes, bucket_bytes)) {
    std::vector<at::ScalarType> dtypes;
    const std::size_t base = result.size();
    for (const std::size_t i : list) {
      const at::ScalarType dtype = parameters[i].tensor.scalar_type();
      const auto place = static_cast<std::size_t>(std::find(dtypes.begin(), dtypes.end(), dtype) - dtypes.begin());
      if (place == dtypes.size()) {
        dtypes.push_back(dtype);
        result.emplace_back();
      }
      result[base + place].push_back(i);
    }
  }
  return result;
}

std::vector<Bucket> make_buckets(const comm::Group& group, std::span<const NamedTensor> parameters,
                                 const std::vector<std::vector<std::size_t>>& assignment, bool fixed_order) {
  const at::NoGradGuard no_grad;
  // Below autograd's view tracking: a tracked view would refuse the detach_() of Optimizer::zero_grad().
  const at::AutoDispatchBelowADInplaceOrView untracked;
  const std::vector<layout::Parameter> described = to_layout(parameters);
  std::vector<Bucket> buckets;
  for (const std::vector<std::size_t>& list : assignment) {
    const layout::FlatLayout flat = layout::make_flat_layout(described, list, 1);
    const auto count = static_cast<std::int64_t>(list.size());
    Bucket bucket;
    bucket.parameters = list;
    const auto options = at::TensorOptions(parameters[list.front()].tensor.options()).requires_grad(std::nullopt);
    bucket.flat = comm::zeros_shared(group, {flat.padded + 2 * count}, options);
    bucket.tail = bucket.flat.narrow(0, flat.padded, 2 * count);
    for (const layout::Segment& segment : flat.segments) {
      const at::Tensor& parameter = parameters[segment.parameter].tensor;
      bucket.views.push_back(view_of(bucket.flat, parameter, segment));
      bucket.segments.push_back({parameter.sizes().vec(), segment.offset, segment.numel});
    }
    if (fixed_order) {
      bucket.sum = comm::zeros_shared(group, bucket.flat.sizes(), options);
      bucket.sum_tail = bucket.sum.narrow(0, flat.padded, 2 * count);
      for (const layout::Segment& segment : flat.segments)
        bucket.sum_views.push_back(view_of(bucket.sum, parameters[segment.parameter].tensor, segment));
    }
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

}  // namespace tessera::parallel
