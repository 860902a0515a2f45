#pragma once
/// \file
/// Enumerations for settings with a fixed set of words. words.cpp has one table of words and synonyms for each; flags,
/// files, --help, --print_config, the schema and errors are generated from it.

#include <tessera/base/words.h>
#include <tessera/layout/backends.h>
#include <tessera/layout/context_method.h>
#include <tessera/layout/residency.h>
#include <tessera/layout/strategy.h>

#include <optional>

namespace tessera {

/// A boolean that may be left to the program ("auto").
enum class Choice : unsigned char { automatic, yes, no };
const WordTable& words_of(Choice);
inline std::optional<bool> decided(Choice choice) {
  return choice == Choice::automatic ? std::nullopt : std::optional(choice == Choice::yes);
}  ///< nullopt: the program decides

/// Version of transformers whose defaults apply.
enum class Compat : unsigned char { v4, v5 };
const WordTable& words_of(Compat);

/// How unknown keys and arguments are handled. automatic: as in their own program (unknown arguments are refused; keys
/// that DeepSpeed or accelerate ignore cause a warning). warn: arguments unrelated to training also cause only a
/// warning. refuse: all are refused.
enum class UnknownWords : unsigned char { automatic, warn, refuse };
const WordTable& words_of(UnknownWords);

enum class FloatType : unsigned char { fp32, bf16, fp16 };  ///< types of parameters, gradients and buffers
const WordTable& words_of(FloatType);                       ///< synonyms: torch.float32, float32 etc.

/// Formats of fp8 products (Micikevicius et al. 2022): e4m3 everywhere, or e5m2 for gradients of outputs (hybrid).
enum class Fp8Format : unsigned char { none, e4m3, hybrid };
const WordTable& words_of(Fp8Format);

/// Granularity of an fp8 operand's scale. delayed: the tensor, from its maxima in earlier steps; tensorwise: the
/// tensor, from its current maximum; blockwise: blocks of 1 x 128 and 128 x 128; mxfp8: 32 neighbours, a power of two.
enum class Fp8Recipe : unsigned char { delayed, tensorwise, blockwise, mxfp8 };
const WordTable& words_of(Fp8Recipe);

/// How a delayed scale is chosen from the stored maxima.
enum class Fp8Amax : unsigned char { most_recent, max };
const WordTable& words_of(Fp8Amax);

/// The 16 values of a 4-bit weight: normal quantiles (nf4, Dettmers et al. 2023), or sign, two exponent bits and one
/// mantissa bit (fp4).
enum class QuantType : unsigned char { nf4, fp4 };
const WordTable& words_of(QuantType);

/// Compute type of products with quantized weights; automatic: that of the run's other products.
enum class ComputeType : unsigned char { automatic, fp32, bf16, fp16 };
const WordTable& words_of(ComputeType);  ///< synonyms: torch.float32, float32 etc.

/// The optimizer; formulas: optim/optimizer.h.
enum class OptimizerKind : unsigned char {
  adamw,
  adam,
  sgd,
  adagrad,
  lion,
  adafactor,
  lamb,
  lars,
  muon,
  rmsprop,
  adamw_8bit,
  lion_8bit
};
const WordTable& words_of(OptimizerKind);  ///< synonyms: Hugging Face's adamw_torch etc.

/// The learning-rate schedule; formulas: optim/schedule.h.
enum class ScheduleType : unsigned char {
  linear,
  cosine,
  constant,
  constant_with_warmup,
  polynomial,
  inverse_sqrt,
  cosine_with_restarts,
  cosine_with_min_lr,
  cosine_warmup_with_min_lr,
  warmup_stable_decay,
  reduce_lr_on_plateau,
  warmup_lr,
  warmup_decay_lr,
  warmup_cosine_lr,
  one_cycle,
  lr_range_test
};
const WordTable& words_of(ScheduleType);

/// The order of the rows of the training data.
enum class SamplingStrategy : unsigned char { random, sequential, group_by_length, group_by_modality_length };
const WordTable& words_of(SamplingStrategy);

/// How a non-square image becomes square (image/prepare.h).
enum class ImageAspectRatio : unsigned char { square, pad };
const WordTable& words_of(ImageAspectRatio);

/// When an epoch of a blend ends: once every part has been read completely (smaller ones are repeated), or once the
/// first one has.
enum class BlendMode : unsigned char { all_exhausted, first_exhausted };
const WordTable& words_of(BlendMode);

/// How long a pipeline stage's sharded parameters stay gathered: for each pass of a micro-batch, or from the first to
/// the last pass of a batch.
enum class PipelineGather : unsigned char { per_micro_batch, per_batch };
const WordTable& words_of(PipelineGather);

/// Losses on pairs of a preferred and a rejected answer; formulas: train/loss/preference.h.
enum class PreferenceLoss : unsigned char { none, sigmoid, hinge, ipo, simpo, orpo, apo_zero, apo_down };
const WordTable& words_of(PreferenceLoss);

/// The scope over which expert load is balanced (models::BalanceOptions::Form).
enum class RouterLossForm : unsigned char { layers_together, micro_batch, sequence, global_batch };
const WordTable& words_of(RouterLossForm);

/// How an expert selects the slots to drop beyond its capacity (nn::DropBy).
enum class TokenDrop : unsigned char { probs, position };
const WordTable& words_of(TokenDrop);

/// How to treat a run that is predicted not to fit into memory.
enum class MemoryCheck : unsigned char { refuse, warn, off };
const WordTable& words_of(MemoryCheck);

/// How the learning rate scales with the rows per step: not at all, linearly (Goyal et al. 2017), or with the square
/// root (Krizhevsky 2014; Adam).
enum class BatchRule : unsigned char { none, linear, square_root };
const WordTable& words_of(BatchRule);

/// How modules are selected that are gathered and freed together.
enum class AutoWrap : unsigned char { transformer_based, size_based, regex, none };
const WordTable& words_of(AutoWrap);

/// When to log or evaluate.
enum class Interval : unsigned char { no, steps, epoch };
const WordTable& words_of(Interval);

/// When checkpoints are written.
enum class SaveStrategy : unsigned char { no, steps, epoch, best };
const WordTable& words_of(SaveStrategy);

/// The tokens that log lines count.
enum class CountedTokens : unsigned char { no, all, non_padding };
const WordTable& words_of(CountedTokens);

/// Log lines as transformers 4 prints them, as 5 does, or plain words.
enum class LogFormat : unsigned char { hf, hf5, plain };
const WordTable& words_of(LogFormat);

/// Each rank writes its part of a checkpoint, or rank 0 writes everything; local is the same as sharded.
enum class StateDictType : unsigned char { sharded, full, local };
const WordTable& words_of(StateDictType);

/// How to treat a checkpoint that is due while the previous one is being written.
enum class WhenBusy : unsigned char { wait, skip };
const WordTable& words_of(WhenBusy);

/// How to treat a step whose loss or gradients are not finite.
enum class NanPolicy : unsigned char { stop, skip };
const WordTable& words_of(NanPolicy);

}  // namespace tessera
