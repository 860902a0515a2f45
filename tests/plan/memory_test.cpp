// Memory of a rank, checked against the engine's own arithmetic, published formulas, and general invariants.

#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>
#include <tessera/layout/state_bytes.h>
#include <tessera/plan/from_config.h>
#include <tessera/plan/memory.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/time.h>
#include <tessera/plan/vision.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace tessera::plan {
namespace {

using layout::Axis;

Plan run_on(const Model& model, const std::string& mesh, Strategy strategy, Precision precision = Precision::fp32) {
  Plan run;
  run.mesh = layout::parse_mesh(mesh);
  run.strategy = strategy;
  run.precision = precision;
  run.numerics = numerics_of(precision, /*on_cpu=*/true);
  run.on_cpu = true;
  run.sequence = 256;
  cut_plan(model, run);
  return run;
}

/// The models of the measured peaks below.
Model small_llama() {
  return read_model(parse_json(
      R"({"model_type": "llama", "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
          "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 2048})",
      "llama"));
}
Model small_gpt2() {
  return read_model(parse_json(R"({"model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6,
          "n_positions": 1024, "vocab_size": 4096, "resid_pdrop": 0, "attn_pdrop": 0, "embd_pdrop": 0})",
                               "gpt2"));
}

/// The model's modules as the engine sees them: one unit per block.
layout::ModuleTree tree_of(const Model& model) {
  layout::ModuleTree tree;
  tree.modules.push_back({"", "Model", 0, {}, false});
  std::map<std::int64_t, std::size_t> blocks;
  for (const Tensor& tensor : tensors(model)) {
    std::size_t module = 0;
    if (tensor.block >= 0 && tensor.block < model.layers) {
      if (!blocks.contains(tensor.block)) {
        blocks[tensor.block] = tree.modules.size();
        tree.modules.push_back({"layers." + std::to_string(tensor.block), "Block", 0, {}, false});
      }
      module = blocks[tensor.block];
    }
    tree.modules[module].parameters.push_back(tree.parameters.size());
    tree.parameters.push_back({tensor.name, tensor.shape});
  }
  return tree;
}

// The engine's flat layouts pad each unit to 64 elements per rank; that is the only difference.
TEST(PlanMemory, StatesAreThoseOfTheEnginesLayouts) {
  for (const char* name : {"gpt2", "llama-3.2-1b", "qwen2.5-0.5b"}) {
    const Model model = find_model(name);
    const layout::ModuleTree tree = tree_of(model);
    for (const Strategy strategy :
         {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::full_shard, Strategy::shard_grad_op}) {
      for (const std::int64_t micro_batches : {1, 4}) {
        Plan run = run_on(model, strategy == Strategy::ddp ? "dp_replicate=4" : "dp_shard=4", strategy);
        run.micro_batches = micro_batches;
        run.on_cpu = false;  // the CPU counts the pool of buffers too (tested below)
        layout::StateBytesOptions options;
        options.strategy = row_of(strategy);
        options.shard_ranks = run.shard_ranks();
        options.wrap.kind = layout::WrapPolicy::Kind::by_class;
        options.wrap.classes = {"Block"};
        options.accumulates = micro_batches > 1;
        const layout::StateBytes bytes = state_bytes(tree, std::vector<bool>(tree.parameters.size(), true), options);
        const Memory memory = memory_by_rank(model, run, 0)[0];
        const std::string what = concat(name, " ", strategy, " ", micro_batches);
        const auto near = [&](MemoryKind kind, std::int64_t expected) {
          EXPECT_NEAR(memory[kind], static_cast<double>(expected), 0.01 * static_cast<double>(expected) + 4096)
              << what << " " << name_of(kind);
        };
        near(MemoryKind::parameters, bytes.parameters);
        near(MemoryKind::gradients, bytes.gradients);
        near(MemoryKind::optimizer, bytes.optimizer);
        if (row_of(strategy).shard_parameters) near(MemoryKind::buffers, bytes.buffers);
      }
    }
  }
}

