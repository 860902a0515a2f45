// Megatron's optimizers other than Adam and SGD: Lion and Muon, as in NVIDIA's emerging_optimizers.
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/megatron/megatron_reading.h>

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tessera::config {
namespace {

constexpr std::array of_lion = {"lion_beta1", "lion_beta2"};
constexpr std::array of_muon = {"muon_momentum",         "muon_nesterov",    "muon_coefficient_type",
                                "muon_num_ns_steps",     "muon_scale_mode",  "muon_extra_scale_factor",
                                "muon_scalar_optimizer", "muon_no_split_qkv"};

/// The number as given, or Megatron's default; "" if it is invalid, which is reported.
std::string number_of(MegatronArguments& a, const char* name, const char* otherwise) {
  if (!a.has(name)) return otherwise;
  const auto number = a.real(name, 0);
  return number ? format_real(*number, 12) : "";
}

std::string lion_arguments(MegatronArguments& a) {
  return concat("beta1=", number_of(a, "lion_beta1", "0.95"), ",beta2=", number_of(a, "lion_beta2", "0.98"));
}

std::string muon_arguments(MegatronArguments& a) {
  if (a.has("muon_scalar_optimizer") && a.word("muon_scalar_optimizer", {"adam", "lion"}) == "lion")
    a.problem("muon_scalar_optimizer", "lion is not implemented: vectors and embeddings follow adam", {"optim"});
  if (a.has("muon_no_split_qkv"))
    a.problem("muon_no_split_qkv",
              "is not supported: queries, keys and values are separate matrices, as with muon_split_qkv; remove it",
              {"optim"});
  const auto word = [&](const char* name, std::initializer_list<std::string_view> words) {
    return a.has(name) ? a.word(name, words).value_or("") : std::string(*words.begin());
  };
  return concat("momentum=", number_of(a, "muon_momentum", "0.9"),
                ",nesterov=", a.has("muon_nesterov") ? "true" : "false",
                ",ns_coefficients=", word("muon_coefficient_type", {"quintic", "simple"}),
                ",ns_steps=", number_of(a, "muon_num_ns_steps", "5"),
                ",scale_mode=", word("muon_scale_mode", {"spectral", "unit_rms_norm", "shape_scaling"}),
                ",extra_scale_factor=", number_of(a, "muon_extra_scale_factor", "1"), ",ns_eps=1e-15");
}

}  // namespace

void translate_megatron_optimizer(MegatronArguments& a) {
  constexpr const char* name = "optimizer";
  const auto word = a.has(name) ? a.word(name, {"adam", "sgd", "lion", "muon", "dist_muon"}) : std::nullopt;
  const bool lion = word == "lion", muon = word == "muon" || word == "dist_muon";
  const auto unused = [&](const auto& names, const char* owner) {
    for (const char* of : names)
      if (a.has(of)) a.note(of, concat("has no effect: it is for --optimizer ", owner));
  };
  if (!lion) unused(of_lion, "lion");
  if (!muon) unused(of_muon, "muon");
  if (!word) return;
  a.give(name, "optim", lion ? "lion" : muon ? "muon" : word == "adam" ? "adamw" : "sgd");
  if (lion) a.give(name, "optim_args", lion_arguments(a));
  if (!muon) return;
  a.give(name, "optim_args", muon_arguments(a));
  a.note(name,
         "muon orthogonalizes each matrix of the model as it is stored: queries, keys and values separately, as in "
         "Megatron-LM, but also gate and up projections, which Megatron-LM joins; position embeddings follow "
         "adamw");
}

}  // namespace tessera::config
