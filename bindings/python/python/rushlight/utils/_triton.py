"""``torch.utils._triton``: whether Triton can run kernels on tensors. It cannot: it launches on PyTorch's own streams."""


def has_triton_package():
    """Whether a Triton that can be used is installed: always False."""
    return False


has_triton = has_triton_tma = has_triton_tma_device = has_triton_experimental_host_tma = has_triton_tensor_descriptor_host_tma = has_triton_package
has_triton_stable_tma_api = has_datacenter_blackwell_tma_device = has_triton_package
