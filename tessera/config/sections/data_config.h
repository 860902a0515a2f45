#pragma once
/// \file
/// config/sections/: the sections of a run's settings, each with a header of its own, so that a change of one compiles
/// only what reads it again. config/core/run_config.h has them all. This header: section "data".

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>

namespace tessera {

/// What is trained and evaluated on, and how it becomes rows.
struct DataConfig {
  /// Files, folders and patterns, with weights between them or without: corpus/data_list.h.
  std::string train_file;       ///< .txt, .jsonl (text | prompt, completion | messages), or .bin with .idx beside it
  std::string validation_file;  ///< same kinds; empty: split off train_file
  BlendMode blend_mode = BlendMode::all_exhausted;  ///< when an epoch of parts with weights ends
  std::string data_cache_dir;                       ///< tokens of text, made once for all runs; "none": at every start
  bool streaming = false;                           ///< tokens are made while the run goes on
  std::int64_t streaming_buffer = 10'000;           ///< rows of a rank among which a streamed order is shuffled
  double validation_split_percentage = 5;           ///< share of train_file, without a validation_file
  std::int64_t block_size = 0;                      ///< tokens per block T; 0: min(1024, the model's positions)
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;  ///< group_by_length: examples of .jsonl
  bool group_by_length = false;                                         ///< Hugging Face's older name of that strategy
  bool group_by_modality_length = false;                                ///< LLaVA's name of the other one
  // Images and LLaVA's conversations (docs/vision.md).
  std::string image_folder;                                        ///< the folder that the names of images are in
  ImageAspectRatio image_aspect_ratio = ImageAspectRatio::square;  ///< what is done to images that are no squares
  std::string version;  ///< LLaVA's template of conversations; empty: vicuna_v1 for records with images
  std::string text_column_name = "text";  ///< field of a .jsonl line that holds plain text
  std::string column_map;                 ///< "prompt=question,completion=answer": what the file calls a field
  std::string chat_template;              ///< Jinja text or a file of it; empty: the tokenizer's
  std::string eos_token;                  ///< what ends a text, which the tokenizer must say itself; empty: it does
  std::int64_t max_train_samples = 0;     ///< rows that are trained on, the first ones; 0: all
  std::int64_t max_eval_samples = 0;      ///< the same of those that are evaluated
  bool reset_position_ids = false;        ///< documents inside a block do not see each other; else a block is one
  std::int64_t max_seq_length = 0;        ///< tokens per example of a .jsonl, longer ones are cut; 0: block_size
  std::int64_t max_prompt_length = 0;     ///< tokens kept of a prompt, its last ones; 0: no bound of its own
  bool mock_data = false;                 ///< rows of made-up tokens in place of files, as Megatron-LM's --mock-data
  bool packing = false;              ///< several examples in one row, which do not see each other; else rows are padded
  bool assistant_only_loss = true;   ///< only what the assistant says in `messages` is scored
  bool completion_only_loss = true;  ///< a prompt before a completion is not scored
  double mlm_probability = 0.15;     ///< masked language models: share of the tokens that are to be guessed
  // Fill in the middle (data/fill_in_middle.h), with Megatron-LM's names and defaults.
  bool fim_data = false;                          ///< texts of blocks become prefix, suffix and middle
  double fim_rate = 0.5;                          ///< share of the texts that are rearranged
  double fim_spm_rate = 0.5;                      ///< share of those that begin with the suffix
  std::string fim_split_sample;                   ///< token between the fragments of a text; empty: texts are whole
  double fim_fragment_rate = -1;                  ///< with it: the rate of fragments; -1: not given
  std::string fim_no_prefix;                      ///< what begins with this stays as it is; empty: nothing does
  std::string fim_prefix_token = "<fim_prefix>";  ///< the token before the prefix,
  std::string fim_middle_token = "<fim_middle>";  ///< before the middle,
  std::string fim_suffix_token = "<fim_suffix>";  ///< before the suffix,
  std::string fim_pad_token = "<fim_pad>";        ///< what fills a row that became shorter,
  std::string fim_eod_token = "<|endoftext|>";    ///< and what ends a text
  std::int64_t data_seed = -1;                    ///< orders the rows; -1: seed
  bool dataloader_drop_last = false;              ///< an epoch's last step that is not whole is left out
};

}  // namespace tessera
