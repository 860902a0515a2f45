// fp16, bf16, torch_autocast; types of communicated gradients; TensorBoard.

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>

namespace tessera::config::deepspeed {
namespace {

/// A mode's switch: the file's value, or for "auto" the run's (training or evaluation in this mode, as transformers
/// fills it in).
bool mode(Reading& r, const std::string& path, const char* setting, bool trains, bool evaluates, std::string_view hf) {
  if (const auto on = r.flag(path)) {
    r.say(setting, path, *on ? "true" : "false", r.value(path)->where(), hf);
    return *on;
  }
  if (!r.is_auto(path) || r.alone || !(trains || evaluates)) return false;
  if (!trains) r.otherwise(setting, path, "true", r.said.find(path)->second->where());
  return true;
}

/// Reads the loss scale of the section fp16, with DeepSpeed's defaults.
void loss_scale(Reading& r) {
  const SourcePos section = r.said.at("fp16")->where();
  const auto scale = [&](const char* name, const char* setting, const char* otherwise) {
    const std::string path = concat("fp16.", name);
    if (const Value* value = r.value(path)) return r.say(setting, path, *value);
    if (otherwise != nullptr) r.otherwise(setting, path, otherwise, section);
  };
  scale("loss_scale", "loss_scale", nullptr);
  if (const auto fixed = r.number("fp16.loss_scale"); fixed && *fixed > 0)
    return;  // the rest concerns the dynamic scale
  scale("initial_scale_power", "initial_scale_power", nullptr);
  scale("loss_scale_window", "loss_scale_window", "1000");
  scale("hysteresis", "hysteresis", "2");
  scale("consecutive_hysteresis", "consecutive_hysteresis", nullptr);
  scale("min_loss_scale", "min_loss_scale", nullptr);
}

/// bf16, fp16, or another word as written.
std::string autocast_dtype(const Reading& r) {
  const std::string dtype = to_lower(r.text("torch_autocast.dtype").value_or("bfloat16"));
  if (dtype == "bfloat16" || dtype == "torch.bfloat16") return "bf16";
  return dtype == "float16" || dtype == "torch.float16" || dtype == "half" ? "fp16" : dtype;
}

void autocast(Reading& r) {
  if (r.flag("torch_autocast.enabled") != true) return;
  const Value& enabled = *r.value("torch_autocast.enabled");
  const std::string dtype = autocast_dtype(r);
  if (dtype == "bf16" || dtype == "fp16") return r.say(dtype, "torch_autocast.enabled", "true", enabled.where());
  r.to.problem(r.value("torch_autocast.dtype")->where(),
               concat("torch_autocast.dtype is '", dtype, "'; it must be one of bfloat16, float16"), {"bf16", "fp16"});
}

}  // namespace

void read_precision(Reading& r) {
  const OptimizationConfig& o = r.so_far.values.optimization;
  // A disabled mode has no effect next to torch_autocast in its dtype, which computes the same here.
  const auto is_autocast = [&](const char* path, const std::string& dtype) {
    return r.flag("torch_autocast.enabled") == true && r.flag(path) == false && autocast_dtype(r) == dtype;
  };
  const bool fp16 = !is_autocast("fp16.enabled", "fp16") &&
                    mode(r, "fp16.enabled", "fp16", o.fp16, o.fp16_full_eval, "fp16|fp16_full_eval");
  const bool bf16 = !is_autocast("bf16.enabled", "bf16") &&
                    mode(r, "bf16.enabled", "bf16", o.bf16, o.bf16_full_eval, "bf16|bf16_full_eval");
  if (fp16 && bf16 && r.flag("fp16.enabled") && r.flag("bf16.enabled")) {
    r.to.problem(r.value("bf16.enabled")->where(),
                 concat("bf16.enabled and fp16.enabled (", file_and_line(r.value("fp16.enabled")->where()),
                        "): bfloat16 and fp16 modes cannot be simultaneously enabled; switch one of them off"),
                 {"fp16", "bf16"});
    return;
  }
  if (fp16) loss_scale(r);
  if (bf16)
    if (const Value* states = r.value("bf16.bf16_optimizer_states"))
      r.say("bf16_optimizer_states", "bf16.bf16_optimizer_states", *states);
  autocast(r);
}

void read_communication(Reading& r) {
  const bool prescale = r.flag("prescale_gradients").value_or(false);
  const double factor = r.number("gradient_predivide_factor").value_or(1);
  const char* key = prescale ? "prescale_gradients" : "gradient_predivide_factor";
  if (!prescale && factor == 1) return;
  const SourcePos where = r.value(key)->where();
  const std::int64_t stage = r.whole("zero_optimization.stage").value_or(0);
  if (stage >= 2)
    return r.to.problem(where,
                        concat(key, ": ",
                               prescale ? "pre-scale gradients is not yet supported with ZeRO-"
                                        : "gradient_predivide_factor != 1.0 is not yet supported with ZeRO-",
                               stage, " with reduce scatter enabled, which is how gradients are sharded; remove it"),
                        {"gradient_predivide_factor"});
  // gradients are divided before the sum, by the number of ranks or by the factor
  r.say("gradient_predivide_factor", key, prescale ? concat(r.processes()) : format_real(factor), where);
}

void read_tensorboard(Reading& r) {
  if (r.flag("tensorboard.enabled") != true) return;
  r.say("report_to", "tensorboard.enabled", "tensorboard", r.value("tensorboard.enabled")->where());
  const auto folder = r.text("tensorboard.output_path");
  if (!folder || folder->empty()) return;
  r.say("logging_dir", "tensorboard.output_path",
        path_join(*folder, r.text("tensorboard.job_name").value_or("DeepSpeedJobName")),
        r.value("tensorboard.output_path")->where());
}

}  // namespace tessera::config::deepspeed
