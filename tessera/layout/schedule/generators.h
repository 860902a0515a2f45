#pragma once
/// \file
/// The schedules of the literature, as computations only (lower.h adds the rest). All of them take any number of
/// micro-batches. Under all of them F of a stage goes through the micro-batches in ascending order, and so does what
/// gives gradients of its weights (W or B): their sum has the same order under every schedule.
///
/// p ranks, v stages per rank, m micro-batches; rank r. What each costs and when to use it: table.h.

#include <tessera/layout/schedule/schedule.h>

namespace tessera::layout::schedule {

/// How many ranks, stages and micro-batches a schedule is made for.
struct Shape {
  int ranks = 1;            ///< p
  int stages_per_rank = 1;  ///< v
  int micro_batches = 1;    ///< m
  /// Interleaved schedules: so many micro-batches go through one stage of a rank before the next stage has its turn
  /// (Megatron-LM: microbatch_group_size_per_vp_stage). 0: groups as equal as can be, of p or a few more.
  int group_size = 0;
};

/// GPipe (Huang et al. 2019): all forwards, then all backwards. v = 1.
Schedule gpipe(const Shape& shape);

/// 1F1B (Harlap et al. 2018, PipeDream-Flush of Narayanan et al. 2021): p - 1 - r forwards, then forward and backward
/// by turns, then the backwards that are left. v = 1.
Schedule one_forward_one_backward(const Shape& shape);

/// Interleaved 1F1B (Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters";
/// Megatron-LM, megatron/core/pipeline_parallel/schedules.py): micro-batches go through the stages of a rank in groups
/// of G, with 2 (p - 1 - r) + (v - 1) G forwards before the first backward. v >= 2.
Schedule interleaved(const Shape& shape);

/// Breadth-first (Lamy-Poirier 2022; PyTorch: ScheduleLoopedBFS): all micro-batches through one stage, then through the
/// next. With v = 1 it is GPipe. PyTorch's goes back from the last micro-batch to the first, ours from the first on.
Schedule looped_breadth_first(const Shape& shape);

/// ZB-H1 (Qi et al. 2023, "Zero bubble pipeline parallelism", section 2.1; PyTorch: ScheduleInterleavedZeroBubble):
/// 1F1B with backward cut in I and W; W comes r micro-batches late, so that it fills the end. Any v: 1F1B's order for v
/// = 1, the interleaved one with (v - 1) G + p - 1 - r forwards first for more.
Schedule zb_h1(const Shape& shape);

/// ZB-H2 (the same, section 2.2): 2 (p - r) - 1 forwards first, W comes 2 r micro-batches late. v = 1.
Schedule zb_h2(const Shape& shape);

/// ZBV (Qi et al. 2024, "Pipeline parallelism with controllable memory"; PyTorch: ScheduleZBVZeroBubble): stages r and
/// 2 p - 1 - r on rank r, made for F, I and W of equal cost. v = 2.
Schedule zbv(const Shape& shape);

/// DualPipeV (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe; PyTorch: ScheduleDualPipeV): placed as ZBV, with
/// forwards and backwards that are done as one. v = 2.
Schedule dualpipev(const Shape& shape);

}  // namespace tessera::layout::schedule
