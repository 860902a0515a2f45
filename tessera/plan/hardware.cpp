#include <tessera/plan/hardware.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>

namespace tessera::plan {
namespace {

constexpr double GB = 1e9, TFLOP = 1e12, us = 1e-6;

struct LinkRow {
  double bandwidth, efficiency, latency;
  const char* source;
};

// Efficiencies are those of collectives of 1 GiB and more (nccl-tests' busbw divided by the wire bandwidth); latencies
// are per hop, from NCCL's own tuning tables (nccl/src/graph/tuning.cc, Simple and LL128).
constexpr LinkRow nvlink2 = {150 * GB, 0.78, 3.4 * us, "NVLink 2: 300 GB/s both ways; share of NVLink 3"};
constexpr LinkRow nvlink3 = {300 * GB, 0.78, 3.4 * us, "NVLink 3: 600 GB/s both ways; all-reduce busbw of a DGX A100"};
constexpr LinkRow nvlink4 = {450 * GB, 0.80, 3.4 * us, "NVLink 4: 900 GB/s both ways; ring busbw of a DGX H100"};
constexpr LinkRow nvlink5 = {900 * GB, 0.74, 3.4 * us, "NVLink 5: 1.8 TB/s both ways; all-reduce busbw of 8 B200"};
constexpr LinkRow fabric3 = {448 * GB, 0.70, 4.0 * us, "Infinity Fabric, 7 links of 64 GB/s (AMD MI300X data sheet)"};
constexpr LinkRow pcie3 = {16 * GB, 0.70, 6.0 * us, "PCIe 3.0 x16"};
constexpr LinkRow pcie4 = {32 * GB, 0.70, 6.0 * us, "PCIe 4.0 x16"};
constexpr LinkRow hdr = {25 * GB, 0.85, 8 * us, "one 200 Gb/s adapter per device (HDR InfiniBand)"};
constexpr LinkRow ndr = {50 * GB, 0.85, 8 * us, "one 400 Gb/s adapter per device (NDR InfiniBand)"};
constexpr LinkRow xdr = {100 * GB, 0.85, 8 * us, "one 800 Gb/s adapter per device (XDR InfiniBand)"};
constexpr LinkRow ethernet = {3.1 * GB, 0.80, 20 * us, "25 Gb/s Ethernet, not shared"};
constexpr LinkRow shared_memory = {6 * GB, 0.8, 5 * us,
                                   "shared memory between processes of one host (docs/communication.md)"};

struct Row {
  const char* name;
  double memory, bf16, fp32, products, half_depth, tile, units, attention, bandwidth, passes, launch, process;
  int per_node;
  LinkRow inside, across;
  const char* source;
};

// Peaks and bandwidths: vendors' data sheets (dense, without sparsity). Memory: the total shown by nvidia-smi.
//
// Efficiency of large products: whole steps sustain less than the best result of a sweep of shapes (Stas Bekman, "ML
// Engineering Open Book", compute/accelerator, maximum achievable matmul FLOPS: A100 271, H100 and H200 794, MI300X
// 759, B200 1745, GB200 1822 TFLOP/s), because power limits clocks. One number per device was fitted to the steps of
// published runs, all sources of the device together (bench/plan_published.py): an 80 GB A100 sustains 97 % of its
// best, a 40 GB one 92 %, an H100 86 %, a B200 59 % (SimuMax v1.2 measured 63 % for single operations,
// configs/system/b200_bf16_ceperm.json). B200's runs are from one machine; GB200, GB300 and B300 use 85 % of their
// best, since their published fp8 steps are too fast for less. MI300X is a guess; the other devices use the L40S's
// value.
//
// Attention: FlashAttention-2 forward and backward on an A100 (Dao 2023, section 4), FlashAttention-3 on an H100 (Shah
// et al. 2024), lowered to the rates of short causal rows; B200: SimuMax's forward and backward of causal rows, which
// it counts in full. Passes: an A100's long streams; for B200 SimuMax's medians, which also fit the H100 runs.
constexpr Row rows[] = {
    {"A100-40", 42.0e9, 312 * TFLOP, 19.5 * TFLOP, 0.80, 160, 128, 108, 0.57, 1555 * GB, 0.85, 4 * us, 0.6e9, 8,
     nvlink3, hdr, "NVIDIA A100 data sheet"},
    {"A100", 84.9e9, 312 * TFLOP, 19.5 * TFLOP, 0.84, 160, 128, 108, 0.57, 2039 * GB, 0.85, 4 * us, 0.6e9, 8, nvlink3,
     hdr, "NVIDIA A100 80 GB data sheet"},
    {"H100", 85.0e9, 989 * TFLOP, 67 * TFLOP, 0.69, 160, 128, 132, 0.50, 3350 * GB, 0.67, 3 * us, 0.6e9, 8, nvlink4,
     ndr, "NVIDIA H100 SXM data sheet"},
    {"H100-500W", 102.0e9, 989 * TFLOP, 67 * TFLOP, 0.62, 160, 128, 132, 0.45, 2400 * GB, 0.67, 3 * us, 0.6e9, 8,
     nvlink4, ndr, "H100 with HBM2e and 500 W (torchtitan, docs/performance.md); clocks as the third root of power"},
    {"H200", 150.1e9, 989 * TFLOP, 67 * TFLOP, 0.69, 160, 128, 132, 0.50, 4800 * GB, 0.67, 3 * us, 0.6e9, 8, nvlink4,
     ndr, "NVIDIA H200 data sheet"},
    {"B200", 191.5e9, 2250 * TFLOP, 80 * TFLOP, 0.455, 96, 128, 148, 0.38, 8000 * GB, 0.67, 3 * us, 0.7e9, 8, nvlink5,
     ndr, "NVIDIA DGX B200 data sheet; sustained speeds: SimuMax v1.2"},
    {"B300", 288.0e9, 2250 * TFLOP, 77 * TFLOP, 0.66, 96, 128, 148, 0.38, 8000 * GB, 0.67, 3 * us, 0.7e9, 8, nvlink5,
     xdr, "NVIDIA DGX B300 data sheet; products: 85 % of its best (1769 TFLOP/s), the rest as B200"},
    {"GB200", 196.0e9, 2500 * TFLOP, 80 * TFLOP, 0.62, 96, 128, 148, 0.38, 8000 * GB, 0.67, 3 * us, 0.7e9, 72, nvlink5,
     ndr, "NVIDIA GB200 NVL72 data sheet; products: 85 % of its best (1822 TFLOP/s), the rest as B200"},
    {"GB300", 288.0e9, 2500 * TFLOP, 77 * TFLOP, 0.62, 96, 128, 148, 0.38, 8000 * GB, 0.67, 3 * us, 0.7e9, 72, nvlink5,
     xdr, "NVIDIA GB300 NVL72 data sheet; shares of GB200"},
    {"MI300X", 205.8e9, 1307 * TFLOP, 163 * TFLOP, 0.52, 256, 128, 304, 0.35, 5300 * GB, 0.75, 5 * us, 0.6e9, 8,
     fabric3, ndr, "AMD Instinct MI300X data sheet"},
    {"L40S", 48.3e9, 362 * TFLOP, 91.6 * TFLOP, 0.68, 160, 128, 142, 0.45, 864 * GB, 0.85, 4 * us, 0.5e9, 8, pcie4,
     ethernet, "NVIDIA L40S data sheet"},
    {"L4", 24.1e9, 121 * TFLOP, 30.3 * TFLOP, 0.68, 160, 128, 58, 0.45, 300 * GB, 0.85, 4 * us, 0.5e9, 8, pcie4,
     ethernet, "NVIDIA L4 data sheet; shares of the L40S"},
    {"A10", 24.1e9, 125 * TFLOP, 31.2 * TFLOP, 0.68, 160, 128, 72, 0.45, 600 * GB, 0.85, 4 * us, 0.5e9, 8, pcie4,
     ethernet, "NVIDIA A10 data sheet; shares of the L40S"},
    {"V100", 34.1e9, 125 * TFLOP, 15.7 * TFLOP, 0.88, 160, 128, 80, 0.45, 900 * GB, 0.85, 4 * us, 0.5e9, 8, nvlink2,
     ethernet, "NVIDIA V100 SXM2 32 GB data sheet; fp16 instead of bf16, which it does not have"},
    {"T4", 16.1e9, 65 * TFLOP, 8.1 * TFLOP, 0.68, 160, 128, 40, 0.45, 320 * GB, 0.85, 4 * us, 0.5e9, 8, pcie3, ethernet,
     "NVIDIA T4 data sheet; fp16 instead of bf16, which it does not have; shares of the L40S"},
    {"RTX4090", 25.3e9, 165 * TFLOP, 82.6 * TFLOP, 0.80, 160, 128, 128, 0.55, 1008 * GB, 0.90, 4 * us, 0.5e9, 8, pcie4,
     ethernet, "NVIDIA Ada architecture paper"},
    {"CPU", 16e9, 0.2 * TFLOP, 0.1 * TFLOP, 0.85, 32, 16, 1, 0.45, 20 * GB, 0.6, 5 * us, 0.127e9, 2, shared_memory,
     ethernet, "one or two cores with AVX-512 on a shared host; measure your own"},
};

/// Products with the A100's instructions (mma.sync): with them FlashAttention-2 reaches 35 % of an H100's peak and 57
/// to 63 % of an A100's (Shah et al. 2024, section 1); on B200 half of that, since its peak per unit is twice as high.
double older_products_of(const Row& row) {
  const std::string_view name = row.name;
  return name == "H100" || name == "H100-500W" || name == "H200" ? 0.56
         : name.ends_with("B200") || name.ends_with("B300")      ? 0.28
                                                                 : 1;
}

Link link_of(const LinkRow& row) { return {row.bandwidth, row.efficiency, row.latency, row.source}; }

Cluster cluster_of(const Row& r) {
  Cluster c;
  c.device = {r.name,         r.memory, r.bf16,   r.fp32,      r.products,
              r.half_depth,   r.tile,   r.units,  r.attention, older_products_of(r),
              r.bandwidth,    r.passes, r.launch, r.process,   r.source,
              /*measured=*/{}};
  c.per_node = r.per_node;
  c.inside = link_of(r.inside);
  c.across = link_of(r.across);
  c.on_cpu = c.device.name == "CPU";
  return c;
}

std::string letters_of(std::string_view name) {
  std::string text;
  for (const char c : to_lower(name))
    if (c != '-' && c != '_' && c != ' ') text += c;
  return text;
}

std::optional<Cluster> known(const std::string& name) {
  static const std::pair<const char*, const char*> others[] = {
      {"a10080", "A100"},   {"a10080gb", "A100"},      {"a10040gb", "A100-40"}, {"h10080", "H100"},
      {"h10080gb", "H100"}, {"h10096gb", "H100-500W"}, {"4090", "RTX4090"},     {"a10g", "A10"}};
  std::string wanted = letters_of(name);
  for (const auto& [other, ours] : others)
    if (wanted == other) wanted = letters_of(ours);
  for (const Row& row : rows)
    if (wanted == letters_of(row.name)) return cluster_of(row);
  return std::nullopt;
}

/// A member of a hardware file: its key, where its value is stored, and the smallest and largest values accepted.
struct Member {
  const char* key;
  double* number;
  double least, most;
};
std::vector<Member> members_of(Cluster& c) {
  Device& d = c.device;
  return {{"memory", &d.memory, 1e6, 1e15},
          {"bf16_flops", &d.bf16, 1e6, 1e18},
          {"fp32_flops", &d.fp32, 1e6, 1e18},
          {"product_efficiency", &d.products, 1e-3, 1},
          {"product_half_depth", &d.half_depth, 0, 1e6},
          {"product_tile", &d.tile, 1, 1e4},
          {"product_units", &d.units, 1, 1e5},
          {"attention_efficiency", &d.attention, 1e-3, 1},
          {"older_product_efficiency", &d.older_products, 1e-3, 1},
          {"bandwidth", &d.bandwidth, 1e6, 1e15},
          {"pass_efficiency", &d.passes, 1e-3, 1},
          {"launch_seconds", &d.launch, 0, 1},
          {"process_bytes", &d.process, 0, 1e12},
          {"node_bandwidth", &c.inside.bandwidth, 1e3, 1e15},
          {"node_efficiency", &c.inside.efficiency, 1e-3, 1},
          {"node_latency", &c.inside.latency, 0, 1},
          {"network_bandwidth", &c.across.bandwidth, 1e3, 1e15},
          {"network_efficiency", &c.across.efficiency, 1e-3, 1},
          {"network_latency", &c.across.latency, 0, 1},
          {"hours_between_failures", &c.hours_between_failures, 1, 1e9},
          {"host_memory", &c.host_memory, 0, 1e15}};
}

}  // namespace

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.name);
  return names;
}

