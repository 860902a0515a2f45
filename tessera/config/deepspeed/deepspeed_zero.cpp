// zero_optimization: stage, groups, offload, and tuning.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>

namespace tessera::config::deepspeed {
namespace {

std::string zero_key(std::string_view name) { return concat("zero_optimization.", name); }

class Zero {
 public:
  explicit Zero(Reading& r) : r_(r) {}

  void read() {
    if (!stage()) return;
    groups();
    offload();
    overlap();
    bucket();
    prefetch();
  }

 private:
  /// False if the section is absent or unusable.
  bool stage() {
    const auto found = r_.said.find("zero_optimization");
    if (found == r_.said.end()) return false;
    if (found->second->kind() == Value::Kind::boolean) {
      stage_ = found->second->as_bool() ? 1 : 0;
      r_.to.note(found->second->where(),
                 concat("zero_optimization: ", stage_ == 1 ? "true is an older spelling of {\"stage\": 1}"
                                                           : "false is an older spelling of {\"stage\": 0}"));
      r_.say("zero_stage", "zero_optimization", concat(stage_), found->second->where());
      return false;
    }
    const auto stage = r_.whole(zero_key("stage"));
    if (stage && *stage > 3) {
      r_.to.problem(r_.value(zero_key("stage"))->where(),
                    concat("zero_optimization.stage is ", *stage, "; it must be 0, 1, 2 or 3"),
                    {"zero_stage", "strategy", "cpu_offload"});
      return false;
    }
    stage_ = stage.value_or(0);
    return true;
  }

  /// Reads hpZ and MiCS, which keep replicas in groups (hybrid sharding).
  void groups() {
    const auto hpz = r_.whole(zero_key("zero_hpz_partition_size")), mics = r_.whole(zero_key("mics_shard_size"));
    const bool by_hpz = hpz && *hpz > 1, by_mics = mics && *mics > 0;
    const Value* at = r_.value(zero_key("stage"));
    if (!by_hpz && !by_mics) {
      if (at != nullptr) r_.say("zero_stage", zero_key("stage"), concat(stage_), at->where());
      return;
    }
    const std::string path = zero_key(by_mics ? "mics_shard_size" : "zero_hpz_partition_size");
    const SourcePos where = r_.value(path)->where();
    if (by_hpz && by_mics)
      return r_.to.problem(where,
                           concat(path,
                                  " and zero_optimization.zero_hpz_partition_size both define the groups that hold a "
                                  "replica; keep one of them"),
                           {"strategy", "shard_group_size"});
    if (stage_ != 3)
      return r_.to.problem(
          where,
          concat(path, " is for stage 3; zero_optimization.stage is ", stage_, ": remove it, or set the stage to 3"),
          {"strategy", "shard_group_size"});
    if (by_mics && (offloads("offload_optimizer") || offloads("offload_param")))
      return r_.to.problem(where, concat(path, ": MiCS cannot be combined with offloading; remove one of them"),
                           {"strategy", "shard_group_size", "cpu_offload"});
    if (by_hpz)
      r_.to.note(where, concat(path, " ", *hpz, ": each group of ", *hpz,
                               " processes holds a full replica, optimizer states included (hybrid_shard)"));
    r_.say("strategy", path, "hybrid_shard", where);
    r_.say("shard_group_size", path, concat(by_mics ? *mics : *hpz), where);
  }

  bool offloads(std::string_view section) const {
    const auto device = r_.text(concat(zero_key(section), ".device"));
    return device && to_lower(*device) != "none" && !device->empty();
  }

  struct Place {
    bool used = false;
    std::string path;
    SourcePos where;
  };

  Place place(const char* section, const char* deprecated) {
    const std::string path = zero_key(section);
    const Value* old = r_.value(zero_key(deprecated));
    if (old != nullptr && r_.said.contains(path)) {
      r_.to.problem(old->where(),
                    concat("Cannot provide deprecated parameter '", deprecated, "' and replacing parameter '", section,
                           "' (", file_and_line(r_.said.at(path)->where()), ") together; remove '", deprecated, "'"),
                    {"cpu_offload"});
      return {};
    }
    if (old != nullptr) return {*r_.flag(zero_key(deprecated)), zero_key(deprecated), old->where()};
    const Value* device = r_.value(concat(path, ".device"));
    if (device == nullptr || means_nothing(*device)) return {};
    const std::string word = to_lower(trim(device->as_string()));
    if (word != "cpu" && word != "nvme") {
      const std::vector<std::string> words = {"none", "cpu", "nvme"};
      const auto near = nearest(word, words);
      r_.to.problem(device->where(),
                    concat(path, ".device is '", word, "'; it must be one of none, cpu, nvme",
                           near ? concat(" (did you mean ", *near, "?)") : ""),
                    {"cpu_offload"});
      return {};
    }
    if (word == "nvme") folder(path, *device);
    return {true, path, device->where()};
  }

