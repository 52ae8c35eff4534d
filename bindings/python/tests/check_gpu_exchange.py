"""Real PyTorch and Rushlight in one process on a GPU: memory lent both ways, streams in order. For a machine that has both."""

import pathlib
import sys

try:
    import rushlight
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
    import rushlight
import torch

DTYPES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()


def lent_both_ways():
    for name in DTYPES:
        theirs = torch.tensor([[0, 1, 1], [1, 0, 1]], device="cuda").to(getattr(torch, name))
        ours = rushlight.from_dlpack(theirs)
        assert ours.is_cuda and ours.dtype == getattr(rushlight, name) and ours.data_ptr() == theirs.data_ptr(), name
        assert ours.tolist() == theirs.tolist(), name
        back = torch.from_dlpack(ours.t())
        assert back.data_ptr() == theirs.data_ptr() and back.stride() == (1, 3) and back.tolist() == theirs.t().tolist(), name
    lent = rushlight.ones(3, device="cuda")
    torch.from_dlpack(lent).mul_(2)
    torch.cuda.synchronize()
    assert lent.tolist() == [2, 2, 2]
    try:
        torch.from_dlpack(rushlight.ones(1, device="cuda", requires_grad=True))
        raise AssertionError("tensors with gradients are not lent")
    except BufferError:
        pass


def busy(library, x):
    """Work that takes the device a while."""
    for _ in range(30):
        x = x @ x * (1 / 1024)
    return x


def in_order():
    """Values are right although nobody waits: a stream of one library waits for the other's."""
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for i in range(10):
                theirs = busy(torch, torch.ones(1024, 1024, device="cuda")) + i
                ours = rushlight.from_dlpack(theirs) * 2
                del theirs
                # Would be given the same memory, and written over, if it came back too early.
                torch.full((1024, 1024), -1.0, device="cuda")
                assert ours.mean().item() == 2 * (1 + i)
                made = busy(rushlight, rushlight.ones(1024, 1024, device="cuda")) + i
                taken = torch.from_dlpack(made) * 3
                del made
                rushlight.full((1024, 1024), -1.0, device="cuda")
                assert taken.mean().item() == 3 * (1 + i)


def function_in_the_middle():
    """A function of PyTorch's with its gradient, within a training step of ours."""

    class Sine(rushlight.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return rushlight.from_dlpack(torch.sin(torch.from_dlpack(x.detach())))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * rushlight.from_dlpack(torch.cos(torch.from_dlpack(x.detach())))

    layer = rushlight.nn.Linear(4, 4).cuda()
    optimizer = rushlight.optim.Adam(layer.parameters(), lr=0.1)
    x = rushlight.ones(2, 4, device="cuda")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (Sine.apply(layer(x)) - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4, losses


if __name__ == "__main__":
    lent_both_ways()
    in_order()
    function_in_the_middle()
    print(f"exchange with PyTorch {torch.__version__} on {torch.cuda.get_device_name()}: memory and streams agree")
