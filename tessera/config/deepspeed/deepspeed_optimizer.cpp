// optimizer: {type, params}. DeepSpeed's types, and torch.optim's SGD.

#include <tessera/base/text.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>

#include <algorithm>
#include <array>

namespace tessera::config::deepspeed {
namespace {

using Words = std::vector<std::string_view>;

struct Type {
  std::string_view name;     ///< DeepSpeed ignores upper and lower case
  std::string_view setting;  ///< our setting; empty: refused
  std::string_view lr;       ///< DeepSpeed's default
  Words parameters;          ///< in addition to the common ones; refused: the reason
};

const std::vector<Type>& types() {
  static const std::vector<Type> all = {
      {"AdamW",
       "adamw",
       "0.001",
       {"betas", "eps", "bias_correction", "torch_adam", "adam_w_mode", "fp32_optimizer_states"}},
      {"Adam",
       "adamw",
       "0.001",
       {"betas", "eps", "bias_correction", "torch_adam", "adam_w_mode", "fp32_optimizer_states"}},
      {"Adagrad", "adagrad", "0.01", {"eps", "lr_decay", "initial_accumulator_value", "fp32_optimizer_states"}},
      {"Lion", "lion", "0.001", {"betas", "fp32_optimizer_states"}},
      {"Lamb", "lamb", "0.001", {"betas", "eps", "bias_correction", "max_coeff", "min_coeff"}},
      {"SGD", "sgd", "0.001", {"momentum", "nesterov"}},
      {"OneBitAdam",
       "adamw",
       "0.001",
       {"betas", "eps", "bias_correction", "freeze_step", "cuda_aware", "comm_backend_name"}},
      {"ZeroOneAdam",
       "adamw",
       "0.001",
       {"betas", "eps", "bias_correction", "var_freeze_step", "var_update_scaler", "local_step_scaler",
        "local_step_clipper", "cuda_aware", "comm_backend_name"}},
      {"OneBitLamb",
       "lamb",
       "0.001",
       {"betas", "eps", "bias_correction", "max_coeff", "min_coeff", "freeze_step", "cuda_aware", "comm_backend_name",
        "coeff_beta", "factor_max", "factor_min", "factor_threshold"}},
      {"Muon", "", "", {"use AdamW or Lion"}},
      {"MuAdam", "", "", {"maximal update parametrization is not implemented; use Adam"}},
      {"MuAdamW", "", "", {"maximal update parametrization is not implemented; use AdamW"}},
      {"MuSGD", "", "", {"maximal update parametrization is not implemented; use SGD"}},
      {"Adafactor", "", "", {"its parameters in torch differ from those of --optim adafactor; use that"}},
  };
  return all;
}

// Keys that are handled by their rows alone, for every type.
constexpr std::array<std::string_view, 12> common = {
    "lr",       "weight_decay",  "max_grad_norm", "amsgrad", "eps_inside_sqrt", "dampening",
    "maximize", "set_grad_none", "fused",         "foreach", "capturable",      "differentiable"};

std::string key(std::string_view name) { return concat("optimizer.params.", name); }

class Optimizer {
 public:
  explicit Optimizer(Reading& r) : r_(r) {}

  void read() {
    const auto name = r_.text("optimizer.type");
    if (!name) {
      // DeepSpeed would ignore the parameters as well
      if (const auto params = r_.said.find("optimizer.params");
          params != r_.said.end() && !params->second->members().empty())
        r_.to.problem(params->second->where(), "optimizer.params requires optimizer.type", {"optim"});
      return;
    }
    const SourcePos where = r_.value("optimizer.type")->where();
    const Type* type = find(*name);
    if (type == nullptr) return unknown(*name, where);
    if (type->setting.empty())
      return r_.to.problem(where, concat("optimizer.type ", *name, " is not implemented: ", type->parameters.front()),
                           {"optim"});
    parameters(*type);
    choose(*type, *name, where);
    if (r_.value(key("lr")) == nullptr && (r_.alone || !r_.is_auto(key("lr"))))
      r_.otherwise("learning_rate", "optimizer.type", std::string(type->lr), where);
    betas();
    epsilon(*type);
    extra(*type, where);
    one_bit(*type, where);
  }

 private:
  static const Type* find(const std::string& name) {
    const auto found = std::find_if(types().begin(), types().end(),
                                    [&](const Type& type) { return to_lower(type.name) == to_lower(name); });
    return found == types().end() ? nullptr : &*found;
  }

  void unknown(const std::string& name, const SourcePos& where) {
    std::vector<std::string> built;
    for (const Type& type : types())
      if (!type.setting.empty()) built.emplace_back(type.name);
    const auto near = nearest(name, built);
    r_.to.problem(where,
                  concat("optimizer.type '", name, "' is unknown", near ? concat("; did you mean ", *near, "?") : "",
                         " (the types are ", join(built), ")"),
                  {"optim"});
  }

  /// Reports parameters of other optimizer types, which are errors in DeepSpeed as well.
  void parameters(const Type& type) {
    const auto section = r_.said.find("optimizer.params");
    if (section == r_.said.end()) return;
    for (const auto& [name, value] : section->second->members()) {
      const auto is = [&key = name](const auto& words) {
        return std::find(words.begin(), words.end(), key) != words.end();
      };
      if (find_row(key(name)) == nullptr || is(common) || is(type.parameters)) continue;
      std::vector<std::string> known(type.parameters.begin(), type.parameters.end());
      const Row* row = find_row(key(name));
      r_.to.problem(value.where(), concat(key(name), " is not a parameter of ", type.name,
                                          "; besides lr and weight_decay it has ", join(known)));
      if (!row->setting.empty()) r_.problems.doubtful.emplace(row->setting);
    }
  }

