#include <tessera/plan/recorded.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/plan/costs.h>
#include <tessera/plan/plan.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::plan {
namespace {

constexpr std::string_view version_key = "tessera_recorded_step";
constexpr std::int64_t version = 1;

constexpr double most = 1e18;  // limit of each quantity of a layer, which keeps all sums and products finite

double checked(const Value& value, const char* what) {
  const double n = value.as_real();
  if (!(n >= 0 && n <= most))
    throw InputError(concat(value.where().str(), ": ", what, " is ", format_real(n), "; from 0 to 1e18"));
  return n;
}
double number(const Value& object, const char* key) { return checked(object.at(key), key); }

Value work_value(const RecordedWork& work) {
  std::vector<Value> products, attention;
  for (const RecordedProduct& p : work.products)
    products.push_back(
        Value::make_array({Value::of(p.m), Value::of(p.n), Value::of(p.k), Value::of(p.batch), Value::of(p.times)}));
  for (const RecordedAttention& a : work.attention)
    attention.push_back(Value::make_object({{"queries", Value::of(a.queries)},
                                            {"keys", Value::of(a.keys)},
                                            {"width", Value::of(a.width)},
                                            {"times", Value::of(a.times)},
                                            {"backward", Value::of(a.backward)}}));
  return Value::make_object({{"flop", Value::of(work.flop)},
                             {"pass_bytes", Value::of(work.pass_bytes)},
                             {"passes", Value::of(work.passes)},
                             {"products", Value::make_array(std::move(products))},
                             {"attention", Value::make_array(std::move(attention))}});
}

RecordedWork read_work(const Value& value) {
  RecordedWork work;
  work.flop = number(value, "flop");
  work.pass_bytes = number(value, "pass_bytes");
  work.passes = static_cast<std::int64_t>(number(value, "passes"));
  for (const Value& item : value.at("products").items()) {
    const std::vector<Value>& sizes = item.items();
    if (sizes.size() != 5)
      throw InputError(
          concat(item.where().str(), ": a product is [m, n, k, batch, times], not ", sizes.size(), " numbers"));
    const auto size = [&](std::size_t i) { return checked(sizes[i], "a size of a product"); };
    work.products.push_back({size(0), size(1), size(2), size(3), size(4)});
  }
  for (const Value& item : value.at("attention").items())
    work.attention.push_back({number(item, "queries"), number(item, "keys"), number(item, "width"),
                              number(item, "times"), item.at("backward").as_bool()});
  return work;
}

Value layer_value(const RecordedLayer& layer) {
  return Value::make_object({{"name", Value::of(layer.name)},
                             {"parameters", Value::of(layer.parameters)},
                             {"trained", Value::of(layer.trained)},
                             {"saved_bytes", Value::of(layer.saved_bytes)},
                             {"input_bytes", Value::of(layer.input_bytes)},
                             {"forward", work_value(layer.forward)},
                             {"backward", work_value(layer.backward)}});
}

RecordedLayer read_layer(const Value& value) {
  RecordedLayer layer;
  layer.name = value.at("name").as_string();
  layer.parameters = number(value, "parameters");
  layer.trained = number(value, "trained");
  layer.saved_bytes = number(value, "saved_bytes");
  layer.input_bytes = number(value, "input_bytes");
  layer.forward = read_work(value.at("forward"));
  layer.backward = read_work(value.at("backward"));
  return layer;
}

Value call_value(const RecordedCall& call) {
  std::vector<Value> sizes;
  for (const std::vector<std::int64_t>& tensor : call.sizes) {
    std::vector<Value> dims;
    for (const std::int64_t size : tensor) dims.push_back(Value::of(size));
    sizes.push_back(Value::make_array(std::move(dims)));
  }
  return Value::make_object({{"name", Value::of(call.name)},
                             {"layer", Value::of(call.layer)},
                             {"backward", Value::of(call.backward)},
                             {"type", Value::of(call.type)},
                             {"sizes", Value::make_array(std::move(sizes))},
                             {"flop", Value::of(call.flop)},
                             {"bytes", Value::of(call.bytes)}});
}

RecordedCall read_call(const Value& value) {
  RecordedCall call;
  call.name = value.at("name").as_string();
  call.layer = value.at("layer").as_int();
  call.backward = value.at("backward").as_bool();
  call.type = value.at("type").as_string();
  for (const Value& tensor : value.at("sizes").items()) {
    call.sizes.emplace_back();
    for (const Value& size : tensor.items()) call.sizes.back().push_back(size.as_int());
  }
  call.flop = number(value, "flop");
  call.bytes = number(value, "bytes");
  return call;
}

template <class F>
double sum_of(const RecordedStep& step, const F& of) {
  double sum = of(step.begin) + of(step.end);
  for (const RecordedLayer& layer : step.layers) sum += of(layer);
  return sum;
}

}  // namespace

void RecordedWork::add(const RecordedProduct& product) {
  for (RecordedProduct& known : products)
    if (known.m == product.m && known.n == product.n && known.k == product.k && known.batch == product.batch) {
      known.times += product.times;
      return;
    }
  products.push_back(product);
}

void RecordedWork::add(const RecordedAttention& call) {
  for (RecordedAttention& known : attention)
    if (known.queries == call.queries && known.keys == call.keys && known.width == call.width &&
        known.backward == call.backward) {
      known.times += call.times;
      return;
    }
  attention.push_back(call);
}