Value hardware_value(const Cluster& given) {
  Cluster cluster = given;
  std::vector<Value::Member> all = {{"name", Value::of(cluster.device.name)},
                                    {"source", Value::of(cluster.device.source)},
                                    {"cpu", Value::of(cluster.on_cpu)},
                                    {"per_node", Value::of(cluster.per_node)},
                                    {"node_source", Value::of(cluster.inside.source)},
                                    {"network_source", Value::of(cluster.across.source)}};
  for (const Member& member : members_of(cluster)) all.emplace_back(member.key, Value::of(*member.number));
  if (!cluster.measured.empty()) all.emplace_back("measured", speeds_value(cluster.measured));
  return Value::make_object(std::move(all));
}

Cluster read_hardware(const Value& value) {
  Cluster c;
  if (const Value* based = value.find("like")) {
    const auto found = known(based->as_string());
    if (!found) throw InputError(concat(based->where().str(), ": hardware \"", based->as_string(), "\" is unknown"));
    c = *found;
  }
  std::vector<std::string> keys = {"like",     "name",        "source",         "cpu",
                                   "per_node", "node_source", "network_source", "measured"};
  for (const Member& m : members_of(c)) {
    keys.emplace_back(m.key);
    const Value* v = value.find(m.key);
    if (!v && (m.number == &c.host_memory || m.number == &c.device.older_products)) continue;
    if (!v && !value.find("like")) throw InputError(concat(value.where().str(), ": \"", m.key, "\" is missing"));
    if (!v) continue;
    *m.number = v->as_real();
    if (!(*m.number >= m.least && *m.number <= m.most))
      throw InputError(concat(v->where().str(), ": \"", m.key, "\" is ", format_real(*m.number, 6), "; it must be in [",
                              format_real(m.least, 6), ", ", format_real(m.most, 6), "]"));
  }
  for (const auto& [key, v] : value.members()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const auto near = nearest(key, keys);
    throw InputError(
        concat(v.where().str(), ": unknown member \"", key, "\"", near ? concat("; did you mean ", *near, "?") : ""));
  }
  const auto text = [&](const char* key, std::string& to) {
    if (const Value* v = value.find(key)) to = v->as_string();
  };
  text("name", c.device.name);
  text("source", c.device.source);
  text("node_source", c.inside.source);
  text("network_source", c.across.source);
  if (const Value* v = value.find("measured")) c.measured = read_speeds(*v);
  if (const Value* v = value.find("cpu")) c.on_cpu = v->as_bool();
  if (const Value* v = value.find("per_node")) {
    const std::int64_t n = v->as_int();
    if (n < 1 || n > 65536) throw InputError(concat(v->where().str(), ": per_node is ", n, "; 1 to 65536"));
    c.per_node = static_cast<int>(n);
  }
  return c;
}

