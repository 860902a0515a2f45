#pragma once
/// \file
/// A baseline for step times: matrix products and memory passes at a share of the peak that depends on their size
/// alone, with the steps of Calculon (Isaev et al. 2023, "Calculon: a methodology and tool for high-level co-design of
/// systems and large language models", and its system files). Products reach 10, 60, 90, 95 % at 0, 1, 16, 128 GFLOP
/// and above; passes over memory 30, 60, 75, 90 % at 0, 1, 10, 100 MB and above; links 65 % within a node and 90 %
/// between nodes; a message takes 10 or 20 us. A pipeline's bubble follows its formula, and nothing overlaps beyond the
/// roofline. The head, which Calculon omits, is counted.

#include <tessera/plan/hardware.h>
#include <tessera/plan/plan.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace tessera::plan {

class CalculonLike {
 public:
  CalculonLike(const Model& model, const Plan& plan, const Cluster& cluster, bool fused_attention)
      : m_(model), p_(plan), c_(cluster), fused_(fused_attention) {}

  double seconds() const {
    double forward = 0, backward = 0;
    for (std::int64_t layer = 0; layer < m_.layers; ++layer) {
      forward += layer_seconds(m_.is_sparse(layer), 1) / p_.pp();
      backward += layer_seconds(m_.is_sparse(layer), 2) / p_.pp();
    }
    const double again = p_.recompute > 0 ? forward / real(p_.recompute) : 0;
    const double head = 3 * product(tokens(), real(m_.vocabulary) / p_.tp(), real(m_.hidden));
    const double one = forward + backward + again;
    const double bubble = (p_.pp() - 1) * one / real(p_.stages_per_rank);
    const double elements = parameter_count(m_) / (p_.tp() * p_.pp()) / (m_.experts ? p_.mesh.ep : 1);
    const double ranks = p_.dp() * p_.cp();
    const double reduced = exchange(2 * (ranks - 1) / ranks * elements * 2, p_.tp() * p_.pp() * ranks);
    const double update = pass(elements / p_.shard_ranks() * 2 * 14);
    return real(p_.micro_batches) * (one + head) + bubble + (ranks > 1 ? reduced : 0) + update;
  }

 private:
  double tokens() const { return p_.tokens(); }
  static double step_of(double size, std::initializer_list<std::pair<double, double>> steps) {
    double share = 0;
    for (const auto& [from, value] : steps)
      if (size >= from) share = value;
    return share;
  }
  double pass(double bytes) const {
    return bytes / (c_.device.bandwidth * step_of(bytes, {{0, 0.3}, {1e6, 0.6}, {10e6, 0.75}, {100e6, 0.9}}));
  }
  double arithmetic(double flops) const {
    return flops / (c_.device.bf16 * step_of(flops, {{0, 0.1}, {1e9, 0.6}, {16e9, 0.9}, {128e9, 0.95}}));
  }
  double product(double rows, double out, double in) const {
    return std::max(arithmetic(2 * rows * out * in), pass(2 * (rows * in + in * out + rows * out)));
  }
  /// Seconds for an exchange among `ranks` ranks, placed node by node; `bytes` is per rank.
  double exchange(double bytes, double ranks) const {
    const bool inside = ranks <= c_.per_node;
    const Link& link = inside ? c_.inside : c_.across;
    return bytes / (link.bandwidth * (inside ? 0.65 : 0.9)) + (inside ? 10e-6 : 20e-6);
  }

  /// One layer of one micro-batch; `times`: 1 for forward, 2 for backward.
  double layer_seconds(bool sparse, double times) const {
    const double n = tokens(), t = p_.tp(), h = real(m_.hidden), part = p_.sequence_parallel ? n / t : n;
    double products = 0, inner = real(m_.inner) / t, rows = n;
    const double ways = m_.gated ? 2 : 1;
    if (m_.latent) {
      const Latent& l = *m_.latent;
      const double heads = real(m_.heads) / t;
      products += product(n, real(l.query_rank), h) +
                  product(n, heads * real(l.plain + l.rotated), real(l.query_rank)) +
                  product(n, real(l.key_rank + l.rotated), h) +
                  product(n, heads * real(l.plain + l.value), real(l.key_rank)) + product(n, h, heads * real(l.value));
    } else {
      products +=
          product(n, real(m_.query_width() + 2 * m_.key_width()) / t, h) + product(n, h, real(m_.query_width()) / t);
    }
    double messages = 4 * (t - 1) / t * n * h * 2;  // two sums
    if (sparse) {
      const Experts& e = *m_.experts;
      rows = n * real(e.top_k);
      inner = real(e.inner);
      if (e.shared_inner > 0)
        products += product(n, ways * real(e.shared_inner) / t, h) + product(n, h, real(e.shared_inner) / t);
      messages += 2 * rows * h * 2 * (p_.mesh.ep - 1) / p_.mesh.ep;
    }
    products += product(rows, ways * inner, h) + product(rows, h, inner);
    const double seen = real(p_.sequence);
    double scores = arithmetic(4 * n * seen * score_width(m_) / t);
    if (!fused_) scores += pass(n * seen * real(m_.heads) / t * 10);  // softmax and dropout
    const double passes = pass(2 * 2 * part * h * 2) + pass(2 * 3 * part * h * 2) + pass((ways + 1) * rows * inner * 2);
    const double sent = t > 1 || (sparse && p_.mesh.ep > 1) ? exchange(messages, std::max<double>(t, p_.mesh.ep)) : 0;
    return times * (products + scores + passes) + sent;
  }

  const Model& m_;
  const Plan& p_;
  const Cluster& c_;
  bool fused_;
};

}  // namespace tessera::plan