// Peaks of two steps of a small LLaVA, 4 rows of 512 tokens with one image each, counted the same way by
// bench/plan_memory.py. If the tower is far larger than the decoder, the peak is in its forward.
TEST(PlanMemory, ATowerAndWhatIsFrozenNeedWhatARunCounts) {
  const auto model_of = [](int layers, int words, int width, int blocks) {
    return read_model(
        parse_json(concat(R"({"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 384,
                   "intermediate_size": 1024, "num_attention_heads": 6, "num_key_value_heads": 2,
                   "max_position_embeddings": 2048, "num_hidden_layers": )",
                          layers, R"(, "vocab_size": )", words, R"(}, "vision_config": {"hidden_size": )", width,
                          R"(, "intermediate_size": )", 4 * width, R"(, "num_hidden_layers": )", blocks,
                          R"(, "num_attention_heads": 4, "image_size": 224, "patch_size": 14}})"),
                   "llava"));
  };
  const Model small = model_of(6, 4096, 256, 6), wide = model_of(2, 512, 512, 10);
  struct Case {
    const Model& model;
    const char* mesh;
    Strategy strategy;
    bool decoder, projector;
    int recompute, micro_batches;
    double megabytes;
  };
  using enum Strategy;
  for (const Case& c : {Case{small, "dp_replicate=1", ddp, true, true, 0, 1, 485.6},
                        {small, "dp_replicate=1", ddp, false, true, 0, 1, 297.4},
                        {small, "dp_replicate=1", ddp, true, false, 0, 1, 479.5},
                        {small, "dp_replicate=1", ddp, true, true, 1, 1, 286.1},
                        {small, "dp_replicate=1", ddp, false, true, 1, 1, 155.5},
                        {small, "dp_replicate=1", ddp, true, true, 0, 2, 534.1},
                        {small, "dp_shard=2", zero1, true, true, 0, 1, 506.0},
                        {small, "dp_shard=2", full_shard, true, true, 0, 1, 472.3},
                        {small, "dp_shard=2", full_shard, false, true, 0, 1, 289.3},
                        {wide, "dp_replicate=1", ddp, true, true, 0, 1, 250.4},
                        {wide, "dp_replicate=1", ddp, false, true, 1, 1, 194.9}}) {
    Model model = c.model;
    model.trained = c.decoder;
    model.projector_trained = c.projector;
    Plan run = run_on(model, c.mesh, c.strategy);
    run.sequence = model.layers == 2 ? 300 : 512;
    run.rows = 4;
    run.recompute = c.recompute;
    run.micro_batches = c.micro_batches;
    EXPECT_NEAR(memory_by_rank(model, run, 0)[0].allocated() / 1e6, c.megabytes, 0.005 * c.megabytes)
        << c.mesh << " " << c.strategy << " decoder " << c.decoder << " recompute " << c.recompute;
  }
}

