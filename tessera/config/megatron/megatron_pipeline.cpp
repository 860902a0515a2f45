// Megatron's pipelines: number of processes, stages per process, and the layers of each.
// megatron/training/arguments.py, validate_args: arguments that exclude or require each other.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/megatron/megatron_reading.h>
#include <tessera/layout/stages.h>

#include <algorithm>

namespace tessera::config {
namespace {

// Several files are compiled as one unit, so these names have their own namespace.
namespace pipeline_key {
constexpr const char* size = "pipeline_model_parallel_size";
constexpr const char* layers_per_stage = "num_layers_per_virtual_pipeline_stage";
constexpr const char* stages_per_rank = "num_virtual_stages_per_pipeline_rank";
constexpr const char* layout_string = "pipeline_model_parallel_layout";
constexpr const char* group_size = "microbatch_group_size_per_virtual_pipeline_stage";
constexpr const char* counted[] = {"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"};
constexpr const char* first = "decoder_first_pipeline_num_layers";
constexpr const char* last = "decoder_last_pipeline_num_layers";
constexpr const char* standalone = "standalone_embedding_stage";
}  // namespace pipeline_key

class Pipeline {
 public:
  Pipeline(MegatronArguments& arguments, std::int64_t ranks, bool schedule_given)
      : a_(arguments), ranks_(ranks), schedule_given_(schedule_given) {}

  void translate() {
    a_.give(pipeline_key::size, "pp_size", std::to_string(ranks_));
    if (a_.has(pipeline_key::standalone))
      a_.problem(pipeline_key::standalone,
                 "is not supported with several stages: define their layers with "
                 "--pipeline-model-parallel-layout",
                 {"pipeline_layout"});
    const char* from =
        only_one_of({pipeline_key::layers_per_stage, pipeline_key::stages_per_rank, pipeline_key::layout_string});
    if (from == nullptr) {
      cut(1);
      return groups(1);
    }
    const auto stages = from == pipeline_key::layers_per_stage  ? by_layers()
                        : from == pipeline_key::stages_per_rank ? a_.whole(pipeline_key::stages_per_rank, 1)
                                                                : by_layout();
    if (!stages) return;
    if (*stages > 1) {
      if (!schedule_given_) a_.give(from, "pipeline_schedule", "interleaved_1f1b");
      a_.give(from, "pipeline_stages_per_rank", std::to_string(*stages));
    }
    cut(*stages);
    groups(*stages);
  }

 private:
  /// Returns the given one of `names`; a second one is a problem.
  const char* only_one_of(std::initializer_list<const char*> names) {
    const char* found = nullptr;
    for (const char* name : names) {
      if (!a_.has(name)) continue;
      if (found != nullptr)
        a_.problem(name, concat("and ", a_.find(found)->flag, " set the same value: use only one of them"),
                   {"pipeline_stages_per_rank", "pipeline_layout"});
      else
        found = name;
    }
    return found;
  }

  /// Stages per process.
  std::optional<std::int64_t> by_layers() {
    const auto each = a_.whole(pipeline_key::layers_per_stage, 1), layers = a_.whole("num_layers", 1);
    if (!each) return std::nullopt;
    if (!layers) {
      if (!a_.has("num_layers"))
        a_.problem(pipeline_key::layers_per_stage,
                   concat(*each, " needs --num-layers; --num-virtual-stages-per-pipeline-rank does not"),
                   {"pipeline_stages_per_rank"});
      return std::nullopt;
    }
    if (*layers % ranks_ == 0 && *layers / ranks_ % *each == 0) return *layers / ranks_ / *each;
    a_.problem(pipeline_key::layers_per_stage,
               concat(*each, " does not divide the ", *layers, " layers / ", ranks_, " processes of the pipeline",
                      *layers % ranks_ == 0 ? concat(" = ", *layers / ranks_) : "",
                      "; --pipeline-model-parallel-layout can cut anywhere"),
               {"pipeline_stages_per_rank"});
    return std::nullopt;
  }

  std::optional<std::int64_t> by_layout() {
    const auto text = a_.text(pipeline_key::layout_string);
    if (!text) return std::nullopt;
    const auto layers = a_.has("num_layers") ? a_.whole("num_layers", 1) : std::nullopt;
    try {
      const auto [parts, depths, moved] = layout::parse_megatron_layout(*text, layers.value_or(layout::any_blocks), 0);
      const auto stages = static_cast<std::int64_t>(parts.size());
      if (stages % ranks_ == 0) {
        const std::string here = layout::stage_layout(parts, depths);
        if (moved)
          a_.note(pipeline_key::layout_string, concat("depths of multi-token prediction (m) belong to the last stage "
                                                      "here, with the norm and the head that they need: ",
                                                      *text, " becomes ", here));
        a_.give(pipeline_key::layout_string, "pipeline_layout", moved ? here : *text);
        return stages / ranks_;
      }
      a_.problem(pipeline_key::layout_string,
                 concat(*text, " has ", stages, " stages, which the ", ranks_,
                        " processes of the pipeline cannot share evenly"),
                 {"pipeline_layout"});
    } catch (const InputError& error) {
      a_.problem(pipeline_key::layout_string, concat("is wrong: ", error.what()), {"pipeline_layout"});
    }
    return std::nullopt;
  }

