#include <tessera/plan/costs.h>

#include <algorithm>
#include <cmath>

namespace tessera::plan {
namespace {

double peak_of(const Device& d, double element) { return element > 2 ? d.fp32 : d.bf16; }

/// Factor by which whole tiles and waves increase a product's work.
double rounded_up(const Device& d, double m, double n) {
  const double tall = d.units > 1 ? 2 * d.tile : d.tile;
  double least = 1e300;
  for (const auto& [high, wide] : {std::pair{tall, d.tile}, {d.tile, tall}}) {
    const double tiles = std::ceil(m / high) * std::ceil(n / wide);
    least = std::min(least, std::ceil(tiles / d.units) * d.units * high * wide);
  }
  const double small = std::ceil(m / d.tile) * std::ceil(n / d.tile);
  least = std::min(least, 1.04 * std::ceil(small / d.units) * d.units * d.tile * d.tile);
  return std::max(1.0, least / (m * n));
}

double ring_seconds(const Link& link, double ranks, double times, double bytes) {
  return times * ((ranks - 1) * link.latency + (ranks - 1) / ranks * bytes / (link.bandwidth * link.efficiency));
}

/// The measured curve for this kind of work, otherwise nullptr. bf16 uses fp32's curve if it was not measured.
const Curve* curve_of(const Device& d, Work fp32, double element) {
  if (!d.measured) return nullptr;
  const Curve& narrow = (*d.measured)[static_cast<Work>(static_cast<int>(fp32) + 2)];
  return element > 2 || narrow.empty() ? &(*d.measured)[fp32] : &narrow;
}

const Curve* exchange_of(const Cluster& c, const char* op, int ranks, bool buffers) {
  if (!c.device.measured) return nullptr;
  if (buffers)
    if (const Curve* shared = c.device.measured->exchange(std::string(op) + "_shared", ranks)) return shared;
  return c.device.measured->exchange(op, ranks);
}

}  // namespace

double product_seconds(const Device& d, double m, double n, double k, double element) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  if (const Curve* curve = curve_of(d, Work::product_fp32, element)) return curve->at(2 * m * n * k);
  const double arithmetic =
      2 * m * n * k * rounded_up(d, m, n) * (k + d.half_depth) / k / (peak_of(d, element) * d.products);
  const double memory = (m * n + m * k + k * n) * element / (d.bandwidth * d.passes);
  return std::max(arithmetic, memory) + d.launch;
}

double product_backward_seconds(const Device& d, double m, double n, double k, double element) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  if (const Curve* curve = curve_of(d, Work::product_fp32_backward, element); curve && !curve->empty())
    return curve->at(2 * m * n * k);
  return product_seconds(d, m, k, n, element) + product_seconds(d, n, k, m, element);
}

double pass_seconds(const Device& d, double bytes) {
  if (d.measured) return (*d.measured)[Work::norm].at(bytes);
  return bytes / (d.bandwidth * d.passes) + d.launch;
}

double attention_seconds(const Device& d, double queries, double keys, double width, double element) {
  if (const Curve* curve = curve_of(d, Work::attention_fp32, element)) return curve->at(4 * queries * keys * width);
  return 4 * queries * keys * width / (peak_of(d, element) * d.attention) + d.launch;
}

double attention_backward_seconds(const Device& d, double queries, double keys, double width, double element) {
  if (const Curve* curve = curve_of(d, Work::attention_fp32_backward, element); curve && !curve->empty())
    return curve->at(4 * queries * keys * width);
  return 2.5 * attention_seconds(d, queries, keys, width, element);
}

double scores_seconds(const Device& d, double queries, double keys, double width, double head, double element) {
  const bool aligned = std::fmod(head * element, 16) == 0;
  const double rate = aligned ? peak_of(d, element) * d.products * head / (head + d.half_depth) : d.fp32 / 2;
  return 4 * queries * keys * width / rate + pass_seconds(d, 9 * queries * keys * width / head) + 2 * d.launch;
}

Placed place(int ranks, int stride, int per_node) {
  const int reach = std::max(1, per_node / std::max(1, stride));
  int local = std::min(ranks, reach);
  while (ranks % local != 0) --local;
  return {ranks, local};
}

int stride_of(const layout::Mesh& mesh, layout::Axis axis) {
  int stride = 1;
  for (std::size_t i = layout::dense_axes.size(); i-- > 0 && layout::dense_axes[i] != axis;) stride *= mesh.sizes[i];
  return stride;
}

double collective_seconds(const Cluster& c, const Placed& group, Collective what, double bytes, bool buffers) {
  if (group.ranks <= 1 || bytes <= 0) return 0;
  static constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
  if (group.local == group.ranks)
    if (const Curve* curve = exchange_of(c, names[static_cast<int>(what)], group.ranks, buffers))
      return curve->at(bytes);
  const double n = group.ranks, g = group.local, q = n / g;
  if (what == Collective::all_to_all) {
    const double inside = g > 1 ? (g - 1) / n * bytes / (c.inside.bandwidth * c.inside.efficiency) : 0;
    const double across = q > 1 ? (n - g) / n * bytes / (c.across.bandwidth * c.across.efficiency) : 0;
    return std::max(inside, across) + (q > 1 ? std::log2(q) * c.across.latency : 0) + (g - 1) * c.inside.latency;
  }
  const double times = what == Collective::all_reduce ? 2 : 1;
  const double inside = g > 1 ? ring_seconds(c.inside, g, times, bytes) : 0;
  // Latency across nodes grows logarithmically: NCCL uses trees for small sums and many nodes.
  const Link& net = c.across;
  const double across =
      q > 1 ? times * (2 * std::log2(q) * net.latency + (q - 1) / q * bytes / g / (net.bandwidth * net.efficiency)) : 0;
  // The two phases are pipelined in pieces, which hides a part of the shorter one.
  return std::max(inside, across) + 0.6 * std::min(inside, across);
}

double message_seconds(const Cluster& c, int stride, double bytes) {
  if (stride < c.per_node)
    if (const Curve* curve = exchange_of(c, "send_recv", 2, false)) return curve->at(bytes);
  const Link& link = stride < c.per_node ? c.inside : c.across;
  return link.latency + bytes / (link.bandwidth * link.efficiency);
}

}  // namespace tessera::plan
