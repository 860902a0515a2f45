#include <tessera/plan/time.h>

#include <tessera/layout/schedule/table.h>
#include <tessera/layout/schedule/timing.h>
#include <tessera/plan/recorded.h>
#include <tessera/plan/vision.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tessera::plan {

namespace schedule = layout::schedule;
using layout::Axis;

std::string_view name_of(TimeKind kind) {
  static constexpr std::string_view names[time_kinds] = {"products",  "attention", "passes", "tensor",
                                                         "context",   "experts",   "bubble", "data",
                                                         "optimizer", "host",      "jitter"};
  return names[static_cast<std::size_t>(kind)];
}

double StepTime::total() const {
  double sum = 0;
  for (const double s : seconds) sum += s;
  return sum;
}

TimeKind StepTime::largest() const {
  return static_cast<TimeKind>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
}

namespace {

void add(StepTime& to, const StepTime& from, double times = 1) {
  for (std::size_t i = 0; i < time_kinds; ++i) to.seconds[i] += times * from.seconds[i];
}

/// Bytes per element of the products' inputs.
double product_element(const Plan& run) { return run.numerics.product; }

/// Forward products of one block on a rank: {out, in} of each, and the number of tokens.
struct Product {
  double tokens, out, in;
  double times = 1;      ///< number of such products
  bool mlp = true;       ///< part of the MLP, or of experts and their router; otherwise part of attention
  bool grouped = false;  ///< one of many products computed at the same time, each with its own rows
};
std::vector<Product> products_of(const Model& m, const Plan& run, bool sparse) {
  const double t = run.tp(), c = real(m.hidden), tokens = run.tokens();
  std::vector<Product> all;
  if (m.latent) {  // every rank computes all heads
    const Latent& l = *m.latent;
    const double queries = real(m.heads * (l.plain + l.rotated));
    if (l.query_rank > 0) all.push_back({tokens, real(l.query_rank), c});
    all.push_back({tokens, queries, l.query_rank > 0 ? real(l.query_rank) : c});
    all.push_back({tokens, real(l.key_rank + l.rotated), c});
    all.push_back({tokens, real(m.heads * (l.plain + l.value)), real(l.key_rank)});
    all.push_back({tokens, c, real(m.heads * l.value) / t});
  } else {
    const double q = real(m.query_width()) / t, k = std::max(real(m.key_width()) / t, real(m.head_size));
    if (m.family == Family::gpt2 || m.packing != Packing::none)
      all.push_back({tokens, q + 2 * k, c});
    else
      all.push_back({tokens, q, c}), all.push_back({tokens, k, c, 2});
    all.push_back({tokens, c, q});
  }
  for (Product& product : all) product.mlp = false;
  const double ways = m.gated ? 2 : 1;
  if (!sparse) {
    all.push_back({tokens, real(m.inner) / t, c, ways});
    all.push_back({tokens, c, real(m.inner) / t});
    return all;
  }
  const Experts& e = *m.experts;
  const double held = real(e.count) / run.mesh.ep, rows = tokens * real(e.top_k) / held;  // balanced
  all.push_back({tokens, real(e.count), c});
  all.push_back({rows, real(e.inner) / t, c, ways * held, true, held > 1});
  all.push_back({rows, c, real(e.inner) / t, held, true, held > 1});
  if (e.shared_inner > 0) {
    all.push_back({tokens, real(e.shared_inner) / t, c, ways});
    all.push_back({tokens, c, real(e.shared_inner) / t});
  }
  return all;
}

/// Bytes that a block's elementwise operations read and write in forward.
double pass_bytes(const Model& m, const Plan& run, bool sparse) {
  const double t = run.tp(), tokens = run.tokens(), part = run.sequence_parallel ? tokens / t : tokens;
  const Numerics& n = run.numerics;
  const double drops = m.drops.mlp > 0 ? 4 : 0;  // two dropouts, each read and written
  // Two norms with the sum before them (x, delta; sum, normed), and a sum at the end.
  double bytes = (2 * 4 + 3 + drops) * part * real(m.hidden) * n.residual;
  const double q = real(m.query_width()) / t, k = real(m.key_width()) / t;
  if (m.family == Family::llama && m.position_rows == 0) bytes += 2 * (q + k) * tokens * n.inside;  // rotation
  if (n.copies) bytes += (m.gated ? 5 : 2) * 1.5 * tokens * real(m.hidden) * n.residual;
  const double ways = m.gated ? 3 : 2;
  if (!sparse) return bytes + ways * tokens * real(m.inner) / t * n.inside;
  const Experts& e = *m.experts;
  bytes += ways * tokens * (real(e.top_k * e.inner) + real(e.shared_inner)) / t * n.inside;
  return bytes + 4 * tokens * real(e.top_k) * real(m.hidden) * n.inside;  // into expert order and back
}

/// Tensors of [tokens, hidden] that a backward reads or writes to sum the gradients of an input that several maps
/// share.
double summed_gradients(const Model& m, bool sparse) {
  if (m.family == Family::gpt2 || m.packing != Packing::none) return 0;
  const double maps = m.latent ? 2 : 3;  // to the latents, or to q, k and v
  return 3 * (maps - 1 + (m.gated && !sparse ? 1 : 0));
}

/// Columns of products with a bias, whose gradient is the sum over tokens.
double biased_columns(const Model& m, double t, bool sparse) {
  const double q = real(m.query_width()) / t, k = real(m.key_width()) / t, c = real(m.hidden);
  double columns = (m.query_bias ? q + 2 * k : 0) + (m.output_bias ? c : 0);
  if (m.mlp_bias && !sparse) columns += (m.gated ? 2 : 1) * real(m.inner) / t + c;
  return columns;
}

/// Norms, rotation, activations and sums are added one by one, because the cost per byte depends on how much data
/// shares a cache.
void add_measured_passes(BlockTime& block, const Model& m, const Plan& run, const Speeds& speeds, bool sparse) {
  const double t = run.tp(), tokens = run.tokens(), part = run.sequence_parallel ? tokens / t : tokens;
  const Numerics& n = run.numerics;
  const auto both = [&](Work work, Work backward, double bytes, double times) {
    block.forward[TimeKind::passes] += times * speeds[work].at(bytes);
    block.backward[TimeKind::passes] +=
        times * (speeds[backward].empty() ? 2 * speeds[work].at(bytes) : speeds[backward].at(bytes));
  };
  both(Work::norm, Work::norm_backward, 4 * part * real(m.hidden) * n.residual, 2);
  if (m.drops.mlp > 0) both(Work::gate, Work::gate_backward, 2 * part * real(m.hidden) * n.residual, 2);
  if (m.family == Family::llama) {
    both(Work::norm, Work::norm_backward, 2 * real(m.query_width()) / t * tokens * n.inside, 1);
    both(Work::norm, Work::norm_backward, 2 * real(m.key_width()) / t * tokens * n.inside, 1);
  }
  if (m.head_norm) {
    both(Work::norm, Work::norm_backward, 2 * real(m.query_width()) / t * tokens * n.inside, 1);
    both(Work::norm, Work::norm_backward, 2 * real(m.key_width()) / t * tokens * n.inside, 1);
  }
  const auto summed = [&](double bytes) {
    if (bytes > 0) block.backward[TimeKind::passes] += speeds[Work::gate].at(bytes);
  };
  summed(summed_gradients(m, sparse) * tokens * real(m.hidden) * n.residual);
  summed(biased_columns(m, t, sparse) * tokens * n.residual);
  if (!m.latent && m.key_heads < m.heads) {  // keys and values are written once per query head
    const double bytes = 2 * (real(m.query_width()) + real(m.key_width())) / t * tokens * n.inside;
    block.forward[TimeKind::passes] += speeds[Work::gate].at(bytes);
    summed(bytes);
  }
  const double ways = m.gated ? 3 : 2;
  if (!sparse) return both(Work::gate, Work::gate_backward, ways * tokens * real(m.inner) / t * n.inside, 1);
  const Experts& e = *m.experts;
  const double rows = tokens * real(e.top_k);
  both(Work::gate, Work::gate_backward, ways * rows * real(e.inner) / t * n.inside, 1);
  if (e.shared_inner > 0) both(Work::gate, Work::gate_backward, ways * tokens * real(e.shared_inner) / t * n.inside, 1);
  both(Work::norm, Work::norm_backward, 2 * rows * real(m.hidden) * n.inside, 2);
}

}  // namespace

