#include <tessera/xla/hlo/function.h>

#include <tessera/base/error.h>

namespace tessera::xla::hlo {
namespace {

const char* name_of(Element element) {
  switch (element) {
    case Element::predicate:
      return "i1";
    case Element::int32:
      return "i32";
    case Element::int64:
      return "i64";
    case Element::float16:
      return "f16";
    case Element::bfloat16:
      return "bf16";
    case Element::float32:
      return "f32";
    case Element::float64:
      return "f64";
  }
  throw Error("an element of an unknown type");
}

}  // namespace

std::int64_t Type::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

std::int64_t Type::bytes() const { return elements() * static_cast<std::int64_t>(bytes_of(element)); }

std::string text(const Type& type) {
  std::string result = "tensor<";
  for (const std::int64_t size : type.sizes) result += std::to_string(size) + "x";
  return result + name_of(type.element) + ">";
}

Sharding replicated(int partitions) { return partitions == 1 ? "" : "{replicated}"; }

Sharding by_rows(std::size_t rank, int partitions) {
  if (rank == 0 || partitions == 1) return replicated(partitions);
  std::string whole;
  for (std::size_t d = 1; d < rank; ++d) whole += ",1";
  return concat("{devices=[", partitions, whole, "]<=[", partitions, "]}");
}

Value Function::argument(const Type& type, int donated_to, const Sharding& sharding) {
  arguments_.push_back(type);
  of_arguments_.push_back(sharding);
  donated_.push_back(donated_to);
  return {concat("%arg", arguments_.size() - 1), type};
}

Value Function::write(const std::string& text, const Type& type) {
  Value value{fresh_name(), type};
  body_ += concat("    ", value.name, " = ", text, "\n");
  return value;
}

std::vector<Value> Function::write(const std::string& text, const std::vector<Type>& types) {
  const std::string name = fresh_name();
  body_ += concat("    ", name, ":", types.size(), " = ", text, "\n");
  std::vector<Value> values;
  for (std::size_t i = 0; i < types.size(); ++i) values.push_back({concat(name, "#", i), types[i]});
  return values;
}

std::string Function::module(const Ranks& ranks) const {
  std::string result = concat("module @step attributes {mhlo.num_partitions = ", ranks.partitions,
                              " : i32, mhlo.num_replicas = ", ranks.replicas, " : i32} {\n  func.func public @main(");
  const auto attribute = [](const Sharding& sharding) {
    return sharding.empty() ? std::string() : concat("mhlo.sharding = \"", sharding, "\"");
  };
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    result += concat(i == 0 ? "" : ", ", "%arg", i, ": ", text(arguments_[i]));
    const std::string sharding = attribute(of_arguments_[i]);
    const std::string donation = donated_[i] < 0 ? "" : concat("tf.aliasing_output = ", donated_[i], " : i32");
    if (!sharding.empty() || !donation.empty())
      result += concat(" {", sharding, sharding.empty() || donation.empty() ? "" : ", ", donation, "}");
  }
  std::string types, names, annotated;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    types += concat(i == 0 ? "" : ", ", text(results_[i].type));
    names += concat(i == 0 ? "" : ", ", results_[i].name);
    const std::string sharding = attribute(of_results_[i]);
    annotated +=
        concat(i == 0 ? "" : ", ", text(results_[i].type), sharding.empty() ? "" : concat(" {", sharding, "}"));
  }
  return result + concat(") -> (", annotated, ") {\n", body_, "    return ", names, " : ", types, "\n  }\n}\n");
}

}  // namespace tessera::xla::hlo
