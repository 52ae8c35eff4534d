//! Data loading: datasets, samplers, the loader, transforms, tokenizers.
