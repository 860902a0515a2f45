#pragma once
/// \file
/// Where a model is cut for a pipeline: a model is a chain of embeddings, blocks 0 .. n - 1, and an end (last norm,
/// head, loss); a stage is a contiguous piece of it. A block may be cut, too, between its attention and its MLP: only
/// the residual stream passes there. Depths of multi-token prediction are part of the end, whose norm and head they
/// need. Pure arithmetic.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

/// A piece of the chain. Empty ones are allowed: they hand their input on.
struct StagePart {
  bool embeddings = false;       ///< holds what comes before the blocks; the first stage's
  bool end = false;              ///< holds what comes after them; the last stage's
  std::int64_t first_block = 0;  ///< blocks [first_block, first_block + blocks)
  std::int64_t blocks = 0;       ///< how many, those counted that are only half its own
  bool begins_inside = false;    ///< its first block's attention is in an earlier stage
  bool ends_inside = false;      ///< its last block's MLP is in a later stage

  std::int64_t past_block() const { return first_block + blocks; }  ///< the first block that is not in it
  /// Whether it has a block's attention, and its MLP.
  bool attention_of(std::int64_t block) const {
    return block >= first_block + (begins_inside ? 1 : 0) && block < past_block();
  }
  bool mlp_of(std::int64_t block) const { return block >= first_block && block < past_block() - (ends_inside ? 1 : 0); }
  /// How many it has of each.
  std::int64_t attentions() const { return blocks - (begins_inside ? 1 : 0); }
  std::int64_t mlps() const { return blocks - (ends_inside ? 1 : 0); }
  bool operator==(const StagePart&) const = default;
};
/// "embeddings, blocks 0-3", "MLP of block 4, blocks 5-7, end", "nothing".
std::string text_of(const StagePart& part);

/// Stages of so many halves of blocks each (attention, MLP, attention, ...), one after the other. Throws InputError
/// for no stage, numbers below 0, and an odd sum.
std::vector<StagePart> parts_of_halves(const std::vector<std::int64_t>& halves);
/// Whether a block is cut.
bool cuts_blocks(const std::vector<StagePart>& parts);
/// The same stages, but each cut block is whole in the stage that has its attention: for what counts by blocks.
std::vector<StagePart> with_whole_blocks(std::vector<StagePart> parts);

/// What a chain costs, in any unit (FLOP, bytes, seconds).
struct ChainCosts {
  std::vector<double> blocks;      ///< one per block, finite, >= 0
  double embeddings = 0, end = 0;  ///< what comes before the blocks, and after them
};

/// What every part costs.
std::vector<double> costs_of(const std::vector<StagePart>& parts, const ChainCosts& costs);

/// As many blocks for each stage as can be, embeddings and end counted as so many blocks (torchtitan's "less layers":
/// 1 each is its default; 0: only blocks count). Earlier stages get what is left over. Throws InputError for fewer than
/// one stage, and for numbers beyond most_blocks_in_layout and most_stages_in_layout.
std::vector<StagePart> cut_evenly(std::int64_t blocks, int stages, double embeddings_as = 0, double end_as = 0);

/// The cut whose most expensive stage is cheapest; of several the one whose earlier stages are fuller (the last
/// ones may then be empty). Time O(blocks^2 stages), memory O(blocks stages). Throws InputError for fewer than one
/// stage, and for costs that are not finite or below 0.
std::vector<StagePart> cut_by_cost(const ChainCosts& costs, int stages);

/// The same where ranks have several stages: stage s is on rank rank_of[s], and a rank's stages together count, since
/// it does them one after another. The most loaded rank has as little as can be; of the cuts within balance_tolerance
/// of that, one whose most expensive stage is cheapest (a pipeline fills and drains stage by stage), and the others are
/// made alike. With two stages per
/// rank, placed in a loop or to and fro (Placement), that is exact, in time O(blocks^3 ranks) at most. Other placements
/// of several stages are searched for step by step, from the cut above on: never worse than that, seldom the best.
/// Throws InputError as above, and for a rank below 0 or of which there is no stage.
std::vector<StagePart> cut_by_cost(const ChainCosts& costs, const std::vector<int>& rank_of);
/// Costs that are measured vary by as much, and unequal stages lose more than that while a pipeline fills and drains.
inline constexpr double balance_tolerance = 0.05;

/// What a layout may have at most, so that a repeat of repeats stays small.
inline constexpr std::int64_t most_blocks_in_layout = 65536;
inline constexpr std::int64_t most_stages_in_layout = 65536;
inline constexpr std::int64_t most_depths_in_layout = 16;
inline constexpr std::int64_t any_blocks = -1, any_depths = -1;  ///< for parse_stage_layout()

/// Megatron-LM's layout string (--pipeline-model-parallel-layout): E embeddings, t a block, L the end (loss), | between
/// stages, xN or *N repeats the letter or bracket before it, commas and blanks mean nothing: "Et*3|(tt|)*2t|L". Beside
/// Megatron's letters there are a, a block's attention, and f, its MLP, which follows it: "Etta|ft|L"; and m, a
/// depth of multi-token prediction, which stands in the last stage behind all blocks: "Ett|tmL". Checks that there are
/// `blocks` blocks (any_blocks: any) and `stages` stages (0: any), E first, L last, once each, and as many m as the
/// model has `depths` (any_depths: any), or none: they are in the last stage whether or not the layout names them.
/// Throws InputError with the column, counted from 1.
std::vector<StagePart> parse_stage_layout(std::string_view text, std::int64_t blocks, int stages,
                                          std::int64_t depths = any_depths);
/// A layout string as Megatron-LM takes it.
struct MegatronLayout {
  std::vector<StagePart> parts;  ///< the stages
  std::int64_t depths = 0;       ///< how many m there are
  bool moved = false;            ///< they stand in the stage before that of L
};
/// The same for Megatron-LM's own rule, by which m may also stand in the stage before the last one, where L is alone
/// then ("Ett|m|L"). Here its depths are in the last stage: stage_layout(parts, depths) says where that is.
MegatronLayout parse_megatron_layout(std::string_view text, std::int64_t blocks, int stages);
/// Words that may stand where a layout string does: the cut with which the run's schedule takes the shortest time by
/// the model's FLOP (schedule/cut.h), between blocks only, or also between the halves of blocks.
inline constexpr std::string_view layout_by_flops = "flops", layout_by_half_blocks = "half_blocks";
inline bool is_layout_word(std::string_view text) { return text == layout_by_flops || text == layout_by_half_blocks; }
/// The same string back, without brackets: "Et*3|tt|ta|f|L", with so many m before L. Reads back as the same parts when
/// these are a chain.
std::string stage_layout(const std::vector<StagePart>& parts, std::int64_t depths = 0);

/// From the name of the first block (or "end") of every stage but the first, by its number: {4, 8, 12}; a number may
/// repeat (an empty stage), `blocks` means the end alone. Throws InputError unless ascending within [0, blocks].
std::vector<StagePart> cut_before(const std::vector<std::int64_t>& first_blocks, std::int64_t blocks);

}  // namespace tessera::layout
