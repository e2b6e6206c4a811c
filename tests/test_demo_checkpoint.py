"""The corpus of the demo's student and the checkpoint that came of it."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from trl_mentor.assembly import add_hint
from trl_mentor.demo.concepts import CONCEPTS, GENERIC_HINTS
from trl_mentor.demo.corpus import FOLLOW, HINTED_SHARE, hint_for, write_document
from trl_mentor.demo.pretrain import pretrain
from trl_mentor.demo.student import CHECKPOINT, accuracy_by_family, load_student, sample_answers
from trl_mentor.demo.tokenizer import UNKNOWN, build_tokenizer, vocabulary
from trl_mentor.demo.world import passes, sample_problems


@pytest.fixture(scope="module")
def problems():
    return list(sample_problems(random.Random(5), 12, held_out=True).values())


@pytest.fixture(scope="module")
def student():
    return load_student()


def documents(problem, count, seed=0):
    rng = random.Random(seed)
    return [write_document(rng, problem, vocabulary()[3:]) for _ in range(count)]


def test_hinted_documents_have_the_very_text_that_the_trainer_makes(problems):
    problem = next(p for p in problems if len(p.concepts) == 1)
    prompts = Counter(prompt for prompt, _ in documents(problem, 400))
    assert set(prompts) >= {add_hint(problem.question, hint) for hint in problem.concepts[0].hints}
    bare = prompts.pop(problem.question)
    assert abs(1 - bare / 400 - HINTED_SHARE) < 0.1
    assert all(prompt.endswith(f"\n\nOriginal question: {problem.question}") for prompt in prompts)


def test_only_the_right_hint_changes_what_the_corpus_answers(problems):
    problem = next(p for p in problems if len(p.concepts) == 1)
    right = {add_hint(problem.question, hint) for hint in problem.concepts[0].hints}
    found = documents(problem, 3000)
    followed = [passes(answer, problem) for prompt, answer in found if prompt in right]
    others = [passes(answer, problem) for prompt, answer in found if prompt not in right]
    assert abs(sum(followed) / len(followed) - FOLLOW) < 0.06
    assert sum(others) / len(others) < 0.01


def test_every_word_of_the_world_is_one_known_token(problems):
    tokenizer = build_tokenizer()
    texts = [text for problem in problems for text in (problem.question, problem.answer, problem.naive)]
    texts += [add_hint("Spec: x?", hint) for concept in CONCEPTS for hint in (*concept.hints, *GENERIC_HINTS)]
    for text in texts:
        assert tokenizer.unk_token_id not in tokenizer(text).input_ids, text
    assert tokenizer.convert_ids_to_tokens(tokenizer("42 zebra(x)//3").input_ids) == [
        *("4", "2", UNKNOWN, "(", "x", ")", "//", "3")
    ]


def test_a_program_comes_back_from_its_tokens_word_for_word(problems):
    tokenizer = build_tokenizer()
    for problem in problems:
        assert tokenizer.decode(tokenizer(problem.answer).input_ids) == problem.answer


def test_the_shipped_files_are_small_and_hold_the_tokenizer_of_the_code(student):
    model, tokenizer = student
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) < 2_000_000
    assert tokenizer.get_vocab() == build_tokenizer().get_vocab()
    assert 160_000 < model.num_parameters() < 175_000


def test_the_student_solves_easy_problems_and_almost_nothing_else(student, problems):
    accuracy = accuracy_by_family(*student, problems, samples=4, seed=0)
    assert accuracy.pop("easy") > 0.9
    assert max(accuracy.values()) <= 0.05


def test_the_student_follows_the_right_hint_and_no_other(student, problems):
    rng = random.Random(0)
    hard = [problem for problem in problems if len(problem.concepts) == 1]

    def rate(hint):
        prompts = [add_hint(problem.question, hint(problem)) for problem in hard for _ in range(4)]
        answers = sample_answers(*student, prompts, seed=1)
        asked = [problem for problem in hard for _ in range(4)]
        return sum(passes(answer, problem) for answer, problem in zip(answers, asked, strict=True)) / len(asked)

    assert rate(lambda problem: hint_for(rng, problem.concepts)) > 0.4
    assert rate(lambda problem: hint_for(rng, [c for c in CONCEPTS if c not in problem.concepts][:1])) < 0.05
    assert rate(lambda problem: rng.choice(GENERIC_HINTS)) < 0.05


def test_sampling_is_repeatable_and_leaves_torch_and_the_model_as_they_were(student, problems):
    model, tokenizer = student
    model.train()
    state = torch.random.get_rng_state()
    prompts = [problem.question for problem in problems[:8]]
    assert sample_answers(model, tokenizer, prompts, seed=3) == sample_answers(model, tokenizer, prompts, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training


def test_pretraining_is_repeatable_by_its_seed():
    first, again, other = (pretrain(seed=seed, steps=2, problems_per_family=2)[0] for seed in (1, 1, 2))
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
