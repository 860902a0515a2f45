#pragma once
/// \file
/// OUT/report.html: one self-contained page about a run: curves, memory by rank, collectives, configuration, a sample.
/// dygraphs (MIT licence) draws the curves; it is embedded when Tessera is built, so the page needs no network.

#include <tessera/base/value.h>
#include <tessera/train/reporting/metrics.h>

#include <string>
#include <vector>

namespace tessera::train {

struct Report {
  std::string title;                             ///< "gpt2, 10.0 M parameters"
  std::vector<std::string> facts;                ///< one line under the title: "2 processes", "Debian 12", ...
  std::string footer;                            ///< versions, time
  MetricsLines metrics;                          ///< lines of metrics.jsonl
  Value configuration;                           ///< sections of {"name": {"value": ..., "origin": ...}}
  Value communication;                           ///< communication_table()
  Value predicted_memory = Value::make_array();  ///< state bytes per rank as they follow from the settings, by kind
  Value units = Value::make_array();        ///< what is gathered and dropped as one: rows of cells, the headings first
  Value memory = Value::make_array();       ///< array by rank of {kind: bytes}, the parts of the last peak
  Value expert_load = Value::make_array();  ///< by block with experts, of the last log: {block, shares: [experts]}
  std::string pipeline;                     ///< a drawing (SVG) of a step, planned and measured; empty: none
  double unigram_entropy = 0;               ///< drawn as a yardstick into the loss; 0: not
  std::string advice;                       ///< what limits the run, one line; empty: not known
  std::string sample_prompt, sample_text, sample_note;  ///< sample_text empty: no sample
  std::string sample_before;                            ///< what the model said before the training; empty: not known
};

/// The page.
std::string render(const Report& report);

/// The communication table of this process, from comm::recorder(): an array, by group and operation, of {axis ("tp",
/// "dp_shard-cp"; "world": all ranks, for what is no axis' business: start, logs, agreement), operation, count,
/// payload_bytes, wire_bytes (by theory), moved_bytes (sent by this rank, as the backends count), seconds_waited,
/// seconds_in_flight, hidden_share}. hidden_share: of the time between start and end, what did not block the caller;
/// an upper bound of what was hidden under computing, since a collective that nobody waits for counts as in flight.
Value communication_table();

/// That table as lines for a terminal, without what carries no bytes; none for one process. `seconds`: of the process,
/// of which the waits are shares.
std::vector<std::string> communication_lines(const Value& table, double seconds);

}  // namespace tessera::train
