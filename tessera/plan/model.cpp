#include <tessera/plan/model.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/text.h>
#include <tessera/plan/adapters.h>
#include <tessera/plan/recorded.h>

namespace tessera::plan {
namespace {

/// One tensor per layer: for a recorded module only the number of elements per layer is known.
std::vector<Tensor> tensors_of(const RecordedStep& step) {
  std::vector<Tensor> all;
  const auto add = [&](const RecordedLayer& layer, std::int64_t block) {
    if (layer.parameters > 0)
      all.push_back({.name = layer.name, .shape = {static_cast<std::int64_t>(layer.parameters)}, .block = block});
  };
  add(step.begin, -1);
  for (std::size_t i = 0; i < step.layers.size(); ++i) add(step.layers[i], static_cast<std::int64_t>(i));
  add(step.end, static_cast<std::int64_t>(step.layers.size()));
  return all;
}

}  // namespace

Model read_model(const Value& config) {
  Model model;
  static_cast<architectures::ModelSpec&>(model) = architectures::read_model(config);
  model.name = model.type;
  return model;
}

std::vector<Tensor> tensors(const Model& model) {
  if (model.recorded) return tensors_of(*model.recorded);
  std::vector<Tensor> all = architectures::tensors(model);
  if (model.vision)
    for (Tensor& tensor : all)
      tensor.trained = tensor.trained && (tensor.part == Part::projector ? model.projector_trained : model.trained);
  add_adapters(model, all);
  return all;
}

double depth_end_elements(const Model& m) {
  const double c = real(m.hidden), norm = (m.norms.weight ? c : 0) + (m.norms.bias ? c : 0);
  return 2 * c * c + 3 * norm;
}

double parameter_count(const Model& model) {
  double n = 0;
  for (const Tensor& tensor : tensors(model)) n += tensor.numel();
  return n;
}

double active_parameters(const Model& m) {
  if (m.recorded) return m.recorded->parameters();
  // BERT's head processes only masked tokens, a few per cent of all tokens; the models' own count omits it as well.
  double n = m.family == Family::bert ? 0 : static_cast<double>(m.vocabulary * m.hidden);
  for (std::int64_t i = 0; i < m.layers + m.computed_depths(); ++i) n += matrices_of_layer(m, i).all();
  // A depth uses the head again, and a map from two widths to one.
  return n + real(m.computed_depths()) * (real(m.vocabulary * m.hidden) + 2 * real(m.hidden * m.hidden));
}

double model_flops_per_token(const Model& m, double sequence, bool half) {
  if (m.recorded) return m.recorded->flop() / real(m.recorded->rows) / real(m.recorded->row_tokens);
  double seen = 0;  // visible tokens, summed over layers
  for (std::int64_t i = 0; i < m.layers + m.computed_depths(); ++i) {
    const double reach = reach_of(m, i, sequence);
    seen += half && m.causal ? reach - reach * reach / (2 * sequence) : reach;
  }
  const double all = 6 * active_parameters(m) + 12 * score_width(m) * seen;
  if (!m.adapters) return all;
  // Counts as a run does (models/lora.h): gradients of frozen weights are not computed.
  double adapters = 0, whole = 0;
  for (const Tensor& tensor : tensors(m)) {
    if (!tensor.trained || tensor.shape.size() != 2) continue;
    const bool adapter = tensor.name.find(".lora_") != std::string::npos;
    if (adapter || tensor.part != Part::embedding) (adapter ? adapters : whole) += tensor.numel();
  }
  return all - 2 * (active_parameters(m) - whole) + 6 * adapters;
}

}  // namespace tessera::plan
