#pragma once
/// \file
/// The settings that have a fixed set of words, as enumerations. The words themselves, and other systems' synonyms, are
/// in words.cpp: one table of each, from which flags, files, --help, --print_config, the schema and errors are made.

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
}  ///< nullopt: it is left to the program

/// Version of transformers whose defaults hold.
enum class Compat : unsigned char { v4, v5 };
const WordTable& words_of(Compat);

/// What becomes of unknown keys and arguments: as their own program has it (an argument is refused, a key that
/// DeepSpeed or accelerate passes over gets a warning), a warning also of arguments that do not concern the training,
/// or all are refused.
enum class UnknownWords : unsigned char { automatic, warn, refuse };
const WordTable& words_of(UnknownWords);

enum class FloatType : unsigned char { fp32, bf16, fp16 };  ///< types of parameters, gradients, buffers
const WordTable& words_of(FloatType);                       ///< synonyms: torch.float32, float32 and so on

/// Formats of fp8 products (Micikevicius et al. 2022): e4m3 everywhere, or e5m2 for gradients of outputs (hybrid).
enum class Fp8Format : unsigned char { none, e4m3, hybrid };
const WordTable& words_of(Fp8Format);

/// Which values of an fp8 operand share a scale: all of a tensor, by its largest value of earlier steps (delayed) or of
/// now (tensorwise); blocks of 1 x 128 and 128 x 128 (blockwise); 32 neighbours, with a power of two (mxfp8).
enum class Fp8Recipe : unsigned char { delayed, tensorwise, blockwise, mxfp8 };
const WordTable& words_of(Fp8Recipe);

/// Which of the remembered largest values makes a delayed scale.
enum class Fp8Amax : unsigned char { most_recent, max };
const WordTable& words_of(Fp8Amax);

/// Which 16 numbers stand for frozen weights of four bits: normal quantiles (Dettmers et al. 2023), or a sign, two bits
/// of exponent and one behind the leading one.
enum class QuantType : unsigned char { nf4, fp4 };
const WordTable& words_of(QuantType);

/// Type of the products with quantized weights; automatic: that of the run's other products.
enum class ComputeType : unsigned char { automatic, fp32, bf16, fp16 };
const WordTable& words_of(ComputeType);  ///< synonyms: torch.float32, float32 and so on

/// Which rule updates the weights: optim/optimizer.h has the formulas.
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
const WordTable& words_of(OptimizerKind);  ///< synonyms: Hugging Face's, adamw_torch and so on

/// How the learning rate moves over a run: optim/schedule.h has the formulas.
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

/// How an image that is no square becomes one (image/prepare.h).
enum class ImageAspectRatio : unsigned char { square, pad };
const WordTable& words_of(ImageAspectRatio);

/// When an epoch of a blend ends: when every part has been seen whole (smaller ones are repeated), or when the first
/// one has.
enum class BlendMode : unsigned char { all_exhausted, first_exhausted };
const WordTable& words_of(BlendMode);

/// How long the parameters of a pipeline's stage stay gathered where a strategy divides them: during each pass of a
/// micro-batch, or from the first pass of a batch to the last.
enum class PipelineGather : unsigned char { per_micro_batch, per_batch };
const WordTable& words_of(PipelineGather);

/// Losses of pairs of answers of which one is preferred: train/loss/preference.h has the formulas.
enum class PreferenceLoss : unsigned char { none, sigmoid, hinge, ipo, simpo, orpo, apo_zero, apo_down };
const WordTable& words_of(PreferenceLoss);

/// What a mixture of experts counts as one load when it balances its experts (models::BalanceOptions::Form).
enum class RouterLossForm : unsigned char { layers_together, micro_batch, sequence, global_batch };
const WordTable& words_of(RouterLossForm);

/// Whose slots an expert drops when more want it than its capacity (nn::DropBy).
enum class TokenDrop : unsigned char { probs, position };
const WordTable& words_of(TokenDrop);

/// What becomes of a run that is predicted not to fit into memory.
enum class MemoryCheck : unsigned char { refuse, warn, off };
const WordTable& words_of(MemoryCheck);

/// How the learning rate follows the number of rows per step: not at all, with it (Goyal et al. 2017), or with its
/// square root (Krizhevsky 2014; Adam).
enum class BatchRule : unsigned char { none, linear, square_root };
const WordTable& words_of(BatchRule);

/// Which modules are gathered and dropped as one.
enum class AutoWrap : unsigned char { transformer_based, size_based, regex, none };
const WordTable& words_of(AutoWrap);

/// When something is logged or evaluated.
enum class Interval : unsigned char { no, steps, epoch };
const WordTable& words_of(Interval);

/// When checkpoints are written.
enum class SaveStrategy : unsigned char { no, steps, epoch, best };
const WordTable& words_of(SaveStrategy);

/// Which tokens the log lines count.
enum class CountedTokens : unsigned char { no, all, non_padding };
const WordTable& words_of(CountedTokens);

/// Log lines as transformers 4 prints them, as 5 does, or plain words.
enum class LogFormat : unsigned char { hf, hf5, plain };
const WordTable& words_of(LogFormat);

/// Each rank writes its part of a checkpoint, or rank 0 the whole; local is written as sharded.
enum class StateDictType : unsigned char { sharded, full, local };
const WordTable& words_of(StateDictType);

/// What becomes of a checkpoint that is due while the one before is being written.
enum class WhenBusy : unsigned char { wait, skip };
const WordTable& words_of(WhenBusy);

/// What becomes of a step whose loss or gradients are not finite.
enum class NanPolicy : unsigned char { stop, skip };
const WordTable& words_of(NanPolicy);

}  // namespace tessera
