// compression_training of a DeepSpeed file.

#include <tessera/config/deepspeed/deepspeed_reading.h>
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

}  // namespace tessera::config::deepspeed
