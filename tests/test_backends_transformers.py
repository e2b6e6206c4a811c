"""A tiny chat model, made in this process, as the mentor."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_mentor.backends.base import Backend
from trl_mentor.backends.transformers import TransformersBackend
from trl_mentor.errors import BackendError, ConfigError, RequestRefusedError
from trl_mentor.records import Reply, Role

SPECIAL = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>"]
WORDS = ["system", "user", "assistant", *(f"w{number}" for number in range(26))]
TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message.role }} {{ message.content }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
ASK = [{"role": "system", "content": "w1 w2"}, {"role": "user", "content": "w3"}]
PROMPT_TOKENS = 5 + 4 + 2


def make_tokenizer(template=TEMPLATE):
    vocabulary = {word: number for number, word in enumerate(SPECIAL + WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
    )
    tokenizer.chat_template = template
    return tokenizer


def make_model(positions=128):
    """Random weights; dropout would show if the model ever ran in training mode."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(SPECIAL + WORDS),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=positions,
                attention_dropout=0.5,
                pad_token_id=0,
                bos_token_id=2,
                eos_token_id=3,
            )
        )
    return model.eval()


def make_backend(**options):
    return TransformersBackend(make_model(), make_tokenizer(), **{"max_new_tokens": 8, **options})


def ask(backend, timeout=30.0):
    return backend.chat(ASK, role=Role.JUDGMENT, timeout=timeout)


def slow_down(model, seconds):
    """Make every forward pass of the model take at least `seconds`."""
    return model.register_forward_pre_hook(lambda *_: time.sleep(seconds))


def force(model, word):
    """Make `word` the only token that the model ever predicts."""
    with torch.no_grad():
        model.model.norm.weight.zero_()
    model.lm_head = torch.nn.Linear(16, len(SPECIAL + WORDS), bias=True)
    torch.nn.init.zeros_(model.lm_head.weight)
    torch.nn.init.zeros_(model.lm_head.bias)
    with torch.no_grad():
        model.lm_head.bias[(SPECIAL + WORDS).index(word)] = 100.0


def test_it_is_a_backend():
    assert isinstance(make_backend(), Backend)


def test_a_reply_is_the_new_text_alone_with_its_usage():
    backend = make_backend()
    force(backend.model, "w7")
    reply = ask(backend)
    assert reply.text == " ".join(["w7"] * 8)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (PROMPT_TOKENS, 8)
    assert reply.truncated


def test_a_reply_that_ends_itself_is_not_truncated_and_shows_no_special_token():
    backend = make_backend()
    force(backend.model, "<|im_end|>")
    reply = ask(backend)
    assert (reply.text, reply.usage.completion_tokens, reply.truncated) == ("", 1, False)


def test_a_stop_token_that_only_the_generation_settings_name_ends_the_reply():
    backend = make_backend()
    backend.model.generation_config.eos_token_id = [(SPECIAL + WORDS).index("w9")]
    force(backend.model, "w9")
    assert not ask(backend).truncated


def test_the_messages_go_through_the_chat_template():
    backend = make_backend()
    seen = []
    backend.model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"][0].tolist()), with_kwargs=True
    )
    ask(backend)
    expected = "<|im_start|> system w1 w2 <|im_end|> <|im_start|> user w3 <|im_end|> <|im_start|> assistant"
    assert backend.tokenizer.decode(seen[0]) == expected


def test_temperature_zero_is_the_most_likely_reply_every_time():
    assert len({ask(make_backend(temperature=0.0)).text for _ in range(3)}) == 1
    backend = make_backend(temperature=0.0)
    assert ask(backend) == ask(backend)


def test_sampled_replies_differ_between_requests_and_repeat_between_backends():
    first, second = make_backend(temperature=1.0), make_backend(temperature=1.0)
    replies = [ask(first).text for _ in range(4)]
    assert len(set(replies)) > 1
    assert replies == [ask(second).text for _ in range(4)]


def test_the_samples_have_the_probabilities_of_the_softmax_at_the_temperature():
    backend = make_backend(temperature=0.5, max_new_tokens=1)
    force(backend.model, "w0")
    bias = backend.model.lm_head.bias
    with torch.no_grad():
        bias.fill_(-100.0)
        bias[7:9] = torch.tensor([0.0, 0.6])  # w0 and w1, the odds are exp(0.6 / 0.5)
    drawn = [ask(backend).text for _ in range(600)]
    assert set(drawn) == {"w0", "w1"}
    expected = 1 / (1 + np.exp(-1.2))
    assert drawn.count("w1") / len(drawn) == pytest.approx(expected, abs=0.06)