namespace {

/// A product's backward: gradients of its input, and of its weight if it is trained.
double backward_seconds(const Model& m, const Device& d, double tokens, double out, double in, double element) {
  return m.maps_trained() ? product_backward_seconds(d, tokens, out, in, element)
                          : product_seconds(d, tokens, in, out, element);
}

/// A recorded layer's arithmetic for `run`'s micro-batch.
void add_recorded(StepTime& time, const RecordedWork& work, const Model& m, const Plan& run, const Cluster& cluster,
                  double times = 1) {
  const RecordedSeconds seconds = recorded_seconds(*m.recorded, work, cluster, product_element(run), run.rows);
  time[TimeKind::products] += times * seconds.products;
  time[TimeKind::attention] += times * seconds.attention;
  time[TimeKind::passes] += times * seconds.passes;
}

}  // namespace

namespace {

/// Attention's forward and backward of one block.
std::pair<double, double> attention_of(const Model& m, const Plan& run, const Device& d, double seen) {
  const double element = product_element(run), tokens = run.tokens(), width = score_width(m, run.tp());
  if (d.measured)
    return {attention_seconds(d, tokens, seen, width, element),
            attention_backward_seconds(d, tokens, seen, width, element)};
  const double head = m.latent ? real(m.latent->plain + m.latent->rotated) : real(m.head_size);
  if (run.engine.attention == AttentionKernel::scores_in_memory) {
    const double forward = scores_seconds(d, tokens, real(run.sequence), width, head, element);
    return {forward, 2 * forward};
  }
  const double share = attention_share(d, run.engine.attention) * (1 + 40.0 / 128) / (1 + 40 / head);
  const double forward = attention_seconds(d, tokens, seen, width, element) * d.attention / share;
  return {forward, 2.5 * forward};
}

}  // namespace

