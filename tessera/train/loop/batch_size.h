#pragma once
/// \file
/// --auto_find_batch_size: uses a smaller micro-batch if one does not fit into memory. transformers halves the batch
/// per device and starts again; here smaller micro-batches become more micro-batches, so a step takes the same rows and
/// the run computes the same result. Determined before the first step, with rows of maximum length.

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

/// Whether an exception means that memory ran out: std::bad_alloc, errors of LibTorch and oneDNN, our own.
bool is_out_of_memory(const std::exception& error);

/// Runs `probe` on every rank; returns false everywhere if memory ran out on any rank. `probe` must not be collective.
/// Other errors are thrown as by run_on_all_ranks(). Collective.
bool fits_everywhere(const comm::Group& group, const std::function<void()>& probe);

/// Reduces per_device_train_batch_size to its largest value, at most half, that divides the rows of a step per process,
/// and raises gradient_accumulation_steps accordingly. Returns a message for the log. Throws Error if it is one row
/// already.
std::string halve_batch_size(OptimizationConfig& config);

/// Throws InputError if a rank that runs out of memory would leave others waiting in a collective, that is, for
/// strategies that divide gradients or parameters over several processes (`ranks` of one stage); and with
/// deterministic_reduce, where the division into micro-batches determines the bits of the result.
void check_automatic_batch_size(const RunConfig& config, std::int64_t ranks);

}  // namespace tessera::train
