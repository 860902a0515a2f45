#include <tessera/config/record/former_settings.h>

#include <tessera/base/text.h>
#include <tessera/config/convert/convert.h>
#include <tessera/config/core/fields.h>

namespace tessera::config {
namespace {

const Value* member(const Value& object, std::string_view name) {
  return object.is_object() ? object.find(name) : nullptr;
}

bool numbers_depend_on(const Field& field) {
  return field.section == Section::model || field.section == Section::data || field.section == Section::optimization ||
         // Settings of other sections that affect the order of rows or the sums of gradients.
         field.name == "ignore_data_skip" || field.name == "grad_compression";
}

}  // namespace

Value stored_configuration(const RunConfig& config) {
  Value all = Value::make_object();
  for (const Section section : all_sections) {
    Value settings = Value::make_object();
    for (const Field& field : fields())
      if (field.section == section && !only_describes(field.name))
        settings.set(std::string(field.name), field.get(config));
    all.set(std::string(section_key(section)), std::move(settings));
  }
  return all;
}

std::vector<std::string> changed_since(const Value& stored, const RunConfig& now) {
  std::vector<std::string> changed;
  for (const Field& field : fields()) {
    if (!numbers_depend_on(field) || only_describes(field.name)) continue;
    const Value* const section = member(stored, section_key(field.section));
    const Value* const before = section == nullptr ? nullptr : member(*section, field.name);
    if (before == nullptr) continue;
    const std::string was = dump_json(*before, -1), is = dump_json(field.get(now), -1);
    if (was != is) changed.push_back(concat(field.name, " ", is, " (was ", was, ")"));
  }
  return changed;
}

}  // namespace tessera::config
