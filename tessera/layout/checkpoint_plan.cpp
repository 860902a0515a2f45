#include <tessera/layout/checkpoint_plan.h>

#include <tessera/base/error.h>

namespace tessera::layout {

CheckpointPart parse_checkpoint_part(const std::string& text) {
  if (text == "block" || text == "full") return CheckpointPart::block;
  if (text == "attention" || text == "attn" || text == "selective") return CheckpointPart::attention;
  if (text == "mlp") return CheckpointPart::mlp;
  throw InputError(concat("--gradient_checkpointing_kwargs: part is '", text,
                          "'; it must be one of block (full), attention (attn, selective), mlp"));
}

}  // namespace tessera::layout