def test_the_global_random_states_do_not_move():
    torch.manual_seed(11)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    ask(make_backend(temperature=1.0))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_the_model_keeps_its_mode_and_its_generation_settings():
    model = make_model()
    model.generation_config.update(do_sample=True, temperature=0.3, top_p=0.5, top_k=3, max_new_tokens=2, num_beams=2)
    settings, other = model.generation_config.to_dict(), torch.nn.Dropout()
    reply = ask(TransformersBackend(model, make_tokenizer(), max_new_tokens=5))
    assert reply.usage.completion_tokens > 2
    assert model.generation_config.to_dict() == settings
    assert not model.training
    assert other.training


def test_the_time_limit_ends_a_long_reply():
    backend = make_backend(max_new_tokens=100)
    force(backend.model, "w7")
    slow_down(backend.model, 0.1)
    started = time.monotonic()
    with pytest.raises(BackendError, match="out of time"):
        ask(backend, timeout=0.5)
    assert time.monotonic() - started < 6  # of the 10 s that the whole reply takes


def test_the_wait_for_another_request_counts_as_time():
    backend = make_backend(max_new_tokens=20)
    force(backend.model, "w7")
    slow_down(backend.model, 0.1)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, backend)
        time.sleep(0.3)
        with pytest.raises(BackendError, match="busy"):
            ask(backend, timeout=0.2)
        assert slow.result().usage.completion_tokens == 20


def count_generates(model):
    """How many rows each `generate` of the model had, in a list that grows."""
    sizes, generate = [], model.generate

    def counted(ids, **options):
        sizes.append(len(ids))
        return generate(ids, **options)

    model.generate = counted
    return sizes


def talk(words):
    return [{"role": "user", "content": " ".join(f"w{number % 26}" for number in range(words))}]


def ask_at_once(backend, conversations, timeouts=None):
    """The reply to each conversation, or its exception, all asked by threads that start together."""
    barrier = threading.Barrier(len(conversations))

    def run(index):
        barrier.wait()
        timeout = 30.0 if timeouts is None else timeouts[index]
        try:
            return backend.chat(conversations[index], role=Role.JUDGMENT, timeout=timeout)
        except BackendError as error:
            return error

    with ThreadPoolExecutor(len(conversations)) as pool:
        return list(pool.map(run, range(len(conversations))))


def make_sharp_backend(**options):
    """One whose replies depend on the whole conversation, however small its weights are made."""
    backend = make_backend(**options)
    with torch.no_grad():
        for parameter in backend.model.model.layers.parameters():
            parameter.mul_(8)
    return backend


def test_concurrent_requests_share_a_generate_and_each_gets_the_reply_that_it_would_get_alone():
    conversations = [talk(words) for words in (1, 30, 4, 17, 2, 9, 26, 3, 12, 5, 40, 8)]
    alone = make_sharp_backend(temperature=0.0, max_new_tokens=20)
    expected = [alone.chat(conversation, role=Role.JUDGMENT, timeout=30) for conversation in conversations]
    backend = make_sharp_backend(temperature=0.0, max_new_tokens=20)
    sizes = count_generates(backend.model)
    assert ask_at_once(backend, conversations) == expected
    assert len({reply.text for reply in expected}) > 6
    assert sum(sizes) == 12
    assert len(sizes) <= 4


def test_a_row_that_ends_early_counts_no_padding():
    backend = make_backend(temperature=1.5, max_new_tokens=60)
    seen, decode = [], backend.tokenizer.decode
    backend.tokenizer.decode = lambda ids, **options: seen.append(ids) or decode(ids, **options)
    replies = ask_at_once(backend, [talk(3)] * 12)
    ends = (SPECIAL + WORDS).index("<|im_end|>")
    assert sorted(len(ids) for ids in seen) == sorted(reply.usage.completion_tokens for reply in replies)
    assert len({len(ids) for ids in seen}) > 3
    assert all((ids[-1] == ends) == (len(ids) < 60) and ends not in ids[:-1] for ids in seen)
    assert sum(reply.truncated for reply in replies) == sum(len(ids) == 60 for ids in seen)
    assert {reply.usage.prompt_tokens for reply in replies} == {3 + 3 + 2}


