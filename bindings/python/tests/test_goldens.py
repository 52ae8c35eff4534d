"""PyTorch's answers for every op, called as PyTorch was."""

import goldens
import pytest

import rushlight as torch

LINALG = set("cross det slogdet inv solve solve_triangular cholesky qr svdvals eigvalsh vector_norm matrix_norm svd eigh lstsq".split())


def function(op):
    if op in LINALG and hasattr(torch.linalg, op):
        return getattr(torch.linalg, op)
    for home in (torch.nn.functional, torch, torch.Tensor):
        if hasattr(home, op):
            return getattr(home, op)
    raise AssertionError(f"{op} is missing")


def call(case):
    if case.op == "svd":
        u, s, vh = torch.linalg.svd(case.inputs[0], full_matrices=False)
        return [s, u * s.unsqueeze(-2) @ vh, u**2, vh**2]
    if case.op == "eigh":
        w, v = torch.linalg.eigh(*case.inputs, **case.kwargs)
        return [w, v * w.unsqueeze(-2) @ v.mT, v**2]
    if case.op == "lstsq":
        return [torch.linalg.lstsq(*case.inputs, **case.kwargs).solution]
    if case.op == "lu":
        return list(torch.linalg.lu(*case.inputs))[1:]
    if case.op == "lu_solve":
        return [torch.linalg.lu_solve(*torch.linalg.lu_factor(case.inputs[0]), case.inputs[1], **case.kwargs)]
    if case.op == "index":
        return [case.inputs[0][tuple(slice(None) if i is None else i for i in case.inputs[1])]]
    if case.op == "unfold":
        return [case.inputs[0].unfold(*case.inputs[1:], **case.kwargs)]
    result = function(case.op)(*case.inputs, **case.kwargs)
    if case.op == "batch_norm" and len(case.outputs) == 3:
        return [result, *case.inputs[1:3]]
    return [result] if isinstance(result, (torch.Tensor, bool)) else list(result)


def check(case):
    found = call(case)
    if len(found) == 1 and isinstance(found[0], bool):
        found = [torch.tensor(found[0])]
    assert len(found) == len(case.outputs), f"{len(found)} outputs, expected {len(case.outputs)}"
    for i, (a, b) in enumerate(zip(found, case.outputs)):
        goldens.assert_close(a, b, case.rtol, case.atol, f"output {i}")
    if case.grad is None:
        return
    pairs = [(out, dy) for out, dy in zip(found, case.dy) if dy is not None and out.requires_grad]
    wanted = [(t, dx) for t, dx in zip(case.tensors, case.dx) if dx is not None]
    if not pairs or not wanted:
        return
    given = torch.autograd.grad([o for o, _ in pairs], [t for t, _ in wanted], [dy for _, dy in pairs], allow_unused=True)
    for i, (g, (t, dx)) in enumerate(zip(given, wanted)):
        goldens.assert_close(torch.zeros_like(dx) if g is None else g, dx, case.rtol, case.atol, f"gradient {i}")


@pytest.mark.parametrize("family", goldens.families())
def test_family(family):
    failures = []
    cases = goldens.load(family)
    for case in cases:
        try:
            check(case)
        except Exception as error:  # every case is told of, not only the first
            failures.append(f"{case.id}: {type(error).__name__}: {str(error)[:300]}")
    assert not failures, f"{len(failures)} of {len(cases)} cases:\n" + "\n".join(failures[:40])
