// Asks the questions of accelerate/commands/config/cluster.py, in its order, so that users' habits and scripts carry
// over.

#include <tessera/config/accelerate/questionnaire.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;

class Questionnaire {
 public:
  explicit Questionnaire(Dialog& dialog) : ask_(dialog) {}

  Value run() {
    ask_.choose("In which compute environment are you running?", {"This machine", "AWS (Amazon SageMaker)"}, 0,
                {"", "SageMaker starts its own containers, without Tessera: choose This machine"});
    type();
    if (type_ != "NO") machines();
    cpu();
    dynamo();
    if (type_ != "MULTI_CPU" && ask_.yes("Do you want to use DeepSpeed?", false)) deepspeed();
    if (type_ == "MULTI_GPU" && ask_.yes("Do you want to use FullyShardedDataParallel?", false)) fsdp();
    if (version_ == 2 && ask_.yes("Do you want to use the parallelism config?", false)) parallelism();
    if (type_ == "MULTI_GPU" && ask_.yes("Do you want to use Megatron-LM?", false)) megatron();
    processes();
    precision();
    return result();
  }

 private:
  void set(const char* key, Value value) { file_.set(key, std::move(value)); }

  void type() {
    static const Words names = {"NO",        "MULTI_CPU",  "MULTI_XPU",  "MULTI_HPU",    "MULTI_GPU", "MULTI_NPU",
                                "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_NEURON", "XLA"};
    Words refused(names.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      if (i != 0 && i != 1 && i != 4)
        refused[i] = "Tessera runs on CPUs and NVIDIA GPUs: choose multi-CPU or multi-GPU";
    const Words options = {"No distributed training",
                           "multi-CPU",
                           "multi-XPU",
                           "multi-HPU",
                           "multi-GPU",
                           "multi-NPU",
                           "multi-MLU",
                           "multi-SDAA",
                           "multi-MUSA",
                           "multi-NEURON",
                           "TPU"};
    type_ = names[ask_.choose("Which type of machine are you using?", options, 0, refused)];
  }

  void machines() {
    machines_ = ask_.integer("How many different machines will you use (use more than 1 for multi-node training)?", 1);
    if (machines_ > 1) {
      set("machine_rank",
          Value::of(ask_.integer_of(concat("What is the rank of this machine (0 to ", machines_ - 1, ")?"), 0,
                                    machines_ - 1)));
      set("main_process_ip",
          Value::of(ask_.text("What is the IP address of the machine that will host the main process?")));
      set("main_process_port",
          Value::of(ask_.integer_of("What is the port you will use to communicate with the main process?", 0, 65535)));
      const bool same = ask_.yes(
          "Are all the machines on the same local network? Answer `no` if nodes are on the cloud and/or on different "
          "network hosts",
          true);
      set("same_network", Value::of(same));
      if (!same)
        set("rdzv_backend",
            Value::of(ask_.text("What rendezvous backend will you use? ('static', 'c10d', ...)", "static")));
    }
    set("debug", Value::of(ask_.yes(
                     "Should distributed operations be checked while running for errors? This can avoid timeout issues "
                     "but will be slower.",
                     false)));
  }

  void cpu() {
    use_cpu_ = type_ == "MULTI_CPU";
    if (type_ == "NO")
      use_cpu_ = ask_.yes(
          "Do you want to run your training on CPU only (even if a GPU / Apple Silicon / Ascend NPU device is "
          "available)?",
          false);
    if (type_ == "MULTI_CPU" && ask_.yes("Do you want accelerate to launch mpirun?", false))
      set("mpirun_config", Value::make_object({{"mpirun_hostfile",
                                                Value::of(ask_.text("Please enter the path to the hostfile to use with "
                                                                    "mpirun",
                                                                    "~/hostfile"))}}));
  }

  void dynamo() {
    if (!ask_.yes("Do you wish to optimize your script with torch dynamo?", false)) return;
    static const Words backends = {
        "eager",  "aot_eager", "inductor", "aot_ts_nvfuser",          "nvprims_nvfuser",      "cudagraphs", "ofi",
        "fx2trt", "onnxrt",    "tensorrt", "aot_torchxla_trace_once", "torhchxla_trace_once", "tvm"};
    std::string backend = backends[ask_.choose("Which dynamo backend would you like to use?", backends, 2)];
    std::transform(backend.begin(), backend.end(), backend.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    Value section = Value::make_object({{"dynamo_backend", Value::of(backend)}});
    if (ask_.yes("Do you want to customize the defaults sent to torch.compile?", false)) {
      static const Words modes = {"default", "reduce-overhead", "max-autotune"};
      section.set("dynamo_mode", Value::of(modes[ask_.choose("Which mode do you want to use?", modes)]));
      section.set("dynamo_use_fullgraph",
                  Value::of(ask_.yes(
                      "Do you want the fullgraph mode or it is ok to break model into several subgraphs?", false)));
      section.set("dynamo_use_dynamic", Value::of(ask_.yes("Do you want to enable dynamic shape tracing?", false)));
      section.set("dynamo_use_regional_compilation",
                  Value::of(ask_.yes("Do you want to enable regional compilation?", false)));
    }
    set("dynamo_config", std::move(section));
  }

  void deepspeed() {
    type_ = "DEEPSPEED";
    Value section = Value::make_object();
    deepspeed_file_ = ask_.yes("Do you want to specify a json file to a DeepSpeed config?", false);
    if (deepspeed_file_) {
      section.set("deepspeed_config_file",
                  Value::of(ask_.text("Please enter the path to the json DeepSpeed config file", "none")));
    } else {
      deepspeed_fields(section);
    }
    section.set(
        "zero3_init_flag",
        Value::of(ask_.yes("Do you want to enable `deepspeed.zero.Init` when using ZeRO Stage-3 for constructing "
                           "massive models?",
                           false)));
    if (ask_.yes("Do you want to enable Mixture-of-Experts training (MoE)?", false))
      section.set("deepspeed_moe_layer_cls_names",
                  Value::of(ask_.text(
                      "Specify the comma-separated list of transformers MoE layer class names (case-sensitive), e.g : "
                      "`MixtralSparseMoeBlock`, `Qwen2MoeSparseMoeBlock`, `JetMoEAttention,JetMoEBlock` ...")));
    if (machines_ > 1) deepspeed_machines(section);
    set("deepspeed_config", std::move(section));
  }

  void deepspeed_fields(Value& section) {
    const std::size_t stage =
        ask_.choose("What should be your DeepSpeed's ZeRO optimization stage?", {"0", "1", "2", "3"}, 2);
    section.set("zero_stage", Value::of(static_cast<std::int64_t>(stage)));
    if (stage >= 2) {
      static const Words devices = {"none", "cpu", "nvme"};
      const std::string optimizer = devices[ask_.choose("Where to offload optimizer states?", devices)];
      const std::string params = devices[ask_.choose("Where to offload parameters?", devices)];
      section.set("offload_optimizer_device", Value::of(optimizer));
      section.set("offload_param_device", Value::of(params));
      if (params == "nvme")
        section.set("offload_param_nvme_path", Value::of(ask_.text("Nvme Path to offload parameters?", "/nvme")));
      if (optimizer == "nvme")
        section.set("offload_optimizer_nvme_path",
                    Value::of(ask_.text("Nvme Path to offload optimizer states?", "/nvme")));
    }
    section.set("gradient_accumulation_steps",
                Value::of(ask_.integer("How many gradient accumulation steps you're passing in your script?", 1)));
    if (ask_.yes("Do you want to use gradient clipping?", false))
      section.set("gradient_clipping", Value::of(ask_.real("What is the gradient clipping value?", 1.0, 0)));
    if (stage == 3)
      section.set("zero3_save_16bit_model",
                  Value::of(ask_.yes("Do you want to save 16-bit model weights when using ZeRO Stage-3?", false)));
  }

  void deepspeed_machines(Value& section) {
    static const Words launchers = {"pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"};
    const std::string launcher = launchers[ask_.choose("Which Type of launcher do you want to use?", launchers)];
    section.set("deepspeed_multinode_launcher", Value::of(launcher));
    if (launcher == "standard") return;
    section.set(
        "deepspeed_hostfile",
        Value::of(ask_.text(
            "DeepSpeed configures multi-node compute resources with hostfile. Each row is of the format `hostname "
            "slots=[num_gpus]`, e.g., `localhost slots=2`. Please specify the location of hostfile")));
    if (ask_.yes("Do you want to specify exclusion filter string?", false))
      section.set("deepspeed_exclusion_filter", Value::of(ask_.text("DeepSpeed exclusion filter string")));
    if (ask_.yes("Do you want to specify inclusion filter string?", false))
      section.set("deepspeed_inclusion_filter", Value::of(ask_.text("DeepSpeed inclusion filter string")));
  }

  void fsdp() {
    type_ = "FSDP";
    Value section = Value::make_object();
    const auto add = [&](const char* key, Value value) { section.set(concat("fsdp_", key), std::move(value)); };
    const auto choice = [&](const char* key, const char* question, const Words& words, const Words& beside = {}) {
      const std::size_t chosen = ask_.choose(question, words, 0, {}, beside);
      add(key, Value::of(words[chosen]));
      return chosen;
    };
    version_ = static_cast<int>(ask_.integer("What should be your FSDP version?", 2, 1, 2));
    const bool first = version_ == 1;
    add("version", Value::of(version_));
    if (first)
      choice("reshard_after_forward", "What should be your sharding strategy?",
             {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"},
             {"1 in a file and in PyTorch's guide", "2 there", "3 there", "4 there", "5 there"});
    else
      add("reshard_after_forward", Value::of(ask_.yes("Do you want to enable resharding after forward?", true)));
    add("offload_params", Value::of(ask_.yes("Do you want to offload parameters and gradients to CPU?", false)));
    const std::size_t wrap = choice("auto_wrap_policy", "What should be your auto wrap policy?",
                                    {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"});
    if (wrap == 0 &&
        !ask_.yes("Do you want to use the model's `_no_split_modules` to wrap. Only applicable for Transformers",
                  false))
      add("transformer_layer_cls_to_wrap",
          Value::of(ask_.text(
              "Specify the comma-separated list of transformer layer class names (case-sensitive) to wrap, e.g., "
              "`BertLayer`, `GPTJBlock`, `T5Block`, `BertLayer,BertEmbeddings,BertSelfOutput` ...?")));
    if (wrap == 1)
      add("min_num_params",
          Value::of(ask_.integer("What should be your FSDP's minimum number of parameters for Default Auto Wrapping "
                                 "Policy?",
                                 100'000'000, 0)));
    if (first)
      choice("backward_prefetch", "What should be your FSDP's backward prefetch policy?",
             {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"});
    choice("state_dict_type", "What should be your FSDP's state dict type?",
           first ? Words{"FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"}
                 : Words{"SHARDED_STATE_DICT", "FULL_STATE_DICT"});
    if (first) {
      add("forward_prefetch", Value::of(ask_.yes("Do you want to enable FSDP's forward prefetch policy?", false)));
      add("use_orig_params", Value::of(ask_.yes("Do you want to enable FSDP's `use_orig_params` feature?", true)));
    }
    const bool efficient = ask_.yes(
        "Do you want to enable CPU RAM efficient model loading? Only applicable for Transformers models.", true);
    add("cpu_ram_efficient_loading", Value::of(efficient));
    if (first)
      add("sync_module_states",
          Value::of(
              efficient ||
              ask_.yes(
                  "Do you want each individually wrapped FSDP unit to broadcast module parameters from rank 0 at the "
                  "start?",
                  true)));
    add("activation_checkpointing", Value::of(ask_.yes("Do you want to enable FSDP activation checkpointing?", false)));
    set("fsdp_config", std::move(section));
  }

  void parallelism() {
    Value section = Value::make_object();
    const auto size = [&](const char* key, const char* question) {
      const std::int64_t answer = ask_.integer(question, 1);
      section.set(concat("parallelism_config_", key), Value::of(answer));
      return answer;
    };
    size("dp_replicate_size", "What is the data parallelism replicate size?");
    size("dp_shard_size", "What is the FSDP shard size?");
    size("tp_size", "What is the tensor parallelism size?");
    if (size("cp_size", "What is the context parallelism size?") > 1) {
      static const Words ways = {"allgather", "alltoall"};
      section.set("parallelism_config_cp_comm_strategy",
                  Value::of(ways[ask_.choose("What is the context parallelism communication strategy?", ways)]));
    }
    set("parallelism_config", std::move(section));
  }

  void megatron() {
    type_ = "MEGATRON_LM";
    Value section = Value::make_object();
    const auto add = [&](const char* key, Value value) { section.set(concat("megatron_lm_", key), std::move(value)); };
    const std::int64_t tp = ask_.integer("What is the Tensor Parallelism degree/size?", 1);
    add("tp_degree", Value::of(tp));
    if (tp > 1) add("sequence_parallelism", Value::of(ask_.yes("Do you want to enable Sequence Parallelism?", true)));
    const std::int64_t pp = ask_.integer("What is the Pipeline Parallelism degree/size?", 1);
    add("pp_degree", Value::of(pp));
    if (pp > 1) add("num_micro_batches", Value::of(ask_.integer("What is the number of micro-batches?", 1)));
    add("recompute_activations",
        Value::of(ask_.yes("Do you want to enable selective activation recomputation?", true)));
    add("use_distributed_optimizer",
        Value::of(ask_.yes("Do you want to use distributed optimizer which shards optimizer state and "
                           "gradients across data parallel ranks?",
                           true)));
    add("gradient_clipping",
        Value::of(ask_.real("What is the gradient clipping value based on global L2 Norm (0 to disable)?", 1.0, 0)));
    set("megatron_lm_config", std::move(section));
  }

  void processes() {
    if (type_ != "NO")
      processes_ = ask_.integer(concat("How many ", type_ == "MULTI_CPU" ? "processes" : "GPU(s)",
                                       " should be used for distributed training?"),
                                1);
    if (type_ == "MULTI_GPU" && machines_ == 1 && processes_ == 1)
      throw InputError(
          "multi-GPU with 1 GPU on 1 machine is not distributed training: choose `No distributed training` as the type "
          "of machine; nothing was written");
    if ((type_ == "MULTI_GPU" || type_ == "NO") && !use_cpu_) {
      set("gpu_ids",
          Value::of(ask_.text(
              "What GPU(s) (by id) should be used for training on this machine as a comma-separated list?", "all")));
      set("enable_cpu_affinity",
          Value::of(ask_.yes("Would you like to enable numa efficiency? (Currently only supported on NVIDIA hardware).",
                             false)));
    }
  }

  void precision() {
    if (deepspeed_file_) return;  // the DeepSpeed file contains the precision
    static const Words words = {"no", "fp16", "bf16", "fp8"};
    set("mixed_precision", Value::of(words[ask_.choose("Do you wish to use mixed precision?", words, 0)]));
  }

  Value result() {
    const std::pair<const char*, Value> defaults[] = {{"compute_environment", Value::of("LOCAL_MACHINE")},
                                                      {"debug", Value::of(false)},
                                                      {"enable_cpu_affinity", Value::of(false)},
                                                      {"machine_rank", Value::of(0)},
                                                      {"rdzv_backend", Value::of("static")},
                                                      {"same_network", Value::of(true)},
                                                      {"main_training_function", Value::of("main")}};
    for (const auto& [key, value] : defaults)
      if (file_.find(key) == nullptr) file_.set(key, value);
    set("distributed_type", Value::of(type_));
    set("num_machines", Value::of(machines_));
    set("num_processes", Value::of(processes_));
    set("use_cpu", Value::of(use_cpu_));
    std::vector<Value::Member> members = file_.members();
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return Value::make_object(std::move(members));
  }

  Dialog& ask_;
  Value file_ = Value::make_object();
  std::string type_;
  std::int64_t machines_ = 1, processes_ = 1;
  int version_ = 0;
  bool use_cpu_ = false, deepspeed_file_ = false;
};

}  // namespace

Value ask_configuration(Dialog& dialog) { return Questionnaire(dialog).run(); }

}  // namespace tessera::config