StepTime halves_time(const StepTime& block, double mlp_share, double attentions, double mlps) {
  StepTime time;
  for (std::size_t i = 0; i < time_kinds; ++i) {
    double share = mlp_share;
    switch (static_cast<TimeKind>(i)) {
      case TimeKind::attention:
      case TimeKind::context:
        share = 0;
        break;
      case TimeKind::experts:
        share = 1;
        break;
      case TimeKind::tensor:
        share = 0.5;
        break;
      default:
        break;
    }
    time.seconds[i] = block.seconds[i] * ((1 - share) * attentions + share * mlps);
  }
  return time;
}

BlockTime block_time(const Model& m, const Plan& run, const Cluster& cluster, bool sparse, double seen) {
  BlockTime block;
  if (m.recorded) {  // the mean layer
    for (const RecordedLayer& layer : m.recorded->layers) {
      add_recorded(block.forward, layer.forward, m, run, cluster, 1 / real(m.layers));
      add_recorded(block.backward, layer.backward, m, run, cluster, 1 / real(m.layers));
    }
    return block;
  }
  const Device& d = cluster.device;
  const double element = product_element(run), tokens = run.tokens(), t = run.tp();
  StepTime &f = block.forward, &b = block.backward;
  for (const Product& p : products_of(m, run, sparse)) {
    const double times = p.times / (p.grouped && !d.measured ? d.grouped : 1);
    const double seconds = times * product_seconds(d, p.tokens, p.out, p.in, element);
    f[TimeKind::products] += seconds;
    if (p.mlp) block.mlp_share += seconds;
    b[TimeKind::products] += times * backward_seconds(m, d, p.tokens, p.out, p.in, element);
  }
  block.mlp_share /= f[TimeKind::products];
  std::tie(f[TimeKind::attention], b[TimeKind::attention]) = attention_of(m, run, d, seen);
  if (d.measured) {
    add_measured_passes(block, m, run, *d.measured, sparse);
  } else {
    f[TimeKind::passes] = pass_seconds(d, run.engine.pass_bytes * pass_bytes(m, run, sparse)) + 5 * d.launch;
    b[TimeKind::passes] = 2 * f[TimeKind::passes];
  }
  if (run.pp() > 1) {
    f[TimeKind::host] = run.engine.pipeline_host_seconds;
    b[TimeKind::host] = 2 * f[TimeKind::host];
  }
  if (t > 1) {
    const Placed group = place(run.tp(), 1, cluster.per_node);
    const double bytes = tokens * real(m.hidden) * run.numerics.inside;
    // An all-reduce, or a gather and a reduce-scatter: the same number of bytes.
    const double seen_share = 1 - run.engine.tensor_hidden;
    f[TimeKind::tensor] = 2 * seen_share * collective_seconds(cluster, group, Collective::all_reduce, bytes);
    b[TimeKind::tensor] = f[TimeKind::tensor];
    if (run.sequence_parallel)  // inputs are gathered again for weight gradients, hidden behind a product
      b[TimeKind::tensor] += 0.5 * seen_share * collective_seconds(cluster, group, Collective::all_gather, 2 * bytes);
  }
  if (run.cp() > 1) {
    const double keys = 2 * tokens * real(m.key_width()) / t * run.numerics.inside, steps = run.cp() - 1;
    const double one = message_seconds(cluster, run.tp(), keys);
    const auto exposed = [&](double exchange, double compute) {
      return std::max(0.0, steps * exchange - compute * steps / run.cp()) + exchange;
    };
    f[TimeKind::context] = exposed(one, f[TimeKind::attention]);
    b[TimeKind::context] = exposed(2 * one, b[TimeKind::attention]);
  }
  if (sparse && run.mesh.ep > 1) {
    const Placed group = place(run.mesh.ep, run.tp(), cluster.per_node);
    const double bytes = tokens * real(m.experts->top_k) * real(m.hidden) * run.numerics.inside;
    f[TimeKind::experts] = 2 * collective_seconds(cluster, group, Collective::all_to_all, bytes);
    b[TimeKind::experts] = f[TimeKind::experts];
  }
  return block;
}

