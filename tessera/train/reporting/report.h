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
  Value predicted_memory = Value::make_array();  ///< predicted state bytes per rank, by kind
  Value units = Value::make_array();             ///< units gathered and freed together: rows of cells, headings first
  Value memory = Value::make_array();            ///< by rank: {kind: bytes}, the breakdown of the last peak
  Value expert_load = Value::make_array();       ///< at the last log, per block with experts: {block, shares:
                                                 ///< [experts]}
  std::string pipeline;                          ///< drawing (SVG) of a step, planned and measured; empty: none
  double unigram_entropy = 0;                    ///< drawn as a baseline in the loss curve; 0: not drawn
  std::string advice;                            ///< one line about the limiting resource of the run; empty: unknown
  std::string sample_prompt, sample_text, sample_note;  ///< if sample_text is empty, no sample is shown
  std::string sample_before;                            ///< the model's text before training; empty: unknown
};

/// Renders the page.
std::string render(const Report& report);

/// The communication table of this process, from comm::recorder(): an array, by group and operation, of {axis ("tp",
/// "dp_shard-cp"; "world": operations of all ranks that do not belong to an axis, such as start, logs, agreement),
/// operation, count, payload_bytes, wire_bytes (theoretical), moved_bytes (sent by this rank, as counted by the
/// backends), seconds_waited, seconds_in_flight, hidden_share}. hidden_share: share of the time between start and end
/// that did not block the caller; an upper bound on the share hidden behind computing, because a collective counts as
/// in flight until someone waits for it.
Value communication_table();

/// The same table as lines for a terminal, without operations that carry no bytes; empty for one process. `seconds`:
/// lifetime of the process; waits are shown as shares of it.
std::vector<std::string> communication_lines(const Value& table, double seconds);

}  // namespace tessera::train
