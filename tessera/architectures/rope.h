#pragma once
/// \file
/// Rotary positions and their extensions to longer contexts, as transformers/modeling_rope_utils.py reads them.
/// (models/rope.h computes their frequencies.)

#include <tessera/base/value.h>

#include <cstdint>
#include <vector>

namespace tessera::architectures {

/// Rotary position embeddings (Su et al. 2021), and how they are stretched over longer sequences (transformers,
/// modeling_rope_utils.py).
struct Rope {
  enum class Type { standard, linear, dynamic, yarn, llama3, longrope };  ///< rope_type
  Type type = Type::standard;                                             ///< how frequencies are stretched
  double theta = 10000;                                                   ///< base of the frequencies
  std::int64_t dim = 0;                     ///< numbers of each head that are rotated, its first: all D, or fewer
  std::int64_t max_positions = 0;           ///< max_position_embeddings
  double factor = 1;                        ///< by which sequences grow
  std::int64_t original_max_positions = 0;  ///< yarn, llama3, longrope
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  double attention_factor = 1;                       ///< yarn, longrope: of cosines and sines
  double score_factor = 1;                           ///< yarn: of scores, where they have one (DeepSeek)
  bool truncate = true;                              ///< yarn: whole dimensions as limits of the ramp
  /// longrope: divisors of each frequency, up to original_max_positions and beyond.
  std::vector<double> short_factors = {}, long_factors = {};
  bool stretched = false;  ///< linear, dynamic: max_positions is the stretched length already (Gemma 3)

  /// Tokens that a sequence may have: linear and dynamic scaling stretch max_position_embeddings by their factor; in
  /// the other types it is the stretched length already.
  std::int64_t longest_sequence() const;
};

/// Reads `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (5). Throws InputError
/// "file:line:column: ..." for another type, a missing or impossible number, partial rotation.
Rope parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions);

/// The same from one object of rope parameters (null: there is none), for families that have several, or rotate a part
/// of each head. `known`: the caller's values: dim (already the part), max_positions, theta where none is given.
/// `json`: the whole configuration, which may hold original_max_position_embeddings.
Rope read_rope(const Value& json, const Value* rope, Rope known);

/// The differences between the configurations of families.
struct RopeKeys {
  double theta = 10000;                            ///< where none is given
  double part = 1;                                 ///< share of each head that is rotated, where nothing is said
  const char* theta_key = "rope_theta";            ///< beside the rope's parameters
  const char* part_key = "partial_rotary_factor";  ///< there, or among them
};
/// parse_rope() of a family that rotates a part of each head, or has keys or defaults of its own.
Rope parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions, const RopeKeys& keys);

/// How many numbers of a head of `head_size` the share `part` is: even, or an InputError that names `key` at `where`.
std::int64_t rotated_numbers(const Value& where, const char* key, double part, std::int64_t head_size);

}  // namespace tessera::architectures
