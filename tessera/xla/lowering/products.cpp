#include <tessera/xla/lowering/lowering.h>

#include <tessera/base/error.h>

namespace tessera::xla {
namespace {

using hlo::Value;

Value matrices(NodeLowering& n, const Value& a, const Value& b) {
  return hlo::dot(n.f, a, b, {.batch_a = {}, .batch_b = {}, .contract_a = {1}, .contract_b = {0}});
}
Value batches(NodeLowering& n, const Value& a, const Value& b) {
  return hlo::dot(n.f, a, b, {.batch_a = {0}, .batch_b = {0}, .contract_a = {2}, .contract_b = {1}});
}
void mm(NodeLowering& n) { n.set(0, matrices(n, n.tensor(0), n.tensor(1))); }
void bmm(NodeLowering& n) { n.set(0, batches(n, n.tensor(0), n.tensor(1))); }
void mv(NodeLowering& n) {
  n.set(0,
        hlo::dot(n.f, n.tensor(0), n.tensor(1), {.batch_a = {}, .batch_b = {}, .contract_a = {1}, .contract_b = {0}}));
}
void dot(NodeLowering& n) {
  n.set(0,
        hlo::dot(n.f, n.tensor(0), n.tensor(1), {.batch_a = {}, .batch_b = {}, .contract_a = {0}, .contract_b = {0}}));
}

/// beta * self + alpha * product.
void added(NodeLowering& n, const Value& product) {
  const hlo::Type type = n.result_type();
  const double beta = n.number(3), alpha = n.number(4);
  Value scaled = product;
  if (alpha != 1) scaled = hlo::binary(n.f, "multiply", scaled, hlo::constant(n.f, alpha, type));
  if (beta == 0) return n.set(0, scaled);
  Value self = n.operand(0, type);
  if (beta != 1) self = hlo::binary(n.f, "multiply", self, hlo::constant(n.f, beta, type));
  n.set(0, hlo::binary(n.f, "add", self, scaled));
}
void addmm(NodeLowering& n) { added(n, matrices(n, n.tensor(1), n.tensor(2))); }
void baddbmm(NodeLowering& n) { added(n, batches(n, n.tensor(1), n.tensor(2))); }

}  // namespace

const RuleTable& product_rules() {
  static const RuleTable table = {
      {"mm", &mm}, {"bmm", &bmm}, {"mv", &mv}, {"dot", &dot}, {"addmm", &addmm}, {"baddbmm", &baddbmm},
  };
  return table;
}

}  // namespace tessera::xla