def test_requests_that_come_while_a_batch_runs_make_the_next_one_of_bounded_size():
    backend = make_backend(max_new_tokens=10, max_batch_size=4)
    force(backend.model, "w7")
    slow_down(backend.model, 0.03)
    sizes = count_generates(backend.model)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, backend)
        while not sizes:
            time.sleep(0.005)
        replies = ask_at_once(backend, [talk(2)] * 8)
        assert first.result().usage.completion_tokens == 10
    assert sizes == [1, 4, 4]
    assert [reply.usage.completion_tokens for reply in replies] == [10] * 8


def test_a_batch_is_bounded_by_its_tokens_with_padding(monkeypatch):
    monkeypatch.setattr("trl_mentor.backends.transformers._MAX_PADDED_TOKENS", 100)
    backend = make_backend(max_new_tokens=10)
    sizes = count_generates(backend.model)
    lengths = [5] * 4 + [75, 76]
    assert [type(reply) for reply in ask_at_once(backend, [talk(words) for words in lengths])] == [Reply] * 6
    assert max(sizes) <= 5
    assert sizes[-2:] == [1, 1]


def test_a_request_whose_time_passes_fails_while_the_others_of_its_batch_go_on():
    backend = make_backend(max_new_tokens=20)
    force(backend.model, "w7")
    slow_down(backend.model, 0.04)
    sizes = count_generates(backend.model)
    hasty, *others = ask_at_once(backend, [talk(3), talk(2), talk(9)], timeouts=[0.3, 30, 30])
    assert isinstance(hasty, BackendError)
    assert "out of time" in str(hasty)
    assert [reply.usage.completion_tokens for reply in others] == [20, 20]
    assert max(sizes) > 1


def test_a_conversation_that_is_too_long_fails_alone():
    backend = make_backend(max_new_tokens=5)
    replies = ask_at_once(backend, [talk(3), talk(500), talk(7)])
    # Not a failure of the mentor, which would be left alone after a few of them.
    assert [type(reply) for reply in replies] == [Reply, RequestRefusedError, Reply]
    assert "505 tokens" in str(replies[1])


def test_each_reply_of_a_batch_is_cut_where_the_models_positions_end_for_it():
    backend = TransformersBackend(make_model(positions=40), make_tokenizer(), max_new_tokens=100)
    force(backend.model, "w7")
    replies = ask_at_once(backend, [talk(5), talk(30)])
    assert [(reply.usage.completion_tokens, reply.truncated) for reply in replies] == [(30, True), (5, True)]


def test_what_generate_raises_fails_the_batch_and_no_later_one():
    backend = make_backend()
    hook = backend.model.register_forward_pre_hook(lambda *_: 1 / 0)
    failures = ask_at_once(backend, [talk(3), talk(4)])
    assert [str(failure) for failure in failures] == [
        "the local mentor failed: ZeroDivisionError: division by zero"
    ] * 2
    hook.remove()
    assert ask(backend).usage.completion_tokens > 0


def memory_for(model, rows):
    """Make the model run out of memory with more rows than that."""

    def check(_, args, kwargs):
        if len(kwargs["input_ids"]) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory")

    return model.register_forward_pre_hook(check, with_kwargs=True)


def test_a_batch_that_runs_out_of_memory_is_tried_again_in_halves_and_later_ones_are_smaller(caplog):
    backend = make_backend(max_new_tokens=8, max_batch_size=8)
    memory_for(backend.model, rows=4)
    sizes = count_generates(backend.model)
    slow_down(backend.model, 0.02)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, backend)
        while not sizes:
            time.sleep(0.005)
        assert [type(reply) for reply in ask_at_once(backend, [talk(4)] * 8)] == [Reply] * 8
        first.result()
    assert sizes == [1, 8, 4, 4]
    assert "did not fit into the memory" in caplog.text
    ask_at_once(backend, [talk(4)] * 8)
    assert max(sizes[4:]) <= 4


def test_halves_that_do_not_fit_either_fail_as_backend_errors():
    backend = make_backend(max_new_tokens=8)
    memory_for(backend.model, rows=0)
    assert {type(reply) for reply in ask_at_once(backend, [talk(4)] * 3)} == {BackendError}


