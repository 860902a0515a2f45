"""tessera.numpy; skipped where numpy is absent."""
from harness import Skip, case, raises


@case("numpy arrays", 3, only="tessera")
def arrays(rank):
    try:
        import numpy as np
    except ImportError:
        raise Skip("numpy is not installed")
    import tessera.numpy
    rank.environment()
    world = tessera.numpy.init(timeout=20)
    assert (world.rank, world.size) == (rank.rank, 3)
    for dtype in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "complex64"):
        x = (np.arange(6).reshape(2, 3) + rank.rank).astype(dtype)
        every = [(np.arange(6).reshape(2, 3) + r).astype(dtype) for r in range(3)]
        assert np.array_equal(world.all_reduce(x), sum(every))
        assert np.array_equal(world.all_reduce(x.T), sum(every).T)
        assert np.array_equal(world.broadcast(x, 2), every[2])
        assert np.array_equal(world.all_gather(x), np.stack(every))
        rows = np.stack([x * (i + 1) for i in range(3)])
        assert np.array_equal(world.reduce_scatter(rows), sum(every) * (rank.rank + 1))
        assert np.array_equal(world.all_to_all(rows), np.stack([e * (rank.rank + 1) for e in every]))
        if rank.rank == 0:
            world.send(x, 1, tag=3)
        elif rank.rank == 1:
            assert np.array_equal(world.receive(x, 0, tag=3), every[0])
    assert world.all_reduce(np.float64(2.0)) == 6.0
    assert world.all_reduce(np.array([1, 5 - rank.rank]), "min").tolist() == [1, 3]
    import torch
    assert np.array_equal(world.all_reduce(torch.ones(3)), np.full(3, 3.0))  # by DLPack
    if rank.rank != 1:
        pair = world.group([0, 2])
        assert pair.all_reduce(np.ones(2)).tolist() == [2.0, 2.0]
    with raises("row for each", ValueError):
        world.reduce_scatter(np.ones(2))
    with raises("no reduction", ValueError):
        world.all_reduce(np.ones(2), "median")
    with raises("foreign byte order", ValueError):
        world.all_reduce(np.ones(2, dtype=">f4"))
    world.barrier()
    world.close()