  void folder(const std::string& path, const Value& device) {
    const auto nvme = r_.text(path + ".nvme_path");
    if (!nvme || nvme->empty())
      return r_.to.problem(device.where(),
                           concat(path, ".device is nvme, which needs ", path, ".nvme_path: the folder of its files"),
                           {"offload_folder"});
    r_.say("offload_folder", path + ".nvme_path", *nvme, r_.value(path + ".nvme_path")->where());
  }

  void offload() {
    const Place optimizer = place("offload_optimizer", "cpu_offload");
    const Place param = place("offload_param", "cpu_offload_param");
    if (param.used && stage_ != 3)
      r_.to.note(param.where,
                 concat(param.path,
                        " has no effect: it is for stage 3, which shards parameters, but zero_optimization.stage is ",
                        stage_));
    const bool params = param.used && stage_ == 3;
    if (optimizer.used || params)
      r_.say("cpu_offload", params ? param.path : optimizer.path,
             optimizer.used && params ? "all"
             : params                 ? "params"
                                      : "optimizer",
             params ? param.where : optimizer.where);
  }

  /// Sets overlap_comm by the stage if the file does not set it.
  void overlap() {
    if (r_.value(zero_key("overlap_comm")) != nullptr || r_.value(zero_key("stage")) == nullptr || stage_ == 0) return;
    r_.otherwise("overlap_comm", zero_key("stage"), stage_ == 3 ? "true" : "false",
                 r_.value(zero_key("stage"))->where());
  }

  void bucket() {
    const std::string path = zero_key("reduce_bucket_size");
    if (const Value* value = r_.value(path)) {
      if (r_.whole(path) == 0)  // every gradient is reduced on its own, as with buckets of one element
        r_.say("reduce_bucket_size", path, "1", value->where());
      else
        r_.say("reduce_bucket_size", path, *value);
    }
    if (!asks_model()) return;
    const auto values = model_values();
    if (!values) return;
    if (r_.is_auto(path))
      r_.otherwise("reduce_bucket_size", path, concat(values->reduce_bucket_size), r_.said.find(path)->second->where());
    const std::string threshold = zero_key("stage3_param_persistence_threshold");
    if (r_.is_auto(threshold) && stage_ == 3)
      r_.otherwise("persistence_threshold", threshold, concat(values->param_persistence_threshold),
                   r_.said.find(threshold)->second->where());
  }

  std::vector<std::string> auto_keys() const {
    std::vector<std::string> keys;
    for (const char* name : {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"})
      if (r_.is_auto(zero_key(name))) keys.push_back(zero_key(name));
    return keys;
  }
  bool asks_model() const { return !r_.alone && !auto_keys().empty(); }

  std::optional<HiddenSizeValues> model_values() {
    try {
      const auto hidden_size = hidden_size_of(r_.so_far.values.model, auto_keys());
      return hidden_size ? std::optional(values_of(*hidden_size)) : std::nullopt;
    } catch (const InputError& error) {
      r_.to.problem(r_.said.find(auto_keys().front())->second->where(), error.what(),
                    {"reduce_bucket_size", "persistence_threshold"});
      return std::nullopt;
    }
  }

  void prefetch() {
    const std::string path = zero_key("stage3_prefetch_bucket_size");
    if (stage_ != 3 || r_.whole(path) != 0) return;
    const SourcePos where = r_.value(path)->where();
    r_.say("backward_prefetch", path, "no_prefetch", where);
    r_.say("forward_prefetch", path, "false", where);
  }

  Reading& r_;
  std::int64_t stage_ = 0;
};

}  // namespace

void read_zero(Reading& r) { Zero(r).read(); }

}  // namespace tessera::config::deepspeed
