"""Text from a mixture: one network for each draw, and the options of transformers."""

import pytest
import torch
import transformers
from torch import Tensor

import slimbayes as sb
from hugging_face import gpt2, llama, t5, whisper
from slimbayes.integrations.transformers import Generation, generate

pytestmark = pytest.mark.filterwarnings("ignore:::transformers")

NEW = 5


def padded() -> dict[str, Tensor]:
    """Prompts of two lengths, padded on the left."""
    tokens = torch.randint(3, 50, (3, 4))
    mask = torch.ones_like(tokens)
    tokens[1, :2], mask[1, :2] = 0, 0
    return {"input_ids": tokens, "attention_mask": mask}


def read() -> dict[str, Tensor]:
    tokens = torch.randint(3, 50, (3, 6))
    mask = torch.ones_like(tokens)
    mask[1, 4:] = 0
    return {"input_ids": tokens, "attention_mask": mask}


def heard() -> dict[str, Tensor]:
    return {"input_features": torch.randn(3, 6, 40)}


NETWORKS = {"gpt2": (gpt2, padded), "llama": (llama, padded), "t5": (t5, read), "whisper": (whisper, heard)}


def network(name: str):
    net = NETWORKS[name][0]().eval()
    with torch.no_grad():  # random networks are as good as sure of nothing
        net.get_output_embeddings().weight.mul_(20)
    net.config.use_cache = True
    return net


def rank1(net) -> sb.BayesianModel:
    return sb.rank1(net, members=2, init_spread=0.3, dropout_rate=0.05)


@pytest.fixture(params=NETWORKS)
def name(request) -> str:
    return request.param


def log_likelihoods(member, inputs: dict, made: Generation) -> Tensor:
    """Return what a plain network says of the sequences, token by token, without a cache."""
    prompt = made.sequences.shape[1] - made.tokens.shape[1]
    if "decoder_start_token_id" in member.config.to_dict() and member.config.is_encoder_decoder:
        logits = member(**inputs, decoder_input_ids=made.sequences).logits
    else:
        mask = torch.cat([inputs["attention_mask"], torch.ones_like(made.tokens)], 1)
        positions = {"position_ids": (mask.cumsum(1) - 1).clamp_min(0)}
        logits = member(input_ids=made.sequences, attention_mask=mask, **positions).logits
    log_probs = logits[:, prompt - 1 : -1].log_softmax(-1)
    return log_probs.gather(-1, made.tokens.unsqueeze(-1)).squeeze(-1) * made.mask


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "temperature": 1.5, "top_k": 10}])
def test_every_draw_is_its_member_over_the_whole_sequence(name: str, options: dict) -> None:
    model, inputs = rank1(network(name)), NETWORKS[name][1]()
    draw = model.draw(2)
    made = generate(model, **inputs, draw=draw, samples=2, max_new_tokens=NEW, **options)
    assert made.tokens.shape[0] == 3
    assert made.entropy.shape == made.tokens.shape
    for d in range(4):
        member = model.member(d // 2, sample=d % 2, draw=draw).eval()
        with torch.no_grad():
            expected = log_likelihoods(member, inputs, made).sum(1)
        torch.testing.assert_close(made.draw_log_likelihood[d], expected, rtol=1e-4, atol=1e-4)
    expected = made.draw_log_likelihood.double().exp().mean(0).log()  # of the sum of logarithms, which may be large
    torch.testing.assert_close(made.log_likelihood.double(), expected, rtol=1e-4, atol=1e-5)


def test_with_the_cache_logits_are_those_without(name: str) -> None:
    model, inputs = rank1(network(name)), NETWORKS[name][1]()
    draw, found = model.draw(1), []
    for use_cache in (True, False):
        made = generate(
            model, **inputs, draw=draw, samples=1, max_new_tokens=NEW, min_new_tokens=NEW, use_cache=use_cache,
            return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
        found.append((made.sequences, torch.stack(made.output.logits)))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-4)
    # The figures come from a pass over the whole sequences, which says the same.
    entropy = torch.distributions.Categorical(logits=found[0][1]).entropy().T
    torch.testing.assert_close(made.entropy, entropy, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "top_p": 0.9},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"do_sample": True, "num_return_sequences": 2, "temperature": 0.7},
        {"use_cache": False},
    ],
)
def test_a_plain_network_generates_what_transformers_does(name: str, options: dict) -> None:
    net, inputs = network(name), NETWORKS[name][1]()
    torch.manual_seed(3)
    expected = transformers.GenerationMixin.generate(net, **inputs, max_new_tokens=NEW, **options)
    torch.manual_seed(3)
    made = generate(sb.deterministic(net), **inputs, max_new_tokens=NEW, **options)
    assert torch.equal(made.sequences, expected)
    assert made.mutual_information.abs().max() < 1e-5
    assert made.disagreement.tolist() == [0.0] * len(expected)


