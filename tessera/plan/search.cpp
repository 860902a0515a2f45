#include <tessera/plan/search.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/plan/recorded.h>
#include <tessera/plan/sure.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <tuple>

namespace tessera::plan {
namespace {

namespace schedule = layout::schedule;
using layout::Axis;

std::vector<int> divisors(std::int64_t n) {
  std::vector<int> all;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    all.push_back(static_cast<int>(d));
    if (d * d != n) all.push_back(static_cast<int>(n / d));
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// The settings of a point, compact enough to store thousands of them.
struct Point {
  int tp = 1, cp = 1, pp = 1, ep = 1, shard = 1, dp = 1;
  Strategy strategy = Strategy::ddp;
  std::int16_t schedule = 0;  ///< index into `kinds_of_schedule`
  std::int64_t rows = 1, micro_batches = 1, recompute = 0;
  double seconds = 0, bytes = 0;

  auto key() const { return std::tie(tp, cp, pp, ep, shard, strategy, schedule, rows, recompute); }
};

bool faster(const Point& a, const Point& b) {
  return a.seconds != b.seconds ? a.seconds < b.seconds : a.key() < b.key();
}
bool smaller(const Point& a, const Point& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.key() < b.key(); }

struct ScheduleKind {
  const char* name;
  int stages_per_rank;
};
constexpr ScheduleKind kinds_of_schedule[] = {{"1f1b", 1},
                                              {"interleaved_1f1b", 2},
                                              {"interleaved_1f1b", 3},
                                              {"interleaved_1f1b", 4},
                                              {"interleaved_1f1b", 5},
                                              {"interleaved_1f1b", 6},
                                              {"interleaved_1f1b", 8},
                                              {"zb_h1", 1},
                                              {"zbv", 2}};

/// Another engine uses the numbers of its mixed precision; in fp32 all engines are equal.
Numerics numerics_for(const Question& q) {
  if (q.engine.name == EngineName::tessera || q.precision == Precision::fp32)
    return numerics_of(q.precision, q.cluster.on_cpu);
  return engine_numerics(q.engine);
}

Plan plan_of(const Question& q, const Point& p) {
  Plan plan;
  plan.precision = q.precision;
  plan.on_cpu = q.cluster.on_cpu;
  plan.engine = q.engine;
  plan.numerics = numerics_for(q);
  plan.sequence = q.sequence;
  plan.mesh.sizes = {p.pp, p.dp / p.shard, p.shard, p.cp, p.tp};
  plan.mesh.ep = p.ep;
  plan.strategy = p.strategy;
  plan.rows = p.rows;
  plan.micro_batches = p.micro_batches;
  plan.recompute = p.recompute;
  plan.sequence_parallel = p.tp > 1 && q.engine.sequence_parallel;
  const ScheduleKind& kind = kinds_of_schedule[p.schedule];
  plan.schedule = kind.name;
  plan.stages_per_rank = kind.stages_per_rank;
  return plan;
}

/// The fastest and the smallest points of a part of the search space.
struct Found {
  std::vector<Point> fast;  ///< a heap, the slowest first
  std::optional<Point> small;
  std::uint64_t points = 0, too_large = 0;

  void take(const Point& point, std::size_t keep) {
    if (fast.size() == keep && !faster(point, fast.front())) return;
    fast.push_back(point);
    std::push_heap(fast.begin(), fast.end(), faster);
    if (fast.size() <= keep) return;
    std::pop_heap(fast.begin(), fast.end(), faster);
    fast.pop_back();
  }
  void add(const Found& other);
};

constexpr std::size_t most_kept = 24;  ///< number of points that are timed by simulation

void Found::add(const Found& other) {
  for (const Point& point : other.fast) take(point, most_kept);
  if (other.small && (!small || smaller(*other.small, *small))) small = other.small;
  points += other.points;
  too_large += other.too_large;
}

/// Values shared by all points of one (tp, cp, ep, rows).
struct Base {
  double forward = 0, backward = 0;  ///< seconds per average block and micro-batch
  double products = 0;               ///< seconds of backward in products for weight gradients
  double embeddings = 0, end = 0;    ///< seconds, both ways
  double hop = 0;                    ///< a message between stages
  BlockActivations kinds[2];
};

class Searcher {
 public:
  explicit Searcher(const Question& q) : q_(q), m_(q.model), limit_(q.memory_limit) {
    for (std::int64_t layer = 0; layer < m_.layers; ++layer) sparse_ += m_.is_sparse(layer);
  }

  /// Evaluates all points of one tp and cp.
  void walk(int tp, int cp, Found& found) const {
    const std::int64_t ranks = q_.cluster.devices / tp / cp;
    for (const int ep : expert_sizes(tp)) {
      const Elements elements = elements_of(m_, tp, ep);
      for (const int pp : divisors(ranks)) {
        if (pp > m_.layers || (q_.pp > 0 && pp != q_.pp) || ((m_.vision || !cuts_models(q_.engine.name)) && pp > 1))
          continue;
        const std::int64_t dp = ranks / pp;
        if (q_.global_batch % dp != 0 || (dp * cp) % ep != 0) continue;
        Found mesh;
        for (const std::int64_t rows : row_counts(q_.global_batch / dp))
          walk_rows(tp, cp, ep, pp, static_cast<int>(dp), rows, elements, mesh);
        found.add(mesh);
      }
    }
  }

 private:
  /// The engine does not divide experts together with tensor parallelism or shard groups (config/core/mesh.cpp).
  std::vector<int> expert_sizes(int tp) const {
    if (!m_.experts || !cuts_models(q_.engine.name)) return {1};
    std::vector<int> all;
    for (const int ep : divisors(m_.experts->count))
      if ((q_.ep == 0 || ep == q_.ep) && (ep == 1 || tp == 1) && ep <= q_.cluster.devices) all.push_back(ep);
    return all;
  }

  std::vector<std::int64_t> row_counts(std::int64_t per_rank) const {
    std::vector<std::int64_t> all;
    for (std::int64_t rows = 1; rows <= per_rank && rows <= 64; rows *= 2)
      if (per_rank % rows == 0 && (q_.rows == 0 || rows == q_.rows)) all.push_back(rows);
    if (q_.rows > 0 && all.empty() && per_rank % q_.rows == 0) all.push_back(q_.rows);
    if (q_.micro_batches > 0) std::erase_if(all, [&](std::int64_t r) { return per_rank / r != q_.micro_batches; });
    // Rows that are not a power of two, as required by a given number of micro-batches.
    if (q_.micro_batches > 0 && q_.rows == 0 && all.empty() && per_rank % q_.micro_batches == 0)
      all.push_back(per_rank / q_.micro_batches);
    if (q_.rows == 0)
      std::erase_if(all, [&](std::int64_t r) { return r < q_.least_rows || (q_.most_rows > 0 && r > q_.most_rows); });
    return all;
  }

  Base base_of(const Plan& plan, const Elements& elements) const {
    Base base;
    const double seen = mean_seen_tokens(m_, plan), share = sparse_ / real(m_.layers);
    for (const bool sparse : {false, true}) {
      const double weight = sparse ? share : 1 - share;
      if (weight == 0) continue;
      const BlockTime time = block_time(m_, plan, q_.cluster, sparse, seen);
      base.forward += weight * time.forward.total();
      base.backward += weight * time.backward.total();
      base.products += weight * time.backward[TimeKind::products] / 2;
      base.kinds[sparse ? 1 : 0] = block_activations(m_, plan, sparse);
    }
    base.embeddings = embedding_seconds(m_, plan, q_.cluster);
    base.end = head_seconds(m_, plan, elements, q_.cluster);
    const double tokens = plan.tokens() / (plan.sequence_parallel ? plan.tp() : 1);
    base.hop =
        message_seconds(q_.cluster, stride_of(plan.mesh, Axis::pp), tokens * real(m_.hidden) * plan.numerics.inside);
    return base;
  }

  void walk_rows(int tp, int cp, int ep, int pp, int dp, std::int64_t rows, const Elements& elements,
                 Found& found) const {
    Point point{.tp = tp, .cp = cp, .pp = pp, .ep = ep, .shard = 1, .dp = dp, .rows = rows};
    point.micro_batches = q_.global_batch / dp / rows;
    Plan plan = plan_of(q_, point);
    const Base base = base_of(plan, elements);
    for (std::size_t kind = 0; kind < std::size(kinds_of_schedule); ++kind) {
      const ScheduleKind& of = kinds_of_schedule[kind];
      if (pp == 1 && kind > 0) break;
      if (pp * of.stages_per_rank > m_.layers) continue;
      if (!has_schedule(q_.engine.name, of.name)) continue;
      if (q_.schedule && pp > 1 && &schedule::schedule_of(*q_.schedule) != &schedule::schedule_of(of.name)) continue;
      point.schedule = static_cast<std::int16_t>(kind);
      plan.schedule = of.name;
      plan.stages_per_rank = of.stages_per_rank;
      const schedule::ScheduleRow& row = schedule::schedule_of(of.name);
      for (const Strategy strategy : strategies(dp * cp, pp, ep)) {
        const std::vector<int> shards = shard_sizes(strategy, dp, tp, cp);
        for (const int shard : shards) {
          point.strategy = plan.strategy = strategy;
          point.shard = shard;
          plan.mesh.sizes[1] = dp / shard;
          plan.mesh.sizes[2] = shard;
          for (const std::int64_t recompute : {std::int64_t{0}, std::int64_t{2}, std::int64_t{1}}) {
            if (q_.recompute && recompute != *q_.recompute) continue;
            point.recompute = plan.recompute = recompute;
            score(point, plan, base, elements, row, found);
          }
        }
      }
    }
  }

  std::vector<Strategy> strategies(int ranks, int pp, int ep) const {
    if (q_.strategy) return {*q_.strategy};
    if (ranks == 1) return {Strategy::ddp};
    std::vector<Strategy> all = {Strategy::ddp,           Strategy::zero1,      Strategy::zero2,
                                 Strategy::shard_grad_op, Strategy::full_shard, Strategy::hybrid_shard};
    std::erase_if(all, [&](Strategy s) {
      return (s == Strategy::hybrid_shard && (pp > 1 || ep > 1)) || !has_strategy(q_.engine.name, s, pp);
    });
    return all;
  }

  std::vector<int> shard_sizes(Strategy strategy, int dp, int tp, int cp) const {
    const ShardGroup group = row_of(strategy).shard_group;
    if (group == ShardGroup::none) return {1};
    if (group == ShardGroup::all) return {dp};
    const int host = std::max(1, q_.cluster.per_node / (tp * cp));
    return dp % host == 0 && host < dp && host > 1 ? std::vector<int>{host} : std::vector<int>{};
  }

  void score(Point& point, const Plan& plan, const Base& base, const Elements& elements,
             const schedule::ScheduleRow& row, Found& found) const {
    ++found.points;
    const int p = point.pp, v = static_cast<int>(plan.stages_per_rank);
    const double m = real(point.micro_batches);
    // Depths of multi-token prediction count as blocks of the last stage.
    const std::int64_t stages = std::int64_t{p} * v, depths = m_.computed_depths(), all = m_.layers + depths,
                       most = std::min(m_.layers, (all + stages - 1) / stages * v),
                       least = std::max<std::int64_t>(depths > 0 ? 0 : 1, all / stages * v - depths);
    const schedule::Shape shape{p, v, static_cast<int>(point.micro_batches)};
    const double process = q_.cluster.device.process + links_bytes(point);

    // Memory of the rank with the embedding and the most micro-batches in flight, and of the rank with the head.
    const layout::StagePart first{
        .embeddings = true, .end = p == 1, .first_block = 0, .blocks = p == 1 ? m_.layers : most};
    const double flying = p == 1 ? 1 : static_cast<double>(row.in_flight_of(shape, 0)) / v;
    double bytes = memory_of_piece(m_, plan, elements, first, base.kinds, flying, process).total();
    if (p > 1) {
      const layout::StagePart last{.end = true, .first_block = m_.layers - least, .blocks = least};
      const double there = static_cast<double>(row.in_flight_of(shape, p - 1)) / v;
      bytes = std::max(bytes, memory_of_piece(m_, plan, elements, last, base.kinds, there, process).total());
    }
    point.bytes = bytes;
    if (!found.small || smaller(point, *found.small)) found.small = point;
    if (bytes > limit_) {
      ++found.too_large;
      return;
    }

    const double again = plan.recompute > 0 ? base.forward / real(plan.recompute) : 0;
    const double block = base.forward + base.backward + again;
    const double end = real(depths) * block + base.end;
    const double first_rank = real(first.blocks) * block + base.embeddings + (p == 1 ? end : 0);
    const double last_rank = p == 1 ? 0 : real(least) * block + end;
    const double busy = m * std::max(first_rank, last_rank);
    double seconds = busy;
    if (p > 1) {
      const double each = real(most) / v;
      const schedule::StageTime stage{each * base.forward, each * (base.backward + again - base.products),
                                      each * base.products};
      const auto bubble = row.bubble_time(shape, stage);
      seconds += (bubble ? *bubble : (p - 1) * stage.forward) + 2 * (p - 1) * base.hop;
    }
    Elements::Piece piece = stage_elements(m_, elements, first);
    const double root = piece.all() / real(std::max<std::int64_t>(1, first.blocks));
    seconds += exposed_data_seconds(plan, piece, root, q_.cluster, busy, real(most) * (base.backward + again));
    seconds += optimizer_seconds(plan, piece, q_.cluster);
    point.seconds = seconds;
    found.take(point, kept_of_mesh);
  }

 public:
  /// NCCL communicators take about 0.2 to 0.5 GB each (NVIDIA/nccl#964: 544 MB for two ranks, 688 MB for more).
  double links_bytes(const Point& p) const {
    if (q_.cluster.on_cpu) return 0;
    const int groups = (p.tp > 1) + (p.cp > 1) + (p.pp > 1) + (p.ep > 1) + (p.dp * p.cp > 1);
    return 0.4e9 * groups;
  }

  /// At most two plans per mesh, so that the answer shows different meshes.
  static constexpr std::size_t kept_of_mesh = 2;

 private:
  const Question& q_;
  const Model& m_;
  double limit_, sparse_ = 0;
};

double links_bytes(const Cluster& cluster, const Plan& plan) {
  if (cluster.on_cpu) return 0;
  const int groups =
      (plan.tp() > 1) + (plan.cp() > 1) + (plan.pp() > 1) + (plan.mesh.ep > 1) + (plan.dp() * plan.cp() > 1);
  return 0.4e9 * groups;
}

std::vector<int> tensor_sizes(const Question& q) {
  std::vector<int> all;
  const Model& m = q.model;
  const bool together = m.latent || m.wide_head_norm;
  const std::int64_t inner = m.experts ? m.experts->inner : m.inner;
  for (const int tp : divisors(q.cluster.devices)) {
    if (tp > q.cluster.per_node || (q.tp > 0 && tp != q.tp) ||
        ((q.model.has_no_cuts() || q.model.adapters || !cuts_models(q.engine.name)) && tp > 1))
      continue;
    if (!together && (m.heads % tp != 0 || (m.key_heads % tp != 0 && tp % m.key_heads != 0))) continue;
    if (inner % tp != 0 || m.inner % tp != 0 || q.sequence % tp != 0) continue;
    all.push_back(tp);
  }
  return all;
}

std::vector<int> context_sizes(const Question& q) {
  std::vector<int> all;
  for (const int cp : divisors(q.cluster.devices)) {
    if ((q.cp > 0 && cp != q.cp) || ((q.model.has_no_cuts() || !cuts_models(q.engine.name)) && cp > 1)) continue;
    if (cp > 1 && (q.sequence % (2 * cp) != 0 || q.sequence / cp < 1024) && q.cp == 0) continue;
    if (cp > 1 && q.sequence % (2 * cp) != 0) continue;
    all.push_back(cp);
  }
  return all;
}

Question completed(Question q) {
  if (q.model.recorded) {
    const RecordedStep& step = *q.model.recorded;
    Plan wanted;
    wanted.mesh.sizes = {1, 1, 1, std::max(1, q.cp), std::max(1, q.tp)};
    wanted.mesh.ep = std::max(1, q.ep);
    if (const std::string problem = plan_problem(q.model, wanted); !problem.empty()) throw InputError(problem);
    if (q.sequence == 0) q.sequence = step.row_tokens;
    if (q.sequence != step.row_tokens)
      throw InputError(concat("sequences of ", q.sequence, " tokens: ", q.model.name, " was recorded with ",
                              step.row_tokens, "; record a step with the other length"));
    if ((step.product_bytes < 4) != (q.precision != Precision::fp32))
      throw InputError(concat("precision ", word_of(q.precision), ": ", q.model.name, " was recorded in ",
                              step.product_bytes < 4 ? "bf16" : "fp32",
                              ", so its memory in the other precision is unknown; ",
                              step.product_bytes < 4 ? "plan it with bf16" : "plan it with fp32, or record it under ",
                              step.product_bytes < 4 ? "" : "autocast"));
  }
  if (q.model.vision) {
    Plan wanted;
    wanted.mesh.sizes = {std::max(1, q.pp), 1, 1, std::max(1, q.cp), std::max(1, q.tp)};
    if (const std::string problem = plan_problem(q.model, wanted); !problem.empty()) throw InputError(problem);
  }
  if (q.engine.name != EngineName::tessera && q.cluster.on_cpu)
    throw InputError(concat("engine ", word_of(q.engine.name), ": predictions are only for GPUs, and ", q.cluster.text,
                            " is not a GPU"));
  for (const auto& [axis, size] : {std::pair{"tp", q.tp}, {"pp", q.pp}, {"cp", q.cp}, {"ep", q.ep}})
    if (size > 1 && !cuts_models(q.engine.name))
      throw InputError(concat(axis, " ", size, ": engine ", word_of(q.engine.name),
                              " supports only data parallelism; the ", "nearest possible value is ", axis,
                              " 1 (torchtitan adds the others)"));
  if (q.schedule && !has_schedule(q.engine.name, *q.schedule))
    throw InputError(concat("schedule ", *q.schedule, ": engine ", word_of(q.engine.name), " has no such schedule"));
  if (q.strategy && !has_strategy(q.engine.name, *q.strategy, std::max(1, q.pp)))
    throw InputError(concat("strategy ", word_of(*q.strategy), ": engine ", word_of(q.engine.name), " does not have it",
                            q.pp > 1 ? " in a pipeline" : ""));
  if (q.sequence == 0) q.sequence = std::min<std::int64_t>(4096, q.model.positions);
  if (q.sequence < 1 || q.sequence > q.model.positions)
    throw InputError(concat("sequences of ", q.sequence, " tokens: ", q.model.name, " has ", q.model.positions,
                            " positions; 1 to ", q.model.positions));
  if (q.global_batch < 1 || q.global_batch > 1 << 24)
    throw InputError(concat("a global batch of ", q.global_batch, " rows; 1 to ", 1 << 24));
  if (q.memory_limit == 0) q.memory_limit = 0.94 * q.cluster.device.memory;
  return q;
}

}  // namespace

std::vector<Memory> memory_of_ranks(const Question& q, const Plan& plan) {
  return memory_by_rank(q.model, plan, q.cluster.device.process + links_bytes(q.cluster, plan));
}

Candidate evaluate(const Question& asked, Plan plan) {
  const Question q = completed(asked);
  if (plan.parts.empty()) cut_plan(q.model, plan);
  Candidate c;
  const Elements elements = elements_of(q.model, plan.tp(), plan.mesh.ep);
  std::tie(c.memory, c.rank) = largest(memory_of_ranks(q, plan));
  c.time = step_time(q.model, plan, elements, q.cluster);
  c.seconds = c.time.total();
  c.tokens_per_second = plan.tokens_per_step() / c.seconds;
  c.utilization = model_flops_utilization(q.model, plan, q.cluster, c.seconds);
  c.plan = std::move(plan);
  return c;
}

Answer search(const Question& asked) {
  const std::int64_t begin = monotonic_ns();
  const Question q = completed(asked);
  std::vector<std::pair<int, int>> parts;
  for (const int tp : tensor_sizes(q))
    for (const int cp : context_sizes(q))
      if (q.cluster.devices % (std::int64_t{tp} * cp) == 0) parts.emplace_back(tp, cp);
  const Searcher searcher(q);
  // One part of the space per (tp, cp), regardless of the number of threads. Parts are merged in order.
  std::vector<Found> found(parts.size());
  const std::size_t threads = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(1, q.threads)), 1, 64);
  const auto work = [&](std::size_t first) {
    for (std::size_t i = first; i < parts.size(); i += threads)
      searcher.walk(parts[i].first, parts[i].second, found[i]);
  };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads && t < parts.size(); ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& thread : others) thread.join();

  Answer answer;
  Found all;
  for (const Found& part : found) {
    all.add(part);
  }
  answer.points = all.points;
  answer.too_large = all.too_large;
  if (all.points == 0)
    throw InputError(concat(
        "no mesh of ", q.cluster.devices, " devices fits ", q.model.name, " (",
        q.model.recorded ? "" : concat(q.model.heads, " heads, "), q.model.layers, " blocks) and a global batch of ",
        q.global_batch, " rows: the data-parallel ranks must divide the batch; a batch of ",
        (q.global_batch + q.cluster.devices - 1) / q.cluster.devices * q.cluster.devices, " rows allows all of them",
        q.least_rows > 1 || q.most_rows > 0 ? concat("; micro-batches must have ", q.least_rows, " rows or more",
                                                     q.most_rows > 0 ? concat(", at most ", q.most_rows) : "",
                                                     ", a power of two that divides a rank's rows")
                                            : ""));
  std::sort(all.fast.begin(), all.fast.end(), faster);
  for (const Point& point : all.fast) {
    Candidate c = evaluate(q, plan_of(q, point));
    if (c.memory.total() <= q.memory_limit) answer.best.push_back(std::move(c));
  }
  std::stable_sort(answer.best.begin(), answer.best.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  // One plan per mesh; plans with other schedules or micro-batches are its neighbours.
  std::vector<Candidate> different;
  for (Candidate& c : answer.best) {
    const bool known = std::any_of(different.begin(), different.end(), [&](const Candidate& other) {
      return other.plan.mesh.sizes == c.plan.mesh.sizes && other.plan.mesh.ep == c.plan.mesh.ep;
    });
    if (!known && different.size() < q.keep) different.push_back(std::move(c));
  }
  answer.best = std::move(different);
  const Tie tie = break_tie(q.model, answer.best, sureness(q.cluster).equal);
  answer.equal = tie.equal;
  answer.decided_by = tie.reason;
  if (answer.best.empty() && all.small) answer.smallest = evaluate(q, plan_of(q, *all.small));
  answer.seconds = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  return answer;
}

}  // namespace tessera::plan
