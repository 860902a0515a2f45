#include <tessera/plan/vision.h>

#include <algorithm>

namespace tessera::plan {
namespace {

/// Rows that the tower's maps process: the patches and the class token of each image.
double tower_rows(const Vision& v, const Plan& run) { return images_of(v, run) * real(1 + v.patches()); }

/// A step's micro-batches are read before the first is computed, so on the CPU all their pixels are in memory; a device
/// receives them one by one.
double pixel_bytes(const Vision& v, const Plan& run) {
  return (run.on_cpu ? real(run.micro_batches) : 1) * images_of(v, run) * 3 * real(v.side * v.side) * 4;
}

}  // namespace

double images_of(const Vision& v, const Plan& run) { return run.sequence < v.tokens() ? 1 : real(run.rows); }

double tower_layer_elements(const Vision& v) {
  const double c = real(v.hidden), inner = real(v.inner);
  return 4 * (c * c + c) + 2 * c * inner + inner + c + 4 * c;
}

double vision_kept(const Model& m, const Plan& run) {
  const Vision& v = *m.vision;
  const Numerics& n = run.numerics;
  const double pixels = pixel_bytes(v, run);
  if (!m.projector_trained) return pixels;
  // Each map and each activation keeps its input.
  const double between = real(v.projections - 1) * real(m.hidden);
  return pixels +
         images_of(v, run) * real(v.tokens()) * (real(v.hidden) * n.product + between * (n.inside + n.product));
}

double tower_moment(const Model& m, const Plan& run) {
  const Vision& v = *m.vision;
  const Numerics& n = run.numerics;
  const double c = real(v.hidden), inner = real(v.inner);
  // At the end of a layer (clip_vision.cpp) these are alive: its input, the first norm's output, attention's output,
  // the sum after it, the MLP's output and the last sum; and the input, output and temporaries of the MLP's activation.
  double row = v.blocks == 0 ? 3 * c * n.residual
                             : 4 * c * n.residual + 2 * c * n.inside + (v.quick_gelu ? 4 : 2) * inner * n.inside;
  if (n.copies && v.blocks > 0) row += std::max(0.0, inner * n.product - 2 * c * n.residual);  // before the last two
  return pixel_bytes(v, run) + tower_rows(v, run) * row;
}

void add_vision_seconds(StepTime& forward, StepTime& backward, const Model& m, const Plan& run, const Device& d) {
  const Vision& v = *m.vision;
  const Numerics& n = run.numerics;
  const double element = n.product, c = real(v.hidden), inner = real(v.inner), blocks = real(v.blocks);
  const double rows = tower_rows(v, run), patches = images_of(v, run) * real(v.patches());
  forward[TimeKind::products] +=
      product_seconds(d, patches, c, real(3 * v.patch * v.patch), element) +
      blocks * (4 * product_seconds(d, rows, c, c, element) + product_seconds(d, rows, inner, c, element) +
                product_seconds(d, rows, c, inner, element));
  forward[TimeKind::attention] += blocks * attention_seconds(d, rows, real(1 + v.patches()), c, element);
  // Two norms (read, written) and two sums of two; the activation's passes.
  const double bytes = rows * (10 * c * n.residual + (v.quick_gelu ? 7 : 2) * inner * n.inside);
  forward[TimeKind::passes] += blocks * pass_seconds(d, bytes) + pass_seconds(d, 5 * rows * c * n.residual);

  const double seen = images_of(v, run) * real(v.tokens()), width = real(m.hidden);
  for (std::int64_t i = 0; i < v.projections; ++i) {
    const double in = i == 0 ? c : width;
    const double seconds = product_seconds(d, seen, width, in, element);
    forward[TimeKind::products] += seconds;
    // The tower's output needs no gradient.
    if (m.projector_trained)
      backward[TimeKind::products] += i == 0 ? seconds : product_backward_seconds(d, seen, width, in, element);
    if (i == 0) continue;
    forward[TimeKind::passes] += pass_seconds(d, 2 * seen * width * n.inside);
    if (m.projector_trained) backward[TimeKind::passes] += pass_seconds(d, 3 * seen * width * n.inside);
  }
}

}  // namespace tessera::plan
