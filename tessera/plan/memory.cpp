#include <tessera/plan/memory.h>

#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/layout/schedule/timing.h>
#include <tessera/plan/recorded.h>
#include <tessera/plan/reserve.h>
#include <tessera/plan/vision.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace tessera::plan {

namespace schedule = layout::schedule;
using enum MemoryKind;

std::string_view name_of(MemoryKind kind) {
  static constexpr std::string_view names[memory_kinds] = {
      "parameters", "gradients", "optimizer", "buffers", "activations", "head", "communication", "reserve", "process"};
  return names[static_cast<std::size_t>(kind)];
}

double Memory::total() const {
  double sum = 0;
  for (const double b : bytes) sum += b;
  return sum;
}

double Memory::allocated() const { return total() - (*this)[reserve] - (*this)[process]; }

double bytes_on_host(const std::vector<Memory>& by_rank, int processes) {
  double sum = 0;
  for (const Memory& m : by_rank) sum += m.total() - m.peers;
  return sum / static_cast<double>(by_rank.size()) * processes;
}

MemoryKind Memory::largest() const {
  return static_cast<MemoryKind>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

void Elements::Piece::add(const Piece& other, double times) {
  shared += times * other.shared;
  experts += times * other.experts;
  frozen += times * other.frozen;
  packed_bytes += times * other.packed_bytes;
}

Elements elements_of(const Model& model, int tp, int ep) {
  if (model.recorded) {
    Elements e;
    e.embeddings.shared = model.recorded->begin.parameters;
    e.end.shared = model.recorded->end.parameters;
    for (const RecordedLayer& layer : model.recorded->layers) e.block[0].shared += layer.parameters;
    e.block[0].shared /= real(model.layers);  // stages are counted by layers
    return e;
  }
  // One block of each kind represents all of them, computed depths included: dense and sparse blocks are distinguished,
  // and blocks with linear attention are averaged in.
  struct Kind {
    bool sparse, linear;
    double count;
  };
  std::vector<Kind> kinds;
  double all[2] = {0, 0};  // dense, sparse
  for (std::int64_t layer = 0; layer < model.layers + model.computed_depths(); ++layer) {
    const bool sparse = model.is_sparse(layer), linear = model.is_linear(layer);
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const Kind& kind) { return kind.sparse == sparse && kind.linear == linear; });
    if (known == kinds.end())
      kinds.push_back({sparse, linear, 1});
    else
      ++known->count;
    ++all[sparse ? 1 : 0];
  }
  Model small = model;
  small.layers = static_cast<std::int64_t>(kinds.size());
  small.windows.clear();
  small.sparse.clear();
  if (small.linear) small.linear->layers.clear();
  const auto add_layer = [&](bool sparse, bool linear) {
    if (model.experts) small.sparse.push_back(sparse);
    if (small.linear) small.linear->layers.push_back(linear);
  };
  for (const Kind& kind : kinds) add_layer(kind.sparse, kind.linear);
  // Per-layer values include the depths of multi-token prediction; those that are not computed are removed.
  small.depths = model.depths - model.computed_depths();
  for (std::int64_t depth = 0; depth < small.depths; ++depth)
    add_layer(model.is_sparse(model.layers + depth), model.is_linear(model.layers + depth));
  Elements e;
  e.end.shared = real(model.computed_depths()) * depth_end_elements(model);
  for (const Tensor& tensor : tensors(small)) {
    const bool in_block = tensor.block >= 0 && tensor.block < small.layers;
    const Kind* const kind = in_block ? &kinds[static_cast<std::size_t>(tensor.block)] : nullptr;
    const std::size_t sparse = in_block && kind->sparse ? 1 : 0;
    Elements::Piece& piece = in_block ? e.block[sparse] : tensor.block < 0 ? e.embeddings : e.end;
    const double share_of_blocks = in_block ? kind->count / all[sparse] : 1;
    const double n = elements_on_rank(tensor, tp) * share_of_blocks;
    if (tensor.packed_bytes > 0) {
      piece.packed_bytes += tensor.packed_bytes * share_of_blocks;
      if (tensor.part == Part::attention) e.attention[sparse].packed_bytes += tensor.packed_bytes * share_of_blocks;
      continue;
    }
    const auto sort = [&tensor](Elements::Piece& into) -> double& {
      return !tensor.trained ? into.frozen : tensor.expert >= 0 ? into.experts : into.shared;
    };
    sort(piece) += tensor.expert >= 0 ? n / ep : n;
    if (!in_block) continue;
    // Norms belong to both halves: in a block cut in two, each half has the same number, up to one width.
    const double share = tensor.part == Part::attention ? 1 : tensor.part == Part::norm ? 0.5 : 0;
    if (share > 0) sort(e.attention[sparse]) += share * n;
  }
  e.head =
      std::ceil(static_cast<double>(model.labels > 0 ? 0 : model.vocabulary) / tp) * static_cast<double>(model.hidden);
  if (model.vision) {
    e.tower_layer = tower_layer_elements(*model.vision);
    e.tower_layers = real(model.vision->layers);
  }
  return e;
}