  void choose(const Type& type, const std::string& name, const SourcePos& where) {
    const bool l2 = type.name == "Adam" && r_.flag(key("adam_w_mode")) == false;
    if (type.name == "AdamW" && r_.flag(key("adam_w_mode")) == false)
      r_.to.note(r_.value(key("adam_w_mode"))->where(),
                 concat(key("adam_w_mode"), " false has no effect: optimizer.type is AdamW"));
    r_.say("optim", concat("optimizer.type ", name), l2 ? "adam" : std::string(type.setting), where, "optim");
  }

  void betas() {
    const Value* value = r_.value(key("betas"));
    if (value == nullptr) return;
    const bool pair = value->is_array() && value->items().size() == 2 && value->items()[0].is_number() &&
                      value->items()[1].is_number();
    if (!pair)
      return r_.to.problem(
          value->where(),
          concat(key("betas"), " is ", Reading::shown(*value), "; it must be two numbers: [0.9, 0.999]"),
          {"adam_beta1", "adam_beta2"});
    const double beta1 = value->items()[0].as_real(), beta2 = value->items()[1].as_real();
    const OptimizationConfig& o = r_.so_far.values.optimization;
    const bool same1 = !r_.given_elsewhere("adam_beta1") || o.adam_beta1 == beta1,
               same2 = !r_.given_elsewhere("adam_beta2") || o.adam_beta2 == beta2;
    if (!same1 || !same2) {
      const Origin& from = r_.so_far.origin(same1 ? "adam_beta2" : "adam_beta1");
      return r_.to.problem(
          value->where(),
          concat(Reading::mismatch(key("betas"), Reading::shown(*value), "adam_beta1+adam_beta2",
                                   concat("[", format_real(o.adam_beta1), ", ", format_real(o.adam_beta2), "]")),
                 " (", from, "): make them equal, or remove one of them"),
          {"adam_beta1", "adam_beta2"});
    }
    r_.to.give("adam_beta1", key("betas"), format_real(beta1), value->items()[0].where());
    r_.to.give("adam_beta2", key("betas"), format_real(beta2), value->items()[1].where());
  }

  void epsilon(const Type& type) {
    const Value* value = r_.value(key("eps"));
    if (type.setting != "adamw") return;
    if (value != nullptr) r_.say("adam_epsilon", key("eps"), *value, "adam_epsilon");
  }

  /// Parameters without a setting of their own.
  void extra(const Type& type, const SourcePos& where) {
    std::vector<Value::Member> arguments;
    const auto pass = [&](const char* theirs, const char* ours, std::optional<double> otherwise) {
      const auto value = r_.number(key(theirs));
      if (value || otherwise) arguments.emplace_back(ours, Value::of(value ? *value : *otherwise));
    };
    if (type.name == "Adagrad") {
      pass("lr_decay", "lr_decay", {});
      pass("initial_accumulator_value", "initial_accumulator_value", {});
      pass("eps", "eps", {});
    } else if (type.setting == "adamw") {
      if (is_one_bit(type) || r_.flag(key("bias_correction")) == false)
        arguments.emplace_back("bias_correction", Value::of(false));
    } else if (type.setting == "lamb") {
      pass("eps", "eps", 1e-8);
      if (r_.number(key("min_coeff")) != 0) pass("min_coeff", "min_trust_ratio", 0.01);  // 0 is our default
      pass("max_coeff", "max_trust_ratio", 10);
      if (is_one_bit(type))
        arguments.emplace_back("bias_correction", Value::of(false));
      else if (const auto correct = r_.flag(key("bias_correction")))
        arguments.emplace_back("bias_correction", Value::of(*correct));
      arguments.emplace_back("adapt_undecayed", Value::of(true));  // FusedLamb scales every parameter
    }
    if (!arguments.empty())
      r_.say("optim_args", "optimizer.params", dump_json(Value::make_object(std::move(arguments)), -1), where);
  }

  static bool is_one_bit(const Type& type) {
    return type.name == "OneBitAdam" || type.name == "ZeroOneAdam" || type.name == "OneBitLamb";
  }

  /// deepspeed/runtime/fp16/onebit: none of these optimizers corrects bias, regardless of the parameter.
  void one_bit(const Type& type, const SourcePos& where) {
    if (!is_one_bit(type)) return;
    if (r_.whole("zero_optimization.stage").value_or(0) > 0)
      return r_.to.problem(where,
                           concat("optimizer.type ", type.name,
                                  ": it is not compatible with ZeRO; set "
                                  "zero_optimization.stage to 0, or use ",
                                  type.setting == "lamb" ? "Lamb" : "AdamW"),
                           {"optim", "grad_compression"});
    if (const Value* correct = r_.value(key("bias_correction")); correct && r_.flag(key("bias_correction")) == true)
      r_.to.note(correct->where(), concat(key("bias_correction"), " true has no effect: ", type.name, " has none"));
    const bool zero_one = type.name == "ZeroOneAdam";
    const char* const begins = zero_one ? "var_freeze_step" : "freeze_step";
    r_.to.note(where,
               concat("optimizer.type ", type.name, ": ", type.setting == "lamb" ? "Lamb" : "AdamW",
                      ", whose gradients (not momenta) are sent in one bit after ", begins,
                      " steps; the second moment is still updated", zero_one ? ", and every step is exchanged" : ""));
    const std::int64_t warmup = r_.whole(key(begins)).value_or(100000);
    r_.say("grad_compression", "optimizer.type", concat("onebit:warmup=", warmup), where);
  }

  Reading& r_;
};

}  // namespace

void read_optimizer(Reading& r) { Optimizer(r).read(); }

}  // namespace tessera::config::deepspeed
