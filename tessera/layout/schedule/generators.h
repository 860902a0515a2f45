#pragma once
/// \file
/// The schedules of the literature, as computations only (lower.h adds the rest), for any number of micro-batches. In
/// all of them the F of a stage, and the actions that compute its weight gradients (W or B), process the micro-batches
/// in ascending order, so the gradients are summed in the same order under every schedule.
///
/// p ranks, v stages per rank, m micro-batches; rank r. For costs and recommendations see table.h.

#include <tessera/layout/schedule/schedule.h>

namespace tessera::layout::schedule {

/// The dimensions of a schedule.
struct Shape {
  int ranks = 1;            ///< p
  int stages_per_rank = 1;  ///< v
  int micro_batches = 1;    ///< m
  /// Interleaved schedules: number of micro-batches that pass one stage of a rank before its next stage runs
  /// (Megatron-LM: microbatch_group_size_per_vp_stage). 0: groups of p or slightly more, as equal as possible.
  int group_size = 0;
};

/// GPipe (Huang et al. 2019): all forwards, then all backwards. v = 1.
Schedule gpipe(const Shape& shape);

/// 1F1B (Harlap et al. 2018, PipeDream-Flush of Narayanan et al. 2021): p - 1 - r forwards, then alternating forwards
/// and backwards, then the remaining backwards. v = 1.
Schedule one_forward_one_backward(const Shape& shape);

/// Interleaved 1F1B (Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters";
/// Megatron-LM, megatron/core/pipeline_parallel/schedules.py): micro-batches pass through the stages of a rank in
/// groups of G, with 2 (p - 1 - r) + (v - 1) G forwards before the first backward. v >= 2.
Schedule interleaved(const Shape& shape);

/// Breadth-first (Lamy-Poirier 2022; PyTorch: ScheduleLoopedBFS): all micro-batches pass through one stage, then
/// through the next. With v = 1 it equals GPipe. PyTorch's backward starts with the last micro-batch, ours with the
/// first.
Schedule looped_breadth_first(const Shape& shape);

/// ZB-H1 (Qi et al. 2023, "Zero bubble pipeline parallelism", section 2.1; PyTorch: ScheduleInterleavedZeroBubble):
/// 1F1B with backward split into I and W; W is delayed by r micro-batches to fill the end. Any v: 1F1B's order for v =
/// 1; for larger v, the interleaved order with (v - 1) G + p - 1 - r forwards first.
Schedule zb_h1(const Shape& shape);

/// ZB-H2 (the same, section 2.2): 2 (p - r) - 1 forwards first, W delayed by 2 r micro-batches. v = 1.
Schedule zb_h2(const Shape& shape);

/// ZBV (Qi et al. 2024, "Pipeline parallelism with controllable memory"; PyTorch: ScheduleZBVZeroBubble): stages r and
/// 2 p - 1 - r on rank r, designed for F, I and W of equal cost. v = 2.
Schedule zbv(const Shape& shape);

/// DualPipeV (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe; PyTorch: ScheduleDualPipeV): placed like ZBV, with
/// overlapped forwards and backwards. v = 2.
Schedule dualpipev(const Shape& shape);

}  // namespace tessera::layout::schedule
