#pragma once
/// \file
/// How tensor parallelism cuts the parameters of a module: a plan of name patterns in Hugging Face's vocabulary
/// (`base_model_tp_plan`, transformers/integrations/tensor_parallel.py), and which part of each a rank holds. Pure
/// arithmetic.

#include <tessera/layout/region.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::layout {

/// What a style says of a linear map y = x W + b (Megatron-LM, Shoeybi et al. 2019, section 3), of a table or a norm.
enum class TensorStyle {
  colwise,                         ///< outputs are cut: x is whole, y stays cut; b is cut with W
  colwise_gather_output,           ///< W is cut so, and y is gathered: whole for what follows; b is whole
  rowwise,                         ///< inputs are cut: x is cut already, the partial y are summed; b is whole
  rowwise_split_input,             ///< the same for a whole x, of which each rank takes its part
  embedding_rowwise,               ///< a table cut by rows (vocabulary): ids of other ranks give 0, the sum is whole
  sequence_parallel,               ///< a norm on a part of the sequence: whole, gradients are summed
  replicated_with_grad_allreduce,  ///< whole, used on cut activations (a norm of heads): gradients are summed
  replicated,                      ///< whole, the same everywhere: what no pattern names
};
std::string_view style_name(TensorStyle style);

/// How the parameters that a pattern names are cut.
struct TensorRule {
  std::string pattern;  ///< see matches()
  TensorStyle style;    ///< what is cut, and what is gathered or summed
  /// Outputs (columns) lie in so many equal blocks, each of which is cut: 3 in GPT-2's c_attn (q, k, v) and in
  /// MultiheadAttention's in_proj_weight, 2 in a packed gate_up_proj.
  int blocks = 1;
  /// What may not be cut through: heads per block; 0: single columns. Fewer heads than ranks: several ranks hold the
  /// same head, ranks must be a multiple then.
  std::int64_t heads = 0;
  bool transposed = false;  ///< the matrix is stored [in, out] (GPT-2's Conv1D), not [out, in] (torch::nn::Linear)
  /// The blocks are not equal: heads of each, all heads being as wide (queries, keys, values of a packed qkv_proj).
  /// Ranks must divide every one of them. Empty: `blocks` and `heads` say it.
  std::vector<std::int64_t> block_heads = {};
  bool whole_input = false;  ///< also in sequence parallelism its inputs are all tokens (a head after all of them came)
  /// > 0: only the ranks first_holder ... first_holder + holders - 1 have parts of it (an expert that lies on some of
  /// the ranks); the part of the others is empty.
  int first_holder = 0, holders = 0;
};

/// The first rule that matches a parameter counts; one that matches nothing is an error (parallel/tensor_parallel.h).
using TensorPlan = std::vector<TensorRule>;

/// Whether the pattern names the parameter `name` ("layers.3.mlp.up_proj.weight") or the module that has it
/// ("layers.3.mlp.up_proj"), or the end of one of them from a component on ("up_proj"). `*` stands for one component,
/// or for any characters of one ("norm*"); `|` separates patterns of which one is enough ("out|down").
bool matches(std::string_view pattern, std::string_view name);

/// A style by its name in transformers ("colwise_rep", "rowwise_rep", "replicated_with_grad_allreduce" ... of any
/// version), with "packed_colwise" for two blocks and "packed_colwise:N" for N; "packed_colwise_gather_output:3" is for
/// MultiheadAttention's in_proj. Throws InputError with the nearest.
TensorRule parse_rule(std::string pattern, std::string_view style);

/// The part of one parameter that a rank holds: columns or rows in `ranges`, ascending, along `dim`.
struct TensorPart {
  std::vector<std::int64_t> whole;                                 ///< shape of the parameter
  int dim = -1;                                                    ///< -1: all of it
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges = {};  ///< [begin, end) each; none: the part is empty
  int sharers = 1;      ///< consecutive ranks that hold this very part, because heads are fewer than ranks
  bool summed = false;  ///< it is whole, and ranks form parts of its gradient

  std::int64_t extent() const;              ///< along dim
  std::vector<std::int64_t> shape() const;  ///< the part's
};

/// Elements that lie in one box of the parameter and, in the same order, in one box of the part.
struct TensorBox {
  Region whole, own;  ///< boxes of the parameter's shape and of the part's
};
/// What elements [begin, end) of the flattened part are: one box for each range that they touch.
std::vector<TensorBox> boxes_of(const TensorPart& part, std::int64_t begin, std::int64_t end);

/// The part of rank `rank` of `ranks` of a matrix, a table [rows, C] or a vector (a bias, a norm's weight). Rows of a
/// table, and outputs that are gathered, need not divide evenly: rank r of n has [r V / n, (r + 1) V / n). Throws
/// InputError with name, rule, numbers and the ranks that would fit.
TensorPart tensor_part(const std::string& name, std::span<const std::int64_t> shape, const TensorRule& rule, int rank,
                       int ranks);

}  // namespace tessera::layout
