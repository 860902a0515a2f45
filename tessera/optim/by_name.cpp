#include <tessera/optim/by_name.h>

#include <tessera/base/error.h>
#include <tessera/config/rules/named_parameters.h>
#include <tessera/optim/offloaded.h>

#include <algorithm>
#include <map>

namespace tessera::optim {
namespace {

/// The parameters of --optim_args, read by name.
class Arguments {
 public:
  explicit Arguments(const OptimizerChoice& choice) : choice_(choice) {}

  double real(const char* name, double otherwise) const {
    const Value* value = given(name);
    return value ? value->as_real() : otherwise;
  }
  bool flag(const char* name, bool otherwise) const {
    const Value* value = given(name);
    return value ? value->as_bool() : otherwise;
  }
  std::int64_t whole(const char* name, std::int64_t otherwise) const {
    const Value* value = given(name);
    return value ? value->as_int() : otherwise;
  }
  std::string text(const char* name, const std::string& otherwise) const {
    const Value* value = given(name);
    return value ? value->as_string() : otherwise;
  }

 private:
  const Value* given(const char* name) const { return config::find_parameter(choice_.parameters, name); }

  const OptimizerChoice& choice_;
};

using Slots = std::vector<Slot>;
using Made = std::unique_ptr<Optimizer>;
using Maker = Made (*)(const OptimizerChoice&, const Arguments&, Slots, const CommonOptions&);

AdamWOptions adam_options(const OptimizerChoice& c, const Arguments& a) {
  return {a.real("beta1", c.beta1), a.real("beta2", c.beta2), a.real("epsilon", a.real("eps", c.epsilon)),
          a.flag("bias_correction", true)};
}

Made adamw(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  return make_adamw(std::move(slots), adam_options(c, a), common);
}
/// The same optimizer with 8-bit states.
CommonOptions in_eight_bits(const CommonOptions& common) {
  CommonOptions narrow = common;
  narrow.eight_bit_state = true;
  return narrow;
}
Made adamw_8bit(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  return adamw(c, a, std::move(slots), in_eight_bits(common));
}
Made adam(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  return make_adam(std::move(slots), adam_options(c, a), common);
}
SgdOptions sgd_options(const OptimizerChoice& c, const Arguments& a) {
  return {a.real("momentum", c.momentum), a.flag("nesterov", c.nesterov)};
}
Made sgd(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  return make_sgd(std::move(slots), sgd_options(c, a), common);
}
AdagradOptions adagrad_options(const Arguments& a) {
  return {.epsilon = a.real("eps", 1e-10),
          .learning_rate_decay = a.real("lr_decay", 0),
          .initial_accumulator_value = a.real("initial_accumulator_value", 0)};
}
Made adagrad(const OptimizerChoice&, const Arguments& a, Slots slots, const CommonOptions& common) {
  return make_adagrad(std::move(slots), adagrad_options(a), common);
}
RmspropOptions rmsprop_options(const Arguments& a) {
  const RmspropOptions d;
  return {.alpha = a.real("alpha", d.alpha),
          .epsilon = a.real("eps", d.epsilon),
          .momentum = a.real("momentum", d.momentum),
          .centered = a.flag("centered", d.centered)};
}
Made rmsprop(const OptimizerChoice&, const Arguments& a, Slots slots, const CommonOptions& common) {
  return make_rmsprop(std::move(slots), rmsprop_options(a), common);
}
LionOptions lion_options(const OptimizerChoice& c, const Arguments& a) {
  return {a.real("beta1", c.beta1), a.real("beta2", c.beta2)};
}
Made lion(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  return make_lion(std::move(slots), lion_options(c, a), common);
}
Made lion_8bit(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  return lion(c, a, std::move(slots), in_eight_bits(common));
}
Made adafactor(const OptimizerChoice&, const Arguments& a, Slots slots, const CommonOptions& common) {
  const AdafactorOptions d;
  return make_adafactor(std::move(slots),
                        {.epsilon1 = a.real("eps1", d.epsilon1),
                         .epsilon2 = a.real("eps2", d.epsilon2),
                         .clip_threshold = a.real("clip_threshold", d.clip_threshold),
                         .decay_rate = a.real("decay_rate", d.decay_rate),
                         .beta1 = a.real("beta1", d.beta1),
                         .scale_parameter = a.flag("scale_parameter", d.scale_parameter),
                         .relative_step = a.flag("relative_step", d.relative_step),
                         .warmup_init = a.flag("warmup_init", d.warmup_init)},
                        common);
}
Made lamb(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  const LambOptions d;
  return make_lamb(std::move(slots),
                   {.beta1 = a.real("beta1", c.beta1),
                    .beta2 = a.real("beta2", c.beta2),
                    .epsilon = a.real("eps", d.epsilon),
                    .bias_correction = a.flag("bias_correction", d.bias_correction),
                    .min_trust_ratio = a.real("min_trust_ratio", d.min_trust_ratio),
                    .max_trust_ratio = a.real("max_trust_ratio", d.max_trust_ratio),
                    .adapt_undecayed = a.flag("adapt_undecayed", d.adapt_undecayed)},
                   common);
}
Made lars(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  const LarsOptions d;
  return make_lars(std::move(slots),
                   {.momentum = a.real("momentum", c.momentum),
                    .nesterov = a.flag("nesterov", c.nesterov),
                    .trust_coefficient = a.real("trust_coefficient", d.trust_coefficient),
                    .epsilon = a.real("eps", d.epsilon),
                    .adapt_undecayed = a.flag("adapt_undecayed", d.adapt_undecayed)},
                   common);
}

/// The index of a word in the order of the enumeration.
std::size_t word(const Arguments& a, const char* name, const std::vector<std::string>& words) {
  const std::string given = a.text(name, words.front());
  const auto found = std::find(words.begin(), words.end(), given);
  if (found == words.end())
    throw InputError(concat("--optim_args: ", name, " of muon is '", given, "'; it must be one of ", join(words)));
  return static_cast<std::size_t>(found - words.begin());
}
Made muon(const OptimizerChoice& c, const Arguments& a, Slots slots, const CommonOptions& common) {
  const MuonOptions d;
  return make_muon(
      std::move(slots),
      {.momentum = a.real("momentum", d.momentum),
       .nesterov = a.flag("nesterov", d.nesterov),
       .steps = a.whole("ns_steps", d.steps),
       .coefficients = static_cast<MuonCoefficients>(word(a, "ns_coefficients", {"simple", "quintic"})),
       .scale = static_cast<MuonScale>(word(a, "scale_mode", {"shape_scaling", "spectral", "unit_rms_norm"})),
       .extra_scale = a.real("extra_scale_factor", d.extra_scale),
       .epsilon = a.real("ns_eps", d.epsilon),
       .others = {.beta1 = c.beta1, .beta2 = c.beta2, .epsilon = c.epsilon}},
      common);
}

Maker maker_of(OptimizerKind kind) {
  using K = OptimizerKind;
  static const std::map<K, Maker> all = {{K::adamw, adamw},
                                         {K::adam, adam},
                                         {K::sgd, sgd},
                                         {K::adagrad, adagrad},
                                         {K::rmsprop, rmsprop},
                                         {K::lion, lion},
                                         {K::adafactor, adafactor},
                                         {K::lamb, lamb},
                                         {K::lars, lars},
                                         {K::muon, muon},
                                         {K::adamw_8bit, adamw_8bit},
                                         {K::lion_8bit, lion_8bit}};
  const auto found = all.find(kind);
  TESSERA_CHECK(found != all.end(), "no factory for the optimizer ", kind);
  return found->second;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, std::vector<Slot> slots,
                                          const CommonOptions& common) {
  const Maker maker = maker_of(choice.kind);
  config::check_parameters(choice.kind, choice.parameters);
  const MakeOptimizer make = [&](std::vector<Slot> own) {
    return maker(choice, Arguments(choice), std::move(own), common);
  };
  const bool offloads = common.allocate && !slots.empty() && slots.front().parameter.defined();
  if (offloads && !slots.front().parameter.is_cpu()) return make_offloaded(std::move(slots), make);
  return make(std::move(slots));
}

std::optional<ElementwiseOptions> elementwise_options(const OptimizerChoice& choice) {
  check_optimizer(choice);
  const Arguments a(choice);
  using K = OptimizerKind;
  if (choice.kind == K::adamw) return adam_options(choice, a);
  if (choice.kind == K::adam) return AdamOptions{adam_options(choice, a)};
  if (choice.kind == K::sgd) return sgd_options(choice, a);
  if (choice.kind == K::adagrad) return adagrad_options(a);
  if (choice.kind == K::rmsprop) return rmsprop_options(a);
  if (choice.kind == K::lion) return lion_options(choice, a);
  return std::nullopt;
}

void check_optimizer(const OptimizerChoice& choice, const CommonOptions& common) {
  CommonOptions own = common;
  own.allocate = {};  // nothing is created
  make_optimizer(choice, {}, own);
}

}  // namespace tessera::optim