Elements::Piece stage_elements(const Model& model, const Elements& elements, const layout::StagePart& part) {
  Elements::Piece sum;
  if (part.embeddings) sum.add(elements.embeddings);
  if (part.end) sum.add(elements.end);
  if (model.recorded) {
    if (part.end && !part.embeddings) sum.shared += model.recorded->shared;
    for (std::int64_t i = part.first_block; i < part.past_block(); ++i)
      sum.shared += model.recorded->layers[static_cast<std::size_t>(i)].parameters;
    return sum;
  }
  // the last stage's copy of the embedding table
  if (part.end && !part.embeddings && model.table_at_end()) sum.shared += elements.head;
  const Halves halves = halves_of(model, part);
  for (const int kind : {0, 1}) {
    sum.add(elements.block[kind], halves.mlp[kind]);
    sum.add(elements.attention[kind], halves.attention[kind] - halves.mlp[kind]);
  }
  return sum;
}

double BlockActivations::kept_when_recomputed(const Plan& run, double attentions, double mlps) const {
  const double left = run.inputs_are_offloaded ? 0 : input;
  switch (run.recomputed_part) {
    case layout::CheckpointPart::attention:
      return attentions * left + mlps * (kept - attention);
    case layout::CheckpointPart::mlp:
      return attentions * attention + mlps * left;
    case layout::CheckpointPart::block:
      break;
  }
  return std::max(attentions, mlps) * left;
}

double BlockActivations::recomputed(const Plan& run) const {
  switch (run.recomputed_part) {
    case layout::CheckpointPart::attention:
      return attention;
    case layout::CheckpointPart::mlp:
      return kept - attention;
    case layout::CheckpointPart::block:
      break;
  }
  return kept;
}

