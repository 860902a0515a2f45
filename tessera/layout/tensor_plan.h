#pragma once
/// \file
/// How tensor parallelism cuts the parameters of a module: a plan of name patterns in Hugging Face's vocabulary
/// (`base_model_tp_plan`, transformers/integrations/tensor_parallel.py), and each rank's part. Pure arithmetic.

#include <tessera/layout/region.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::layout {

/// How a linear map y = x W + b (Megatron-LM, Shoeybi et al. 2019, section 3), a table or a norm is divided.
enum class TensorStyle {
  colwise,                         ///< outputs are cut: x is whole, y stays cut; b is cut with W
  colwise_gather_output,           ///< W is cut by outputs, and y is gathered; b is whole
  rowwise,                         ///< inputs are cut: x is already cut, the partial y are summed; b is whole
  rowwise_split_input,             ///< the same with a whole x, of which each rank uses its part
  embedding_rowwise,               ///< a table cut by rows (vocabulary): ids of other ranks' rows give 0, and the sum
                                   ///< over ranks is complete
  sequence_parallel,               ///< a norm on a part of the sequence: whole; gradients are summed
  replicated_with_grad_allreduce,  ///< whole, used on cut activations (a norm of heads): gradients are summed
  replicated,                      ///< whole and identical on all ranks; default for parameters without a pattern
};
std::string_view style_name(TensorStyle style);

/// How the parameters that match a pattern are cut.
struct TensorRule {
  std::string pattern;  ///< see matches()
  TensorStyle style;    ///< how the parameter is cut, and which results are gathered or summed
  /// Outputs (columns) form this many equal blocks, each of which is cut: 3 in GPT-2's c_attn (q, k, v) and in
  /// MultiheadAttention's in_proj_weight, 2 in a packed gate_up_proj.
  int blocks = 1;
  /// Number of units per block that must not be split, such as heads; 0: columns are cut individually. With fewer heads
  /// than ranks, several ranks hold the same head, and the number of ranks must be a multiple.
  std::int64_t heads = 0;
  bool transposed = false;  ///< the matrix is stored [in, out] (GPT-2's Conv1D), not [out, in] (torch::nn::Linear)
  /// Unequal blocks: number of heads in each, all heads having the same width (queries, keys, values of a packed
  /// qkv_proj). The number of ranks must divide each entry. Empty: `blocks` and `heads` apply.
  std::vector<std::int64_t> block_heads = {};
  bool whole_input = false;  ///< its input has all tokens, even with sequence parallelism (a head after a gather)
  /// > 0: only ranks first_holder ... first_holder + holders - 1 have parts of it (an expert on some of the ranks); the
  /// parts of other ranks are empty.
  int first_holder = 0, holders = 0;
};

/// The first rule that matches a parameter applies; a rule that matches nothing is an error
/// (parallel/tensor_parallel.h).
using TensorPlan = std::vector<TensorRule>;

/// Whether the pattern matches the parameter `name` ("layers.3.mlp.up_proj.weight"), its module
/// ("layers.3.mlp.up_proj"), or a suffix of either that starts at a component ("up_proj"). `*` matches one component,
/// or any characters within one ("norm*"); `|` separates alternatives ("out|down").
bool matches(std::string_view pattern, std::string_view name);

/// Parses a style by its name in transformers ("colwise_rep", "rowwise_rep", "replicated_with_grad_allreduce" ... of
/// any version), with "packed_colwise" for two blocks and "packed_colwise:N" for N; "packed_colwise_gather_output:3" is
/// for MultiheadAttention's in_proj. Throws InputError with the nearest one.
TensorRule parse_rule(std::string pattern, std::string_view style);

/// A rank's part of one parameter: columns or rows in `ranges`, ascending, along `dim`.
struct TensorPart {
  std::vector<std::int64_t> whole;                                 ///< shape of the parameter
  int dim = -1;                                                    ///< -1: the whole parameter
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {};  ///< [begin, end) each; empty: the part is empty
  int sharers = 1;      ///< consecutive ranks with this same part, if there are fewer heads than ranks
  bool summed = false;  ///< the parameter is whole, and ranks compute partial gradients that are summed

  std::int64_t extent() const;              ///< size along dim
  std::vector<std::int64_t> shape() const;  ///< shape of the part
};

/// Elements that form a box of the parameter and a box of the part, in the same order.
struct TensorBox {
  Region whole, own;  ///< the two boxes with the same elements
};
/// Maps elements [begin, end) of the flattened part to the parameter: one box for each range that they touch.
std::vector<TensorBox> boxes_of(const TensorPart& part, std::int64_t begin, std::int64_t end);

/// Rank `rank`'s part (of `ranks`) of a matrix, a table [rows, C] or a vector (a bias, a norm's weight). Rows of a
/// table, and outputs that are gathered, need not divide evenly: rank r of n has [r V / n, (r + 1) V / n). Throws
/// InputError with name, rule, numbers and the ranks that would fit.
TensorPart tensor_part(const std::string& name, std::span<const std::int64_t> shape, const TensorRule& rule, int rank,
                       int ranks);

}  // namespace tessera::layout
