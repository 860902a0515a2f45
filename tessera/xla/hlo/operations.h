#pragma once
/// \file
/// StableHLO operations as free functions: each appends itself to a Function and returns its result. Sizes follow from
/// the operands; TESSERA_CHECK names an operation whose operands do not match.

#include <tessera/xla/hlo/function.h>

#include <string_view>

namespace tessera::xla::hlo {

/// Every element is `value`.
Value constant(Function& f, double value, const Type& type);
/// An array with explicit elements: `bytes` bytes at `data`, row-major; for small arrays.
Value literal(Function& f, const void* data, const Type& type);
/// Each element is its index along `dimension`.
Value iota(Function& f, std::int64_t dimension, const Type& type);

/// Operands of equal types: "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "and", "or",
/// "remainder", "xor", "shift_right_logical".
Value binary(Function& f, std::string_view name, const Value& a, const Value& b);
/// "exponential", "log", "negate", "sqrt", "rsqrt", "tanh", "logistic", "abs", "cosine", "sine", "sign", "floor",
/// "not", "log_plus_one", "exponential_minus_one".
Value unary(Function& f, std::string_view name, const Value& a);
/// The error function in fp32, by the rational approximation on [-4, 4] of Eigen's generic_fast_erf_float, which XLA
/// also uses (StableHLO has no such operation).
Value erf(Function& f, const Value& a);
/// Comparisons: "EQ", "NE", "LT", "LE", "GT", "GE".
Value compare(Function& f, std::string_view how, const Value& a, const Value& b);
Value select(Function& f, const Value& predicate, const Value& yes, const Value& no);
Value convert(Function& f, const Value& a, Element element);

Value reshape(Function& f, const Value& a, const Sizes& sizes);
/// Dimension i of the result is dimension order[i] of a.
Value transpose(Function& f, const Value& a, const Sizes& order);
/// Dimension i of a is dimension places[i] of the result.
Value broadcast(Function& f, const Value& a, const Sizes& places, const Sizes& sizes);
/// LibTorch's broadcasting: aligned at the last dimension, sizes of 1 repeat.
Value expand(Function& f, const Value& a, const Sizes& sizes);
Value slice(Function& f, const Value& a, std::int64_t dimension, std::int64_t begin, std::int64_t end,
            std::int64_t step = 1);
/// Reverses the order along `dimensions`.
Value reverse(Function& f, const Value& a, const Sizes& dimensions);
Value concatenate(Function& f, const std::vector<Value>& values, std::int64_t dimension);
/// Pads `a` with `value` along `dimension`: `low` elements before, `high` after (negative: cut), `between` between
/// neighbours.
Value pad(Function& f, const Value& a, double value, std::int64_t dimension, std::int64_t low, std::int64_t high,
          std::int64_t between = 0);

/// Products over pairs of contracted dimensions, in the highest precision; the result is [batch, rest of a, rest of b].
struct DotDimensions {
  Sizes batch_a, batch_b, contract_a, contract_b;
};
Value dot(Function& f, const Value& a, const Value& b, const DotDimensions& dimensions);

/// "add", "maximum", "minimum" or "multiply" over `dimensions`, which are removed.
Value reduce(Function& f, std::string_view how, const Value& a, const Sizes& dimensions);
/// Rows table[ids]: ids int of any sizes, table [V, C...] -> [ids..., C...].
Value take_rows(Function& f, const Value& table, const Value& ids);
/// zeros [rows, C] with rows[ids[i]] += updates[i]: ids [N], updates [N, C].
Value add_rows(Function& f, std::int64_t rows, const Value& ids, const Value& updates);

// Collectives between the `replicas` devices of one program. Dimension 0 is split or concatenated in device order.
Value all_gather(Function& f, const Value& a, int replicas);
Value reduce_scatter(Function& f, const Value& a, int replicas);
Value all_reduce(Function& f, const Value& a, int replicas);
/// This device's index: int32 scalar.
Value device_number(Function& f);

/// Returns the same value; the compiler divides its computation according to `sharding`.
Value annotate(Function& f, const Value& a, const Sharding& sharding);

/// Returns the same values, but opaque to the compiler: it neither merges computations on them with those on the
/// originals, nor starts any before all of them are available.
std::vector<Value> barrier(Function& f, const std::vector<Value>& values);

}  // namespace tessera::xla::hlo
