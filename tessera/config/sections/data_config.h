#pragma once
/// \file
/// config/sections/: the sections of a run's settings. Each has its own header, so that changing one recompiles only
/// its readers; config/core/run_config.h includes them all. This header: section "data".

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>

namespace tessera {

/// Training and evaluation data, and how it is turned into rows.
struct DataConfig {
  /// Files, folders and patterns, optionally weighted: see corpus/data_list.h.
  std::string train_file;       ///< .txt, .jsonl (text | prompt, completion | messages), or .bin with its .idx
  std::string validation_file;  ///< same kinds; empty: split off train_file
  BlendMode blend_mode = BlendMode::all_exhausted;  ///< when an epoch over weighted parts ends
  /// cache of tokenized text, shared by all runs; "none": tokenize at every start
  std::string data_cache_dir;
  bool streaming = false;                  ///< tokenize while training
  std::int64_t streaming_buffer = 10'000;  ///< rows per rank among which a streamed order is shuffled
  double validation_split_percentage = 5;  ///< share of train_file, without a validation_file
  std::int64_t block_size = 0;             ///< tokens per block T; 0: min(1024, the model's positions)
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;  ///< group_by_length: examples of .jsonl
  bool group_by_length = false;                                         ///< Hugging Face's older name of that strategy
  bool group_by_modality_length = false;                                ///< LLaVA's name for group_by_modality_length
  // Images and LLaVA's conversations (docs/vision.md).
  std::string image_folder;                                        ///< folder of the records' images
  ImageAspectRatio image_aspect_ratio = ImageAspectRatio::square;  ///< how non-square images become square
  std::string version;                    ///< LLaVA's conversation template; empty: vicuna_v1 for records with images
  std::string text_column_name = "text";  ///< field of a .jsonl line that holds plain text
  std::string column_map;                 ///< "prompt=question,completion=answer": the file's names of fields
  std::string chat_template;              ///< Jinja text, or a file containing it; empty: the tokenizer's
  std::string eos_token;                  ///< end-of-text token; required only if the tokenizer does not define one
  std::int64_t max_train_samples = 0;     ///< number of training rows, taken from the start; 0: all
  std::int64_t max_eval_samples = 0;      ///< the same for evaluation rows
  bool reset_position_ids = false;        ///< true: documents in a block do not attend to each other
  std::int64_t max_seq_length = 0;        ///< tokens per example of a .jsonl; longer ones are truncated; 0: block_size
  std::int64_t max_prompt_length = 0;     ///< tokens kept from the end of a prompt; 0: no separate limit
  bool mock_data = false;                 ///< random tokens instead of files, as Megatron-LM's --mock-data
  bool packing = false;              ///< several examples per row, isolated from each other; false: rows are padded
  bool assistant_only_loss = true;   ///< only the assistant's messages are scored
  bool completion_only_loss = true;  ///< the prompt before a completion is not scored
  double mlm_probability = 0.15;     ///< masked language models: share of tokens to predict
  // Fill in the middle (data/fill_in_middle.h), with Megatron-LM's names and defaults.
  bool fim_data = false;                          ///< texts of blocks become prefix, suffix and middle
  double fim_rate = 0.5;                          ///< share of the texts that are rearranged
  double fim_spm_rate = 0.5;                      ///< share of them that start with the suffix
  std::string fim_split_sample;                   ///< token between the fragments of a text; empty: texts are whole
  double fim_fragment_rate = -1;                  ///< rate per fragment, with fim_split_sample; -1: not given
  std::string fim_no_prefix;                      ///< texts with this prefix are left unchanged; empty: none
  std::string fim_prefix_token = "<fim_prefix>";  ///< the token before the prefix,
  std::string fim_middle_token = "<fim_middle>";  ///< before the middle,
  std::string fim_suffix_token = "<fim_suffix>";  ///< before the suffix,
  std::string fim_pad_token = "<fim_pad>";        ///< padding for rows that became shorter,
  std::string fim_eod_token = "<|endoftext|>";    ///< and the end of a text
  std::int64_t data_seed = -1;                    ///< seed for the order of rows; -1: `seed`
  bool dataloader_drop_last = false;              ///< drop the last, incomplete step of an epoch
};

}  // namespace tessera
