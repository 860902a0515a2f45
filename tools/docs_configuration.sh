#!/bin/bash
# Prints docs/configuration.md, or docs/configuration_keys.md, from the program itself, so that the pages cannot drift
# from its tables.
#   tools/docs_configuration.sh BUILD > docs/configuration.md        (tests/scripts/docs_configuration.sh compares them)
#   tools/docs_configuration.sh BUILD keys > docs/configuration_keys.md
set -euo pipefail
build=$1
if [ "${2:-}" = keys ]; then
  cat <<'MD'
# Every key of every format

*Made by `tools/docs_configuration.sh build keys` from the front ends' tables (`tessera config docs`); edit those
instead.*

A key **acts**: it becomes the setting of ours that is named, which [configuration.md](configuration.md) explains. Or it
is **accepted and ignored**, for the reason that is given, which a warning says when the key asks for something. Or it
is **refused**: an error with the reason and what to do instead. Any other key is an error with the nearest known name.
`tessera config check FILE...` says it of a file.
MD
  "$build/tessera" config docs
  exit
fi
cat <<'MD'
# Configuration

*Made by `tools/docs_configuration.sh build`; edit `tessera/config/core/fields.cpp` instead.*

Every setting is one row of the table in `tessera/config/core/fields.cpp`; flags, `--help`, `--print_config` and this
page come from it.
- `--x_y V`, `--x-y V` and `--x_y=V` are the same; a boolean is `--x`, `--x false` or `--no_x`.
- Files of other systems work as they are: accelerate's YAML (`--config_file`), DeepSpeed's JSON (`--deepspeed`),
  TrainingArguments (a `.json`, `.yaml` or `.args` file as the only argument without a flag), the arguments of
  Megatron-LM (as flags, or `MODEL_ARGS` in a `.yaml` of its tests), fsdp_config (`--fsdp_config`), and our own
  (`--config`). [configuration_keys.md](configuration_keys.md) says of every key of every
  format what becomes of it.
- Later beats earlier: default, our file, TrainingArguments' file, environment of `accelerate launch`, flag. DeepSpeed's
  file and accelerate's must agree with what the others say explicitly (only DeepSpeed's schedule beats them, as it does
  under transformers; `num_processes` of accelerate's file gives way, with a warning). Of a flag given twice, or a key
  that stands twice in a YAML, the last counts, with a note. All problems are reported together.
- `tessera train --num_processes N` reads flags and files once: its ranks get what it has resolved, and a file that
  changes meanwhile makes no difference. Under other launchers each rank reads them, and the ranks compare the results.
- `--print_config` prints every value with its origin (`default`, the flag as typed, `fsdp.json:3`, `environment NAME`,
  `derived (why)`) on standard output, every warning on standard error, and exits.
- Unknown flags and arguments are errors with the nearest known name; a beginning that only one argument of
  TrainingArguments, TRL or run_clm.py has stands for it, with a warning, as argparse has it; with `--unknown warn`
  those that can hardly concern the training (`--my_tag`) are passed over, with one warning. Keys that DeepSpeed (at the
  top level, in `optimizer`, `pipeline`, `checkpoint`, `fp16` and `bf16`) or accelerate (in its sections, and in
  fsdp_config) passes over get a warning, and with `--strict`, which is `--unknown refuse`, an error. Words that only
  another program has (LLaMA-Factory, axolotl, ms-swift, GPT-NeoX, torchtune, reinforcement learning) are answered in
  one line. Megatron's ignored names are a list; none is passed over by its beginning.
- Exit codes: 0 done, 1 failed while running, 2 bad configuration
  or input (nothing was written), 3 stopped after saving (SIGTERM, `--exit_duration_in_mins`), 130 interrupted.

## Sharding
One engine runs all strategies; `--fsdp`, `--zero_stage`, `--strategy` and the file of `--fsdp_config` are four ways to
name one. They must agree: those that do not are listed together.