def test_the_mixture_chooses() -> None:
    """Greedy: the most probable token of the mean of the draws' probabilities, after what was chosen before."""
    model, inputs = rank1(network("gpt2")), padded()
    made = generate(model, **inputs, samples=0, max_new_tokens=NEW, min_new_tokens=NEW, eos_token_id=-1)
    members = [model.member(k).eval() for k in range(2)]
    tokens, mask = inputs["input_ids"], inputs["attention_mask"]
    for step in range(NEW):
        positions = (mask.cumsum(1) - 1).clamp_min(0)
        with torch.no_grad():
            each = [m(input_ids=tokens, attention_mask=mask, position_ids=positions).logits[:, -1] for m in members]
        probs = torch.stack(each).softmax(-1)
        mean = probs.mean(0)
        entropy = -(mean * mean.log()).sum(1)
        torch.testing.assert_close(made.entropy[:, step], entropy, rtol=1e-4, atol=1e-5)
        expected = -(probs * probs.log()).sum(-1).mean(0)
        torch.testing.assert_close(made.expected_entropy[:, step], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(made.mutual_information[:, step], entropy - expected, rtol=1e-3, atol=1e-5)
        assert torch.equal(made.tokens[:, step], mean.argmax(-1))
        tokens = torch.cat([tokens, mean.argmax(-1, keepdim=True)], 1)
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
    assert made.mutual_information.max() > 1e-3


def test_what_comes_after_the_end_does_not_count() -> None:
    model, inputs = rank1(network("gpt2")), padded()
    first = generate(model, **inputs, seed=1, max_new_tokens=NEW, eos_token_id=-1)
    end = int(first.tokens[0, 1])  # the first text now ends there
    made = generate(model, **inputs, seed=1, max_new_tokens=NEW, eos_token_id=end, pad_token_id=0)
    expected = (made.tokens == end).long().cumsum(1) - (made.tokens == end).long() == 0
    assert torch.equal(made.mask, expected)
    length = int(made.mask[0].sum())
    assert length == first.tokens[0].tolist().index(end) + 1 < NEW
    assert made.entropy[0, length:].abs().sum() == 0
    torch.testing.assert_close(made.entropy[0, :length], first.entropy[0, :length], rtol=1e-4, atol=1e-5)
    assert torch.equal(made.tokens[0, :length], first.tokens[0, :length])


@pytest.mark.parametrize("method", ["batch_ensemble", "mean_field", "k_tied", "mc_dropout", "deep_ensemble"])
def test_other_methods(method: str) -> None:
    net = network("gpt2")
    makers = {
        "mean_field": lambda: sb.mean_field(net, init_std=0.05),
        "k_tied": lambda: sb.k_tied(net, init_std=0.05),
        "batch_ensemble": lambda: sb.batch_ensemble(net, members=2),
        "mc_dropout": lambda: sb.mc_dropout(net, 0.2, place="before", unit="filter"),
        "deep_ensemble": lambda: sb.deep_ensemble([net, network("gpt2")]),
    }
    model = makers[method]()
    made = generate(model, **padded(), seed=1, max_new_tokens=NEW)
    again = generate(model, **padded(), seed=1, max_new_tokens=NEW)
    assert made.draw_log_likelihood.shape == (model.members * model.default_samples, 3)
    assert made.mutual_information.max() > 0
    assert made.sequences.shape[0] == again.sequences.shape[0]


def test_a_seed_decides_the_draws_and_the_network_is_not_touched() -> None:
    model, inputs = rank1(network("gpt2").train()), padded()
    before = dict(model.net.__dict__)
    first, second, other = (generate(model, **inputs, seed=seed, max_new_tokens=NEW) for seed in (1, 1, 2))
    assert torch.equal(first.draw_log_likelihood, second.draw_log_likelihood)
    assert not torch.equal(first.draw_log_likelihood, other.draw_log_likelihood)
    assert model.net.__dict__.keys() == before.keys()
    assert type(model.net) is transformers.GPT2LMHeadModel
    assert model.net.training


def test_what_cannot_be_generated_is_said() -> None:
    from hugging_face import bert

    net = network("gpt2")
    for model, error, words in (
        (net, TypeError, "BayesianModel"),
        (sb.rank1(bert()), TypeError, "language head"),
        (sb.mc_dropout(net, 0.1), ValueError, "unit='filter'"),
    ):
        with pytest.raises(error, match=words):
            generate(model, torch.tensor([[3, 4]]), max_new_tokens=2)
    with pytest.raises(ValueError, match="output_attentions"):
        generate(rank1(net), torch.tensor([[3, 4]]), max_new_tokens=2, output_attentions=True)