namespace {

std::int64_t count_of(const std::string& text, const std::string& whole) {
  const auto n = parse_int(text);
  if (!n || *n < 1 || *n > 1 << 24)
    throw InputError(concat("cluster \"", whole, "\": \"", text, "\" is not a number of devices; expected 1 to ",
                            1 << 24, ", as in 64xH100"));
  return *n;
}

}  // namespace

Cluster parse_cluster(const std::string& text) {
  std::string name = text, count = "1", node;
  if (const std::size_t slash = name.rfind('/'); slash != std::string::npos && parse_int(name.substr(slash + 1))) {
    node = name.substr(slash + 1);
    name.resize(slash);
  }
  const std::size_t digits = name.find_first_not_of("0123456789");
  if (digits != std::string::npos && digits > 0 && (name[digits] == 'x' || name[digits] == 'X')) {
    count = name.substr(0, digits);
    name = name.substr(digits + 1);
  } else if (const std::size_t colon = name.rfind(':'); colon != std::string::npos) {
    count = name.substr(colon + 1);
    name.resize(colon);
  }
  Cluster cluster;
  if (const auto found = known(name)) {
    cluster = *found;
  } else if (letters_of(name) == "thismachine" && !path_exists(name)) {
    const std::string file = calibration_file();
    if (!path_exists(file))
      throw InputError(concat("hardware \"", name, "\": this machine has not been measured (missing ", file,
                              "): run `tessera plan calibrate`"));
    cluster = read_hardware(read_json(file));
  } else if (path_exists(name) && !is_directory(name)) {
    cluster = read_hardware(read_json(name));
    if (cluster.device.name.empty()) cluster.device.name = name;
  } else {
    const std::vector<std::string> names = hardware_names();
    const auto near = nearest(name, names);
    throw InputError(concat("hardware \"", name, "\" is neither a known name nor a file; ",
                            near ? concat("did you mean ", *near, "? ") : "", "known: ", join(names),
                            "; `tessera plan hardware` shows them"));
  }
  cluster.text = text;
  cluster.devices = static_cast<int>(count_of(count, text));
  if (!node.empty()) cluster.per_node = static_cast<int>(count_of(node, text));
  cluster.per_node = std::min(cluster.per_node, cluster.devices);
  if (cluster.devices % cluster.per_node != 0)
    throw InputError(concat("cluster \"", text, "\": ", cluster.devices, " devices do not fill nodes of ",
                            cluster.per_node, "; ", cluster.devices / cluster.per_node * cluster.per_node, " or ",
                            (cluster.devices / cluster.per_node + 1) * cluster.per_node,
                            " do; or set the devices per node: ", text, "/", 1));
  cluster.device.measured = speeds_for(cluster.measured, cluster.per_node);
  if (cluster.device.measured)
    cluster.crowding = std::max(1.0, static_cast<double>(cluster.per_node) / cluster.device.measured->processes);
  if (cluster.host_memory > 0) cluster.device.memory = cluster.host_memory / cluster.per_node;
  return cluster;
}

}  // namespace tessera::plan
