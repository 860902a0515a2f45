#pragma once
/// \file
/// StableHLO operations as free functions: each writes itself into a Function and returns its result. Sizes follow from
/// the operands; TESSERA_CHECK names an operation whose operands do not fit.

#include <tessera/xla/hlo/function.h>

#include <string_view>

namespace tessera::xla::hlo {

/// Every element is `value`.
Value constant(Function& f, double value, const Type& type);
/// An array given in full: `bytes` bytes at `data`, row-major; for small ones.
Value literal(Function& f, const void* data, const Type& type);
/// Its own position along `dimension`.
Value iota(Function& f, std::int64_t dimension, const Type& type);

/// "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "and", "or", "remainder", "xor",
/// "shift_right_logical": same types.
Value binary(Function& f, std::string_view name, const Value& a, const Value& b);
/// "exponential", "log", "negate", "sqrt", "rsqrt", "tanh", "logistic", "abs", "cosine", "sine", "sign", "floor",
/// "not", "log_plus_one", "exponential_minus_one".
Value unary(Function& f, std::string_view name, const Value& a);
/// The error function of fp32 by the rational approximation on [-4, 4] of Eigen's generic_fast_erf_float, which XLA
/// uses too (StableHLO has no such operation).
Value erf(Function& f, const Value& a);
/// Predicates: "EQ", "NE", "LT", "LE", "GT", "GE".
Value compare(Function& f, std::string_view how, const Value& a, const Value& b);
Value select(Function& f, const Value& predicate, const Value& yes, const Value& no);
Value convert(Function& f, const Value& a, Element element);

Value reshape(Function& f, const Value& a, const Sizes& sizes);
/// Dimension i of the result is dimension order[i] of a.
Value transpose(Function& f, const Value& a, const Sizes& order);
/// Dimension i of a is dimension places[i] of the result.
Value broadcast(Function& f, const Value& a, const Sizes& places, const Sizes& sizes);
/// As LibTorch's rules have it: aligned at the last dimension, sizes of 1 repeat.
Value expand(Function& f, const Value& a, const Sizes& sizes);
Value slice(Function& f, const Value& a, std::int64_t dimension, std::int64_t begin, std::int64_t end,
            std::int64_t step = 1);
/// The other way round along `dimensions`.
Value reverse(Function& f, const Value& a, const Sizes& dimensions);
Value concatenate(Function& f, const std::vector<Value>& values, std::int64_t dimension);
/// `low` and `high` elements of `value` before and after (fewer than 0: as many are cut), `between` between every two,
/// along `dimension`.
Value pad(Function& f, const Value& a, double value, std::int64_t dimension, std::int64_t low, std::int64_t high,
          std::int64_t between = 0);

/// Products over pairs of contracted dimensions, in the highest precision; results are [batch, rest of a, rest of b].
struct DotDimensions {
  Sizes batch_a, batch_b, contract_a, contract_b;
};
Value dot(Function& f, const Value& a, const Value& b, const DotDimensions& dimensions);

/// "add", "maximum", "minimum", "multiply" over dimensions, which vanish.
Value reduce(Function& f, std::string_view how, const Value& a, const Sizes& dimensions);
/// Rows table[ids]: ids int of any sizes, table [V, C...] -> [ids..., C...].
Value take_rows(Function& f, const Value& table, const Value& ids);
/// zeros [rows, C] with rows[ids[i]] += updates[i]: ids [N], updates [N, C].
Value add_rows(Function& f, std::int64_t rows, const Value& ids, const Value& updates);

// Between `replicas` devices of one program. Dimension 0 is divided or joined in the order of the devices.
Value all_gather(Function& f, const Value& a, int replicas);
Value reduce_scatter(Function& f, const Value& a, int replicas);
Value all_reduce(Function& f, const Value& a, int replicas);
/// This device's number: int32 scalar.
Value device_number(Function& f);

/// The same values, which the compiler takes for others: it neither joins what is computed from them with what is
/// computed from the originals, nor starts it before all of them are there.
std::vector<Value> barrier(Function& f, const std::vector<Value>& values);

}  // namespace tessera::xla::hlo
