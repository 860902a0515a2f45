#include <tessera/plan/memory.h>

#include <tessera/plan/adapters.h>
#include <tessera/plan/recorded.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tessera::plan {
namespace {

/// Bytes that the allocator reserves for a tensor of `bytes` bytes: on the CPU, blocks of 128 KB and more have sizes an
/// eighth of a power of two apart (nn/allocator.cpp); on devices, multiples of 512 bytes
/// (c10/cuda/CUDACachingAllocator).
double held(double bytes, bool on_cpu) {
  const auto n = static_cast<std::uint64_t>(bytes);
  if (!on_cpu) return static_cast<double>((n + 511) / 512 * 512);
  if (n < (128u << 10)) return bytes;
  const std::uint64_t step = std::bit_floor(n) / 8;
  return static_cast<double>((n + step - 1) / step * step);
}

/// Adds up the tensors that a block keeps for backward.
class Kept {
 public:
  Kept(const Model& model, const Plan& run, double tokens, bool rounded)
      : run_(run),
        n_(run.numerics),
        tokens_(tokens),
        rank_(model.adapters ? real(model.adapters->rank) : 0),
        rounded_(rounded),
        dropped_(model.adapters && model.adapters->dropout) {}

  void add(double per_token, double element) {
    const double bytes = per_token * tokens_ * element;
    bytes_ += rounded_ ? held(bytes, run_.on_cpu) : bytes;
  }
  void residual(double per_token) { add(per_token, n_.residual); }
  void inside(double per_token) { add(per_token, n_.inside); }
  /// Adds the input that `products` products keep (KeepingMaps). `shared`: another operation keeps it as well;
  /// otherwise it exists only for the products. Each product makes its own copy in a different type, and so does
  /// dropout for an adapter. Adapters also keep the output of their first matrix (models/layers.cpp: adapted()).
  void product(double per_token, int products, bool shared) {
    for (int i = 0; i < products && rank_ > 0; ++i) add(rank_, n_.product);
    if (n_.copies || dropped_)
      for (int i = 0; i < products; ++i) add(per_token, n_.product);
    else if (!shared && products > 0)
      add(per_token, n_.product);
  }
  double bytes() const { return bytes_; }

 private:
  const Plan& run_;
  const Numerics& n_;
  double tokens_, bytes_ = 0, rank_;
  bool rounded_, dropped_;
};

struct Widths {
  double c, q, k, heads, inner;  ///< sizes on one rank of tp
};

void keep_attention(Kept& kept, const Model& m, const Widths& w, const KeepingMaps& maps) {
  if (m.latent) {
    const Latent& l = *m.latent;
    const double all = w.heads * static_cast<double>(l.widest());
    if (l.query_rank > 0) {
      if (l.normed) kept.inside(static_cast<double>(l.query_rank));
      kept.product(static_cast<double>(l.query_rank), maps.query_latent, false);
    }
    if (l.normed) kept.inside(static_cast<double>(l.key_rank));
    kept.product(static_cast<double>(l.key_rank), maps.key_latent, false);
    for (int i = 0; i < 4; ++i) kept.inside(all);  // q, k, v, out
    kept.product(w.heads * static_cast<double>(l.value), maps.output, l.widest() == l.value);
    kept.add(w.heads, 4);
    return;
  }
  if (m.head_norm) kept.inside(w.q), kept.inside(w.k);  // the norms' inputs
  if (m.family == Family::gpt2) {
    kept.inside(3 * w.q);  // one tensor
  } else {
    kept.inside(w.q), kept.inside(w.k);  // outputs of the rotation
    // Values are a view of their product's output, and keep all of it alive if one product computes all three.
    kept.inside(m.packing == Packing::none ? w.k : w.q + 2 * w.k);
  }
  kept.inside(w.q);                      // attention's output
  kept.add(w.heads, 4);                  // log-sums
  kept.product(w.q, maps.output, true);  // the input of the output product
}

/// Temporary bytes that a product with a frozen weight of `elements` elements needs: the fp32 form of a quantized
/// weight (nn/linear_maps/quantized.cpp), and the half-precision form of either if products are narrow (nn/linear.cpp).
double widened(const Model& m, const Plan& run, double elements) {
  const bool packed = m.adapters && m.adapters->bits > 0;
  const bool half = run.numerics.copies || (m.adapters && m.adapters->half_products);
  return elements * ((packed ? 4 : 0) + (half ? 2 : 0));
}

/// Adds an MLP with or without a gate: the activation's input and output.
void keep_mlp(Kept& kept, const Model& m, double inner, const KeepingMaps& maps) {
  kept.inside(inner);
  if (m.gated) kept.inside(inner);
  if (m.gelu_gate()) kept.inside(inner);  // the GELU's output is a factor of a product
  kept.product(inner, maps.down, false);
}

}  // namespace

