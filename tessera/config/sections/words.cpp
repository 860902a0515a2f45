#include <tessera/config/sections/words.h>

namespace tessera {

const WordTable& words_of(Choice) {
  static const WordTable words = {{"auto", "true", "false"}, {{"yes", "true"}, {"no", "false"}}};
  return words;
}

const WordTable& words_of(Compat) {
  static const WordTable words = {{"v4", "v5"}};
  return words;
}

const WordTable& words_of(UnknownWords) {
  static const WordTable words = {{"auto", "warn", "refuse"}, {{"error", "refuse"}}};
  return words;
}

const WordTable& words_of(FloatType) {
  static const WordTable words = {{"fp32", "bf16", "fp16"},
                                  {{"float32", "fp32"},
                                   {"bfloat16", "bf16"},
                                   {"float16", "fp16"},
                                   {"torch.float32", "fp32"},
                                   {"torch.bfloat16", "bf16"},
                                   {"torch.float16", "fp16"}}};
  return words;
}

const WordTable& words_of(Fp8Format) {
  static const WordTable words = {{"none", "e4m3", "hybrid"}};
  return words;
}

const WordTable& words_of(Fp8Recipe) {
  static const WordTable words = {{"delayed", "tensorwise", "blockwise", "mxfp8"}};
  return words;
}

const WordTable& words_of(Fp8Amax) {
  static const WordTable words = {{"most_recent", "max"}};
  return words;
}

const WordTable& words_of(QuantType) {
  static const WordTable words = {{"nf4", "fp4"}};
  return words;
}

const WordTable& words_of(ComputeType) {
  static const WordTable words = {{"auto", "fp32", "bf16", "fp16"},
                                  {{"float32", "fp32"},
                                   {"bfloat16", "bf16"},
                                   {"float16", "fp16"},
                                   {"torch.float32", "fp32"},
                                   {"torch.bfloat16", "bf16"},
                                   {"torch.float16", "fp16"}}};
  return words;
}

const WordTable& words_of(OptimizerKind) {
  static const WordTable words = {{"adamw", "adam", "sgd", "adagrad", "lion", "adafactor", "lamb", "lars", "muon",
                                   "rmsprop", "adamw_8bit", "lion_8bit"},
                                  {{"adamw_torch", "adamw"},
                                   {"adamw_torch_fused", "adamw"},
                                   {"adamw_torch_xla", "adamw"},
                                   {"adamw_hf", "adamw"},
                                   {"adamw_apex_fused", "adamw"},
                                   {"adamw_bnb_8bit", "adamw_8bit"},
                                   {"paged_adamw_8bit", "adamw_8bit"},
                                   {"paged_lion_8bit", "lion_8bit"},
                                   {"lion_32bit", "lion"},
                                   {"paged_adamw", "adamw"},
                                   {"paged_adamw_32bit", "adamw"},
                                   {"paged_lion_32bit", "lion"},
                                   {"rmsprop_bnb", "rmsprop"},
                                   {"rmsprop_bnb_32bit", "rmsprop"}}};
  return words;
}

const WordTable& words_of(ScheduleType) {
  static const WordTable words = {
      {"linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt", "cosine_with_restarts",
       "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay", "reduce_lr_on_plateau", "warmup_lr",
       "warmup_decay_lr", "warmup_cosine_lr", "one_cycle", "lr_range_test"},
      {{"warmuplr", "warmup_lr"},
       {"warmupdecaylr", "warmup_decay_lr"},
       {"warmupcosinelr", "warmup_cosine_lr"},
       {"onecycle", "one_cycle"},
       {"lrrangetest", "lr_range_test"}}};
  return words;
}

const WordTable& words_of(SamplingStrategy) {
  static const WordTable words = {{"random", "sequential", "group_by_length", "group_by_modality_length"}};
  return words;
}

const WordTable& words_of(ImageAspectRatio) {
  static const WordTable words = {{"square", "pad"}};
  return words;
}

const WordTable& words_of(BlendMode) {
  static const WordTable words = {{"all_exhausted", "first_exhausted"}};
  return words;
}

const WordTable& words_of(PipelineGather) {
  static const WordTable words = {{"per_micro_batch", "per_batch"}};
  return words;
}

const WordTable& words_of(PreferenceLoss) {
  static const WordTable words = {{"none", "sigmoid", "hinge", "ipo", "simpo", "orpo", "apo_zero", "apo_down"},
                                  {{"dpo", "sigmoid"}}};
  return words;
}

const WordTable& words_of(RouterLossForm) {
  static const WordTable words = {{"layers_together", "micro_batch", "sequence", "global_batch"}};
  return words;
}

const WordTable& words_of(TokenDrop) {
  static const WordTable words = {{"probs", "position"}};
  return words;
}

const WordTable& words_of(BatchRule) {
  static const WordTable words = {{"none", "linear", "square_root"}};
  return words;
}

const WordTable& words_of(MemoryCheck) {
  static const WordTable words = {{"refuse", "warn", "off"}};
  return words;
}

const WordTable& words_of(AutoWrap) {
  static const WordTable words = {{"transformer_based_wrap", "size_based_wrap", "regex_wrap", "no_wrap"}};
  return words;
}

const WordTable& words_of(Interval) {
  static const WordTable words = {{"no", "steps", "epoch"}};
  return words;
}

const WordTable& words_of(SaveStrategy) {
  static const WordTable words = {{"no", "steps", "epoch", "best"}};
  return words;
}

const WordTable& words_of(CountedTokens) {
  static const WordTable words = {{"no", "all", "non_padding"}, {{"true", "all"}, {"false", "no"}}};
  return words;
}

const WordTable& words_of(LogFormat) {
  static const WordTable words = {{"hf", "hf5", "plain"}, {{"hf4", "hf"}}};
  return words;
}

const WordTable& words_of(StateDictType) {
  static const WordTable words = {{"sharded", "full", "local"},
                                  {{"sharded_state_dict", "sharded"},
                                   {"full_state_dict", "full"},
                                   {"local_state_dict", "local"},
                                   {"statedicttype.sharded_state_dict", "sharded"},
                                   {"statedicttype.full_state_dict", "full"},
                                   {"statedicttype.local_state_dict", "local"},
                                   {"1", "full"},  // torch.distributed.fsdp.StateDictType
                                   {"2", "local"},
                                   {"3", "sharded"}}};
  return words;
}

const WordTable& words_of(WhenBusy) {
  static const WordTable words = {{"wait", "skip"}};
  return words;
}

const WordTable& words_of(NanPolicy) {
  static const WordTable words = {{"stop", "skip"}};
  return words;
}

}  // namespace tessera
