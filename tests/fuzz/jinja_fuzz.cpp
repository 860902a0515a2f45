// libFuzzer entry for chat templates: any template is read and rendered within its limits, or gives InputError.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/text/jinja/template.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::text::jinja;
  static const Variables variables = [] {
    Variables made;
    const tessera::Value json = tessera::parse_json(
        R"({"messages": [{"role": "user", "content": "Hé <x>"}, {"role": "assistant", "content": [{"text": "a"}],
            "tool_calls": [{"function": {"name": "f", "arguments": {"k": [1, 2.5, null, true]}}}]}],
            "tools": null, "bos_token": "<s>", "add_generation_prompt": true})",
        "variables");
    for (const auto& [name, value] : json.members()) made.emplace_back(name, from_json(value));
    return made;
  }();
  const Limits limits{.steps = 20'000, .bytes = 1u << 20, .depth = 400};
  try {
    Template(std::string_view(reinterpret_cast<const char*>(data), size), "fuzzed").render(variables, limits, 0);
  } catch (const tessera::InputError&) {
  }
  return 0;
}