| strategy | divides optimizer states | gradients | parameters | said as |
|---|---|---|---|---|
| `ddp` | - | - | - | default; `--fsdp no_shard`, `--zero_stage 0`, `NO_SHARD`, 3 |
| `zero1` | x | after accumulating | - | `--zero_stage 1` |
| `zero2` | x | x | - | `--zero_stage 2` |
| `shard_grad_op` | x | x | between steps | `--fsdp shard_grad_op`, `SHARD_GRAD_OP`, 2 |
| `full_shard` = `zero3` | x | x | x | `--fsdp full_shard`, `--zero_stage 3`, `FULL_SHARD`, 1 |
| `hybrid_shard` | x | x | x | within groups (of a host, or `--shard_group_size`), copies across; `HYBRID_SHARD`, 4 |
| `hybrid_shard_zero2` | x | x | between steps | the same; `HYBRID_SHARD_ZERO2`, 5 |

`--fsdp_config FILE` is JSON or YAML with Hugging Face's or accelerate's keys, with or without `fsdp_`; accelerate's
whole file will do (its section is read). `transformer_layer_cls_to_wrap` takes Hugging Face's class names; of several
one must be in the model, and a warning names the others. What those programs ignore is honoured or named:
`backward_prefetch_policy`, `wrap_policy`, `min_num_param` are taken as what they mean;
`reshard_after_forward: SHARD_GRAD_OP` names the strategy, an integer the size of the groups; `state_dict_type` is
`save_state_dict_type` (`LOCAL_STATE_DICT` is written as sharded); `use_orig_params` changes nothing and is said so;
`xla: true` is refused. Blocks are wrapped also without `auto_wrap`; `auto_wrap_policy: NO_WRAP` does not.

