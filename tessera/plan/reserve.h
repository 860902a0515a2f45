#pragma once
/// \file
/// Internal to memory.cpp: of a rank on the CPU, what its tensors ask for, apart from what is resident besides.

#include <tessera/plan/memory.h>

#include <span>

namespace tessera::plan {

/// Bytes that tensors of all micro-batches in flight keep for backward: at most, when the loss is computed, and when
/// the backward of a micro-batch begins. Without a pipeline they are the same.
struct Kept {
  double most = 0, at_loss = 0, at_backward = 0;
};

/// `memory`: what is resident. `asked`: blocks without the allocator's rounding; `asked_kept`: what
/// they keep. Afterwards activations, head, communication and buffers are what
/// tensors ask for at the fullest moment of a step, and the difference is the reserve. `head`: what the loss needs for
/// a moment; 0: another rank computes it.
void split_reserve(Memory& memory, const Model& model, const Plan& run, const Elements& elements,
                   std::span<const layout::StagePart> parts, const BlockActivations asked[2], const Kept& asked_kept,
                   double head);

}  // namespace tessera::plan
