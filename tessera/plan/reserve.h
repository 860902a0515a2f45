#pragma once
/// \file
/// Internal to memory.cpp: of a rank on the CPU, what its tensors ask for, apart from what is resident besides.

#include <tessera/plan/memory.h>

#include <span>

namespace tessera::plan {

/// `memory`: what is resident. `asked`: blocks without the allocator's rounding; `asked_kept`: bytes that tensors of
/// all micro-batches in flight keep for backward. Afterwards activations, head, communication and buffers are what
/// tensors ask for at the fullest moment of a step, and the difference is the reserve. `head`: what the loss needs for
/// a moment; 0: another rank computes it.
void split_reserve(Memory& memory, const Model& model, const Plan& run, const Elements& elements,
                   std::span<const layout::StagePart> parts, const BlockActivations asked[2], double asked_kept,
                   double head);

}  // namespace tessera::plan
