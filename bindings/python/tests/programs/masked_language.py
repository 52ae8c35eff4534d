"""A small BERT with its trainer, in the manner of transformers: configs, ModelOutput, tied weights, masks, non-persistent buffers, from_pretrained."""

import json
import math
import os
from collections import OrderedDict
from dataclasses import asdict, dataclass, fields
from typing import Any, Optional, Tuple, Union

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import CrossEntropyLoss
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler


@dataclass
class BertConfig:
    vocab_size: int = 30
    hidden_size: int = 16
    num_hidden_layers: int = 2
    num_attention_heads: int = 2
    intermediate_size: int = 32
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 32
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0


class ModelOutput(OrderedDict):
    def __post_init__(self):
        for f in fields(self):
            v = getattr(self, f.name)
            if v is not None:
                self[f.name] = v

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def to_tuple(self) -> Tuple[Any, ...]:
        return tuple(self[k] for k in self.keys())


@dataclass
class MaskedLMOutput(ModelOutput):
    loss: Optional[torch.FloatTensor] = None
    logits: torch.FloatTensor = None
    hidden_states: Optional[Tuple[torch.FloatTensor, ...]] = None
    attentions: Optional[Tuple[torch.FloatTensor, ...]] = None


class NewGELUActivation(nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 * torch.pow(input, 3.0))))


ACT2FN = {"gelu": nn.functional.gelu, "gelu_new": NewGELUActivation(), "relu": nn.functional.relu}


class BertEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.register_buffer("position_ids", torch.arange(config.max_position_embeddings).expand((1, -1)), persistent=False)
        self.register_buffer("token_type_ids", torch.zeros(self.position_ids.size(), dtype=torch.long), persistent=False)

    def forward(self, input_ids: Optional[torch.LongTensor] = None, token_type_ids=None):
        input_shape = input_ids.size()
        seq_length = input_shape[1]
        position_ids = self.position_ids[:, :seq_length]
        if token_type_ids is None:
            buffered = self.token_type_ids[:, :seq_length]
            token_type_ids = buffered.expand(input_shape[0], seq_length)
        embeddings = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        embeddings += self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


class BertSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = int(config.hidden_size / config.num_attention_heads)
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, self.all_head_size) for _ in range(3))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def transpose_for_scores(self, x: torch.Tensor) -> torch.Tensor:
        new_x_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        return x.view(new_x_shape).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        q, k, v = (self.transpose_for_scores(m(hidden_states)) for m in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.attention_head_size)
        if attention_mask is not None:
            scores = scores + attention_mask
        probs = self.dropout(nn.functional.softmax(scores, dim=-1))
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        context = context.view(context.size()[:-2] + (self.all_head_size,))
        return (context, probs) if output_attentions else (context,)


class BertLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = BertSelfAttention(config)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.act = ACT2FN[config.hidden_act] if isinstance(config.hidden_act, str) else config.hidden_act
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        attended = self.attention(hidden_states, attention_mask, output_attentions)
        hidden_states = self.norm1(hidden_states + self.output(attended[0]))
        hidden_states = self.norm2(hidden_states + self.down(self.act(self.intermediate(hidden_states))))
        return (hidden_states,) + attended[1:]


class PreTrainedModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.parameters() if p.is_floating_point())

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.bias is not None:
                module.bias.data.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.padding_idx is not None:
                module.weight.data[module.padding_idx].zero_()
        elif isinstance(module, nn.LayerNorm):
            module.bias.data.zero_()
            module.weight.data.fill_(1.0)

    def get_extended_attention_mask(self, attention_mask):
        extended = attention_mask[:, None, None, :].to(dtype=self.dtype)
        return (1.0 - extended) * torch.finfo(self.dtype).min

    def num_parameters(self, only_trainable: bool = False) -> int:
        return sum(p.numel() for p in self.parameters() if p.requires_grad or not only_trainable)

    def save_pretrained(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(asdict(self.config), f)
        torch.save(self.state_dict(), os.path.join(folder, "pytorch_model.bin"))

    @classmethod
    def from_pretrained(cls, folder):
        with open(os.path.join(folder, "config.json")) as f:
            model = cls(BertConfig(**json.load(f)))
        model.load_state_dict(torch.load(os.path.join(folder, "pytorch_model.bin"), map_location="cpu", weights_only=True))
        return model.eval()


class BertForMaskedLM(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.layer = nn.ModuleList([BertLayer(config) for _ in range(config.num_hidden_layers)])
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.decoder.bias = self.bias
        self.gradient_checkpointing = False
        self.apply(self._init_weights)
        self.decoder.weight = self.embeddings.word_embeddings.weight

    def forward(self, input_ids=None, attention_mask=None, labels=None, output_hidden_states=None, output_attentions=None, return_dict=True):
        if attention_mask is None:
            attention_mask = torch.ones(input_ids.shape, device=input_ids.device)
        mask = self.get_extended_attention_mask(attention_mask)
        hidden = self.embeddings(input_ids)
        all_hidden, all_attentions = (hidden,), ()
        for layer in self.layer:
            if self.gradient_checkpointing and self.training:
                out = torch.utils.checkpoint.checkpoint(layer.__call__, hidden, mask, bool(output_attentions), use_reentrant=True)
            else:
                out = layer(hidden, mask, bool(output_attentions))
            hidden = out[0]
            all_hidden = all_hidden + (hidden,)
            all_attentions = all_attentions + out[1:]
        logits = self.decoder(hidden)
        loss = None
        if labels is not None:
            loss = CrossEntropyLoss()(logits.view(-1, self.config.vocab_size), labels.view(-1))
        if not return_dict:
            return ((loss,) if loss is not None else ()) + (logits,)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=all_hidden if output_hidden_states else None,
                              attentions=all_attentions if output_attentions else None)


class LineByLine(Dataset):
    def __init__(self, n, config):
        rng = np.random.default_rng(0)
        self.examples = [(rng.integers(0, 5) + np.arange(rng.integers(6, 14))) % (config.vocab_size - 4) + 4 for _ in range(n)]

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(self.examples[i], dtype=torch.long)}


