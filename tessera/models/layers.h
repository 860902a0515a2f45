#pragma once
/// \file
/// The modules that models are made of: parameters with Hugging Face's names, nothing else. Parameters are made
/// uninitialised.

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

namespace tessera::models {

/// GPT-2's linear map: weight [in, out], bias [out].
struct Conv1D : torch::nn::Module {
  Conv1D(std::int64_t in, std::int64_t out);
  at::Tensor weight, bias;
};

/// Layer normalisation: weight [C], bias [C].
struct LayerNorm : torch::nn::Module {
  LayerNorm(std::int64_t size, double eps);
  at::Tensor weight, bias;
  double eps;
};

/// A table: weight [rows, columns].
struct Table : torch::nn::Module {
  Table(std::int64_t rows, std::int64_t columns);
  at::Tensor weight;
};

/// Fills with N(0, std) from a generator keyed by (seed, name): the same values in any order, on any number of threads
/// and ranks.
void normal_by_name(at::Tensor& tensor, double std, std::uint64_t seed, const std::string& name);

}  // namespace tessera::models
