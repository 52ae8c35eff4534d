"""Jobs of libraries of models: transformers, timm, peft, accelerate, safetensors."""

import os
import tempfile

import torch
from common import fill, job, numbers, step, tokens

# transformers.


def _small(**options):
    return dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, **options)


def _language(make, labels=True):
    model = fill(make()).eval()
    ids = tokens(2, 9)
    out = model(input_ids=ids, labels=ids)
    found = {"logits": out.logits, **step(model, out.loss)}
    found["generated"] = model.generate(ids[:1, :4], max_new_tokens=6, do_sample=False, pad_token_id=0)
    return found


def _saved(model, cls):
    """Saves a model and loads it again."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = cls.from_pretrained(folder)
    same = [torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values())]
    assert all(same), "a loaded model differs from the saved one"
    return again


@job("transformers")
def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=49)
    found = _language(lambda: GPT2LMHeadModel(config))
    _saved(GPT2LMHeadModel(config), GPT2LMHeadModel)
    return found


@job("transformers")
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**_small(num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=49))
    found = _language(lambda: LlamaForCausalLM(config))
    _saved(LlamaForCausalLM(config), LlamaForCausalLM)
    return found


@job("transformers")
def bert():
    from transformers import BertConfig, BertForSequenceClassification

    model = fill(BertForSequenceClassification(BertConfig(**_small(num_labels=3)))).eval()
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    out = model(input_ids=tokens(2, 9), attention_mask=mask, labels=torch.tensor([0, 2]))
    found = {"logits": out.logits, **step(model, out.loss)}
    _saved(model, BertForSequenceClassification)
    return found


@job("transformers")
def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    model = fill(T5ForConditionalGeneration(config)).eval()
    out = model(input_ids=tokens(2, 9), labels=tokens(2, 5, step=3))
    found = {"logits": out.logits, **step(model, out.loss)}
    found["generated"] = model.generate(tokens(1, 6), max_new_tokens=5, do_sample=False)
    _saved(model, T5ForConditionalGeneration)
    return found


@job("transformers")
def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8, num_labels=5)
    model = fill(ViTForImageClassification(config)).eval()
    out = model(pixel_values=numbers(2, 3, 32, 32), labels=torch.tensor([1, 4]))
    found = {"logits": out.logits, **step(model, out.loss)}
    _saved(model, ViTForImageClassification)
    return found


@job("transformers")
def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=50, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        num_mel_bins=16, max_source_positions=20, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None,
    )
    model = fill(WhisperForConditionalGeneration(config)).eval()
    features = numbers(1, 16, 40)
    out = model(input_features=features, labels=tokens(1, 6))
    found = {"logits": out.logits, **step(model, out.loss)}
    found["generated"] = model.generate(features, max_new_tokens=4, do_sample=False)
    return found


@job("transformers")
def trainer():
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, index):
            return {"input_ids": tokens(8, step=index + 1), "labels": index % 3}

    model = fill(BertForSequenceClassification(BertConfig(**_small(num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))))
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder, max_steps=6, per_device_train_batch_size=4, learning_rate=1e-3, report_to=[], logging_steps=3, save_steps=6, disable_tqdm=True, use_cpu=True,
        )
        made = Trainer(model=model, args=options, train_dataset=torch.utils.data.Subset(Rows(), range(16)), eval_dataset=Rows())
        made.train()
        loss = made.evaluate()["eval_loss"]
        assert os.path.exists(os.path.join(folder, "checkpoint-6", "model.safetensors"))
        # A shuffled order differs between the two, so the losses do.
        assert loss < 1.2, f"after training, the loss is {loss}"
    return {}


# timm.

_TIMM = {
    "resnet10t": 64, "resnet18": 64, "resnext26ts": 64, "densenet121": 64, "mobilenetv3_small_050": 64, "efficientnet_b0": 64, "convnext_atto": 64, "regnetx_002": 64,
    "vgg11": 64, "mixer_s32_224": 224, "vit_tiny_patch16_224": 224, "deit_tiny_patch16_224": 224, "swin_tiny_patch4_window7_224": 224, "beit_base_patch16_224": 224,
    "cait_xxs24_224": 224, "levit_128s": 224, "mobilevit_xxs": 64, "poolformer_s12": 64, "ghostnet_050": 64, "xcit_nano_12_p16_224": 224,
}


def _timm(name, size):
    def run():
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=7, drop_rate=0.0)
        fill(model, 0.02).train()
        for module in model.modules():
            # What is dropped is random.
            if "drop" in type(module).__name__.lower():
                module.eval()
        x = numbers(2, 3, size, size)
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 5]))
        found = step(model, loss, torch.optim.SGD(model.parameters(), lr=1e-3))
        return {"loss": found["loss"]}

    return run


for _name, _size in _TIMM.items():
    job("timm", _name)(_timm(_name, _size))


@job("timm")
def features():
    import timm

    model = fill(timm.create_model("resnet10t", pretrained=False, features_only=True), 0.02).eval()
    return {str(at): value.mean() for at, value in enumerate(model(numbers(1, 3, 64, 64)))}


@job("timm")
def optimizer_and_schedule():
    import timm.optim
    import timm.scheduler

    layer = fill(torch.nn.Linear(4, 3))
    found = {}
    for name in ("adamw", "lamb", "lion", "adopt", "sgdw", "nadamw", "adafactor", "madgrad"):
        fill(layer)
        optimizer = timm.optim.create_optimizer_v2(layer, opt=name, lr=1e-2)
        schedule = timm.scheduler.CosineLRScheduler(optimizer, t_initial=5)
        for epoch in range(3):
            step(layer, layer(numbers(5, 4)).square().mean(), optimizer)
            schedule.step(epoch + 1)
        found[name] = layer.weight.detach().clone()
    return found


# peft.


@job("peft")
def lora():
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**_small(num_key_value_heads=2, max_position_embeddings=64))
    base = fill(LlamaForCausalLM(config))
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for at, (name, p) in enumerate(model.named_parameters()):
            if "lora" in name:
                p.copy_(numbers(*p.shape, step=0.3 + at * 0.01, scale=0.1))
    ids = tokens(2, 9)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    found = {}
    for at in range(3):
        out = model(input_ids=ids, labels=ids)
        found[f"loss {at}"] = step(model, out.loss, optimizer)["loss"]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        fresh = fill(LlamaForCausalLM(config))
        again = PeftModel.from_pretrained(fresh, folder)
        found["loaded"] = again(input_ids=ids, labels=ids).loss
        found["merged"] = again.merge_and_unload()(input_ids=ids, labels=ids).loss
    assert model.get_nb_trainable_parameters()[0] < model.get_nb_trainable_parameters()[1]
    return found


# accelerate.


@job("accelerate")
def loop():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = fill(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    data = torch.utils.data.TensorDataset(numbers(16, 4), numbers(16, 1, step=0.5))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(data, batch_size=4))
    found = {}
    for at, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        found[f"loss {at}"] = loss
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        accelerator.load_state(folder)
    return found


@job("accelerate")
def empty_weights():
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=32)
    model = fill(GPT2LMHeadModel(config)).eval()
    with init_empty_weights():
        empty = GPT2LMHeadModel(config)
    assert all(p.device.type == "meta" for p in empty.parameters())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        empty.tie_weights()
        loaded = load_checkpoint_and_dispatch(empty, os.path.join(folder, "model.safetensors"), device_map={"": "cpu"}).eval()
        return {"logits": loaded(input_ids=tokens(1, 6)).logits - model(input_ids=tokens(1, 6)).logits}


# safetensors.


@job("safetensors")
def files():
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save_file, save_model

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        tensors = {"a": numbers(3, 4), "b": torch.arange(5), "c": numbers(2, 2).bfloat16(), "d": numbers(3).half(), "e": torch.tensor([True, False])}
        save_file(tensors, path, {"made": "here"})
        again = load_file(path)
        assert all(torch.equal(again[name], t) and again[name].dtype == t.dtype for name, t in tensors.items())
        with safe_open(path, "pt") as file:
            assert torch.equal(file.get_slice("a")[1:, :2], tensors["a"][1:, :2]) and file.metadata()["made"] == "here"
        layer = torch.nn.Linear(3, 2)
        save_model(layer, path)
        other = torch.nn.Linear(3, 2)
        load_model(other, path)
        assert torch.equal(layer.weight, other.weight)
    return {}
