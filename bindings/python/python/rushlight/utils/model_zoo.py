"""``torch.utils.model_zoo`` raises an error: downloads are not supported."""

__all__ = ["load_url"]


def __getattr__(name):
    if name == "tqdm":
        from ..hub import tqdm

        return tqdm
    raise AttributeError(f"module 'torch.utils.model_zoo' has no attribute '{name}'")


def load_url(url, *args, **kwargs):
    """Not supported: files are not fetched from the network."""
    raise NotImplementedError(f"model_zoo.load_url: files are not fetched from the network; fetch {url} yourself and use torch.load(file)")