namespace {

/// Time of the recomputed forward of a block that the run recomputes.
StepTime recomputed_time(const Plan& run, const BlockTime& block, double attentions, double mlps) {
  if (run.recomputed_part == layout::CheckpointPart::attention) mlps = 0;
  if (run.recomputed_part == layout::CheckpointPart::mlp) attentions = 0;
  return halves_time(block.forward, block.mlp_share, attentions, mlps);
}

/// Average number of tokens visible to a query, with a layer's window, as computed (half for causal attention).
double seen_tokens(const Model& m, const Plan& run, std::int64_t layer) {
  const double window = real(m.window(layer));
  const double s = real(run.sequence), reach = window > 0 ? std::min(window, s) : s;
  return m.causal ? reach - reach * reach / (2 * s) : reach;
}

struct StageTime {
  StepTime forward, backward, again;  ///< again: recomputation
};

/// Adds the embedding of the first stage, and head and loss of the last.
void add_ends(StageTime& stage, const Model& m, const Plan& run, const Elements& elements, const Cluster& cluster,
              const layout::StagePart& part) {
  if (m.recorded) {
    for (const auto& [has, layer] : {std::pair{part.embeddings, &m.recorded->begin}, {part.end, &m.recorded->end}}) {
      if (!has) continue;
      add_recorded(stage.forward, layer->forward, m, run, cluster);
      add_recorded(stage.backward, layer->backward, m, run, cluster);
    }
    return;
  }
  const Device& d = cluster.device;
  const double tokens = run.tokens(), c = real(m.hidden), words = elements.head / c;
  if (part.embeddings) {
    const double bytes = 2 * tokens * c * run.numerics.residual;
    stage.forward[TimeKind::passes] += pass_seconds(d, bytes);
    // On the CPU the gradient is a whole table of zeros to which the gradients of used rows are added.
    const double table = run.on_cpu ? std::ceil(real(m.vocabulary) / run.tp()) * c * run.numerics.gradient : 0;
    if (m.maps_trained()) stage.backward[TimeKind::passes] += pass_seconds(d, 2 * bytes + table);
    if (m.vision) add_vision_seconds(stage.forward, stage.backward, m, run, d);
  }
  if (!part.end || words == 0) return;
  const double element = product_element(run), depths = real(m.computed_depths()), heads = 1 + depths;
  stage.forward[TimeKind::products] += heads * product_seconds(d, tokens, words, c, element);
  stage.backward[TimeKind::products] += heads * backward_seconds(m, d, tokens, words, c, element);
  if (d.measured) {  // the loss turns logits into their gradients in one pass (nn/linear_cross_entropy.h)
    stage.forward[TimeKind::passes] += heads * (*d.measured)[Work::gate].at(2 * tokens * words * 4);
  } else if (run.engine.loss_bytes > 0) {
    for (StepTime* part : {&stage.forward, &stage.backward})
      (*part)[TimeKind::passes] += heads * pass_seconds(d, tokens * words * run.engine.loss_bytes / 2);
  } else if (run.numerics.head_in_chunks && run.tp() == 1) {  // one in-place pass over the logits as well
    stage.forward[TimeKind::passes] += heads * pass_seconds(d, 2 * tokens * words * product_element(run));
  } else {
    stage.forward[TimeKind::passes] += heads * pass_seconds(d, tokens * words * run.numerics.logits);
    stage.backward[TimeKind::passes] += heads * pass_seconds(d, tokens * words * run.numerics.logits);
  }
  if (depths == 0) return;
  // Adds a depth's parts besides its block and head: rows of the table, three norms, a map from two widths to one.
  stage.forward[TimeKind::products] += depths * product_seconds(d, tokens, c, 2 * c, element);
  stage.backward[TimeKind::products] += depths * product_backward_seconds(d, tokens, c, 2 * c, element);
  const double bytes = (2 + 3 * 2 + 4) * tokens * c * run.numerics.residual,
               table = elements.head * run.numerics.gradient;
  stage.forward[TimeKind::passes] += depths * pass_seconds(d, bytes);
  stage.backward[TimeKind::passes] += depths * pass_seconds(d, 2 * bytes + (run.on_cpu ? table : 0));
}

}  // namespace

