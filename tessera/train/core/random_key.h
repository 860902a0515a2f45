#pragma once
/// \file
/// Random numbers of a micro-batch (dropout) depend on what is computed, not on which rank computes it or what ran
/// before: they are keyed by (seed, step, first row), so a resumed run draws the same numbers as an uninterrupted one.

#include <c10/core/Device.h>

#include <cstdint>

namespace tessera::train {

/// Mixes the parts into 64 well-spread bits (splitmix64, Steele, Lea & Flood 2014).
std::uint64_t random_key(std::uint64_t seed, std::int64_t step, std::int64_t first_row);

/// Sets the device's default generator to random_key(...).
void key_random_numbers(c10::Device device, std::uint64_t seed, std::int64_t step, std::int64_t first_row);

}  // namespace tessera::train
