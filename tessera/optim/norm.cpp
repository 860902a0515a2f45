#include <tessera/optim/norm.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/block_squares.h>
#include <tessera/nn/parallel_for.h>
#include <tessera/optim/block_sums.h>
#include <tessera/optim/device_kernels.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace tessera::optim {
namespace {

using kernels::square_block;

constexpr std::int64_t chunk_numel = 1 << 15;  // 512 sums: small enough for the cache, large relative to the overhead
                                               // of a task

void check(const GradientPiece& piece) {
  const at::Tensor& g = piece.gradient;
  if (g.layout() != at::kStrided || !at::isFloatingType(g.scalar_type()))
    throw InputError(concat("gradient_norm: a gradient is ", c10::toString(g.scalar_type()), " in layout ", g.layout(),
                            "; only dense floating-point gradients are supported"));
  TESSERA_CHECK(g.numel() == 0 || (piece.begin >= 0 && piece.begin % square_block == 0),
                "gradient_norm: a piece begins at element ", piece.begin, "; shards must be cut at multiples of ",
                square_block);
}

using OnDevice = std::vector<at::Tensor>;

bool has_kernel(const at::Tensor& gradient) {
  return gradient.is_cuda() && (gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kBFloat16);
}

/// Adds the squares of gradients for which has_kernel() is true to words [exact_words] on their device.
void add_squares(const OnDevice& gradients, const at::Tensor& words) {
  const c10::DeviceGuard guard(words.device());
  for (const auto& [type, real] :
       {std::pair(at::kFloat, kernels::cuda::Real::float32), std::pair(at::kBFloat16, kernels::cuda::Real::bfloat16)}) {
    std::vector<kernels::cuda::SquareRange> ranges;
    for (const at::Tensor& g : gradients)
      if (g.scalar_type() == type) ranges.push_back({g.const_data_ptr(), g.numel()});
    if (!ranges.empty()) device_kernels().add_exact_squares(ranges, real, words.data_ptr<std::int64_t>());
  }
}

at::Tensor zero_words(c10::Device device) {
  return at::zeros({kernels::exact_words}, at::TensorOptions(at::kLong).device(device));
}

/// Returns the sum over gradients on one device. The host waits once for the kernel's result, and once for the sums
/// without a kernel.
ExactSum sum_on_device(const OnDevice& gradients) {
  ExactSum total;
  OnDevice read, block_sums;
  for (const at::Tensor& g : gradients) {
    if (has_kernel(g))
      read.push_back(g);
    else
      block_sums.push_back(block_squares_of(g));
  }
  if (!block_sums.empty()) {
    const at::Tensor here = at::cat(block_sums).cpu();
    total.add(std::span<const double>(here.const_data_ptr<double>(), static_cast<std::size_t>(here.numel())));
  }
  if (!read.empty()) {
    const at::Tensor words = zero_words(read.front().device());
    add_squares(read, words);
    const at::Tensor here = words.cpu();
    total.merge(ExactSum::of_words({here.const_data_ptr<std::int64_t>(), kernels::exact_words}));
  }
  return total;
}

}  // namespace

ExactSum squares_of(const std::vector<GradientPiece>& pieces) {
  const at::NoGradGuard no_grad;
  struct Chunk {
    const at::Tensor* gradient;
    std::int64_t begin, numel;
  };
  std::vector<at::Tensor> gradients;
  std::map<std::string, OnDevice> elsewhere;  // by device
  for (const GradientPiece& piece : pieces) {
    if (!piece.gradient.defined()) continue;
    check(piece);
    const at::Tensor g = piece.gradient.contiguous();
    if (g.numel() == 0) continue;
    if (!g.is_cpu())
      elsewhere[g.device().str()].push_back(g);
    else
      gradients.push_back(g.scalar_type() == at::kFloat || g.scalar_type() == at::kDouble ? g : g.to(at::kFloat));
  }
  std::vector<Chunk> chunks;
  for (const at::Tensor& g : gradients)
    for (std::int64_t begin = 0; begin < g.numel(); begin += chunk_numel)
      chunks.push_back({&g, begin, std::min(chunk_numel, g.numel() - begin)});
  ExactSum total;
  std::mutex mutex;
  nn::parallel_for(0, static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t first, std::int64_t last) {
    ExactSum part;
    double sums[chunk_numel / square_block];
    for (std::int64_t i = first; i < last; ++i) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(i)];
      if (chunk.gradient->scalar_type() == at::kFloat)
        kernels::block_squares(chunk.gradient->const_data_ptr<float>() + chunk.begin, chunk.numel, sums);
      else
        block_squares(chunk.gradient->const_data_ptr<double>() + chunk.begin, chunk.numel, sums);
      part.add(
          std::span<const double>(sums, static_cast<std::size_t>((chunk.numel + square_block - 1) / square_block)));
    }
    const std::lock_guard lock(mutex);
    total.merge(part);
  });
  for (const auto& [device, on_device] : elsewhere) total.merge(sum_on_device(on_device));
  return total;
}

double gradient_norm(const std::vector<GradientPiece>& pieces, const AllReduceWords& all_reduce) {
  ExactSum sum = squares_of(pieces);
  if (all_reduce) {
    std::vector<std::int64_t> words = sum.words();
    all_reduce(words);
    sum = ExactSum::of_words(words);
  }
  return std::sqrt(sum.value());
}

double gradient_norm(const std::vector<at::Tensor>& gradients) {
  std::vector<GradientPiece> pieces;
  for (const at::Tensor& gradient : gradients) pieces.push_back({gradient, 0});
  return gradient_norm(pieces, {});
}

double clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient >= 1 ? 1 : coefficient;  // keeps a NaN norm visible
}

at::Tensor squares_on_device(const std::vector<GradientPiece>& pieces, c10::Device device) {
  const at::NoGradGuard no_grad;
  OnDevice gradients;
  for (const GradientPiece& piece : pieces) {
    if (!piece.gradient.defined() || piece.gradient.numel() == 0) continue;
    check(piece);
    TESSERA_CHECK(has_kernel(piece.gradient) && piece.gradient.device() == device, "squares_on_device: a gradient is ",
                  c10::toString(piece.gradient.scalar_type()), " on ", piece.gradient.device().str(),
                  ", not float32 or bfloat16 on ", device.str());
    gradients.push_back(piece.gradient.contiguous());
  }
  const at::Tensor words = zero_words(device);
  add_squares(gradients, words);
  const c10::DeviceGuard guard(device);
  device_kernels().carry_words(words.data_ptr<std::int64_t>());
  return words;
}

at::Tensor step_scalars(const at::Tensor& words, double max_norm) {
  const c10::DeviceGuard guard(words.device());
  static_assert(sizeof(kernels::cuda::StepScalars) == 2 * sizeof(double));
  const at::Tensor scalars = at::empty({2}, words.options().dtype(at::kDouble));
  device_kernels().form_step_scalars(words.const_data_ptr<std::int64_t>(), max_norm,
                                     static_cast<kernels::cuda::StepScalars*>(scalars.data_ptr()));
  return scalars;
}

}  // namespace tessera::optim
