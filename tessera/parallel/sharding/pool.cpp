#include <tessera/parallel/sharding/pool.h>

#include <ATen/ATen.h>

#include <tessera/comm/shared_memory.h>

#include <algorithm>

namespace tessera::parallel {

at::Tensor BufferPool::take(std::int64_t numel, at::ScalarType dtype, BufferUse use) {
  at::Tensor buffer;
  if (auto& list = free_[{dtype, numel}]; !list.empty()) {
    buffer = std::move(list.back());
    list.pop_back();
    unused_ -= static_cast<std::int64_t>(buffer.nbytes());
  } else {
    buffer = comm::empty_shared(group_, {numel}, at::TensorOptions(dtype).device(group_.device()));
  }
  Count& count = counts_[static_cast<std::size_t>(use)];
  count.now += static_cast<std::int64_t>(buffer.nbytes());
  count.peak = std::max(count.peak, count.now);
  return buffer;
}

void BufferPool::give(at::Tensor buffer, BufferUse use) {
  const auto bytes = static_cast<std::int64_t>(buffer.nbytes());
  counts_[static_cast<std::size_t>(use)].now -= bytes;
  unused_ += bytes;
  free_[{buffer.scalar_type(), buffer.numel()}].push_back(std::move(buffer));
}

void BufferPool::reset_peaks() {
  for (Count& count : counts_) count.peak = count.now;
}

void BufferPool::trim() {
  free_.clear();
  unused_ = 0;
}

}  // namespace tessera::parallel