// The same with LoRA adapters of rank 16, on full-precision or quantized weights, 4 rows of 256 tokens.
TEST(PlanMemory, AdaptersNeedWhatARunCounts) {
  const Model llama = small_llama(), gpt2 = small_gpt2();
  struct Case {
    const Model& model;
    const char* mesh;
    Strategy strategy;
    bool everywhere, head;
    int bits, recompute, micro_batches;
    Precision precision;
    double megabytes;
  };
  using enum Strategy;
  using enum Precision;
  for (const Case& c : {Case{llama, "dp_replicate=1", ddp, false, false, 0, 0, 1, fp32, 169.3},
                        {llama, "dp_replicate=1", ddp, true, false, 0, 0, 1, fp32, 209.1},
                        {llama, "dp_replicate=1", ddp, true, false, 0, 0, 1, bf16, 212.1},
                        {llama, "dp_replicate=1", ddp, true, false, 0, 1, 1, fp32, 99.7},
                        {llama, "dp_replicate=1", ddp, true, false, 0, 1, 1, bf16, 103.6},
                        {llama, "dp_replicate=1", ddp, true, false, 0, 0, 2, fp32, 211.8},
                        {llama, "dp_replicate=1", ddp, true, false, 4, 0, 1, fp32, 176.7},
                        {llama, "dp_replicate=1", ddp, true, false, 8, 0, 1, fp32, 180.9},
                        {llama, "dp_replicate=1", ddp, false, true, 0, 0, 1, fp32, 188.2},
                        {llama, "dp_shard=2", zero1, true, false, 0, 0, 1, fp32, 211.0},
                        {llama, "dp_shard=2", full_shard, true, false, 0, 0, 1, fp32, 208.3},
                        {llama, "dp_shard=2", full_shard, true, false, 4, 0, 1, bf16, 185.1},
                        {gpt2, "dp_replicate=1", ddp, false, false, 0, 0, 1, fp32, 169.3},
                        {gpt2, "dp_replicate=1", ddp, true, false, 0, 0, 1, fp32, 219.9},
                        {gpt2, "dp_replicate=1", ddp, true, false, 8, 1, 1, fp32, 69.4},
                        {gpt2, "dp_shard=2", full_shard, false, false, 0, 0, 1, fp32, 165.9}}) {
    Model model = c.model;
    model.adapters.emplace();
    model.adapters->rank = 16;
    model.adapters->bits = c.bits;
    if (c.everywhere) model.adapters->targets = {"all-linear"};
    if (c.head) model.adapters->whole = {"lm_head"};
    Plan run = run_on(model, c.mesh, c.strategy, c.precision);
    run.rows = 4;
    run.recompute = c.recompute;
    run.micro_batches = c.micro_batches;
    EXPECT_NEAR(memory_by_rank(model, run, 0)[0].allocated() / 1e6, c.megabytes, 0.005 * c.megabytes)
        << model.type << " " << c.mesh << " " << c.strategy << " all " << c.everywhere << " bits " << c.bits;
  }
}

TEST(PlanMemory, RowsWithoutRoomForAnImageHaveNone) {
  Model model = read_model(parse_json(R"({"model_type": "llava"})", "llava"));
  Plan run = run_on(model, "dp_replicate=1", Strategy::ddp);
  run.rows = 8;
  run.sequence = 576;
  EXPECT_EQ(images_of(*model.vision, run), 8);
  run.sequence = 575;
  EXPECT_EQ(images_of(*model.vision, run), 1) << "a black image";
}

// The peaks of two steps of a small Llama and GPT-2, 4 rows of 256 tokens, from metrics.jsonl of `tessera train`
// (`peak_allocated_bytes`). Tensor memory is arithmetic, so the prediction is within one or two thousandths.
TEST(PlanMemory, AllocatedOnTheCpuIsWhatARunCounts) {
  const Model llama = small_llama(), gpt2 = small_gpt2();
  struct Case {
    const Model& model;
    const char* mesh;
    Strategy strategy;
    Precision precision;
    int recompute, micro_batches;
    double megabytes;
  };
  using enum Precision;
  for (const Case& c : {Case{llama, "dp_replicate=1", Strategy::ddp, fp32, 0, 1, 307.57},
                        {llama, "dp_replicate=1", Strategy::ddp, bf16, 0, 1, 320.4},
                        {llama, "dp_replicate=1", Strategy::ddp, fp32, 1, 1, 223.54},
                        {llama, "dp_replicate=1", Strategy::ddp, fp32, 0, 2, 357.4},
                        {llama, "dp_replicate=2", Strategy::ddp, fp32, 0, 1, 357.40},
                        {llama, "dp_shard=2", Strategy::full_shard, fp32, 0, 1, 307.05},
                        {llama, "dp_shard=2", Strategy::full_shard, fp32, 0, 2, 320.1},
                        {llama, "dp_shard=2", Strategy::shard_grad_op, fp32, 0, 1, 332.25},
                        {llama, "tp=2", Strategy::ddp, fp32, 0, 1, 174.90},
                        {llama, "cp=2", Strategy::ddp, fp32, 0, 1, 285.7},
                        {gpt2, "dp_replicate=1", Strategy::ddp, fp32, 0, 1, 319.9},
                        {gpt2, "dp_shard=2", Strategy::full_shard, fp32, 0, 1, 313.9}}) {
    Plan run = run_on(c.model, c.mesh, c.strategy, c.precision);
    run.rows = 4;
    run.recompute = c.recompute;
    run.micro_batches = c.micro_batches;
    const Memory memory = memory_by_rank(c.model, run, 0)[0];
    EXPECT_NEAR(memory.allocated() / 1e6, c.megabytes, 0.002 * c.megabytes)
        << c.model.type << " " << c.mesh << " " << c.strategy << " recompute " << c.recompute;
    EXPECT_GE(memory[MemoryKind::reserve], 0);
    EXPECT_DOUBLE_EQ(memory.total(), memory.allocated() + memory[MemoryKind::reserve]);
  }
  // Gradient buckets need slightly more or less depending on when their reductions end; the planner counts the larger
  // amount.
  Plan zero1 = run_on(llama, "dp_shard=2", Strategy::zero1, fp32);
  zero1.rows = 4;
  const double counted = 332.25, predicted = memory_by_rank(llama, zero1, 0)[0].allocated() / 1e6;
  EXPECT_GE(predicted, counted);
  EXPECT_LE(predicted, 1.01 * counted);
}

