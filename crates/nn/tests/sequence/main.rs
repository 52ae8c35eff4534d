//! Attention, transformers, recurrent layers and the CTC loss against PyTorch's recorded answers, and their own rules.

mod attention;
mod ctc;
mod goldens;
mod llama;
mod recurrent;
mod transformer;
