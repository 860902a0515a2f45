#pragma once
/// \file
/// Rotary position embeddings and their extensions to longer contexts, read as in transformers/modeling_rope_utils.py.
/// (models/rope.h computes the frequencies.)

#include <tessera/base/value.h>

#include <cstdint>
#include <vector>

namespace tessera::architectures {

/// Rotary position embeddings (Su et al. 2021), and their scaling to longer sequences (transformers,
/// modeling_rope_utils.py).
struct Rope {
  enum class Type { standard, linear, dynamic, yarn, llama3, longrope };  ///< rope_type
  Type type = Type::standard;                                             ///< how frequencies are scaled
  double theta = 10000;                                                   ///< base of the frequencies
  std::int64_t dim = 0;                     ///< leading elements of each head that are rotated: all D, or fewer
  std::int64_t max_positions = 0;           ///< max_position_embeddings
  double factor = 1;                        ///< factor by which sequences are extended
  std::int64_t original_max_positions = 0;  ///< yarn, llama3, longrope
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  double attention_factor = 1;                       ///< yarn, longrope: factor of cosines and sines
  double score_factor = 1;                           ///< yarn: factor of scores, if any (DeepSeek)
  bool truncate = true;                              ///< yarn: round the limits of the ramp to whole dimensions
  /// longrope: divisors of each frequency, up to original_max_positions and beyond it.
  std::vector<double> short_factors = {}, long_factors = {};
  bool stretched = false;  ///< linear, dynamic: max_positions is already the extended length (Gemma 3)

  /// Maximum tokens of a sequence: linear and dynamic scaling multiply max_position_embeddings by their factor; for the
  /// other types it is already the extended length.
  std::int64_t longest_sequence() const;
};

/// Reads `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (5). Throws InputError
/// "file:line:column: ..." for an unknown type, a missing or invalid number, partial rotation.
Rope parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions);

/// Reads one object of rope parameters (null: absent), for families that have several or rotate only a part of each
/// head. `known`: values that the caller provides: dim (already the rotated part), max_positions, default theta.
/// `json`: the whole configuration, which may contain original_max_position_embeddings.
Rope read_rope(const Value& json, const Value* rope, Rope known);

/// Keys and defaults that differ between families.
struct RopeKeys {
  double theta = 10000;                            ///< default
  double part = 1;                                 ///< default share of each head that is rotated
  const char* theta_key = "rope_theta";            ///< a member next to the rope parameters
  const char* part_key = "partial_rotary_factor";  ///< a member next to the rope parameters, or one of them
};
/// parse_rope() for a family that rotates a part of each head, or has its own keys or defaults.
Rope parse_rope(const Value& json, std::int64_t head_size, std::int64_t max_positions, const RopeKeys& keys);

/// Returns the number of elements in the share `part` of a head of `head_size`. Throws InputError, naming `key` at
/// `where`, if it is odd.
std::int64_t rotated_numbers(const Value& where, const char* key, double part, std::int64_t head_size);

}  // namespace tessera::architectures
