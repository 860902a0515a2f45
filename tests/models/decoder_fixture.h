#pragma once
/// \file
/// Configurations of decoders for tests: the fixtures in tests/fixtures/llama, and parameter counts of published
/// models.

#include <tessera/base/file.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tests/paths.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::testing {

/// config.json of a fixture with the changes "key=value,...".
inline Value decoder_fixture(const std::string& name, const std::string& overrides = "") {
  const Value config = read_json(source_path(concat("tests/fixtures/llama/", name, "/config.json")));
  return overrides.empty() ? config : models::with_overrides(config, overrides);
}

/// Number of parameters of a model of `config`; allocates none of them.
inline std::int64_t parameters_of(const char* config) {
  const parallel::DeferredScope scope;
  std::int64_t count = 0;
  const Value json = parse_json(config, "config.json");
  for (const at::Tensor& p : models::build(json, std::nullopt)->parameters()) count += p.numel();
  return count;
}

}  // namespace tessera::testing