namespace {

/// See nn/device/head_loss.cpp.
double device_head_bytes(const Model& model, const Plan& run, const Elements& elements) {
  const double tokens = run.tokens(), c = static_cast<double>(model.hidden), type = run.numerics.product;
  const double chunk = std::min(tokens, std::max(c, 8192.0)), depths = real(model.computed_depths());
  const double logits = chunk * elements.head / c * type;
  const double inputs = type < 4 ? type * (tokens * c + elements.head) : 0;  // rounded copies
  // A chunk's product, and the sum in fp32; gradients of a loss are kept until its backward.
  const double sum = type < 4 || chunk < tokens ? type + 4 : 4;
  const double gradient = model.head_trained() ? sum * elements.head : 0;
  const double kept = (model.head_trained() ? 4 * elements.head : 0) + 4 * tokens * c;
  return logits + inputs + type * tokens * c + gradient + depths * kept;
}

/// Temporary bytes of the head. On the CPU, those of nn/linear_cross_entropy.cpp; elsewhere, one chunk of logits or,
/// with tensor parallelism or other engines' numerics, all logits.
double head_bytes(const Model& model, const Plan& run, const Elements& elements) {
  const double tokens = run.tokens(), c = static_cast<double>(model.hidden);
  const double words = elements.head / c;
  if (words == 0) return 0;
  const double depths = real(model.computed_depths());
  const double ends = 2 * tokens * c * 4;  // the last norm's output and its gradient
  const double gradient = model.head_trained() ? 4 * elements.head : 0;
  if (!run.on_cpu && run.numerics.head_in_chunks && run.tp() == 1)
    return ends + device_head_bytes(model, run, elements);
  if (!run.on_cpu) return ends + (1 + depths) * tokens * words * run.numerics.logits + gradient;
  const double chunk = std::min(tokens, std::max(c, 256.0));
  const double narrow = run.numerics.copies ? 2 * (tokens * c + elements.head + chunk * words) : 0;
  // Each loss computes its gradients in the forward pass and keeps them until its backward.
  return ends + 4 * chunk * words + (1 + depths) * gradient + depths * 4 * tokens * c + narrow;
}

/// Number of elements, and number of trained elements.
struct Sizes {
  double all = 0, trained = 0;
  void subtract(const Elements::Piece& piece, double times) {
    all -= times * piece.all();
    trained -= times * piece.trained();
  }
  void grow(const Elements::Piece& piece) {
    all = std::max(all, piece.all());
    trained = std::max(trained, piece.trained());
  }
};

/// The states of a rank with these elements (including `tables` elements of embedding tables) and temporary buffers
/// (layout/state_bytes.cpp, without its padding). Frozen parameters are sharded like the trained ones if parameters are
/// sharded; otherwise each rank has them whole.
void add_states(Memory& memory, const Plan& run, const Elements::Piece& all, double tables, Sizes root, Sizes unit) {
  const StrategyRow& row = row_of(run.strategy);
  const Numerics& n = run.numerics;
  const double s = run.shard_ranks(), se = run.expert_shard_ranks();
  const bool divides = s > 1, narrow = n.whole != n.shard;
  const double own = divides ? all.shared / s + all.experts / se : all.trained();
  const double frozen = all.frozen / (divides && row.shard_parameters ? s : 1) * n.shard;
  const double parameters =
      frozen +
      (!divides || row.shard_parameters ? own * n.shard : all.trained() * n.whole + (narrow ? own * n.shard : 0));
  const double gradients = own * n.gradient, states = own * n.states + tables / s * n.of_tables;
  memory[MemoryKind::parameters] += (offloads_parameters(run.offload) ? 0 : parameters) + all.packed_bytes;
  memory[MemoryKind::gradients] += offloads_parameters(run.offload) ? 0 : gradients;
  memory[optimizer] += offloads_optimizer(run.offload) || offloads_parameters(run.offload) ? 0 : states;
  if (!divides) return;
  const bool accumulates = run.micro_batches > 1, keeps = !row.shard_gradients && accumulates;
  if (row.shard_parameters) {
    const Sizes units = {all.all() - root.all, all.trained() - root.trained};
    memory[buffers] +=
        (root.all + (row.reshard_after_forward ? std::min(3 * unit.all, units.all) : units.all)) * n.whole;
    memory[buffers] += (root.trained + std::min(2 * unit.trained, units.trained)) * n.wire;
    if (accumulates) memory[buffers] += std::max(root.trained, unit.trained) * n.wire / s;
  } else {
    const double flat = all.trained() * n.wire, bucket = std::max(run.bucket_bytes, root.trained * n.wire);
    memory[buffers] += keeps ? flat : std::min(flat, 2 * bucket);
  }
}

/// Bytes of a stage's activations for one micro-batch.
double stage_activations(const Model& model, const Plan& run, const layout::StagePart& part,
                         const BlockActivations kinds[2]) {
  if (model.recorded) {
    double bytes =
        (part.embeddings ? model.recorded->begin.saved_bytes : 0) + (part.end ? model.recorded->end.saved_bytes : 0);
    for (std::int64_t i = part.first_block; i < part.past_block(); ++i) {
      const RecordedLayer& layer = model.recorded->layers[static_cast<std::size_t>(i)];
      bytes += run.recomputes(i) ? layer.input_bytes : layer.saved_bytes;
    }
    return bytes * recorded_scale(*model.recorded, run);
  }
  const Halves halves = halves_of(model, part);
  double bytes = 0;
  for (const int kind : {0, 1}) {
    const BlockActivations& block = kinds[kind];
    const double count = halves.blocks(kind);
    if (count <= 0) continue;
    // A recomputed region keeps its input, whether it is a block or half of one.
    const double share = run.recomputed_names.empty() && run.recompute > 0
                             ? std::ceil(count / real(run.recompute)) / count
                             : run.recomputed_share();
    const double attentions = halves.attention[kind], mlps = halves.mlp[kind];
    const double kept = attentions * block.attention + mlps * (block.kept - block.attention);
    bytes += (1 - share) * kept;
    if (share > 0) bytes += share * block.kept_when_recomputed(run, attentions, mlps);
  }
  if (part.embeddings && model.vision) bytes += vision_kept(model, run);
  // The output of a frozen table needs no gradient, so the first norm does not keep it. A recomputed block keeps it
  // anyway.
  if (part.embeddings && model.adapters && !model.vision && !model.table_trained() && run.recompute == 0 &&
      part.blocks > 0)
    bytes -= kinds[model.is_sparse(0) ? 1 : 0].input;
  const double tokens = run.tokens() / (run.sequence_parallel ? run.tp() : 1);
  if (!part.end) return bytes;
  const double one = tokens * static_cast<double>(model.hidden);
  bytes += one * run.numerics.residual;  // the last norm's input
  // A depth keeps the inputs of its three norms and both widths of its map's input. Its loss keeps only the gradient of
  // the hidden states if that is computed at once, as on the CPU (head_bytes()).
  const double of_depth =
      (run.on_cpu ? 3 : 4) * run.numerics.residual + 2 * (run.numerics.product + (run.numerics.copies ? 4 : 0));
  return bytes + real(model.computed_depths()) * one * of_depth;
}

/// Resident memory of a rank on the CPU beyond its tensors, as measured by bench/plan_memory.py (for Llamas; other
/// families use the same numbers):
/// - pages of peers that its collectives read (comm/shm: data is communicated in shared memory): its slice of
///   gradients,
///   all shards, its part of gathered units; and one and a half times its gradients (including buckets of the first
///   step and initial copies), whose blocks the allocator keeps;
/// - with several micro-batches, the gradients of blocks, but not of experts, once more;
/// - with bf16 products, oneDNN's own memory; with several processes, that of their groups: staging, rings, control
///   areas of all ranks.
struct Reserve {
  double bytes = 0, peers = 0;  ///< peers: the part in other processes' memory
};
Reserve reserve_of(const Memory& memory, const Plan& run, bool experts, double blocks, double frozen) {
  double bytes = run.numerics.copies ? 25e6 : 0;
  // oneDNN generates kernels for each number of rows of an expert, independent of the number of blocks. In fp32 it does
  // so for fewer numbers of rows, and for none on processors where MKL computes the products.
  if (run.on_cpu && experts) bytes += run.numerics.copies ? 100e6 : 70e6;
  if (run.micro_batches > 1 && run.pp() == 1) bytes += blocks * run.numerics.gradient / run.shard_ranks();
  if (run.mesh.world_size() > 1) bytes += 18e6;
  const double ranks = run.dp() * run.cp();
  if (ranks <= 1) return {bytes, 0};
  const StrategyRow& row = row_of(run.strategy);
  const double others = (ranks - 1) / ranks, gradients = memory[MemoryKind::gradients];
  const double peers = others * memory[buffers] +
                       (row.shard_parameters ? (ranks - 1) * memory[MemoryKind::parameters] : others * gradients);
  // Frozen parameters were copied as well: in pieces of 25 MiB (parallel/replicas.cpp), and buffers of a few of these
  // sizes remain.
  constexpr double pieces = 64.0 * (1 << 20);
  return {bytes + peers + (row.shard_parameters ? 0 : 1.5 * gradients + 1.4 * std::min(frozen, pieces)), peers};
}

/// Trained elements of a recorded module's stage.
double recorded_trained(const RecordedStep& step, const layout::StagePart& part) {
  double sum = (part.embeddings ? step.begin.trained : 0) + (part.end ? step.end.trained : 0);
  if (part.end && !part.embeddings) sum += step.shared;
  for (std::int64_t i = part.first_block; i < part.past_block(); ++i)
    sum += step.layers[static_cast<std::size_t>(i)].trained;
  return sum;
}

/// All memory except for micro-batches in flight.
Memory fixed_memory(const Model& model, const Plan& run, const Elements& elements,
                    std::span<const layout::StagePart> parts, const BlockActivations kinds[2], double process_bytes) {
  Memory memory;
  Elements::Piece all;
  Sizes root, unit;
  double moment = 0, again = 0, trained = 0, tables = 0;
  for (const layout::StagePart& part : parts) {
    if (model.recorded) trained += recorded_trained(*model.recorded, part);
    all.add(stage_elements(model, elements, part));
    if (part.embeddings) tables += elements.embeddings.trained();
    if (part.embeddings && elements.tower_layers > 0) {
      root.all -= elements.tower_layers * elements.tower_layer;
      unit.all = std::max(unit.all, elements.tower_layer);
    }
    const Halves halves = halves_of(model, part);
    for (const int kind : {0, 1}) {
      if (halves.blocks(kind) == 0) continue;
      root.subtract(elements.block[kind], halves.mlp[kind]);
      root.subtract(elements.attention[kind], halves.attention[kind] - halves.mlp[kind]);
      unit.grow(elements.block[kind]);
      moment = std::max(moment, kinds[kind].moment);
      // On the CPU, blocks freed by the second forward, about half a block, cannot be reused by backward.
      if (run.recompute > 0)
        again = std::max(again, (run.on_cpu ? 1.5 : 1) * kinds[kind].recomputed(run) - kinds[kind].input);
    }
    if (!part.end) continue;
    // If the end also uses the table, the table's gradient from the end is kept until the embedding's gradient, which
    // is computed whole in addition.
    if (model.table_at_end() && model.head_trained())
      moment += (run.on_cpu && !row_of(run.strategy).shard_parameters ? 2 : 1) * 4 * elements.head;
    moment = std::max(moment, head_bytes(model, run, elements));
  }
  root = {std::max(0.0, root.all + all.all()), std::max(0.0, root.trained + all.trained())};
  add_states(memory, run, all, tables, root, unit);
  if (model.recorded && all.all() > 0)  // frozen parameters have neither gradients nor states
    for (const MemoryKind kind : {gradients, optimizer}) memory[kind] *= std::min(1.0, trained / all.all());
  // A step's memory peaks at the end of its forward (the head) or in a block's backward, after another block's
  // activations may have been recomputed.
  memory[head] = moment;
  memory[activations] = again;
  const double tokens = run.tokens() / (run.sequence_parallel ? run.tp() : 1);
  const double message = tokens * static_cast<double>(model.hidden) * run.numerics.residual;
  if (run.pp() > 1) memory[communication] += 4 * message;  // an input and an output, and their gradients
  if (run.cp() > 1)                                        // the current block and the one being received
    memory[communication] += 4 * run.tokens() * static_cast<double>(model.key_width()) / run.tp() * run.numerics.inside;
  if (run.on_cpu) {
    const Reserve reserved =
        reserve_of(memory, run, model.experts.has_value(), std::max(0.0, all.shared - root.trained),
                   model.vision ? 0 : all.frozen * run.numerics.shard);
    memory[communication] += reserved.bytes;
    memory.peers = reserved.peers;
    // Measured: image loading, and freed blocks of the tower (including copies of frozen parameters), whose sizes
    // differ from the decoder's.
    if (model.vision) memory[communication] += 17e6 + 1.4 * tower_moment(model, run);
  }
  memory[process] = process_bytes;
  return memory;
}

/// Adds the activations of micro-batches in flight (`kept`: stages' activations with the allocator's rounding, `parts`:
/// the rank's stages).
void add_kept(Memory& memory, const Model& model, const Plan& run, const Elements& elements,
              std::span<const layout::StagePart> parts, const BlockActivations kinds[2], const Kept& kept) {
  memory[activations] += kept.most;
  const bool sees = model.vision && parts.front().embeddings;
  if (sees)  // the tower's forward, before anything else is allocated
    memory[head] += std::max(0.0, tower_moment(model, run) - memory[activations] - memory[head]);
  if (!run.on_cpu || model.recorded) return;
  BlockActivations asked[2] = {block_activations(model, run, false, /*rounded=*/false), {}};
  if (model.experts) asked[1] = block_activations(model, run, true, /*rounded=*/false);
  double rounded = 0, own = 0;
  bool ends = false;
  for (const layout::StagePart& part : parts) {
    rounded += stage_activations(model, run, part, kinds);
    own += stage_activations(model, run, part, asked);
    ends = ends || part.end;
  }
  const double asks = rounded > 0 ? own / rounded : 0;
  split_reserve(
      memory, model, run, elements, parts, asked, {kept.most * asks, kept.at_loss * asks, kept.at_backward * asks},
      // With bf16 products the head's gradient is bf16, and an fp32 copy of it is added.
      ends ? head_bytes(model, run, elements) + (run.numerics.copies && model.head_trained() ? 6 * elements.head : 0)
           : 0);
}

/// Tracks the bytes that a rank keeps during its actions.
Kept kept_in(const std::vector<schedule::TimedAction>& actions, const schedule::Costs& costs,
             const std::vector<layout::StagePart>& parts) {
  Kept kept;
  schedule::HeldBytes held(costs, /*backward=*/true);
  for (const schedule::TimedAction& timed : actions) {
    const schedule::Kind kind = timed.action.kind;
    const double bytes = held.during(timed.action);
    if (kind == schedule::Kind::forward) {
      kept.most = std::max(kept.most, bytes);
      if (parts[static_cast<std::size_t>(timed.action.stage)].end) kept.at_loss = std::max(kept.at_loss, bytes);
    } else if (kind == schedule::Kind::backward || kind == schedule::Kind::input_gradient) {
      kept.at_backward = std::max(kept.at_backward, bytes);
    }
  }
  return kept;
}

}  // namespace

