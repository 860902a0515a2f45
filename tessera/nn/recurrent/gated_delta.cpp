#include <tessera/nn/recurrent/gated_delta.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::nn {
namespace {

constexpr std::int64_t piece = 64;

/// x [B, T, H, ...] -> fp32 [B, H, N, C, ...], padded with zeros, i.e. tokens that neither write nor decay.
at::Tensor in_pieces(const at::Tensor& x, std::int64_t length) {
  const std::int64_t missing = (length - x.size(1) % length) % length;
  std::vector<std::int64_t> pad(static_cast<std::size_t>(2 * (x.dim() - 1)), 0);
  pad.back() = missing;
  const at::Tensor full = missing > 0 ? at::constant_pad_nd(x.to(at::kFloat), pad) : x.to(at::kFloat);
  return full.transpose(1, 2).unflatten(2, {full.size(1) / length, length}).contiguous();
}

}  // namespace

at::Tensor gated_delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decays,
                            const at::Tensor& strengths) {
  const std::int64_t tokens = q.size(1), length = std::min(piece, std::max<std::int64_t>(tokens, 1));
  const at::Tensor queries = in_pieces(q, length) * (1 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor keys = in_pieces(k, length), values = in_pieces(v, length);
  const at::Tensor strength = in_pieces(strengths, length).unsqueeze(-1);  // [B, H, N, C, 1]
  const at::Tensor faded = in_pieces(decays, length).cumsum(3);  // [B, H, N, C]: log decay since the start of the piece
  const at::Tensor since = faded.unsqueeze(-1), all = faded.slice(3, length - 1).unsqueeze(-1);
  // The remaining share of a token's write when a later token reads it: [B, H, N, C (reads), C (wrote)].
  const at::Tensor between = (since - faded.unsqueeze(-2)).tril().exp().tril();
  // Within a piece a token writes the difference that remains after the writes before it: (I + L) w = s v, L strictly
  // lower.
  const at::Tensor written_keys = keys * strength;
  const at::Tensor lower = at::matmul(written_keys, keys.transpose(-1, -2)) * between;
  const at::Tensor right = at::cat({values * strength, written_keys * since.exp()}, -1);
  const at::Tensor solved =
      at::linalg_solve_triangular(lower, right, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  const at::Tensor alone = solved.slice(-1, 0, v.size(3)), of_memory = solved.slice(-1, v.size(3));
  const at::Tensor scores = at::matmul(queries, keys.transpose(-1, -2)) * between;
  const at::Tensor fading_queries = queries * since.exp(), fading_keys = keys * (all - since).exp();
  at::Tensor memory = at::zeros({q.size(0), q.size(2), q.size(3), v.size(3)}, queries.options());
  std::vector<at::Tensor> read;
  for (std::int64_t i = 0; i < queries.size(2); ++i) {
    const at::Tensor writes = alone.select(2, i) - at::matmul(of_memory.select(2, i), memory);
    read.push_back(at::matmul(fading_queries.select(2, i), memory) + at::matmul(scores.select(2, i), writes));
    memory = memory * all.select(2, i).exp() + at::matmul(fading_keys.select(2, i).transpose(-1, -2), writes);
  }
  return at::cat(read, 2).slice(2, 0, tokens).transpose(1, 2);
}

}  // namespace tessera::nn
