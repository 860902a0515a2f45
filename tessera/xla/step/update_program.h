#pragma once
/// \file
/// The program that ends a step: clipping and AdamW on this device's parts.

#include <tessera/xla/step/flat_units.h>

#include <string>
#include <vector>

namespace tessera::xla {

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101), as torch.optim.AdamW computes it.
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
};

struct UpdateOptions {
  int devices = 1;
  bool shard = true;
  double max_grad_norm = 0;  ///< 0: not clipped
  AdamWOptions adamw = {};
};

/// Arguments: for each trained unit its parameters, first and second moments and accumulated gradients (all donated);
/// scalars: learning rate, factor of the gradients (1 / micro-batches of all devices), 1 / (1 - beta1^t),
/// 1 / (1 - beta2^t). Results: the same without the scalars, gradients as zeros, and the gradients' norm before clipping.
std::string update_program(const std::vector<FlatUnit>& units, const UpdateOptions& options);

}  // namespace tessera::xla
