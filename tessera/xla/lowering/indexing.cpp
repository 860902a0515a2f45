#include <tessera/xla/lowering/lowering.h>

#include <tessera/base/error.h>

namespace tessera::xla {
namespace {

using hlo::Sizes;
using hlo::Value;

/// embedding(table, ids, padding_idx, ...).
void embedding(NodeLowering& n) { n.set(0, hlo::take_rows(n.f, n.tensor(0), n.tensor(1))); }

/// embedding_dense_backward(dy, ids, rows, padding_idx, scale_by_frequency): dy's rows, added by id.
void embedding_backward(NodeLowering& n) {
  const Value &dy = n.tensor(0), &ids = n.tensor(1);
  if (n.flag(4)) throw InputError("device xla: an embedding with scale_grad_by_freq cannot be compiled");
  const std::int64_t count = ids.type.elements(), width = n.result_type().sizes.at(1);
  Value rows = hlo::convert(n.f, hlo::reshape(n.f, dy, {count, width}), Element::float32);
  const Value flat = hlo::reshape(n.f, ids, {count});
  if (const std::int64_t padding = n.integer(3); padding >= 0) {
    const Value is_padding = hlo::compare(n.f, "EQ", flat, hlo::constant(n.f, static_cast<double>(padding), flat.type));
    rows =
        hlo::select(n.f, hlo::broadcast(n.f, is_padding, {0}, rows.type.sizes), hlo::constant(n.f, 0, rows.type), rows);
  }
  const Value sums = hlo::add_rows(n.f, n.integer(2), hlo::reshape(n.f, flat, {count, 1}), rows);
  n.set(0, hlo::convert(n.f, sums, n.result_type().element));
}

/// index_select(x, 0, ids).
void index_select(NodeLowering& n) {
  const Value& x = n.tensor(0);
  const std::int64_t d = n.dimension(1, x.type.sizes.size());
  if (d != 0) throw InputError("device xla: index_select() along a dimension other than the first cannot be compiled");
  n.set(0, hlo::reshape(n.f, hlo::take_rows(n.f, x, n.tensor(2)), n.result_type().sizes));
}

/// gather(x, dim, ids): selects elements of each row by comparison; efficient for few ids per row, such as labels.
void gather(NodeLowering& n) {
  const Value &x = n.tensor(0), &ids = n.tensor(2);
  const auto rank = x.type.sizes.size();
  const std::int64_t d = n.dimension(1, rank);
  for (std::size_t i = 0; i < rank; ++i)
    if (static_cast<std::int64_t>(i) != d && ids.type.sizes[i] != x.type.sizes[i])
      throw InputError("device xla: gather() of only some rows cannot be compiled");
  // [.., picked at d, .., all of d]: x's dimension d becomes an additional last dimension.
  Sizes sizes = ids.type.sizes, places_ids;
  sizes.push_back(x.type.sizes[static_cast<std::size_t>(d)]);
  for (std::size_t i = 0; i < rank; ++i) places_ids.push_back(static_cast<std::int64_t>(i));
  const Value each = hlo::broadcast(n.f, ids, places_ids, sizes);
  const Value match = hlo::compare(n.f, "EQ", each, hlo::iota(n.f, static_cast<std::int64_t>(rank), each.type));
  Sizes order;
  for (std::size_t i = 0; i < rank; ++i)
    if (static_cast<std::int64_t>(i) != d) order.push_back(static_cast<std::int64_t>(i));
  order.push_back(d);
  const Value moved = hlo::transpose(n.f, x, order);
  Sizes places;
  for (const std::int64_t i : order) places.push_back(i == d ? static_cast<std::int64_t>(rank) : i);
  const Value spread = hlo::broadcast(n.f, moved, places, sizes);
  const Value zero = hlo::constant(n.f, 0, spread.type);
  n.set(0, hlo::reduce(n.f, "add", hlo::select(n.f, match, spread, zero), {static_cast<std::int64_t>(rank)}));
}

/// [N, C] from labels [N]: 1 where the class is the row's label.
Value is_label(NodeLowering& n, const Value& labels, const Sizes& sizes) {
  const Value each = hlo::broadcast(n.f, labels, {0}, sizes);
  return hlo::compare(n.f, "EQ", each, hlo::iota(n.f, 1, each.type));
}
/// Row weights: 1 where the label is not the ignored one.
Value counts(NodeLowering& n, const Value& labels, std::int64_t ignored) {
  return hlo::convert(n.f,
                      hlo::compare(n.f, "NE", labels, hlo::constant(n.f, static_cast<double>(ignored), labels.type)),
                      Element::float32);
}
void check_loss(NodeLowering& n, const Value& x, std::size_t weight) {
  if (n.has(weight)) throw InputError("device xla: a loss with class weights cannot be compiled");
  if (x.type.sizes.size() != 2) throw InputError("device xla: nll_loss() of one row cannot be compiled");
}

/// nll_loss_forward(x, labels, weight, reduction, ignored) -> loss, number of counted rows. reduction: 0 none, 1 mean,
/// 2 sum.
void nll_loss(NodeLowering& n) {
  const Value &x = n.tensor(0), &labels = n.tensor(1);
  check_loss(n, x, 2);
  const hlo::Type type{x.type.sizes, Element::float32};
  const Value picked =
      hlo::select(n.f, is_label(n, labels, type.sizes), n.operand(0, type), hlo::constant(n.f, 0, type));
  const Value weights = counts(n, labels, n.integer(4));
  const Value rows =
      hlo::binary(n.f, "multiply", hlo::unary(n.f, "negate", hlo::reduce(n.f, "add", picked, {1})), weights);
  const Value total = hlo::reduce(n.f, "add", weights, {0});
  Value loss = rows;
  if (n.integer(3) != 0) loss = hlo::reduce(n.f, "add", rows, {0});
  if (n.integer(3) == 1) loss = hlo::binary(n.f, "divide", loss, total);
  n.set(0, hlo::convert(n.f, loss, n.result_type(0).element));
  if (n.wants(1)) n.set(1, hlo::convert(n.f, total, n.result_type(1).element));
}
/// nll_loss_backward(dy, x, labels, weight, reduction, ignored, total): -dy at the label.
void nll_loss_backward(NodeLowering& n) {
  const Value &x = n.tensor(1), &labels = n.tensor(2);
  check_loss(n, x, 3);
  const hlo::Type rows{{x.type.sizes[0]}, Element::float32}, type{x.type.sizes, Element::float32};
  Value dy = n.operand(0, rows);
  if (n.integer(4) == 1) dy = hlo::binary(n.f, "divide", dy, n.operand(6, rows));
  dy = hlo::binary(n.f, "multiply", hlo::unary(n.f, "negate", dy), counts(n, labels, n.integer(5)));
  const Value dx = hlo::select(n.f, is_label(n, labels, type.sizes), hlo::broadcast(n.f, dy, {0}, type.sizes),
                               hlo::constant(n.f, 0, type));
  n.set(0, hlo::convert(n.f, dx, n.result_type().element));
}

}  // namespace

const RuleTable& indexing_rules() {
  static const RuleTable table = {
      {"embedding", &embedding},       {"embedding_dense_backward", &embedding_backward},
      {"index_select", &index_select}, {"gather", &gather},
      {"nll_loss_forward", &nll_loss}, {"nll_loss_backward", &nll_loss_backward},
  };
  return table;
}

}  // namespace tessera::xla
