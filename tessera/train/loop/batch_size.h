#pragma once
/// \file
/// --auto_find_batch_size: a smaller micro-batch where one does not fit into memory. transformers halves the batch per
/// device and starts again; here the micro-batches become more as they become smaller, so that a step takes the same
/// rows and the run computes the same. It is found before the first step, with rows of the greatest length.

#include <tessera/comm/group.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

/// Whether an exception says that memory ran out: std::bad_alloc, LibTorch's and oneDNN's complaints, our own.
bool is_out_of_memory(const std::exception& error);

/// Runs `probe` on every rank; false, everywhere, when memory ran out anywhere. `probe` must not be collective. Any
/// other error is thrown as run_on_all_ranks() does. Collective.
bool fits_everywhere(const comm::Group& group, const std::function<void()>& probe);

/// per_device_train_batch_size becomes its greatest part of at most half that divides the rows of a step per process,
/// and gradient_accumulation_steps what is missing. Returns what happened, for people. Throws Error at one row: nothing
/// smaller is left.
std::string halve_batch_size(OptimizationConfig& config);

/// Throws InputError where one rank that runs out of memory would leave others waiting in a collective: strategies that
/// divide gradients or parameters over several processes (`ranks` of one stage); and with deterministic_reduce, where
/// the micro-batches decide the bits.
void check_automatic_batch_size(const RunConfig& config, std::int64_t ranks);

}  // namespace tessera::train
