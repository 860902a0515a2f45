#include <tessera/parallel/sharding/pool.h>

#include <ATen/ATen.h>

#include <tessera/comm/shared_memory.h>

#include <algorithm>

namespace tessera::parallel {
namespace {

std::int64_t bytes_of(std::int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<std::int64_t>(c10::elementSize(dtype));
}

}  // namespace

void BufferPool::announce(std::int64_t numel, at::ScalarType dtype, BufferUse use) {
  shelf(use).largest = std::max(shelf(use).largest, bytes_of(numel, dtype));
}

at::Tensor BufferPool::take(std::int64_t numel, at::ScalarType dtype, BufferUse use) {
  Shelf& s = shelf(use);
  const std::int64_t bytes = bytes_of(numel, dtype);
  s.now += bytes;
  s.peak = std::max(s.peak, s.now);
  at::Tensor memory;
  if (const auto fit = s.free.lower_bound(bytes); fit != s.free.end() && fit->first <= 4 * bytes) {
    memory = std::move(fit->second);
    s.unused -= fit->first;
    s.free.erase(fit);
  } else {
    const std::int64_t limit = std::max(s.peak, 2 * s.largest) * 21 / 20;
    const std::int64_t common = std::max(s.largest, bytes);  // size that serves most of the units that follow
    const std::int64_t room = 4 * bytes >= s.largest && s.allocated + common <= limit ? common : bytes;
    while (!s.free.empty() && s.allocated + s.unused + room > limit) {
      s.unused -= s.free.begin()->first;
      s.free.erase(s.free.begin());
    }
    memory = comm::empty_shared(group_, {room}, at::TensorOptions(at::kByte).device(group_.device()));
  }
  s.allocated += memory.numel();
  return memory.narrow(0, 0, bytes).view(dtype);
}

void BufferPool::give(at::Tensor buffer, BufferUse use) {
  Shelf& s = shelf(use);
  s.now -= static_cast<std::int64_t>(buffer.nbytes());
  const auto all = static_cast<std::int64_t>(buffer.storage().nbytes());
  at::Tensor memory = at::empty({0}, buffer.options().dtype(at::kByte)).set_(buffer.storage(), 0, {all});
  s.allocated -= all;
  s.unused += all;
  s.free.emplace(all, std::move(memory));
}

std::int64_t BufferPool::unused() const {
  std::int64_t bytes = 0;
  for (const Shelf& s : shelves_) bytes += s.unused;
  return bytes;
}

}  // namespace tessera::parallel
