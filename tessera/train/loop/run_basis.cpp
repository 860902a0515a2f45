#include <tessera/train/loop/run_basis.h>

#include <tessera/base/text.h>

namespace tessera::train {
namespace {

/// The stored member; null: absent or of a different kind.
const Value* stored_member(const Value& stored, const char* name, Value::Kind kind) {
  const Value* const found = stored.is_object() ? stored.find(name) : nullptr;
  return found != nullptr && found->kind() == kind ? found : nullptr;
}

}  // namespace

Value to_json(const RunBasis& basis) {
  return Value::make_object({{"processes", Value::of(basis.processes)},
                             {"rows_per_step", Value::of(basis.rows_per_step)},
                             {"training_data", Value::of(basis.training_data)},
                             {"validation_data", Value::of(basis.validation_data)},
                             {"base_model", Value::of(basis.base_model)}});
}

std::vector<std::string> changed_since(const Value& stored, const RunBasis& now) {
  std::vector<std::string> changed;
  const Value* const processes = stored_member(stored, "processes", Value::Kind::integer);
  const Value* const rows = stored_member(stored, "rows_per_step", Value::Kind::integer);
  if (processes != nullptr && rows != nullptr && rows->as_int() != now.rows_per_step)
    changed.push_back(concat("rows per step ", now.rows_per_step, " of ", now.processes,
                             now.processes == 1 ? " process" : " processes", " (was ", rows->as_int(), " of ",
                             processes->as_int(), ")"));
  const auto compare = [&](const char* name, const char* title, const std::string& is) {
    const Value* const was = stored_member(stored, name, Value::Kind::string);
    if (was == nullptr || was->as_string().empty() || is.empty() || was->as_string() == is) return;
    changed.push_back(concat(title, " ", is, " (was ", was->as_string(), ")"));
  };
  compare("training_data", "training data", now.training_data);
  compare("validation_data", "validation data", now.validation_data);
  compare("base_model", "base model of the adapters", now.base_model);
  return changed;
}

}  // namespace tessera::train