double mean_seen_tokens(const Model& m, const Plan& run) {
  if (m.windows.empty()) return seen_tokens(m, run, 0);
  double sum = 0;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) sum += seen_tokens(m, run, layer);
  return sum / real(m.layers);
}

double embedding_seconds(const Model& m, const Plan& run, const Cluster& cluster) {
  StageTime stage;
  add_ends(stage, m, run, {}, cluster, {.embeddings = true});
  return stage.forward.total() + stage.backward.total();
}

double head_seconds(const Model& m, const Plan& run, const Elements& elements, const Cluster& cluster) {
  StageTime stage;
  add_ends(stage, m, run, elements, cluster, {.end = true});
  return stage.forward.total() + stage.backward.total();
}

namespace {

/// Each stage's times for one micro-batch.
std::vector<StageTime> stage_times(const Model& m, const Plan& run, const Elements& elements, const Cluster& cluster,
                                   const TimeOptions& options) {
  const std::size_t stages = run.parts.size();
  // Blocks differ only in whether they have experts and in how many tokens attention sees; there are few kinds, so each
  // is timed once.
  std::vector<std::pair<std::pair<bool, double>, BlockTime>> kinds;
  const auto time_of = [&](std::int64_t layer) -> const BlockTime& {
    const std::pair<bool, double> kind = {m.is_sparse(layer), seen_tokens(m, run, layer)};
    for (const auto& known : kinds)
      if (known.first == kind) return known.second;
    kinds.emplace_back(kind, block_time(m, run, cluster, kind.first, kind.second));
    return kinds.back().second;
  };
  std::vector<StageTime> times(stages);
  const bool uniform = m.windows.empty() && m.sparse.empty();
  for (std::size_t s = 0; s < stages; ++s) {
    const layout::StagePart& part = run.parts[s];
    StageTime& stage = times[s];
    if (m.recorded) {
      for (std::int64_t i = part.first_block; i < part.past_block(); ++i) {
        const RecordedLayer& layer = m.recorded->layers[static_cast<std::size_t>(i)];
        add_recorded(stage.forward, layer.forward, m, run, cluster);
        add_recorded(stage.backward, layer.backward, m, run, cluster);
        if (run.recomputes(i)) add_recorded(stage.again, layer.forward, m, run, cluster);
      }
      add_ends(stage, m, run, elements, cluster, part);
      continue;
    }
    const std::int64_t step = uniform ? std::max<std::int64_t>(1, part.blocks) : 1;
    for (std::int64_t layer = part.first_block; layer < part.past_block(); layer += step) {
      const BlockTime& block = time_of(layer);
      const double attentions = real(uniform ? part.attentions() : part.attention_of(layer) ? 1 : 0);
      const double mlps = real(uniform ? part.mlps() : part.mlp_of(layer) ? 1 : 0);
      const StepTime forward = halves_time(block.forward, block.mlp_share, attentions, mlps);
      add(stage.forward, forward);
      add(stage.backward, halves_time(block.backward, block.mlp_share, attentions, mlps));
      if (run.recompute > 0) add(stage.again, recomputed_time(run, block, attentions, mlps), run.recomputed_share());
      if (run.scores_again && run.recompute == 0)
        stage.again[TimeKind::attention] += attentions * block.forward[TimeKind::attention];
    }
    for (std::int64_t depth = 0; part.end && depth < m.computed_depths(); ++depth) {
      const BlockTime& block = time_of(m.layers + depth);
      add(stage.forward, block.forward);
      add(stage.backward, block.backward);
      if (run.recompute > 0) add(stage.again, recomputed_time(run, block, 1, 1), run.recomputed_share());
    }
    add_ends(stage, m, run, elements, cluster, part);
  }
  if (const auto& measured = cluster.device.measured) {
    const double between = product_element(run) > 2 ? measured->between_fp32 : measured->between_bf16;
    for (StageTime& stage : times)
      for (StepTime* part : {&stage.forward, &stage.backward, &stage.again})
        for (const TimeKind kind : {TimeKind::products, TimeKind::attention, TimeKind::passes})
          (*part)[kind] *= between;
  }
  return times;
}

/// Bytes of a message between stages.
double message_bytes(const Model& m, const Plan& run) {
  const double parts = run.sequence_parallel || run.engine.scattered_messages ? run.tp() : 1;
  return run.tokens() / parts * real(m.hidden) * run.numerics.inside;
}

/// The stages' costs for a schedule.
schedule::Costs costs_of(const std::vector<StageTime>& times, const Model& m, const Plan& run, const Cluster& cluster) {
  const double message = message_bytes(m, run);
  const int stride = stride_of(run.mesh, Axis::pp);
  schedule::Costs costs;
  costs.stages.clear();
  // Every forward, and every backward, sends one message and receives one.
  const double waits = run.engine.waits_for_messages ? 2 * message_seconds(cluster, stride, message) : 0;
  for (const StageTime& stage : times) {
    const double backward = stage.backward.total() + stage.again.total();
    const double weights = stage.backward[TimeKind::products] / 2;
    costs.stages.push_back({.forward = stage.forward.total() + waits,
                            .input_gradient = backward - weights + waits,
                            .weight_gradient = weights,
                            .output_bytes = message});
  }
  costs.latency = message_seconds(cluster, stride, 0);
  costs.seconds_per_byte = message_seconds(cluster, stride, 1e9) / 1e9 - costs.latency / 1e9;
  return costs;
}

PipelineTimes pipeline_of(const schedule::Costs& costs, const Plan& run) {
  const schedule::Shape shape{run.pp(), static_cast<int>(run.stages_per_rank), representative_micro_batches(run)};
  PipelineTimes times{schedule::make_schedule(run.schedule, shape), {}};
  times.timing = schedule::time_schedule(times.schedule, costs);
  return times;
}

/// When processes share cores, the step takes the larger of the total work of all processes and the step with one core
/// per process; while one process waits in a bubble, another computes. `even`: the mean rank's work relative to the
/// busiest one's.
void share_cores(StepTime& step, double crowding, double even) {
  const double apart = step.total();
  step[TimeKind::bubble] = 0;
  for (double& seconds : step.seconds) seconds *= crowding * even;
  step[TimeKind::bubble] = std::max(0.0, apart - step.total());
}

}  // namespace

