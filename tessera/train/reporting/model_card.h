#pragma once
/// \file
/// OUT/README.md (--model_card): the card of a model on Hugging Face's hub, in the hub's format: YAML between two lines
/// of dashes, then Markdown. Everything in it comes from the run's own records: settings, data, losses, hardware,
/// duration. It states nothing that was not measured.

#include <tessera/base/value.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/metrics.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::train {

/// The contents of a card.
struct CardFacts {
  std::string name;                        ///< the heading
  std::string model;                       ///< "gpt2, 1.2 M parameters"
  bool adapters = false;                   ///< LoRA adapters in PEFT's form, not a whole model
  std::string pipeline_tag;                ///< the hub's name of the model's task; empty: unknown
  std::string base_folder;                 ///< folder of the initial weights; empty: from scratch
  std::string base_model;                  ///< the base model's name on the hub; empty: unknown
  Value base_card = Value::make_object();  ///< front matter of its README.md, for license and language
  std::vector<std::string> datasets;       ///< names of the data sets on the hub; empty: unknown
  std::vector<std::string> facts;          ///< model, data, steps in words (describe_start)
  std::vector<std::string> hardware;       ///< processors or GPUs, memory
  std::vector<std::pair<std::string, std::string>> settings;  ///< non-default settings with their values
  std::vector<Value> history;                                 ///< trainer_state.json's log history
  RunTotals totals;
};

/// Returns the card as text.
std::string model_card(const CardFacts& facts);

/// The hub's name in a path of its cache: ".../models--ORG--NAME/snapshots/..." with `kind` "models" -> "ORG/NAME";
/// empty: not a path of the cache.
std::string hub_name(const std::string& path, const std::string& kind);
/// The YAML at the head of a card as an object; empty if absent or unreadable.
Value front_matter(const std::string& card);

/// Collects the facts. `configuration`: config::to_value() of the run.
CardFacts card_facts(const Setup& setup, const comm::World& world, const Value& configuration, const RunTotals& totals,
                     const std::vector<Value>& history);

/// Whether a text is a card that this program wrote and that has not been edited since: its first comment contains the
/// CRC-32C of the rest.
bool is_own_card(const std::string& text);
/// Writes `folder`/README.md unless a user's file exists there. Returns whether it was written; throws Error if it
/// cannot be written.
bool write_model_card(const std::string& folder, const std::string& card);

}  // namespace tessera::train
