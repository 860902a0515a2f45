// compression_training, progressive_layer_drop and data_efficiency of a DeepSpeed file.

#include <tessera/config/deepspeed/deepspeed_reading.h>
#include <tessera/config/rules/block_routing.h>
#include <tessera/config/rules/compression.h>

namespace tessera::config::deepspeed {

void read_compression_training(Reading& r) {
  constexpr const char* name = "compression_training";
  const Value* section = r.value(name);
  if (section == nullptr) return;
  CompressionRemarks remarks;
  const Compression asked = read_compression(*section, remarks);
  for (const CompressionRemark& remark : remarks.problems) r.to.problem(remark.where, remark.text, {name});
  for (const CompressionRemark& remark : remarks.notes) r.to.note(remark.where, remark.text);
  if (asked.any()) r.say(name, name, dump_json(*section, -1), section->where());
}

void read_block_routing(Reading& r) {
  const auto read = [&r](const char* name, auto&& enabled) {
    const Value* section = r.value(name);
    if (section == nullptr) return;
    CompressionRemarks remarks;
    const bool any = enabled(*section, remarks);
    for (const CompressionRemark& remark : remarks.problems) r.to.problem(remark.where, remark.text, {name});
    if (any) r.say(name, name, dump_json(*section, -1), section->where());
  };
  read("progressive_layer_drop", [](const Value& section, CompressionRemarks& remarks) {
    return read_progressive_layer_drop(section, remarks).has_value();
  });
  read("data_efficiency", [](const Value& section, CompressionRemarks& remarks) {
    return read_data_efficiency(section, remarks).has_value();
  });
}

}  // namespace tessera::config::deepspeed