def test_thinking_is_switched_by_role_in_the_chat_template():
    template = TEMPLATE + "{% if enable_thinking is defined %}{{ 'w1' if enable_thinking else 'w2' }} {% endif %}"
    thinking = {Role.JUDGMENT: True, Role.GENERATION: False}
    backend = TransformersBackend(make_model(), make_tokenizer(template), max_new_tokens=2, thinking=thinking)
    seen = []
    backend.model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"][0].tolist()), with_kwargs=True
    )
    last = {}
    for role in (Role.JUDGMENT, Role.GENERATION, Role.REPAIR):
        backend.chat(ASK, role=role, timeout=30)
        last[role] = backend.tokenizer.decode(seen[-2][-1])
    assert last == {Role.JUDGMENT: "w1", Role.GENERATION: "w2", Role.REPAIR: "assistant"}


def test_the_identity_of_a_loaded_model_names_what_its_replies_depend_on_and_a_given_one_has_none(tmp_path):
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    options = [{}, {"temperature": 0.0}, {"max_new_tokens": 9}, {"thinking": {Role.JUDGMENT: True}}]
    identities = [TransformersBackend(str(tmp_path), **given).identity for given in (*options, {})]
    assert len(set(identities)) == 4
    assert identities[0] == identities[-1]
    assert json.loads(identities[0])["transformers"] == str(tmp_path)
    assert make_backend().identity is None


def test_a_failed_request_does_not_block_the_next():
    backend = make_backend()
    with pytest.raises(BackendError, match="out of time"):
        ask(backend, timeout=0.0)
    assert ask(backend).usage.completion_tokens > 0


def test_a_conversation_longer_than_the_model_is_a_backend_error():
    backend = TransformersBackend(make_model(positions=PROMPT_TOKENS), make_tokenizer())
    with pytest.raises(BackendError, match=f"{PROMPT_TOKENS} tokens"):
        ask(backend)


def test_the_reply_is_cut_where_the_models_positions_end():
    backend = TransformersBackend(make_model(positions=PROMPT_TOKENS + 3), make_tokenizer())
    force(backend.model, "w7")
    reply = ask(backend)
    assert (reply.usage.completion_tokens, reply.truncated) == (3, True)


def test_a_model_directory_is_loaded_in_evaluation_mode(tmp_path):
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    backend = TransformersBackend(str(tmp_path), device="cpu", dtype=torch.bfloat16, temperature=0.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert not backend.model.training
    assert backend.model.dtype == torch.bfloat16
    assert ask(backend).usage.prompt_tokens == PROMPT_TOKENS


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(ConfigError, match="training mode"):
        TransformersBackend(make_model().train(), make_tokenizer())
    backend = make_backend()
    backend.model.train()
    with pytest.raises(BackendError, match="training mode"):
        ask(backend)


def test_a_tokenizer_without_a_chat_template_is_refused():
    with pytest.raises(ConfigError, match="no chat template"):
        TransformersBackend(make_model(), make_tokenizer(template=None))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"device": "cpu"}, "device"),
        ({"dtype": torch.float16}, "dtype"),
        ({"tokenizer": None}, "tokenizer"),
    ],
)
def test_a_wrong_setting_is_refused(wrong, named):
    with pytest.raises(ConfigError, match=named):
        TransformersBackend(make_model(), **{"tokenizer": make_tokenizer(), **wrong})


EXITS = """
import threading, time
import torch
import test_backends_transformers as world
from trl_mentor.backends.transformers import TransformersBackend
from trl_mentor.records import Role

model, began = world.make_model(positions=100_000), threading.Event()
model.register_forward_hook(lambda *_: began.set())
backend = TransformersBackend(model, world.make_tokenizer(), max_new_tokens=90_000)
asked = dict(role=Role.GENERATION, timeout=300.0)
threading.Thread(target=backend.chat, args=(world.ASK,), kwargs=asked, daemon=True).start()
assert began.wait(60)
print("the script is done", flush=True)
"""


def test_a_program_that_ends_while_the_mentor_generates_ends_well():
    path = {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", EXITS], env={**os.environ, **path}, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout) == (0, "the script is done\n"), done.stderr


def test_what_was_asked_before_an_interrupt_ends_without_a_reply_and_later_requests_are_answered():
    model, began = make_model(positions=100_000), threading.Event()
    model.register_forward_hook(lambda *_: began.set())
    backend = TransformersBackend(model, make_tokenizer(), max_new_tokens=90_000, max_batch_size=1)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, backend, 300.0) for _ in range(2)]
        assert began.wait(60)
        backend.interrupt()
        for request in asked:
            with pytest.raises(RequestRefusedError, match="interrupted"):
                request.result(timeout=60)
    backend.max_new_tokens = 8
    assert ask(backend).usage.completion_tokens <= 8
