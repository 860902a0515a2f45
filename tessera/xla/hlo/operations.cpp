#include <tessera/xla/hlo/operations.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace tessera::xla::hlo {
namespace {

std::string list(const Sizes& values) {
  std::string result = "[";
  for (std::size_t i = 0; i < values.size(); ++i) result += concat(i == 0 ? "" : ", ", values[i]);
  return result + "]";
}

bool is_float(Element element) {
  return element == Element::float16 || element == Element::bfloat16 || element == Element::float32 ||
         element == Element::float64;
}

/// Formats a number such that MLIR reads it back exactly.
std::string number(double value, Element element) {
  if (element == Element::predicate) return value != 0 ? "true" : "false";
  if (!is_float(element)) return std::to_string(static_cast<std::int64_t>(value));
  char text[32];
  if (element == Element::float64) {
    std::snprintf(text, sizeof text, "0x%016llX", static_cast<unsigned long long>(std::bit_cast<std::uint64_t>(value)));
  } else if (element == Element::float32) {
    std::snprintf(text, sizeof text, "0x%08X", std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  } else if (element == Element::bfloat16) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const bool nan = value != value;  // rounded to nearest, ties to even
    const std::uint32_t rounded = nan ? 0x7FC0u : (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
    std::snprintf(text, sizeof text, "0x%04X", rounded);
  } else {
    if (value == HUGE_VAL) return "0x7C00";
    if (value == -HUGE_VAL) return "0xFC00";
    std::snprintf(text, sizeof text, "%.9e", value);
  }
  return text;
}

/// The sizes `a` except those of `dimensions`.
Sizes without(const Sizes& sizes, const Sizes& dimensions) {
  Sizes result;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (std::ranges::find(dimensions, static_cast<std::int64_t>(d)) == dimensions.end()) result.push_back(sizes[d]);
  return result;
}

/// A reduction's operation on two elements, as a region.
std::string region(Function& f, std::string_view how, Element element) {
  const std::string a = f.fresh_name(), b = f.fresh_name(), c = f.fresh_name(), type = text(Type{{}, element});
  return concat("({\n      ^bb0(", a, ": ", type, ", ", b, ": ", type, "):\n        ", c, " = stablehlo.", how, " ", a,
                ", ", b, " : ", type, "\n        stablehlo.return ", c, " : ", type, "\n    })");
}

std::string groups(int replicas) {
  std::string members;
  for (int r = 0; r < replicas; ++r) members += concat(r == 0 ? "" : ", ", r);
  return concat("replica_groups = dense<[[", members, "]]> : tensor<1x", replicas, "xi64>");
}

}  // namespace

Value constant(Function& f, double value, const Type& type) {
  return f.write(concat("stablehlo.constant dense<", number(value, type.element), "> : ", text(type)), type);
}

Value literal(Function& f, const void* data, const Type& type) {
  if (type.elements() == 0) return constant(f, 0, type);
  std::string hex;
  const auto* const bytes = static_cast<const unsigned char*>(data);
  if (type.element == Element::predicate) {  // MLIR would pack booleans into bits, so they are written out
    for (std::int64_t i = 0; i < type.elements(); ++i)
      hex += concat(i == 0 ? "" : ", ", bytes[i] != 0 ? "true" : "false");
    const Type flat{{type.elements()}, type.element};
    return reshape(f, f.write(concat("stablehlo.constant dense<[", hex, "]> : ", text(flat)), flat), type.sizes);
  }
  for (std::int64_t i = 0; i < type.bytes(); ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02X", bytes[i]);
    hex += two;
  }
  return f.write(concat("stablehlo.constant dense<\"0x", hex, "\"> : ", text(type)), type);
}

Value iota(Function& f, std::int64_t dimension, const Type& type) {
  return f.write(concat("stablehlo.iota dim = ", dimension, " : ", text(type)), type);
}

Value binary(Function& f, std::string_view name, const Value& a, const Value& b) {
  TESSERA_CHECK(a.type == b.type, name, " of ", text(a.type), " and ", text(b.type));
  return f.write(concat("stablehlo.", name, " ", a.name, ", ", b.name, " : ", text(a.type)), a.type);
}

Value unary(Function& f, std::string_view name, const Value& a) {
  return f.write(concat("stablehlo.", name, " ", a.name, " : ", text(a.type)), a.type);
}

Value erf(Function& f, const Value& x) {
  TESSERA_CHECK(x.type.element == Element::float32, "erf of ", text(x.type));
  constexpr std::array above = {-2.72614225801306e-10, 2.77068142495902e-08,  -2.10102402082508e-06,
                                -5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03,
                                -1.60960333262415e-02};
  constexpr std::array below = {-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03,
                                -7.37332916720468e-03, -1.42647390514189e-02};
  const auto number = [&](double value) { return constant(f, value, x.type); };
  const Value bounded = binary(f, "minimum", binary(f, "maximum", x, number(-4)), number(4));
  const Value square = binary(f, "multiply", bounded, bounded);
  const auto polynomial = [&](const auto& coefficients) {
    Value sum = number(coefficients[0]);
    for (std::size_t i = 1; i < coefficients.size(); ++i)
      sum = binary(f, "add", binary(f, "multiply", sum, square), number(coefficients[i]));
    return sum;
  };
  return binary(f, "divide", binary(f, "multiply", bounded, polynomial(above)), polynomial(below));
}

Value compare(Function& f, std::string_view how, const Value& a, const Value& b) {
  TESSERA_CHECK(a.type == b.type, "compare ", text(a.type), " and ", text(b.type));
  const Type type{a.type.sizes, Element::predicate};
  const char* const kind = is_float(a.type.element)               ? "FLOAT"
                           : a.type.element == Element::predicate ? "UNSIGNED"
                                                                  : "SIGNED";
  return f.write(concat("stablehlo.compare ", how, ", ", a.name, ", ", b.name, ", ", kind, " : (", text(a.type), ", ",
                        text(b.type), ") -> ", text(type)),
                 type);
}

Value select(Function& f, const Value& predicate, const Value& yes, const Value& no) {
  TESSERA_CHECK(yes.type == no.type, "select ", text(yes.type), " or ", text(no.type));
  return f.write(concat("stablehlo.select ", predicate.name, ", ", yes.name, ", ", no.name, " : ", text(predicate.type),
                        ", ", text(yes.type)),
                 yes.type);
}

Value convert(Function& f, const Value& a, Element element) {
  if (a.type.element == element) return a;
  const Type type{a.type.sizes, element};
  return f.write(concat("stablehlo.convert ", a.name, " : (", text(a.type), ") -> ", text(type)), type);
}

Value reshape(Function& f, const Value& a, const Sizes& sizes) {
  if (a.type.sizes == sizes) return a;
  const Type type{sizes, a.type.element};
  TESSERA_CHECK(type.elements() == a.type.elements(), "reshape of ", text(a.type), " to ", text(type));
  return f.write(concat("stablehlo.reshape ", a.name, " : (", text(a.type), ") -> ", text(type)), type);
}

Value transpose(Function& f, const Value& a, const Sizes& order) {
  Type type{{}, a.type.element};
  for (const std::int64_t d : order) type.sizes.push_back(a.type.sizes.at(static_cast<std::size_t>(d)));
  return f.write(
      concat("stablehlo.transpose ", a.name, ", dims = ", list(order), " : (", text(a.type), ") -> ", text(type)),
      type);
}

Value broadcast(Function& f, const Value& a, const Sizes& places, const Sizes& sizes) {
  const Type type{sizes, a.type.element};
  return f.write(concat("stablehlo.broadcast_in_dim ", a.name, ", dims = ", list(places), " : (", text(a.type), ") -> ",
                        text(type)),
                 type);
}

Value expand(Function& f, const Value& a, const Sizes& sizes) {
  if (a.type.sizes == sizes) return a;
  TESSERA_CHECK(a.type.sizes.size() <= sizes.size(), "expand ", text(a.type), " to ", list(sizes));
  Sizes places;
  const std::size_t missing = sizes.size() - a.type.sizes.size();
  for (std::size_t d = 0; d < a.type.sizes.size(); ++d) {
    TESSERA_CHECK(a.type.sizes[d] == 1 || a.type.sizes[d] == sizes[missing + d], "expand ", text(a.type), " to ",
                  list(sizes));
    places.push_back(static_cast<std::int64_t>(missing + d));
  }
  return broadcast(f, a, places, sizes);
}

Value slice(Function& f, const Value& a, std::int64_t dimension, std::int64_t begin, std::int64_t end,
            std::int64_t step) {
  Type type = a.type;
  std::string ranges;
  for (std::size_t d = 0; d < type.sizes.size(); ++d) {
    const bool here = static_cast<std::int64_t>(d) == dimension;
    ranges += concat(d == 0 ? "" : ", ", here ? begin : 0, ":", here ? end : a.type.sizes[d], ":", here ? step : 1);
    if (here) type.sizes[d] = end > begin ? (end - begin + step - 1) / step : 0;
  }
  if (type == a.type) return a;
  return f.write(concat("stablehlo.slice ", a.name, " [", ranges, "] : (", text(a.type), ") -> ", text(type)), type);
}

Value reverse(Function& f, const Value& a, const Sizes& dimensions) {
  return f.write(concat("stablehlo.reverse ", a.name, ", dims = ", list(dimensions), " : ", text(a.type)), a.type);
}

Value concatenate(Function& f, const std::vector<Value>& values, std::int64_t dimension) {
  if (values.size() == 1) return values.front();
  Type type = values.front().type;
  std::int64_t& size = type.sizes.at(static_cast<std::size_t>(dimension));
  size = 0;
  std::string names, types;
  for (const Value& value : values) {
    names += concat(names.empty() ? "" : ", ", value.name);
    types += concat(types.empty() ? "" : ", ", text(value.type));
    size += value.type.sizes.at(static_cast<std::size_t>(dimension));
  }
  return f.write(concat("stablehlo.concatenate ", names, ", dim = ", dimension, " : (", types, ") -> ", text(type)),
                 type);
}

Value pad(Function& f, const Value& a, double value, std::int64_t dimension, std::int64_t low, std::int64_t high,
          std::int64_t between) {
  if (low == 0 && high == 0 && between == 0) return a;
  Type type = a.type;
  Sizes lows(type.sizes.size(), 0), highs = lows, betweens = lows;
  const auto d = static_cast<std::size_t>(dimension);
  lows.at(d) = low;
  highs.at(d) = high;
  betweens.at(d) = between;
  type.sizes[d] += low + high + std::max<std::int64_t>(0, type.sizes[d] - 1) * between;
  const Value fill = constant(f, value, {{}, a.type.element});
  return f.write(
      concat("stablehlo.pad ", a.name, ", ", fill.name, ", low = ", list(lows), ", high = ", list(highs),
             ", interior = ", list(betweens), " : (", text(a.type), ", ", text(fill.type), ") -> ", text(type)),
      type);
}

Value dot(Function& f, const Value& a, const Value& b, const DotDimensions& dimensions) {
  Type type{{}, a.type.element};
  for (const std::int64_t d : dimensions.batch_a) type.sizes.push_back(a.type.sizes.at(static_cast<std::size_t>(d)));
  const auto add_rest = [&type](const Value& v, const Sizes& batch, const Sizes& contract) {
    Sizes gone = batch;
    gone.insert(gone.end(), contract.begin(), contract.end());
    for (const std::int64_t size : without(v.type.sizes, gone)) type.sizes.push_back(size);
  };
  add_rest(a, dimensions.batch_a, dimensions.contract_a);
  add_rest(b, dimensions.batch_b, dimensions.contract_b);
  const std::string batch = dimensions.batch_a.empty() ? ""
                                                       : concat("batching_dims = ", list(dimensions.batch_a), " x ",
                                                                list(dimensions.batch_b), ", ");
  return f.write(concat("stablehlo.dot_general ", a.name, ", ", b.name, ", ", batch,
                        "contracting_dims = ", list(dimensions.contract_a), " x ", list(dimensions.contract_b),
                        ", precision = [HIGHEST, HIGHEST] : (", text(a.type), ", ", text(b.type), ") -> ", text(type)),
                 type);
}

Value reduce(Function& f, std::string_view how, const Value& a, const Sizes& dimensions) {
  if (dimensions.empty()) return a;
  const Element element = a.type.element;
  const double least = is_float(element) ? -HUGE_VAL : element == Element::predicate ? 0 : -9223372036854775808.0;
  const double first = how == "add" ? 0 : how == "multiply" ? 1 : how == "minimum" ? -least : how == "or" ? 0 : least;
  const Value begin = constant(f, first, {{}, element});
  const Type type{without(a.type.sizes, dimensions), element};
  return f.write(concat("stablehlo.reduce(", a.name, " init: ", begin.name, ") applies stablehlo.", how,
                        " across dimensions = ", list(dimensions), " : (", text(a.type), ", ", text(begin.type),
                        ") -> ", text(type)),
                 type);
}

Value take_rows(Function& f, const Value& table, const Value& ids) {
  Type type{ids.type.sizes, table.type.element};
  const std::size_t rank = ids.type.sizes.size();
  std::string offsets, slices = "1";
  for (std::size_t d = 1; d < table.type.sizes.size(); ++d) {
    offsets += concat(d == 1 ? "" : ", ", rank + d - 1);
    slices += concat(", ", table.type.sizes[d]);
    type.sizes.push_back(table.type.sizes[d]);
  }
  return f.write(concat("\"stablehlo.gather\"(", table.name, ", ", ids.name,
                        ") <{dimension_numbers = #stablehlo.gather<offset_dims = [", offsets,
                        "], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = ", rank,
                        ">, slice_sizes = array<i64: ", slices, ">, indices_are_sorted = false}> : (", text(table.type),
                        ", ", text(ids.type), ") -> ", text(type)),
                 type);
}

Value add_rows(Function& f, std::int64_t rows, const Value& ids, const Value& updates) {
  const Type type{{rows, updates.type.sizes.at(1)}, updates.type.element};
  const Value zeros = constant(f, 0, type);
  const std::string add = region(f, "add", type.element);
  return f.write(concat("\"stablehlo.scatter\"(", zeros.name, ", ", ids.name, ", ", updates.name,
                        ") <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], "
                        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
                        "indices_are_sorted = false, unique_indices = false}> ",
                        add, " : (", text(type), ", ", text(ids.type), ", ", text(updates.type), ") -> ", text(type)),
                 type);
}

Value all_gather(Function& f, const Value& a, int replicas) {
  if (replicas == 1) return a;
  Type type = a.type;
  type.sizes.at(0) *= replicas;
  return f.write(concat("\"stablehlo.all_gather\"(", a.name, ") <{all_gather_dim = 0 : i64, ", groups(replicas),
                        "}> : (", text(a.type), ") -> ", text(type)),
                 type);
}

Value reduce_scatter(Function& f, const Value& a, int replicas) {
  if (replicas == 1) return a;
  Type type = a.type;
  TESSERA_CHECK(type.sizes.at(0) % replicas == 0, "reduce_scatter of ", text(a.type), " over ", replicas);
  type.sizes[0] /= replicas;
  const std::string add = region(f, "add", type.element);
  return f.write(concat("\"stablehlo.reduce_scatter\"(", a.name, ") <{scatter_dimension = 0 : i64, ", groups(replicas),
                        "}> ", add, " : (", text(a.type), ") -> ", text(type)),
                 type);
}

Value all_reduce(Function& f, const Value& a, int replicas) {
  if (replicas == 1) return a;
  const std::string add = region(f, "add", a.type.element);
  return f.write(concat("\"stablehlo.all_reduce\"(", a.name, ") <{", groups(replicas), "}> ", add, " : (", text(a.type),
                        ") -> ", text(a.type)),
                 a.type);
}

Value device_number(Function& f) {
  // replica_id is unsigned, unlike all other values in our programs.
  const Type type{{}, Element::int32};
  const Value raw = f.write("stablehlo.replica_id : tensor<ui32>", type);
  return f.write(concat("stablehlo.convert ", raw.name, " : (tensor<ui32>) -> ", text(type)), type);
}

Value annotate(Function& f, const Value& a, const Sharding& sharding) {
  if (sharding.empty()) return a;
  return f.write(concat("stablehlo.custom_call @Sharding(", a.name, ") {mhlo.sharding = \"", sharding, "\"} : (",
                        text(a.type), ") -> ", text(a.type)),
                 a.type);
}

std::vector<Value> barrier(Function& f, const std::vector<Value>& values) {
  if (values.empty()) return {};
  std::string names, types;
  std::vector<Type> each;
  for (const Value& value : values) {
    names += concat(names.empty() ? "" : ", ", value.name);
    types += concat(types.empty() ? "" : ", ", text(value.type));
    each.push_back(value.type);
  }
  const std::string operation = concat("stablehlo.optimization_barrier ", names, " : ", types);
  if (each.size() == 1) return {f.write(operation, each.front())};
  return f.write(operation, each);
}

}  // namespace tessera::xla::hlo