PipelineTimes pipeline_times(const Model& m, const Plan& run, const Elements& elements, const Cluster& cluster,
                             const TimeOptions& options) {
  return pipeline_of(costs_of(stage_times(m, run, elements, cluster, options), m, run, cluster), run);
}

StepTime step_time(const Model& m, const Plan& run, const Elements& elements, const Cluster& cluster,
                   const TimeOptions& options) {
  const double micro_batches = real(run.micro_batches);
  const std::vector<StageTime> times = stage_times(m, run, elements, cluster, options);
  const std::size_t stages = times.size();
  // The busiest rank sets the pace; idle time of the others and of the schedule is the bubble.
  const int p = run.pp();
  std::size_t busiest = 0;
  std::vector<StepTime> ranks(static_cast<std::size_t>(p));
  std::vector<Elements::Piece> pieces(static_cast<std::size_t>(p));
  std::vector<double> roots(static_cast<std::size_t>(p), 0.0);
  for (std::size_t s = 0; s < stages; ++s) {
    const auto rank = static_cast<std::size_t>(p == 1 ? 0 : rank_of_stage(run, static_cast<int>(s)));
    for (const StepTime* part : {&times[s].forward, &times[s].backward, &times[s].again})
      add(ranks[rank], *part, micro_batches);
    const Elements::Piece piece = stage_elements(m, elements, run.parts[s]);
    pieces[rank].add(piece);
    roots[rank] = std::max(roots[rank], piece.all() / std::max(1.0, real(run.parts[s].blocks)));
  }
  for (std::size_t r = 1; r < ranks.size(); ++r)
    if (ranks[r].total() > ranks[busiest].total()) busiest = r;
  StepTime step = ranks[busiest];
  const double busy = step.total();
  double last_backward = 0;
  for (std::size_t s = 0; s < stages; ++s)
    if (p == 1 || rank_of_stage(run, static_cast<int>(s)) == static_cast<int>(busiest))
      last_backward += times[s].backward.total() + times[s].again.total();

  if (p > 1) {
    const double message = message_bytes(m, run);
    const int stride = stride_of(run.mesh, Axis::pp);
    const schedule::Shape shape{p, static_cast<int>(run.stages_per_rank), static_cast<int>(run.micro_batches)};
    if (options.simulate) {
      const double total = pipeline_of(costs_of(times, m, run, cluster), run).timing.total;
      step[TimeKind::bubble] = std::max(0.0, total - busy * representative_micro_batches(run) / micro_batches);
    } else {
      const schedule::ScheduleRow& row = schedule::schedule_of(run.schedule);
      const double one = 1 / micro_batches / real(run.stages_per_rank);
      StepTime mean;
      add(mean, ranks[busiest], one);
      const double weights = mean[TimeKind::products] / 3, backward = mean.total() * 2 / 3;
      const schedule::StageTime stage{mean.total() / 3, backward - weights, weights};
      const auto bubble = row.bubble_time(shape, stage);
      const double hops = 2 * (p - 1) * message_seconds(cluster, stride, message);
      step[TimeKind::bubble] = (bubble ? *bubble : (p - 1) * mean.total()) + hops;
    }
  }
  step[TimeKind::data] = exposed_data_seconds(run, pieces[busiest], roots[busiest], cluster, busy, last_backward);
  step[TimeKind::optimizer] = optimizer_seconds(run, pieces[busiest], cluster);
  if (cluster.crowding > 1) {
    double all = 0;
    for (const StepTime& rank : ranks) all += rank.total();
    share_cores(step, cluster.crowding, all / (real(p) * busy));
  }
  const double world = run.mesh.world_size();
  if (world > 1) {
    const double nodes = std::max(1.0, world / cluster.per_node);
    const double slow = 1 - std::pow(1 - run.engine.slow_nodes, nodes);  // probability that at least one of them is
                                                                         // slow
    step[TimeKind::jitter] = step.total() * (options.deviation * std::sqrt(2 * std::log(world)) + 0.1 * slow);
  }
  return step;
}

double model_flops_utilization(const Model& model, const Plan& run, const Cluster& cluster, double step_seconds,
                               bool half) {
  const double peak = run.numerics.product > 2 ? cluster.device.fp32 : cluster.device.bf16;
  return model_flops_per_token(model, real(run.sequence), half) * run.tokens_per_step() /
         (step_seconds * peak * run.mesh.world_size());
}

}  // namespace tessera::plan
