#pragma once
/// \file
/// Schedule files: PyTorch's CSV, and a complete text form.
///
/// **CSV** (torch/distributed/pipelining/schedules.py, _dump_csv and _load_csv): one line per rank, one cell per
/// action, and an empty cell for a step in which the rank is idle. "compute_only" has F, I, W, B and pairs
/// "(0F4;7B1)OVERLAP_F_B"; "compute_comms" also has SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD and REDUCE_GRAD.
/// The numbers of stages and micro-batches, and the placement of stages, are inferred from the actions.
///
/// **Text**:
///
///   tessera-schedule 1 zbv                  # a name may follow
///   micro_batches 8
///   stages 0 1 2 3 3 2 1 0                  # the rank of every stage
///   rank 0: 0F0 0F1 7F0+0B0 0SEND_F1 0GATHER
///   rank 1: ...
///
/// One line per rank (several lines of a rank are joined); + joins two overlapped actions; # begins a comment; empty
/// lines are ignored.
///
/// Readers accept any bytes: they return a schedule that has not been checked yet (check.h), or throw InputError with
/// "NAME:LINE:COLUMN: ", both counted from 1, columns in bytes.

#include <tessera/layout/schedule/schedule.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::layout::schedule {

Schedule parse_csv(std::string_view text, const std::string& name_for_errors);
/// Lines end in "
/// "; PyTorch's writer uses "\r
/// ". Both readers accept either.
std::string to_csv(const Schedule& schedule);

Schedule parse_text(std::string_view text, const std::string& name_for_errors);
std::string to_text(const Schedule& schedule);

/// Largest file size that is read. In memory a schedule is up to 16 times larger: a rank with one action is a line of 4
/// bytes.
inline constexpr std::uint64_t most_bytes_in_file = std::uint64_t{128} << 20;

/// Reads either form, detected by the first word. Throws InputError.
Schedule read_schedule(const std::string& path);
Schedule parse_schedule(std::string_view text, const std::string& name_for_errors);

}  // namespace tessera::layout::schedule