int representative_micro_batches(const Plan& run) {
  const std::int64_t p = run.pp(), m = run.micro_batches;
  return static_cast<int>(m <= 4 * p ? m : 3 * p + m % p);
}

int rank_of_stage(const Plan& run, int stage) {
  const schedule::ScheduleRow& row = schedule::schedule_of(run.schedule);
  const int p = run.pp(), turn = stage / p, place = stage % p;
  return row.placement == schedule::Placement::v && turn % 2 == 1 ? p - 1 - place : place;
}

Memory memory_of_piece(const Model& model, const Plan& run, const Elements& elements, const layout::StagePart& piece,
                       const BlockActivations kinds[2], double in_flight, double process_bytes) {
  Memory memory = fixed_memory(model, run, elements, {&piece, 1}, kinds, process_bytes);
  const double kept = in_flight * stage_activations(model, run, piece, kinds);
  add_kept(memory, model, run, elements, {&piece, 1}, kinds, {kept, kept, kept});
  return memory;
}

Memory memory_of_rank(const Model& model, const Plan& run, const Elements& elements, int rank, int in_flight,
                      double process_bytes) {
  std::vector<layout::StagePart> own;
  for (std::size_t s = 0; s < run.parts.size(); ++s)
    if (run.pp() == 1 || rank_of_stage(run, static_cast<int>(s)) == rank) own.push_back(run.parts[s]);
  BlockActivations kinds[2] = {block_activations(model, run, false), {}};
  if (model.experts) kinds[1] = block_activations(model, run, true);
  Memory memory = fixed_memory(model, run, elements, own, kinds, process_bytes);
  double largest_stage = 0, sum = 0;
  for (const layout::StagePart& part : own) {
    const double bytes = stage_activations(model, run, part, kinds);
    largest_stage = std::max(largest_stage, bytes);
    sum += bytes;
  }
  // Rounds over all stages of a rank, and the remainder in the largest one.
  const int v = std::max<int>(1, static_cast<int>(own.size()));
  const double kept = in_flight / v * sum + in_flight % v * largest_stage;
  add_kept(memory, model, run, elements, own, kinds, {kept, kept, kept});
  return memory;
}