## The mesh
The processes of a run are a grid: `pp x dp_replicate x dp_shard x cp x tp`, the last varying fastest. `--pp_size`,
`--tp_size` and `--cp_size` say three of the sizes; the processes that are left are data-parallel, and the strategy says
which of them share shards, inside a stage of the pipeline. Batch sizes, `"auto"` and accumulation count data-parallel
processes: processes / (pp x tp x cp). `--shard_group_size` counts processes of dp_shard x cp, over which shards lie.
What does not fit is refused with the rule, the numbers and the nearest choices.
[parallelism.md](parallelism.md) says what the axes do; `tessera train` runs them all, the faces (Trainer, Accelerator,
DeepSpeed's engine) follow `tp_size` and `sequence_parallel` and refuse the others above 1 ([faces.md](faces.md)).

With `--pp_size` above 1 the `gradient_accumulation_steps` micro-batches of a step go through the stages in the order of
`--pipeline_schedule`, a name of [pipelines.md](pipelines.md)'s table or a file; a schedule that cannot be made of
so many ranks, stages and micro-batches, or a file that is wrong or of another shape, is refused before anything starts.
`--pipeline_layout` says which blocks each stage has (`E` embeddings, `t` a block, `a` and `f` its attention and its
MLP, `m` a depth of multi-token prediction, `L` the end, `|` the next stage, `*N` or `xN` repeats a letter or bracket),
or how they are found: `flops`, `half_blocks`. Every `m` stands in the last stage, before `L`, or is left out;
Megatron-LM's `m|L`, a stage of its own for them, becomes `|mL`, which a note says.

| ours | TrainingArguments | accelerate | DeepSpeed | Megatron-LM |
|---|---|---|---|---|
| `pp_size` | - | `megatron_lm_pp_degree` | `pipeline.stages` | `--pipeline-model-parallel-size` |
| `gradient_accumulation_steps` (of a pipeline) | the same | `megatron_lm_num_micro_batches` | the same | `--global-batch-size` / (micro-batch x data-parallel processes) |
| `pipeline_schedule` | - | - | - | `interleaved_1f1b` with several stages per process, else `1f1b` |
| `pipeline_stages_per_rank` | - | - | - | `--num-virtual-stages-per-pipeline-rank`, or by `--num-layers-per-virtual-pipeline-stage` or the layout |
| `pipeline_group_size` | - | - | - | `--microbatch-group-size-per-virtual-pipeline-stage` |
| `pipeline_layout` | - | - | - | `--pipeline-model-parallel-layout`, `--account-for-*-in-pipeline-split` |
| `tp_size` | `tp_size`, `parallelism_config.tp_size` | `parallelism_config_tp_size`, `megatron_lm_tp_degree` | `tensor_parallel.autotp_size` | `--tensor-model-parallel-size` |
| `cp_size` | `parallelism_config.cp_size` | `parallelism_config_cp_size`, `megatron_lm_context_parallel_size` | - | `--context-parallel-size` |
| `cp_size` with `cp_comm_type a2a` | `parallelism_config.sp_size` | `parallelism_config_sp_size` | `sequence_parallel_size` | `--cp-comm-type a2a` |
| `cp_comm_type` `p2p`, `all_gather` | `cp_handler`: `alltoall`, `allgather` | `cp_comm_strategy`: `alltoall`, `allgather` | - | `--cp-comm-type` |
| `cp_a2a_size` | - | - | - | first of `--hierarchical-context-parallel-sizes` |
| `sequence_parallel` | - | `megatron_lm_sequence_parallelism` | - | `--sequence-parallel` |
| `strategy`, `shard_group_size` | `parallelism_config.dp_*_size` | `parallelism_config_dp_*_size` | - | - |

PyTorch's context parallelism calls a ring `alltoall`: it passes keys and values on by that operation.

## Optimizers and rates
`--optim_args` has what an optimizer takes beyond the flags. `muon` (Jordan et al. 2024) makes the update of every
matrix of the blocks orthogonal, by torch.optim.Muon's formula: `momentum` 0.95, `nesterov` true, `ns_steps` 5,
`ns_coefficients` `simple` or `quintic`, `scale_mode` `shape_scaling` (sqrt(max(1, rows / columns)), torch's
`original`), `spectral` (sqrt(max(rows, columns)); with `extra_scale_factor` 0.2 torch's `match_rms_adamw`) or
`unit_rms_norm` (sqrt(rows / columns)). Embeddings, the head, biases and norms follow AdamW with the same rate. It works
in the precision of the weights (torch iterates in bfloat16), under every strategy, pipelines, context and expert
parallelism: pieces of a matrix are gathered, each process computes on the whole.
With `--tp_size` above 1 it is refused.

`rmsprop` is torch.optim.RMSprop: `alpha` 0.99, `eps` 1e-8, `momentum` 0 and `centered` false in `--optim_args`. The
names of bitsandbytes' optimizers with states of 32 bits (`paged_adamw_32bit`, `paged_lion_32bit`, `rmsprop_bnb`) mean
adamw, lion and rmsprop: paging says where states lie, not what they are, and here they lie where they are made (or on
the host, with `--cpu_offload optimizer`).

`adamw_8bit` (`adamw_bnb_8bit`, `paged_adamw_8bit`) and `lion_8bit` (`paged_lion_8bit`) keep their moments in 8 bits:
[strategies](strategies.md#optimizer-states-in-few-bits). Refused by name are those of RMSprop, AdEMAMix, GaLore and
torchao, and 4 bits.

`--decoupled_lr` is the peak rate of the embeddings of words and of the head, `--decoupled_min_lr` the least one, of the
same schedule; 0 freezes them. The log shows the rate of all others.

## Differences from Hugging Face and DeepSpeed
- DeepSpeed's file without `gradient_clipping` clips nothing; DeepSpeed itself clips at 1.0 since version 0.19.3, and
  did not before. A warning says so, unless the file or `--max_grad_norm` says what is meant.
- The loss that is printed is the mean over scored positions. Hugging Face's Trainer divides by all labels, the
  shifted-away one too, and so prints (T-1)/T of it.
- Text is one stream cut into blocks, with one rest dropped at the end; `run_clm.py` drops a rest per 1000 lines.
  Without `--validation_file` the *last* blocks are held out.
- `eval_steps` alone evaluates nothing, as there: give `--eval_strategy steps`, too.
- A name that only TRL has (`use_peft`, `dataset_text_field`, `dataset_mixture`, `packing_strategy`, ...) brings TRL's
  defaults where nothing else is said: learning rate 2e-5, bf16, gradient checkpointing, every message scored, 1024
  tokens; a warning lists them. `beta`, `loss_type`, `rpo_alpha` and `simpo_gamma` bring those of its
  DPOTrainer: `--preference_loss sigmoid`, learning rate 1e-6, `--disable_dropout`. So do `use_lora` of Qwen and
  `lora_enable` of LLaVA for the rank of their adapters, which all linear maps get. `q_lora` (FastChat's) and `bits 4`
  (LLaVA's) mean
  `--load_in_4bit` with double quantization, as in those programs; `--bnb_4bit_quant_type` is nf4 unless it is said,
  TRL's default.
- Epochs are one continuous stream of samples; a step may straddle two of them.
- `--tokenizer_name byte` needs no file: ids 0-255 are bytes, 256 is `<|endoftext|>`.

## Other projects' files
`tools/real_configs.py FOLDER build/tessera` looks at the configurations in checkouts of other projects and prints how
many are accepted, refused because they ask for what is not built (which the refusal names, with the place and what to
do instead), or refused for any other reason; and it compares what accepted files mean with a reading of its own
(learning rate, betas, decay, batch, accumulation, ZeRO stage, clipping, precision, warm-up, processes, mesh). It judges
at most 15 of a kind from one project (`--most`), and has columns for what says nothing about the program: words of a
project's own parser, values that only a script's caller knows, programs that make no language model (`--help`). On
2026-11-28, before it had either, with snapshots of accelerate, DeepSpeed, DeepSpeedExamples, Megatron-LM, TRL,
alignment-handbook, FastChat, Stanford Alpaca, LLaVA, Qwen and LLaMA-Factory:

| what | number | accepted | asks for what is not built | otherwise refused | accepted of what is built |
|---|---|---|---|---|---|
| DeepSpeed's JSON | 124 | 121 | 3 | 0 | 100 % |
| accelerate's YAML | 56 | 54 | 2 | 0 | 100 % |
| TRL's recipes | 25 | 25 | 0 | 0 | 100 % |
| Megatron-LM's functional tests of pretrain_gpt.py | 220 | 217 | 3 | 0 | 100 % |
| command lines | 43 | 38 | 3 | 2 | 95.0 % |
| together | 468 | 455 | 11 | 2 | 99.6 % |
| Megatron-LM's tests of other programs | 78 | 6 | 72 | 0 | |

So 97.2 % of what the originals accept runs, not all of it. No accepted file of DeepSpeed, accelerate and Megatron-LM
differed in what is compared. 15 of DeepSpeed's name OneBitAdam, OneBitLamb or ZeroOneAdam: a warning says how what is
trained then differs (gradients are compressed, not momenta; the second moment is not frozen). In three a section says
nothing to DeepSpeed's engine either, and a warning says that: `quantize_training`, which it has not read since 0.7, and
`sparse_attention`, which is for models whose own code asks for it. Not built are distillation and T5 (2 each), channel
pruning, ZenFlow, weights in bf16 alone, sparse attention by an indexer (DSA), gpt-oss, XPUs and SageMaker (1 each). The
two others are command lines: an excerpt, and one that Megatron-LM refuses, too (it has both `--global-batch-size` and
`--step-batch-size-schedule`). Of tests in shell scripts the first branch is taken, and what commands print is left out.
The other programs generate, learn by reinforcement, or train T5, BERT, Mamba and models that see.

On 2026-11-30, with 853 files and command lines of 153 other projects (research code, forks, tutorials), 93.5 % of what
asks only for what is built was accepted: 189 of 190 files of DeepSpeed, all 151 of accelerate, 46 of 52 recipes, 86 of
113 command lines. Most of the 34 others have words of a project's own parser beside others' (`--lr`,
`--create-moe-param-group`). No accepted file of DeepSpeed, accelerate and Megatron-LM differed in what is compared.

## tessera train
```text
MD
"$build/tessera" train --help
cat <<'MD'
```

## Environment
| variable | meaning |
|---|---|
| `RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT` | set by `tessera launch`, torchrun; `OMPI_COMM_WORLD_*` (mpirun) and `SLURM_*` (srun) are understood too |
| `TESSERA_BACKEND` | the transport when `--backend` is auto |
| `TESSERA_HOST_ID` | the host that a rank counts itself to (tests play several hosts on one machine) |
| `TESSERA_BOARD_FD TESSERA_STORE TESSERA_SECRET_FD TESSERA_CONFIG_FD TESSERA_GENERATION TESSERA_JOB` | from our agent to its ranks ([launching](launching.md)); nothing to set by hand |
| `TESSERA_SSH` | the ssh program of `tessera launch --hostfile` |
| `TESSERA_LOG` | debug, info, warning, error |
| `TESSERA_ISA` | lowers the instruction set of the CPU kernels: baseline, avx2, avx512; on ARM baseline, neon |
| `OMP_NUM_THREADS`, `OMP_WAIT_POLICY` | threads per rank when `--threads_per_process` is not given; how OpenMP waits (set, it is left alone) |

## tessera launch
```text
MD
"$build/tessera" launch --help
cat <<'MD'
```

## tessera config
```text
MD
"$build/tessera" config --help
echo '```'