// Each depth of multi-token prediction adds to the peak of such a run: 307.97 MB without depths, 369.27 with one,
// 430.56 with two.
TEST(PlanMemory, AllocatedOfDepthsIsWhatARunCounts) {
  const auto allocated = [](int depths) {
    const Model model = read_model(parse_json(
        concat(R"({"model_type": "llama", "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6,
                   "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 4096,
                   "max_position_embeddings": 2048, "mtp_num_layers": )",
               depths, "}"),
        "llama"));
    Plan run = run_on(model, "dp_replicate=1", Strategy::ddp);
    run.rows = 4;
    return memory_by_rank(model, run, 0)[0].allocated() / 1e6;
  };
  EXPECT_NEAR(allocated(1) - allocated(0), 61.30, 0.02 * 61.30);
  EXPECT_NEAR(allocated(2) - allocated(0), 122.59, 0.02 * 122.59);
}

// Memory that a block keeps per token, counted by hand from its operations. GPT-2 keeps the block's input, two normed
// values, q, k and v, the attention's result and the sum after it (8 widths), and the input and output of the MLP's
// activation (2 x 4). Korthikanti et al. 2022, section 4, count 34 bytes per token in 16 bits, including dropout masks,
// which we do not keep.
TEST(PlanMemory, ABlockKeepsWhatItsOperationsSave) {
  const Model gpt = find_model("gpt2");
  Plan run = run_on(gpt, "dp_replicate=1", Strategy::ddp);
  run.on_cpu = false;  // without the size classes of the CPU's allocator
  const double tokens = 256, c = 768;
  EXPECT_NEAR(block_activations(gpt, run, false).kept, 4 * tokens * (8 * c + 2 * 4 * c + 12), 8192);

  const Model llama = find_model("llama-3.2-1b");
  run = run_on(llama, "dp_replicate=1", Strategy::ddp);
  run.on_cpu = false;
  const double h = 2048, kv = 512, inner = 8192;
  EXPECT_NEAR(block_activations(llama, run, false).kept, 4 * tokens * (4 * h + 2 * h + 2 * kv + 3 * inner + 32), 8192);

  // A gate's GELU keeps its input and is a factor of a product that keeps both factors; values that are a slice of a
  // packed tensor of queries, keys and values keep the whole tensor.
  Model gelu = llama, packed = llama;
  gelu.gate = Gate::gelu_tanh;
  packed.packing = Packing::blocks;
  const double kept = block_activations(llama, run, false).kept;
  EXPECT_NEAR(block_activations(gelu, run, false).kept, kept + 4 * tokens * inner, 8192);
  EXPECT_NEAR(block_activations(packed, run, false).kept, kept + 4 * tokens * (h + kv), 8192);
}