@dataclass
class DataCollatorForLanguageModeling:
    mlm_probability: float = 0.15
    mask_token_id: int = 3
    vocab_size: int = 30

    def __call__(self, examples):
        ids = [e["input_ids"] for e in examples]
        inputs = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=0)
        labels = inputs.clone()
        probability_matrix = torch.full(labels.shape, self.mlm_probability)
        probability_matrix.masked_fill_(inputs == 0, value=0.0)
        masked_indices = torch.bernoulli(probability_matrix).bool()
        labels[~masked_indices] = -100
        replaced = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & masked_indices
        inputs[replaced] = self.mask_token_id
        random_idx = torch.bernoulli(torch.full(labels.shape, 0.5)).bool() & masked_indices & ~replaced
        inputs[random_idx] = torch.randint(self.vocab_size, labels.shape, dtype=torch.long)[random_idx]
        return {"input_ids": inputs, "labels": labels, "attention_mask": (labels.ne(0) & inputs.ne(0)).long()}


def get_linear_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, last_epoch=-1):
    def lr_lambda(current_step: int):
        if current_step < num_warmup_steps:
            return float(current_step) / float(max(1, num_warmup_steps))
        return max(0.0, float(num_training_steps - current_step) / float(max(1, num_training_steps - num_warmup_steps)))

    return LambdaLR(optimizer, lr_lambda, last_epoch)


def main():
    torch.manual_seed(0)
    config = BertConfig(hidden_act="gelu_new")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = BertForMaskedLM(config).to(device)
    model.gradient_checkpointing = True
    print("parameters:", model.num_parameters(), "keys:", len(model.state_dict()))
    assert "embeddings.position_ids" not in model.state_dict() and "decoder.bias" in model.state_dict()
    data = LineByLine(96, config)
    loader = DataLoader(data, sampler=RandomSampler(data), batch_size=16, collate_fn=DataCollatorForLanguageModeling(0.3), pin_memory=torch.cuda.is_available())
    no_decay = ["bias", "norm"]
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=5e-3, eps=1e-8)
    epochs = 24
    scheduler = get_linear_schedule_with_warmup(optimizer, 4, epochs * len(loader))
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    history = []
    for epoch in range(epochs):
        model.train()
        for step, batch in enumerate(loader):
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast(device_type=device.type, dtype=torch.bfloat16, enabled=epoch % 2 == 1):
                outputs = model(**batch)
                loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            model.zero_grad(set_to_none=True)
            history.append(loss.detach())
        print(epoch, torch.stack(history[-len(loader):]).float().mean().item(), scheduler.get_last_lr()[0])
    losses = torch.stack([h.float() for h in history]).cpu().numpy()
    assert losses[-6:].mean() < losses[:6].mean() * 0.7, losses
    model.eval()
    model.save_pretrained("bert")
    again = BertForMaskedLM.from_pretrained("bert").to(device)
    ids = data[0]["input_ids"].unsqueeze(0).to(device)
    with torch.no_grad():
        a, b = model(ids, output_hidden_states=True, output_attentions=True), again(ids)
    torch.testing.assert_close(a.logits, b.logits)
    assert len(a.hidden_states) == 3 and len(a.attentions) == 2 and a.to_tuple()[0] is a.logits
    assert again.decoder.weight is again.embeddings.word_embeddings.weight


if __name__ == "__main__":
    main()