double RecordedStep::parameters() const {
  return sum_of(*this, [](const RecordedLayer& layer) { return layer.parameters; });
}
double RecordedStep::saved_bytes() const {
  return sum_of(*this, [](const RecordedLayer& layer) { return layer.saved_bytes; });
}
double RecordedStep::flop() const {
  return sum_of(*this, [](const RecordedLayer& layer) { return layer.forward.flop + layer.backward.flop; });
}

Value recorded_value(const RecordedStep& step) {
  std::vector<Value> layers, calls;
  for (const RecordedLayer& layer : step.layers) layers.push_back(layer_value(layer));
  for (const RecordedCall& call : step.calls) calls.push_back(call_value(call));
  return Value::make_object({{std::string(version_key), Value::of(version)},
                             {"name", Value::of(step.name)},
                             {"rows", Value::of(step.rows)},
                             {"row_tokens", Value::of(step.row_tokens)},
                             {"product_bytes", Value::of(step.product_bytes)},
                             {"moment_bytes", Value::of(step.moment_bytes)},
                             {"shared", Value::of(step.shared)},
                             {"begin", layer_value(step.begin)},
                             {"layers", Value::make_array(std::move(layers))},
                             {"end", layer_value(step.end)},
                             {"calls", Value::make_array(std::move(calls))}});
}

bool is_recorded(const Value& value) { return value.is_object() && value.find(version_key) != nullptr; }

RecordedStep read_recorded(const Value& value) {
  const Value& of = value.at(version_key);
  if (of.as_int() != version)
    throw InputError(concat(of.where().str(), ": a recorded step of version ", of.as_int(), "; this program reads ",
                            version, ": record it again"));
  RecordedStep step;
  step.name = value.at("name").as_string();
  const auto count = [&](const char* key) {
    const std::int64_t n = value.at(key).as_int();
    if (n < 1 || n > std::int64_t{1} << 32)
      throw InputError(concat(value.at(key).where().str(), ": ", key, " is ", n, "; from 1 to 2^32"));
    return n;
  };
  step.rows = count("rows");
  step.row_tokens = count("row_tokens");
  step.product_bytes = number(value, "product_bytes");
  step.moment_bytes = number(value, "moment_bytes");
  step.shared = number(value, "shared");
  step.begin = read_layer(value.at("begin"));
  for (const Value& layer : value.at("layers").items()) step.layers.push_back(read_layer(layer));
  step.end = read_layer(value.at("end"));
  if (step.layers.empty())
    throw InputError(concat(value.at("layers").where().str(), ": a recorded step has at least one layer"));
  for (const Value& call : value.at("calls").items()) step.calls.push_back(read_call(call));
  return step;
}

Model model_of_recorded(RecordedStep step, std::string name) {
  Model model;
  model.name = std::move(name);
  model.type = step.name;
  model.layers = static_cast<std::int64_t>(step.layers.size());
  model.heads = model.key_heads = model.head_size = 1;
  model.causal = false;
  model.positions = step.row_tokens;
  // Messages between layers, in fp32 elements, as used by the formulas of pipelines.
  double input = 0;
  for (const RecordedLayer& layer : step.layers) input = std::max(input, layer.input_bytes);
  model.hidden = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::llround(input / 4 / real(step.rows) / real(step.row_tokens))));
  model.recorded = std::make_shared<const RecordedStep>(std::move(step));
  return model;
}

double recorded_scale(const RecordedStep& step, const Plan& run) { return real(run.rows) / real(step.rows); }

namespace {

/// Returns the product for a different number of rows: `scale` times the recorded number.
RecordedProduct scaled(RecordedProduct p, const RecordedStep& step, double scale) {
  const double tokens = real(step.rows * step.row_tokens);
  const auto counts = [](double size, double what) { return size >= what && std::fmod(size, what) == 0; };
  if (p.batch > 1)
    p.batch *= scale;
  else if (counts(p.m, tokens))
    p.m *= scale;
  else if (counts(p.k, tokens))  // a weight's gradient
    p.k *= scale;
  else if (counts(p.n, tokens))
    p.n *= scale;
  else
    p.m *= scale;
  return p;
}

/// One call. A batched product has the arithmetic of one product with all the rows, but each batch element has its own
/// factors.
double call_seconds(const Device& d, const RecordedProduct& p, double element) {
  const double seconds = product_seconds(d, p.batch * p.m, p.n, p.k, element);
  if (p.batch <= 1) return seconds;
  return std::max(seconds, pass_seconds(d, p.batch * (p.m * p.n + p.m * p.k + p.k * p.n) * element));
}

}  // namespace

RecordedSeconds recorded_seconds(const RecordedStep& step, const RecordedWork& work, const Cluster& cluster,
                                 double element, std::int64_t rows) {
  const Device& d = cluster.device;
  const double scale = real(rows) / real(step.rows);
  RecordedSeconds seconds;
  for (const RecordedProduct& p : work.products)
    seconds.products += p.times * call_seconds(d, scaled(p, step, scale), element);
  for (const RecordedAttention& a : work.attention)
    seconds.attention += a.times * (a.backward ? attention_backward_seconds : attention_seconds)(
                                       d, scale * a.queries, a.keys, a.width, element);
  if (work.passes > 0)
    seconds.passes = real(work.passes) * pass_seconds(d, scale * work.pass_bytes / real(work.passes));
  return seconds;
}

}  // namespace tessera::plan