// On a device the loss runs over chunks of 8,192 tokens (nn/device/head_loss.cpp). It needs one chunk's bf16 logits,
// the head and its input in bf16, the gradient of the input, and the head's gradient as bf16 products and their fp32
// sum, but not all logits.
TEST(PlanMemory, AHeadOnADeviceHasTheLogitsOfOneChunk) {
  const Model model = find_model("llama-3.2-1b");
  const double words = 128256, c = 2048, head = words * c;
  const auto bytes = [&](std::int64_t rows, const std::string& mesh) {
    Plan run = run_on(model, mesh, Strategy::ddp, Precision::bf16);
    run.on_cpu = false;
    run.numerics = numerics_of(Precision::bf16, false);
    run.rows = rows;
    return memory_by_rank(model, run, 0)[0][MemoryKind::head];
  };
  const auto expected = [&](double tokens) {
    const double chunk = std::min(tokens, 8192.0);
    return 8 * tokens * c + 2 * chunk * words + 2 * (tokens * c + head) + 2 * tokens * c + 6 * head;
  };
  EXPECT_NEAR(bytes(4, "dp_replicate=1"), expected(4 * 256), 1e6);
  EXPECT_NEAR(bytes(256, "dp_replicate=1"), expected(256 * 256), 1e6);
  EXPECT_GT(bytes(256, "tp=2"), 4 * 256 * 256 * words / 2) << "ranks that share a head form the whole logits";
}

// A recomputed half of a block keeps its input, in addition to the other half; during backward one block's activations
// exist again.
TEST(PlanMemory, ARecomputedBlockKeepsWhatItsSettingsLeave) {
  RunConfig config;
  config.model.config_name = "llama-3.2-1b";  // 16 layers
  config.data.block_size = 256;
  const Model model = model_of(config);
  const auto activations = [&](const std::string& kwargs) {
    config.optimization.gradient_checkpointing = !kwargs.empty();
    config.optimization.gradient_checkpointing_kwargs = kwargs;
    const Plan run = plan_on(config, model, layout::Mesh{}, /*on_cpu=*/false);
    return memory_by_rank(model, run, 0)[0][MemoryKind::activations];
  };
  const Plan run = plan_on(config, model, layout::Mesh{}, false);
  const BlockActivations block = block_activations(model, run, false);
  const double all = activations("");
  EXPECT_NEAR(all - activations("every=1"), 15 * (block.kept - block.input), 1);
  EXPECT_NEAR(all - activations("every=4"), 3 * (block.kept - block.input), 1);
  EXPECT_NEAR(all - activations("part=attention"), 15 * (block.attention - block.input), 1);
  EXPECT_NEAR(all - activations("part=mlp,every=2"), 7 * (block.kept - block.attention - block.input), 1);
  EXPECT_NEAR(all - activations(R"(names=model\.layers\.[0-2])"), 2 * (block.kept - block.input), 1);
  EXPECT_NEAR(all - activations(R"(part=attention,every=2,names=model\.layers\.[0-2]\.self_attn)"),
              block.attention - block.input, 1);
  EXPECT_EQ(activations(R"(part=mlp,names=.*\.mlp)"), activations("part=mlp"));
  for (const char* none : {"names=zzz", R"(names=model\.layers\.0\.mlp)", R"(part=attention,names=.*\.mlp)"})
    EXPECT_THROW(activations(none), InputError) << none;
  EXPECT_NEAR(activations("every=1") - activations("offload_inputs_to=/tmp"), 16 * block.input, 1);
}

// Tensor parallelism with sequence parallelism divides all that a block keeps except the inputs of products, which are
// gathered; recomputation keeps only the input.
TEST(PlanMemory, AxesDivideActivations) {
  const Model model = find_model("llama-3-8b");
  Plan whole = run_on(model, "dp_replicate=1", Strategy::ddp), half = run_on(model, "tp=2", Strategy::ddp);
  half.sequence_parallel = true;
  const BlockActivations one = block_activations(model, whole, false), two = block_activations(model, half, false);
  EXPECT_LT(two.kept, 0.62 * one.kept);
  EXPECT_GT(two.kept, 0.5 * one.kept);
  EXPECT_NEAR(two.input, one.input / 2, 1);
  Plan ring = run_on(model, "cp=2", Strategy::ddp);
  EXPECT_NEAR(block_activations(model, ring, false).kept, one.kept / 2, 0.02 * one.kept);
  whole.micro_batches = 2;  // keeps gradients alive; else they reuse activations' memory
  const double kept = memory_by_rank(model, whole, 0)[0][MemoryKind::activations];
  whole.recompute = 1;
  EXPECT_LT(memory_by_rank(model, whole, 0)[0][MemoryKind::activations], 0.2 * kept);
}

