"""Compression of what travels: Compression.none, Compression.fp16, or a class of one's own with these two methods."""
import torch


class NoneCompressor:
    @staticmethod
    def compress(tensor):
        """(what travels, what decompress() needs)."""
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        return tensor


class FP16Compressor:
    """Floating point as fp16."""

    @staticmethod
    def compress(tensor):
        if tensor.dtype.is_floating_point and tensor.dtype != torch.float16:
            return tensor.to(torch.float16), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        return tensor if context is None else tensor.to(context)


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
