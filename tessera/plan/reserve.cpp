#include <tessera/plan/reserve.h>

#include <tessera/layout/flat.h>
#include <tessera/plan/vision.h>

#include <algorithm>
#include <vector>

namespace tessera::plan {
namespace {

using enum MemoryKind;

/// Bytes in the pool (parallel/sharding/pool.h) for a strategy that shards parameters: whole units and their gradients.
/// `root`: parameters outside of units: the table, the last norm, the head.
double unit_buffers(const Plan& run, const Elements& elements, const double counts[2], const Elements::Piece& root) {
  const StrategyRow& row = row_of(run.strategy);
  const Numerics& n = run.numerics;
  const Elements::Piece* const kinds = elements.block;
  // The tower's layers are units as well, but without gradients.
  double unit = elements.tower_layer, gradient = 0, units = elements.tower_layers, all = units * unit;
  bool experts = false;
  for (const int kind : {0, 1}) {
    if (counts[kind] <= 0) continue;
    unit = std::max(unit, kinds[kind].all());
    gradient = std::max(gradient, kinds[kind].trained());
    experts = experts || kinds[kind].experts > 0;
    units += counts[kind];
    all += counts[kind] * kinds[kind].all();
  }
  double bytes = 0;
  if (experts) {
    // Every expert is a unit, and all experts of a block are present at once. Only the root unit is large.
    bytes = root.all() * n.whole + root.trained() * n.wire + (row.reshard_after_forward ? unit : all) * n.whole +
            gradient * n.wire;
  } else {
    // The root, the current unit and the next one; without resharding, all units.
    bytes = root.all() * n.whole + root.trained() * n.wire;
    bytes += row.reshard_after_forward ? unit * std::min(2.0, units) * n.whole : all * n.whole;
    bytes += gradient * std::min(2.0, units) * n.wire;  // one filling, one being reduced
    // Results of reductions before they are accumulated.
    if (run.micro_batches > 1) bytes += 2 * std::max(root.trained(), gradient) * n.wire / run.shard_ranks();
  }
  return bytes;
}

/// Bytes in the pool for the gradient buckets of ddp, zero1 and zero2 (parallel/sharding/gradient_reducer.h): one
/// filling, one being reduced and one whose result is accumulated.
double bucket_buffers(const Model& model, const Plan& run, std::span<const layout::StagePart> parts) {
  std::vector<layout::Parameter> parameters;
  std::vector<std::size_t> order;
  for (const Tensor& tensor : tensors(model)) {
    const bool here = std::any_of(parts.begin(), parts.end(), [&](const layout::StagePart& part) {
      if (tensor.block < 0)
        return part.embeddings || (part.end && model.table_at_end() && tensor.part == Part::embedding);
      if (tensor.block == model.layers) return part.end;
      return tensor.part == Part::attention || tensor.part == Part::norm ? part.attention_of(tensor.block)
                                                                         : part.mlp_of(tensor.block);
    });
    if (!here || !tensor.trained || (tensor.expert >= 0 && tensor.expert % run.mesh.ep != 0)) continue;
    order.push_back(parameters.size());
    parameters.push_back({tensor.name, {static_cast<std::int64_t>(elements_on_rank(tensor, run.tp()))}});
  }
  std::reverse(order.begin(), order.end());
  std::vector<double> sizes;
  for (const auto& bucket :
       layout::assign_buckets(parameters, order, 1 << 20, static_cast<std::int64_t>(run.bucket_bytes))) {
    double elements = 0;
    for (const std::size_t p : bucket) elements += real(parameters[p].numel());
    sizes.push_back(elements * run.numerics.wire);
  }
  // The three largest, in their order.
  std::vector<double> sorted = sizes;
  std::sort(sorted.rbegin(), sorted.rend());
  const double least = sorted.empty() ? 0 : sorted[std::min<std::size_t>(2, sorted.size() - 1)];
  std::erase_if(sizes, [&](double size) { return size < least; });
  sizes.resize(std::min<std::size_t>(3, sizes.size()));
  double bytes = 0, taken = 0;
  for (const double size : sizes) {
    taken += size;
    const double largest = sorted.front(), limit = 1.05 * std::max(taken, 2 * largest);
    bytes += 4 * size >= largest && bytes + largest <= limit ? largest : size;  // BufferPool::take()
  }
  // If the first reduction ends before the last bucket starts to fill, there are two buffers of the largest size.
  if (sorted.size() > 1 && 4 * sorted[1] >= sorted[0]) bytes = std::max(bytes, 2 * sorted[0]);
  return bytes;
}

}  // namespace

void split_reserve(Memory& memory, const Model& model, const Plan& run, const Elements& elements,
                   std::span<const layout::StagePart> parts, const BlockActivations asked[2], const Kept& asked_kept,
                   double head_bytes) {
  const double resident = memory.total();
  const double divide = row_of(run.strategy).shard_optimizer ? run.shard_ranks() : 1;
  double counts[2] = {0, 0}, first = 0, last = 0;
  Elements::Piece root;
  bool begins = false, ends = false;
  for (const layout::StagePart& part : parts) {
    const Halves halves = halves_of(model, part);
    for (const int kind : {0, 1}) counts[kind] += halves.mlp[kind];
    begins = begins || part.embeddings;
    ends = ends || part.end;
  }
  const double experts = counts[0] * elements.block[0].experts + counts[1] * elements.block[1].experts;
  if (begins) {
    root.add(elements.embeddings);
    root.frozen -= elements.tower_layers * elements.tower_layer;
    first = elements.embeddings.trained();
  }
  if (ends) {
    Elements::Piece end = elements.end;
    if (model.table_at_end() && !begins) end.shared += elements.head;
    root.add(end);
    last = end.trained();
  }
  if (run.shard_ranks() > 1 && row_of(run.strategy).shard_parameters)
    memory[buffers] = unit_buffers(run, elements, counts, root);
  else if (run.shard_ranks() > 1 && row_of(run.strategy).shard_optimizer)
    memory[buffers] = bucket_buffers(model, run, parts);

  // Gradients that are kept between micro-batches, or are in the flat buffers of a reduction, are always allocated;
  // otherwise each is created in backward, which frees activations at the same time.
  const double all = memory[gradients];
  const bool accumulates = run.micro_batches > 1, reduced = run.dp() * run.cp() > 1;
  const double wide = run.numerics.gradient / divide;
  // Gradients of experts that no other rank has are not reduced.
  const double copies = real(run.dp()) * run.cp() / run.mesh.ep;
  const double alone = copies > 1 ? 0 : wide * experts;
  const double before = accumulates ? all : reduced ? std::max(0.0, all - alone) : 0;
  // Whole flat buffers receive weight gradients directly from the products.
  const bool written = reduced && !row_of(run.strategy).shard_parameters;
  // If the end also uses the table, the table's gradient from the end is kept until the embedding's gradient is
  // computed.
  const double waits = ends && model.table_at_end() && model.head_trained() ? 4 * elements.head : 0;
  const double tokens = run.tokens() / (run.sequence_parallel ? run.tp() : 1);
  const double input = ends ? tokens * real(model.hidden) * run.numerics.residual : 0;  // the last norm's

  // Memory at the update, at the end of a forward, and at the loss.
  double most = std::max({all, before + asked_kept.most, before + asked_kept.at_loss + head_bytes});
  const bool sees = model.vision && begins;
  if (sees) most = std::max(most, before + tower_moment(model, run));
  const double of_images = sees ? vision_kept(model, run) : 0;
  for (const int kind : {0, 1}) {
    if (counts[kind] <= 0) continue;
    const BlockActivations& block = asked[kind];
    const double made_again = run.recompute > 0 ? block.forward : 0;
    const double net = block.net - (written && copies > 1 ? block.matrices : 0);
    const double again = run.recompute > 0 ? block.recomputed(run) - block.input : 0;
    // Memory in the last block's backward, and in the first block's.
    most = std::max(most, asked_kept.at_backward - input + again + std::max(net, made_again) +
                              std::max(before, last * wide) + waits);
    const double formed = all - first * wide - elements.block[kind].trained() * wide;
    if (run.pp() == 1) most = std::max(most, block.kept + of_images + net + std::max(before, formed) + waits);
  }
  const double rest = std::max(0.0, most - all);
  memory[activations] = std::min(asked_kept.most, rest);
  memory[head] = rest - memory[activations];
  // Pipeline messages: one being received, one being sent. Blocks of a ring are alive during attention, when little
  // other memory is in use.
  memory[communication] = run.pp() > 1 ? 2 * tokens * real(model.hidden) * run.numerics.residual : 0;
  memory[reserve] = std::max(0.0, resident - memory.total());
  memory.peers = std::min(memory.peers, memory[reserve]);
}

}  // namespace tessera::plan