std::vector<Memory> memory_by_rank(const Model& model, const Plan& run, double process_bytes) {
  const Elements elements = elements_of(model, run.tp(), run.mesh.ep);
  if (run.pp() == 1) return {memory_of_rank(model, run, elements, 0, 1, process_bytes)};
  const schedule::Schedule plan = schedule::make_schedule(
      run.schedule, {run.pp(), static_cast<int>(run.stages_per_rank), representative_micro_batches(run)});
  BlockActivations kinds[2] = {block_activations(model, run, false), {}};
  if (model.experts) kinds[1] = block_activations(model, run, true);
  schedule::Costs costs;
  costs.stages.clear();
  for (const layout::StagePart& part : run.parts) {
    schedule::StageCosts stage;
    stage.activation_bytes = stage_activations(model, run, part, kinds);
    // W keeps the inputs of its products and the gradients of their outputs: nearly as many elements as a block keeps
    // for its backward (Llama 1.00 times, GPT-2 1.06).
    stage.weight_gradient_bytes = stage.activation_bytes;
    costs.stages.push_back(stage);
  }
  const schedule::Timing timing = time_schedule(plan, costs);
  std::vector<Memory> all;
  for (int rank = 0; rank < run.pp(); ++rank) {
    std::vector<layout::StagePart> own;
    for (const int stage : schedule::stages_of(plan, rank)) own.push_back(run.parts[static_cast<std::size_t>(stage)]);
    all.push_back(fixed_memory(model, run, elements, own, kinds, process_bytes));
    add_kept(all.back(), model, run, elements, own, kinds,
             kept_in(timing.ranks[static_cast<std::size_t>(rank)].actions, costs, run.parts));
  }
  return all;
}

std::pair<Memory, int> largest(const std::vector<Memory>& by_rank) {
  const auto most = std::max_element(by_rank.begin(), by_rank.end(),
                                     [](const Memory& a, const Memory& b) { return a.total() < b.total(); });
  return {*most, static_cast<int>(most - by_rank.begin())};
}

}  // namespace tessera::plan
