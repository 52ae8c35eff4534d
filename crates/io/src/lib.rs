//! File formats: safetensors, PyTorch's `.pt`, NumPy's `npy` and `npz`.
