"""Compression of sent data: Compression.none, Compression.fp16, or a user's class with these two methods."""
import torch


class NoneCompressor:
    @staticmethod
    def compress(tensor):
        """(the tensor to send, the context for decompress())."""
        return tensor, None

    @staticmethod
    def decompress(tensor, context):
        return tensor


class FP16Compressor:
    """Sends floating-point tensors as fp16."""

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
