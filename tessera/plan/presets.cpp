#include <tessera/plan/presets.h>

#include <tessera/architectures/presets.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/plan/recorded.h>

#include <algorithm>

namespace tessera::plan {
namespace {

std::string plain(std::string name) {
  name = to_lower(name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

Value preset_config(const std::string& name) {
  if (auto known = architectures::published_config(name)) return *std::move(known);
  const std::vector<std::string> names = architectures::published_names();
  // gpt-3 is a prefix of gpt3-175b, but its edit distance is large
  const auto letters = [](std::string text) {
    text = plain(std::move(text));
    std::erase(text, '-');
    return text;
  };
  const auto longer = std::find_if(names.begin(), names.end(), [&](const std::string& known) {
    return !letters(name).empty() && letters(known).starts_with(letters(name));
  });
  const auto near = longer != names.end() ? std::optional(*longer) : nearest(plain(name), names);
  throw InputError(concat("model ", name, ": neither a file, nor a folder with a config.json, nor a known model; ",
                          near ? concat("did you mean ", *near, "? ") : "", "known: ", join(names)));
}

Model find_model(const std::string& text) {
  const bool folder = is_directory(text);
  if (folder || path_exists(text)) {
    const Value config = read_json(folder ? path_join(text, "config.json") : text);
    if (is_recorded(config)) return model_of_recorded(read_recorded(config), text);
    Model model = read_model(config);
    model.name = text;
    return model;
  }
  Model model = read_model(preset_config(text));
  model.name = plain(text);
  return model;
}

Model model_of_numbers(const ModelNumbers& n) {
  if (n.layers < 1 || n.hidden < 1)
    throw InputError(
        "a model defined by numbers needs --layers and --hidden (the rest is derived); or use --model for a known one");
  architectures::Sizes p{};
  p.name = "";
  p.type = n.gpt2 ? "gpt2" : n.experts > 0 ? "mixtral" : "llama";
  p.layers = n.layers;
  p.hidden = n.hidden;
  p.heads = n.heads > 0 ? n.heads : std::max<std::int64_t>(1, n.hidden / 128);
  p.key_heads = n.gpt2 ? 0 : n.key_heads > 0 ? n.key_heads : p.heads;
  // Llama's rule (Touvron et al. 2023) is 8 / 3 of the width, rounded up to a multiple of 256; GPT-2's is 4 times the
  // width.
  p.inner = n.expert_inner > 0 ? n.expert_inner : n.inner;
  if (p.inner == 0 && !n.gpt2) p.inner = (n.hidden * 8 / 3 + 255) / 256 * 256;
  p.vocabulary = n.vocabulary > 0 ? n.vocabulary : n.gpt2 ? 50257 : 32000;
  p.positions = n.positions > 0 ? n.positions : 131072;
  p.tied = n.gpt2;
  p.experts = n.experts;
  p.top_k = n.experts > 0 ? std::max<std::int64_t>(1, n.top_k > 0 ? n.top_k : 2) : 0;
  Model model = read_model(architectures::config_of(p));
  model.name = concat(format_count(parameter_count(model)), " ", p.type);
  return model;
}

}  // namespace tessera::plan
