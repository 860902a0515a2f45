// SmolLM3 (Hugging Face 2025; transformers/models/smollm3): some layers are not rotated, and only these may have
// windows.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_smollm3(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.key_heads = 4, .tied = true});
  refuse_other(json, "hidden_act", {"silu"});
  read_biases(json, s);
  const Value* rotated = given(json, "no_rope_layers");  // 1 if a layer is rotated, despite the name
  if (rotated && static_cast<std::int64_t>(rotated->items().size()) < s.layers)
    throw InputError(concat(rotated->where().str(), ": no_rope_layers has ", rotated->items().size(), " entries for ",
                            s.layers, " layers"));
  const std::int64_t interval = positive_or(json, "no_rope_layer_interval", 4);
  const bool slides = flag(json, "use_sliding_window", false) && given(json, "sliding_window");
  const std::int64_t window = slides ? positive(json, "sliding_window") : 0;
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const bool turns = rotated ? rotated->items()[static_cast<std::size_t>(i)].as_int() != 0 : (i + 1) % interval != 0;
    s.rotations.push_back(turns ? LayerRope::usual : LayerRope::none);
    s.windows.push_back(turns ? 0 : window);
  }
  if (const Value* types = given(json, "layer_types"))
    s.windows = windows_of(*types, s.layers, positive_or(json, "sliding_window", 4096));
  s.rope = parse_rope(json, s.head_size, s.positions, {.theta = 2000000});
}

}  // namespace

const Architecture smollm3 = {"smollm3", "SmolLM3ForCausalLM", "SmolLM3DecoderLayer", read_smollm3, tied_tensor_name};

}  // namespace tessera::architectures
