#pragma once
/// \file
/// Rows of tokens in the order of the experts that they go to, and back.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::nn {

/// Slots n k + j (the j-th expert of token n) in the order of their experts; slots of one expert stay in the order of
/// tokens. R <= N k slots take part: those whose id is not -1.
struct Permutation {
  at::Tensor order;     ///< int64 [R]: the slot of each row; -1: a row of zeros, behind the others of its expert
  at::Tensor inverse;   ///< int64 [N, k]: the row of each slot; -1: dropped
  at::Tensor counts;    ///< int64 [E]: rows of each expert
  at::Tensor ends;      ///< int32 [E]: where the rows of each expert end; undefined on the CPU
  at::Tensor known;     ///< counts on the CPU, where the host knows them
  bool padded = false;  ///< there may be rows of zeros
};

/// `counts` on the CPU. Where the host does not know them it waits for the device.
at::Tensor host_counts(const Permutation& permutation);

/// ids int64 [N, k]; all tensors of the result but `known` are on their device. `padded_to` > 0: each expert has that
/// many rows, or N if they are fewer, whatever was chosen, so that sizes are the same in every step. `complete`: the
/// caller knows that no id is -1. On the CPU it throws Error for an id outside [-1, experts), and for an expert that is
/// wanted by more; a CUDA device stops (kernels/cuda/slots.h). The host waits for a device unless `complete` or padded:
/// it must know how many rows there are.
Permutation permutation_of(const at::Tensor& ids, std::int64_t experts, std::int64_t padded_to = 0,
                           bool complete = false);

/// x [N, C] -> rows [R, C], row r being the token of slot order[r], or zeros. Gradients of a token's rows are summed in
/// the order of its slots.
at::Tensor permute(const at::Tensor& x, const Permutation& permutation);

/// rows [R, C], weights [N, k] -> [N, C]: sum over a token's slots, in their order, of weight times row. A token all of
/// whose slots were dropped gets zeros.
at::Tensor unpermute(const at::Tensor& rows, const Permutation& permutation, const at::Tensor& weights);

}  // namespace tessera::nn
