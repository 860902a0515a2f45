#pragma once
/// \file
/// Defines where a model is cut for a pipeline. A model is a chain of embeddings, blocks 0 .. n - 1, and an end (last
/// norm, head, loss); a stage is a contiguous piece of it. A block may also be cut between its attention and its MLP,
/// where only the residual stream passes. Depths of multi-token prediction belong to the end, whose norm and head they
/// use. Pure arithmetic.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

/// A piece of the chain. An empty piece passes its input on.
struct StagePart {
  bool embeddings = false;       ///< holds the layers before the blocks; the first stage
  bool end = false;              ///< holds the layers after the blocks; the last stage
  std::int64_t first_block = 0;  ///< blocks [first_block, first_block + blocks)
  std::int64_t blocks = 0;       ///< number of blocks, including those that it holds only half of
  bool begins_inside = false;    ///< the first block's attention is in an earlier stage
  bool ends_inside = false;      ///< the last block's MLP is in a later stage

  std::int64_t past_block() const { return first_block + blocks; }  ///< first block after this piece
  /// Whether it holds a block's attention, or its MLP.
  bool attention_of(std::int64_t block) const {
    return block >= first_block + (begins_inside ? 1 : 0) && block < past_block();
  }
  bool mlp_of(std::int64_t block) const { return block >= first_block && block < past_block() - (ends_inside ? 1 : 0); }
  /// Number of attention layers in this part, and of MLPs.
  std::int64_t attentions() const { return blocks - (begins_inside ? 1 : 0); }
  std::int64_t mlps() const { return blocks - (ends_inside ? 1 : 0); }
  bool operator==(const StagePart&) const = default;
};
/// "embeddings, blocks 0-3", "MLP of block 4, blocks 5-7, end", "nothing".
std::string text_of(const StagePart& part);

/// Consecutive stages with the given numbers of half blocks (attention, MLP, attention, ...). Throws InputError for an
/// empty list, negative numbers, or an odd sum.
std::vector<StagePart> parts_of_halves(const std::vector<std::int64_t>& halves);
/// Whether any block is cut.
bool cuts_blocks(const std::vector<StagePart>& parts);
/// The same stages, but each cut block belongs wholly to the stage with its attention: for code that counts blocks.
std::vector<StagePart> with_whole_blocks(std::vector<StagePart> parts);

/// The costs of a chain, in any unit (FLOP, bytes, seconds).
struct ChainCosts {
  std::vector<double> blocks;      ///< one per block, finite, >= 0
  double embeddings = 0, end = 0;  ///< layers before and after the blocks
};

/// Returns the cost of every part.
std::vector<double> costs_of(const std::vector<StagePart>& parts, const ChainCosts& costs);

/// Distributes blocks as evenly as possible, counting embeddings and end as the given numbers of blocks (torchtitan's
/// "less layers": 1 each by default; 0: only blocks count). Earlier stages get the remainder. Throws InputError for
/// fewer than one stage, and for numbers beyond most_blocks_in_layout and most_stages_in_layout.
std::vector<StagePart> cut_evenly(std::int64_t blocks, int stages, double embeddings_as = 0, double end_as = 0);

/// The cut that minimizes the cost of the most expensive stage; among equals, the one with fuller earlier stages (the
/// last ones may be empty). Time O(blocks^2 stages), memory O(blocks stages). Throws InputError for fewer than one
/// stage, and for costs that are negative or not finite.
std::vector<StagePart> cut_by_cost(const ChainCosts& costs, int stages);

/// The same for ranks with several stages: stage s is on rank rank_of[s], and the costs of a rank's stages add up
/// because it runs them one after another. Minimizes the load of the most loaded rank; among cuts within
/// balance_tolerance of that, minimizes the most expensive stage (a pipeline fills and drains stage by stage) and evens
/// out the others. With two stages per rank, in a looped or V-shaped placement (Placement), this is exact, in time
/// O(blocks^3 ranks) at most. For other placements of several stages, a local search starts from the cut above; the
/// result is never worse than that cut, but rarely optimal. Throws InputError as above, for a negative rank, and for a
/// rank without a stage.
std::vector<StagePart> cut_by_cost(const ChainCosts& costs, const std::vector<int>& rank_of);
/// Measured costs vary by this fraction, and unequal stages lose more than this while a pipeline fills and drains.
inline constexpr double balance_tolerance = 0.05;

/// Limits of a layout, so that nested repeats stay small.
inline constexpr std::int64_t most_blocks_in_layout = 65536;
inline constexpr std::int64_t most_stages_in_layout = 65536;
inline constexpr std::int64_t most_depths_in_layout = 16;
inline constexpr std::int64_t any_blocks = -1, any_depths = -1;  ///< for parse_stage_layout()

/// Megatron-LM's layout string (--pipeline-model-parallel-layout): E embeddings, t a block, L the end (loss), | between
/// stages; xN or *N repeats the letter or bracket before it; commas and blanks are ignored: "Et*3|(tt|)*2t|L". In
/// addition to Megatron's letters: a, a block's attention, and f, the MLP that follows it: "Etta|ft|L"; and m, a depth
/// of multi-token prediction, in the last stage after all blocks: "Ett|tmL". Checks that there are `blocks` blocks
/// (any_blocks: any) and `stages` stages (0: any), E first, L last, once each, and as many m as the model has `depths`
/// (any_depths: any), or none: depths are in the last stage whether or not the layout names them. Throws InputError
/// with the column, counted from 1.
std::vector<StagePart> parse_stage_layout(std::string_view text, std::int64_t blocks, int stages,
                                          std::int64_t depths = any_depths);
/// A layout string in Megatron-LM's form.
struct MegatronLayout {
  std::vector<StagePart> parts;  ///< the stages
  std::int64_t depths = 0;       ///< number of m
  bool moved = false;            ///< every m is in the stage before the one with L
};
/// The same by Megatron-LM's own rule, where m may also be in the second-to-last stage if L is alone in the last one
/// ("Ett|m|L"). Tessera puts the depths in the last stage: stage_layout(parts, depths) gives that layout.
MegatronLayout parse_megatron_layout(std::string_view text, std::int64_t blocks, int stages);
/// Words accepted in place of a layout string: the cut that minimizes the time of the run's schedule by the model's
/// FLOP (schedule/cut.h), only between blocks, or also between halves of blocks.
inline constexpr std::string_view layout_by_flops = "flops", layout_by_half_blocks = "half_blocks";
inline bool is_layout_word(std::string_view text) { return text == layout_by_flops || text == layout_by_half_blocks; }
/// The inverse of stage_layout(), without brackets: "Et*3|tt|ta|f|L", with `depths` m before L. Parses back to the same
/// parts if these form a chain.
std::string stage_layout(const std::vector<StagePart>& parts, std::int64_t depths = 0);

/// Builds parts from the index of the first block of every stage but the first: {4, 8, 12}; an index may repeat (an
/// empty stage), and `blocks` means the end alone. Throws InputError unless ascending within [0, blocks].
std::vector<StagePart> cut_before(const std::vector<std::int64_t>& first_blocks, std::int64_t blocks);

}  // namespace tessera::layout