// The stages add up to the whole model; the first stage of 1F1B has p micro-batches in flight, the last has the head.
TEST(PlanMemory, StagesAddUpAndDiffer) {
  const Model model = find_model("llama-3-8b");
  Plan run = run_on(model, "pp=4", Strategy::ddp);
  run.micro_batches = 8;
  const Elements elements = elements_of(model, 1, 1);
  double sum = 0;
  for (const layout::StagePart& part : run.parts) sum += stage_elements(model, elements, part).all();
  EXPECT_EQ(sum, parameter_count(model));
  const std::vector<Memory> ranks = memory_by_rank(model, run, 0);
  ASSERT_EQ(ranks.size(), 4u);
  EXPECT_NEAR(ranks[0][MemoryKind::activations], 4 * ranks[3][MemoryKind::activations],
              0.02 * ranks[0][MemoryKind::activations]);
  EXPECT_GT(ranks[3][MemoryKind::head], ranks[0][MemoryKind::head]);
  for (int rank = 0; rank < 4; ++rank) {  // the search's formula must match the schedule's action lists
    const Memory fast = memory_of_rank(model, run, elements, rank, 4 - rank, 0);
    EXPECT_NEAR(fast.total(), ranks[static_cast<std::size_t>(rank)].total(), 1e-9 * fast.total());
  }
}

// Depths of multi-token prediction are blocks of the last stage, which holds a copy of the embeddings for them. This
// changes its parameters, its activations and the division of the blocks.
TEST(PlanMemory, TheLastStageHasTheDepths) {
  for (const char* form :
       {R"("model_type": "llama")",
        R"("model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [0],
                              "moe_intermediate_size": 256)"}) {
    SCOPED_TRACE(form);
    const auto model_with = [&](int depths) {
      return read_model(parse_json(concat("{", form, R"(, "hidden_size": 512, "intermediate_size": 1024,
          "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 8192, "max_position_embeddings": 1024,
          "tie_word_embeddings": false, "mtp_num_layers": )",
                                          depths, "}"),
                                   "model"));
    };
    const Model plain = model_with(0), model = model_with(2);
    Model idle = model;
    idle.predicts = false;
    const Plan run = run_on(model, "pp=2", Strategy::ddp), before = run_on(plain, "pp=2", Strategy::ddp);
    EXPECT_EQ(before.parts[1].blocks, 4);
    EXPECT_EQ(run.parts[1].blocks, 3) << "a depth counts as a block";
    EXPECT_EQ(run_on(idle, "pp=2", Strategy::ddp).parts[1].blocks, 4);
    const auto elements = [&](const Model& of, const Plan& plan) {
      double sum = 0;
      for (const layout::StagePart& part : plan.parts) sum += stage_elements(of, elements_of(of, 1, 1), part).all();
      return sum;
    };
    EXPECT_EQ(elements(plain, before), parameter_count(plain));
    EXPECT_EQ(elements(model, run), parameter_count(model) + real(model.vocabulary * model.hidden));
    EXPECT_EQ(elements(idle, run), parameter_count(model)) << "depths that are not computed read no embeddings";
    // With equal numbers of blocks, the depths and their embedding table enlarge the last stage but not the first.
    const std::vector<Memory> with = memory_by_rank(model, before, 0), without = memory_by_rank(plain, before, 0);
    EXPECT_EQ(with[0].total(), without[0].total());
    const double more = parameter_count(model) - parameter_count(plain) + real(model.vocabulary * model.hidden);
    EXPECT_NEAR(with[1][MemoryKind::parameters] - without[1][MemoryKind::parameters], 4 * more, 1);
    const BlockActivations block = block_activations(model, before, model.is_sparse(8));
    EXPECT_GT(with[1].total() - without[1].total(), 16 * more + 2 * block.kept);
    EXPECT_GT(active_parameters(model), active_parameters(idle));
    EXPECT_EQ(active_parameters(idle), active_parameters(plain));
    // The time also grows, by two blocks and two heads.
    const Cluster cluster = parse_cluster("2xH100");
    const auto times = [&](const Model& of) {
      return pipeline_times(of, before, elements_of(of, 1, 1), cluster).timing.total;
    };
    EXPECT_GT(times(model), 1.2 * times(plain));
    EXPECT_EQ(times(idle), times(plain));
  }
}