BlockActivations block_activations(const Model& m, const Plan& run, bool sparse, bool rounded) {
  if (m.recorded) {  // the fullest layer, because recomputation and temporary memory are for one layer at a time
    BlockActivations block;
    const double scale = recorded_scale(*m.recorded, run);
    for (const RecordedLayer& layer : m.recorded->layers) {
      block.kept = std::max(block.kept, scale * layer.saved_bytes);
      block.input = std::max(block.input, scale * layer.input_bytes);
    }
    block.moment = scale * m.recorded->moment_bytes;
    return block;
  }
  const double t = run.tp(), tokens = run.tokens(), c = real(m.hidden);
  const bool whole_heads = m.latent || m.wide_head_norm;  // every rank computes all heads
  const double heads = whole_heads ? real(m.heads) : std::ceil(real(m.heads) / t);
  const double keys = whole_heads ? real(m.key_heads) : std::ceil(real(m.key_heads) / t);
  const Widths w{c, heads * real(m.head_size), keys * real(m.head_size), heads, real(m.inner) / t};
  // Between tensor-parallel products a rank has all tokens, or, with sequence parallelism, its part of them.
  const double part = run.sequence_parallel ? tokens / t : tokens;
  Kept between(m, run, part, rounded), all(m, run, tokens, rounded);

  const KeepingMaps maps = keeping_maps(m, sparse);
  BlockActivations block;
  block.input = c * part * run.numerics.residual;
  if (rounded) block.input = held(block.input, run.on_cpu);
  between.residual(c);  // the block's input
  block.attention = between.bytes();
  if (!m.parallel()) between.residual(c);                       // the sum after attention
  if (m.norms.after) between.residual(c), between.residual(c);  // inputs of the norms after attention and the MLP
  const bool itself = !m.norms.before;                          // the products' inputs are the tensors counted above
  if (run.numerics.copies || !run.sequence_parallel) {
    all.product(c, maps.attention, itself);
  } else {
    all.product(c, maps.attention > 0 ? 1 : 0, false);  // gathered once
  }
  keep_attention(all, m, w, maps);

  double moment = 0, later = 0;  // bytes of the MLP; later: the part allocated after everything else of the MLP has
                                 // been freed
  double unlike = 0;             // a gradient is wider than the copy that was kept
  const double before_mlp = all.bytes();
  block.attention += before_mlp;
  const double b = run.numerics.inside;
  // A weight's gradient before accumulation.
  const auto matrix = [&](double inner) { return m.maps_trained() ? 4 * c * inner : 0; };
  // Attention's backward: keys and values for each query head, and gradients in the kernel's layout and reordered.
  const double attention = (m.family == Family::gpt2 ? 6 * w.q : 8 * w.q) * tokens * b +
                           4 * c * part * run.numerics.residual +
                           // The gradient of a slice has the size of the whole tensor, and the next slice's gradient is
                           // added to it.
                           (m.packing == Packing::none ? 0 : 2 * (w.q + 2 * w.k) * tokens * b);
  if (sparse) {
    const Experts& e = *m.experts;
    const double rows = real(e.top_k), inner = real(e.inner), ways = m.gated ? 2 : 1;
    Kept routed(m, run, rows * tokens, rounded);  // assumes balanced experts: every rank of ep receives as many rows as
                                                  // it sends
    all.add(4 * real(e.count) + 6 * rows, 4);
    all.product(c, maps.other + maps.mlp, false);
    routed.product(c, maps.other, false);
    routed.inside(inner), routed.inside(inner);  // gate and up, or the activation's input
    routed.inside(c);                            // the experts' output before weighting
    if (e.shared_inner > 0) keep_mlp(all, m, real(e.shared_inner) / t, maps);
    if (e.shared_gate) all.inside(c);
    // The gradients of all experts are computed before the first is passed on.
    block.matrices = (1 + ways) * matrix(inner) / t * real(e.count) / run.mesh.ep;
    moment = rows * tokens * ((1 + ways) * inner + c) * b + block.matrices;
    block.kept = routed.bytes();
  } else {
    all.product(c, maps.mlp, itself || m.one_norm());
    keep_mlp(all, m, w.inner, maps);
    const double wide = m.gated ? 2 : 1;
    moment = tokens * wide * w.inner * b + matrix(w.inner);
    block.matrices = matrix(w.inner);
    if (m.gelu_gate()) moment += tokens * w.inner * b;
    // The gradient of the last product's input reuses the memory of that input if it was kept. An adapter adds another
    // gradient, which is alive while the weight is widened, before the gradients of the activation's input exist.
    if (!m.maps_trained()) {
      const double wide_input = tokens * w.inner * b, given = maps.down > 0 ? wide_input : 0;
      moment = std::max(moment, given + widened(m, run, c * w.inner)) + wide_input;
      if (maps.down > 0) moment -= tokens * w.inner * run.numerics.product;
    } else {
      unlike = tokens * w.inner * (b - run.numerics.product);
    }
    // A recomputed forward ends with the last product. At that point its input (unless kept), its result, an adapter's
    // result, attention's output, the norms' outputs (unless maps keep them) and the gradient of the block's output are
    // alive.
    const bool copies = run.numerics.copies, gave = maps.down == 0 || copies || (m.adapters && m.adapters->dropout);
    const double row = c * part * run.numerics.residual, narrow = copies ? tokens * 2 : 0;
    const double base = widened(m, run, c * w.inner) + (maps.down == 0 ? narrow * w.inner : 0) + narrow * c;
    block.forward = (gave ? tokens * w.inner * b : 0) + 3 * row + (maps.attention == 0 || copies ? row : 0) +
                    (maps.mlp == 0 || copies ? row : 0) +
                    std::max(base, maps.down > 0 && m.adapters ? row + narrow * c : 0);
    if (m.packing == Packing::blocks) {
      later = 2 * tokens * wide * w.inner * b + matrix(w.inner);  // gradients of slices
      moment += later;
    }
  }
  const double mlp_kept = block.kept + all.bytes() - before_mlp;
  block.kept += between.bytes() + all.bytes();
  // The residual's gradient is alive during the MLP's backward. By the time of attention's backward, the MLP's tensors
  // have been freed.
  // Keys and values are repeated only if heads share them.
  const double repeated = w.k < w.q || m.family == Family::gpt2 ? 0 : 2 * w.q * tokens * b;
  block.net = std::max(moment - later + unlike + c * part * run.numerics.residual, attention - repeated - mlp_kept);
  moment += 2 * c * part * run.numerics.residual;
  // The CPU's allocator keeps freed blocks for tensors of the same size, so the two parts add up; a device's allocator
  // splits and merges blocks.
  block.moment = run.on_cpu ? moment + attention : std::max(moment, attention);
  return block;
}

}  // namespace tessera::plan
