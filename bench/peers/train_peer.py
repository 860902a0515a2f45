"""A timed training run of a GPT-2 under one of the peers. Rank 0 prints one line: PEER and JSON.

    train_peer.py --mode single [--compile] [--threads 2]
    torchrun --standalone --nproc-per-node 2 train_peer.py --mode ddp|fsdp2|ds1|ds2|ds3|hf --threads 1

--B is the global batch, divided among the processes, so that every mode computes the same losses. PEER_T0, the launch
time in seconds, is the reference for the start-up time. ds1, ds2 and ds3 need DeepSpeed in the environment.
"""
import argparse, json, os, resource, statistics, sys, tempfile, time

BEGIN = time.time()
SHAPES = {"tiny": (4, 256, 4, 256, 8, 8192), "small": (12, 768, 12, 256, 2, 50257)}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", required=True, choices=["single", "ddp", "fsdp2", "ds1", "ds2", "ds3", "hf"])
    p.add_argument("--model", default="tiny", choices=list(SHAPES))
    names = ("layers", "d", "heads", "T", "B", "vocab")
    for name in names:
        p.add_argument("--" + name, type=int)
    p.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])  # bf16: autocast, fp32 weights
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--warmup", type=int, default=2)  # steps that are not timed
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--clip", type=float, default=0.0)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--local_rank", type=int, default=0)  # from DeepSpeed's launcher
    a = p.parse_args()
    for name, value in zip(names, SHAPES[a.model]):
        if getattr(a, name) is None:
            setattr(a, name, value)
    a.world, a.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if a.B % a.world:
        sys.exit(f"--B {a.B} is not a multiple of the {a.world} processes")
    return a


def tokens(step, B, T, V):
    """31-bit linear congruential generator, restarted per step: x0 = step + 1; token = (x >> 8) mod V, row by row."""
    x, rows = step + 1, []
    for _ in range(B):
        rows.append([])
        for _ in range(T):
            x = (1103515245 * x + 12345) & 0x7FFFFFFF
            rows[-1].append((x >> 8) % V)
    return rows


def build(a):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(a.seed)
    config = GPT2Config(n_layer=a.layers, n_embd=a.d, n_head=a.heads, n_positions=max(a.T, 64), vocab_size=a.vocab,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = "sdpa"
    return GPT2LMHeadModel(config)


def make_optimizer(a, parameters):
    import torch
    return torch.optim.AdamW(parameters, lr=a.lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)


class Clock:
    """Times of the steps, and the CPU seconds of those after the warm-up."""

    def __init__(self, a):
        self.a, self.times, self.losses, self.first, self.cpu = a, [], [], None, 0.0

    def begin(self):
        if len(self.times) == self.a.warmup:
            self.cpu = time.process_time()
        self.since = time.perf_counter()

    def end(self):
        self.times.append(time.perf_counter() - self.since)
        self.first = self.first or time.time()

    def report(self):
        import torch.distributed as dist
        a, timed = self.a, self.times[self.a.warmup:]
        own = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time() - self.cpu)
        every = [own]
        if a.world > 1:
            every = [None] * a.world
            dist.all_gather_object(every, own)
        if a.rank == 0:
            print("PEER " + json.dumps({
                "mode": a.mode + ("+compile" if a.compile else ""), "procs": a.world, "threads": a.threads,
                "dtype": a.dtype, "layers": a.layers, "d": a.d, "heads": a.heads, "T": a.T, "B": a.B, "vocab": a.vocab,
                "tok_s": a.B * a.T / statistics.median(timed), "cpu_s_step": sum(cpu for _, cpu in every) / len(timed),
                "startup_s": self.first - float(os.environ.get("PEER_T0", BEGIN)),
                "rss_mb": [round(mb) for mb, _ in every], "losses": self.losses[:10]}), flush=True)


def loop(a, take_step):
    """take_step(ids) runs a whole step on this process's rows and returns its loss."""
    import torch
    import torch.distributed as dist
    clock, rows = Clock(a), a.B // a.world
    for step in range(a.steps):
        ids = torch.tensor(tokens(step, a.B, a.T, a.vocab)[a.rank * rows:(a.rank + 1) * rows])
        if a.world > 1:
            dist.barrier()
        clock.begin()
        loss = take_step(ids)
        clock.end()
        loss = loss.detach().float().clone()
        if a.world > 1:
            dist.all_reduce(loss)
        clock.losses.append(loss.item() / a.world)
    clock.report()


def plain(a):
    """A hand-written loop: eager or compiled, alone, under DistributedDataParallel or fully_shard."""
    import torch
    import torch.distributed as dist
    if a.world > 1:
        dist.init_process_group("gloo")
    net = build(a).train()
    if a.mode == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    elif a.mode == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (a.world,))
        for block in net.get_submodule("transformer").h:
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
    if a.compile:
        net = torch.compile(net)
    optimizer = make_optimizer(a, net.parameters())

    def take_step(ids):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = net(input_ids=ids, labels=ids).loss
        loss.backward()
        if a.clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), a.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    loop(a, take_step)
    if a.world > 1:
        dist.destroy_process_group()


def deepspeed(a):
    for name, value in (("DS_ACCELERATOR", "cpu"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29511"),
                        ("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")):
        os.environ.setdefault(name, value)
    import deepspeed as ds
    import torch.distributed as dist
    ds.init_distributed(dist_backend="gloo", verbose=False)
    model = build(a).train()
    config = {"train_micro_batch_size_per_gpu": a.B // a.world, "gradient_accumulation_steps": 1,
              "steps_per_print": 10**9, "zero_allow_untested_optimizer": True, "gradient_clipping": a.clip,
              "zero_optimization": {"stage": int(a.mode[2]), "overlap_comm": False, "contiguous_gradients": True},
              "bf16": {"enabled": a.dtype == "bf16"}}
    # uses torch's own AdamW on ZeRO's flat shards, because DeepSpeed's would have to be compiled first
    engine, *_ = ds.initialize(model=model, optimizer=make_optimizer(a, model.parameters()), config=config)
    if a.compile:
        engine.compile()

    def take_step(ids):
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        return loss

    loop(a, take_step)
    dist.destroy_process_group()


def trainer(a):
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments
    rows = [torch.tensor(row) for step in range(a.steps) for row in tokens(step, a.B, a.T, a.vocab)]
    clock = Clock(a)

    class InOrder(Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    class Timed(TrainerCallback):
        def on_step_begin(self, *_, **__):
            clock.begin()

        def on_step_end(self, *_, **__):
            clock.end()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, use_cpu=True, max_steps=a.steps, seed=a.seed, learning_rate=a.lr,
            per_device_train_batch_size=a.B // a.world, lr_scheduler_type="constant", adam_beta2=0.95, weight_decay=0.1,
            max_grad_norm=a.clip, logging_steps=1, logging_nan_inf_filter=False, report_to=[], save_strategy="no",
            disable_tqdm=True, bf16=a.dtype == "bf16", optim="adamw_torch_fused", torch_compile=a.compile,
            **({"ddp_backend": "gloo"} if a.world > 1 else {}))
        run = InOrder(model=build(a), args=arguments, callbacks=[Timed()],
                      train_dataset=[{"input_ids": row, "labels": row} for row in rows])
        run.train()
    clock.losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    clock.report()


def main():
    a = parse()
    import torch
    if a.threads:
        torch.set_num_threads(a.threads)
    {"hf": trainer, "ds1": deepspeed, "ds2": deepspeed, "ds3": deepspeed}.get(a.mode, plain)(a)


if __name__ == "__main__":
    main()