// Memory per rank never grows with the number of ranks, for every strategy.
RC_GTEST_PROP(PlanMemory, MoreRanksNeedNoMore, ()) {
  const Model model = find_model(*rc::gen::element<std::string>("llama-3.2-1b", "mixtral-8x7b", "gpt2-xl"));
  const Strategy strategy =
      *rc::gen::element(Strategy::zero1, Strategy::zero2, Strategy::full_shard, Strategy::shard_grad_op);
  Plan run = run_on(model, "dp_shard=2", strategy, *rc::gen::element(Precision::fp32, Precision::bf16));
  run.micro_batches = *rc::gen::inRange<std::int64_t>(1, 5);
  double before = memory_by_rank(model, run, 0)[0].total();
  for (const char* mesh : {"dp_shard=4", "dp_shard=4,tp=2", "dp_shard=4,tp=2,cp=2"}) {
    run.mesh = layout::parse_mesh(mesh);
    cut_plan(model, run);
    const double now = memory_by_rank(model, run, 0)[0].total();
    RC_ASSERT(now <= before);
    before = now;
  }
}

// Expert parallelism divides the experts by ep and nothing else.
TEST(PlanMemory, ExpertParallelismDividesExpertsAlone) {
  const Model model = find_model("mixtral-8x7b");
  const Elements one = elements_of(model, 1, 1), four = elements_of(model, 1, 4);
  EXPECT_EQ(four.block[1].experts, one.block[1].experts / 4);
  EXPECT_EQ(four.block[1].shared, one.block[1].shared);
  EXPECT_EQ(one.embeddings.all() + 32 * one.block[1].all() + one.end.all(), parameter_count(model));
}

// A block that two stages share is counted once: attention's elements on one stage and the MLP's on the other, each
// with its half of the activations.
TEST(PlanMemory, StagesShareABlockThatIsCut) {
  for (const char* name : {"gpt2", "llama-3.2-1b", "mixtral-8x7b"}) {
    SCOPED_TRACE(name);
    const Model model = find_model(name);
    Plan run = run_on(model, "pp=2", Strategy::ddp);
    const Elements elements = elements_of(model, 1, 1);
    const int kind = model.experts ? 1 : 0;
    const std::int64_t half = model.layers / 2;
    const auto shared = [&](std::int64_t halves) {
      std::vector<std::int64_t> of_stages = {halves, 2 * model.layers - halves};
      run.parts = layout::parts_of_halves(of_stages);
      const Elements::Piece a = stage_elements(model, elements, run.parts[0]);
      const Elements::Piece b = stage_elements(model, elements, run.parts[1]);
      EXPECT_DOUBLE_EQ(a.all() + b.all(), elements.embeddings.all() + elements.end.all() +
                                              (model.tied ? elements.head : 0) +
                                              real(model.layers) * elements.block[kind].all());
      return a.all();
    };
    const double attention = shared(2 * half + 1) - shared(2 * half), mlp = shared(2 * half + 2) - shared(2 * half + 1);
    EXPECT_DOUBLE_EQ(attention, elements.attention[kind].all());
    EXPECT_DOUBLE_EQ(attention + mlp, elements.block[kind].all());
    EXPECT_GT(mlp, 1.5 * attention);  // GPT-2: 8 widths squared against 4; others have more

    const auto kept = [&](std::int64_t halves) {
      std::vector<std::int64_t> of_stages = {halves, 2 * model.layers - halves};
      run.parts = layout::parts_of_halves(of_stages);
      return memory_by_rank(model, run, 0)[0].allocated();
    };
    EXPECT_LT(kept(2 * half), kept(2 * half + 1));
    EXPECT_LT(kept(2 * half + 1), kept(2 * half + 2));
  }
}

}  // namespace
}  // namespace tessera::plan
