#pragma once
/// \file
/// Internal to memory.cpp: for a rank on the CPU, separates the memory of its tensors from other resident memory.

#include <tessera/plan/memory.h>

#include <span>

namespace tessera::plan {

/// Bytes that the tensors of all micro-batches in flight keep for backward: at the peak, when the loss is computed, and
/// when the backward of a micro-batch begins. Without a pipeline, all three are equal.
struct Kept {
  double most = 0, at_loss = 0, at_backward = 0;
};

/// `memory`: resident bytes. `asked`: blocks without the allocator's rounding; `asked_kept`: the bytes they keep.
/// Afterwards activations, head, communication and buffers are the bytes of tensors at the peak of a step, and the
/// difference is the reserve. `head`: temporary bytes of the loss; 0: another rank computes it.
void split_reserve(Memory& memory, const Model& model, const Plan& run, const Elements& elements,
                   std::span<const layout::StagePart> parts, const BlockActivations asked[2], const Kept& asked_kept,
                   double head);

}  // namespace tessera::plan
