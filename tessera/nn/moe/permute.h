#pragma once
/// \file
/// Permutes rows of tokens into the order of their experts, and back.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::nn {

/// Slots n k + j (the j-th expert of token n) sorted by expert; slots of one expert stay in token order. R <= N k slots
/// take part: those whose id is not -1.
struct Permutation {
  at::Tensor order;     ///< int64 [R]: the slot of each row; -1: a row of zeros, after the others of its expert
  at::Tensor inverse;   ///< int64 [N, k]: the row of each slot; -1: dropped
  at::Tensor counts;    ///< int64 [E]: rows of each expert
  at::Tensor ends;      ///< int32 [E]: the end of each expert's rows; undefined on the CPU
  at::Tensor known;     ///< counts on the CPU, if the host knows them
  bool padded = false;  ///< rows of zeros are possible
};

/// `counts` on the CPU. If the host does not know them, it waits for the device.
at::Tensor host_counts(const Permutation& permutation);

/// ids int64 [N, k]; all tensors of the result except `known` are on their device. `padded_to` > 0: each expert has
/// min(padded_to, N) rows, whatever its load, so that sizes are the same in every step. `complete`: the caller knows
/// that no id is -1. On the CPU it throws Error for an id outside [-1, experts), and for an expert chosen by more
/// slots; a CUDA device traps (kernels/cuda/slots.h). The host waits for the device unless `complete` or padded, since
/// it must know the number of rows.
Permutation permutation_of(const at::Tensor& ids, std::int64_t experts, std::int64_t padded_to = 0,
                           bool complete = false);

/// x [N, C] -> rows [R, C], where row r is the token of slot order[r], or zeros. Gradients of a token's rows are summed
/// in slot order.
at::Tensor permute(const at::Tensor& x, const Permutation& permutation);

/// rows [R, C], weights [N, k] -> [N, C]: sum over a token's slots, in order, of weight times row. A token whose slots
/// were all dropped gets zeros.
at::Tensor unpermute(const at::Tensor& rows, const Permutation& permutation, const at::Tensor& weights);

}  // namespace tessera::nn
