#pragma once
/// \file
/// OUT/README.md (--model_card): what a model of Hugging Face's hub says of itself, in the form that the hub reads:
/// YAML between two lines of dashes, then Markdown. Everything in it comes from the run's own records: settings, data,
/// losses, hardware, duration. Nothing that was not measured is said.

#include <tessera/base/value.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/metrics.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::train {

/// What a card says.
struct CardFacts {
  std::string name;                        ///< the heading
  std::string model;                       ///< "gpt2, 1.2 M parameters"
  bool adapters = false;                   ///< LoRA adapters in PEFT's form, not a whole model
  std::string pipeline_tag;                ///< the hub's name of what the model does; empty: unknown
  std::string base_folder;                 ///< whose weights the training started from; empty: from scratch
  std::string base_model;                  ///< its name on the hub; empty: not known
  Value base_card = Value::make_object();  ///< the front matter of its README.md, whose license and language pass over
  std::vector<std::string> datasets;       ///< names on the hub; empty: not known
  std::vector<std::string> facts;          ///< model, data, steps in words (describe_start)
  std::vector<std::string> hardware;       ///< processors or GPUs, memory
  std::vector<std::pair<std::string, std::string>> settings;  ///< those that are not the default, and as what
  std::vector<Value> history;                                 ///< trainer_state.json's log history
  RunTotals totals;
};

/// The card as text.
std::string model_card(const CardFacts& facts);

/// The hub's name in a path of its cache: ".../models--ORG--NAME/snapshots/..." with `kind` "models" -> "ORG/NAME";
/// empty: none.
std::string hub_name(const std::string& path, const std::string& kind);
/// The YAML at the head of a card as an object; empty when there is none, or none that can be read.
Value front_matter(const std::string& card);

/// Collects them. `configuration`: config::to_value of the run.
CardFacts card_facts(const Setup& setup, const comm::World& world, const Value& configuration, const RunTotals& totals,
                     const std::vector<Value>& history);

/// Whether a text is a card that this program wrote and nobody has changed since: its first comment holds the CRC-32C
/// of the rest.
bool is_own_card(const std::string& text);
/// Writes `folder`/README.md unless a person's is there. Returns whether it was written; a file that cannot be written
/// throws Error.
bool write_model_card(const std::string& folder, const std::string& card);

}  // namespace tessera::train
