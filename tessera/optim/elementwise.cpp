#include <tessera/optim/elementwise.h>

#include <ATen/ATen.h>
#include <tessera/optim/stochastic_rounding.h>

namespace tessera::optim {

kernels::Bf16Rounding ElementwiseOptimizer::rounding(const Block& block) const {
  const Slot& s = slot(block.slot);
  return {.stochastic = common().stochastic_rounding,
          .key = rounding_key(common().seed, steps(), s.name),
          .first = s.begin + block.offset};
}

void ElementwiseOptimizer::update(const std::vector<at::Tensor>& gradients, const StepFactors& factors) {
  if (flat().has_kernels()) {
    flat().for_each_block(gradients, [&](const Block& block) {
      update_block(block, gradients[block.slot].const_data_ptr<float>() + block.offset, factors);
    });
    return;
  }
  if (update_together(gradients, factors)) return;
  const std::size_t kinds = flat().kind_count();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || gradients[i].numel() == 0) continue;
    std::vector<at::Tensor> states;
    for (std::size_t k = 0; k < kinds; ++k)
      states.push_back(common().bf16_state ? state_of(k, i).to(at::kFloat) : state_of(k, i));
    update_slot(i, gradients[i], states, factors);
    if (!common().bf16_state) continue;
    for (std::size_t k = 0; k < kinds; ++k)
      round_to_bf16(states[k], state_of(k, i), rounding({i, 0, gradients[i].numel()}), static_cast<int>(k));
  }
}

}  // namespace tessera::optim