  void cut(std::int64_t stages) {
    const char* from = a_.has(pipeline_key::first) ? pipeline_key::first : pipeline_key::last;
    if (!a_.has(from)) return even(stages);
    for (const char* other : {pipeline_key::layout_string, pipeline_key::counted[0], pipeline_key::counted[1],
                              pipeline_key::layers_per_stage})
      if (a_.has(other))
        return a_.problem(
            from, concat("and ", a_.find(other)->flag, " both define where the model is cut: use only one of them"),
            {"pipeline_layout"});
    uneven(from, stages);
  }

  /// The first and the last process have the given numbers of layers, and those in between share the rest evenly; each
  /// divides its layers among its stages (transformer_block.py, get_num_layers_to_build).
  void uneven(const char* from, std::int64_t stages) {
    const auto layers = a_.whole("num_layers", 1), first = a_.whole(pipeline_key::first, 1),
               last = a_.whole(pipeline_key::last, 1);
    if (!a_.has("num_layers"))
      a_.problem(from, "needs --num-layers; --pipeline-model-parallel-layout does not", {"pipeline_layout"});
    if (!layers || (a_.has(pipeline_key::first) && !first) || (a_.has(pipeline_key::last) && !last)) return;
    const std::int64_t between = ranks_ - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t left = *layers - first.value_or(0) - last.value_or(0);
    const auto wrong = [&](const auto&... parts) { a_.problem(from, concat(parts...), {"pipeline_layout"}); };
    if (left < 0 || (between == 0 ? left != 0 : left % between != 0))
      return wrong("leaves ", left, " of the ", *layers, " layers to ", between,
                   " other processes of the pipeline, which cannot share them evenly");
    if (*layers > layout::most_blocks_in_layout || ranks_ > layout::most_stages_in_layout / stages)
      return wrong("cannot be done: ", *layers, " layers on ", ranks_, " x ", stages, " stages are too many");
    std::vector<layout::StagePart> parts;
    std::int64_t next = 0;
    for (std::int64_t chunk = 0; chunk < stages; ++chunk)
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        const std::int64_t own = rank == 0 && first ? *first : rank == ranks_ - 1 && last ? *last : left / between;
        if (own % stages != 0)
          return wrong("gives process ", rank, " of the pipeline ", own, " layers, which its ", stages,
                       " stages cannot share evenly");
        parts.push_back({.embeddings = parts.empty(), .first_block = next, .blocks = own / stages});
        next = parts.back().past_block();
      }
    parts.back().end = true;
    a_.give(from, "pipeline_layout", layout::stage_layout(parts));
  }

  /// The embeddings and the end count as one layer each.
  void even(std::int64_t stages) {
    const bool embeddings = a_.has(pipeline_key::counted[0]), end = a_.has(pipeline_key::counted[1]);
    if (!embeddings && !end) return;
    const char* from = pipeline_key::counted[embeddings ? 0 : 1];
    if (a_.has(pipeline_key::layout_string))
      return a_.problem(from,
                        "is given with --pipeline-model-parallel-layout, which already defines all stages: remove it",
                        {"pipeline_layout"});
    const auto layers = a_.whole("num_layers", 1);
    if (!a_.has("num_layers"))
      a_.problem(from, "needs --num-layers; --pipeline-model-parallel-layout does not", {"pipeline_layout"});
    if (!layers) return;
    try {
      if (ranks_ > layout::most_stages_in_layout / stages)
        throw InputError(concat(ranks_, " x ", stages, " stages are too many"));
      const auto parts = layout::cut_evenly(*layers, static_cast<int>(ranks_ * stages), embeddings, end);
      a_.give(from, "pipeline_layout", layout::stage_layout(parts));
    } catch (const InputError& error) {
      a_.problem(from, concat("cannot be done: ", error.what()), {"pipeline_layout"});
    }
  }

  void groups(std::int64_t stages) {
    const auto micro_batches = a_.whole(pipeline_key::group_size, 1);
    if (!micro_batches) return;
    if (stages > 1) return a_.give(pipeline_key::group_size, "pipeline_group_size", std::to_string(*micro_batches));
    a_.note(pipeline_key::group_size, "has no effect: each process of the pipeline has one stage");
  }

  MegatronArguments& a_;
  std::int64_t ranks_;
  bool schedule_given_;
};

}  // namespace

std::int64_t translate_megatron_pipeline(MegatronArguments& arguments, bool schedule_given) {
  const auto ranks = arguments.whole(pipeline_key::size, 1);
  if (ranks && *ranks > 1) {
    Pipeline(arguments, *ranks, schedule_given).translate();
    return *ranks;
  }
  if (arguments.has(pipeline_key::size) && !ranks) return 1;  // reported already
  const auto idle = [&](const char* name) {
    if (arguments.has(name)) arguments.note(name, "has no effect: it is for pipeline parallelism, whose size is 1");
  };
  for (const char* name : {pipeline_key::layers_per_stage, pipeline_key::stages_per_rank, pipeline_key::layout_string,
                           pipeline_key::group_size})
    idle(name);
  for (const char* name : pipeline_key::counted) idle(name);
  for (const char* name : {pipeline_key::first, pipeline_key::last, pipeline_key::standalone}) idle(name);
  return 1;
}

}  // namespace tessera::config
