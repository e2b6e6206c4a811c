"""The model card that a training leaves in its directory, read back as the Hub reads it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import tiny
from huggingface_hub import ModelCard
from transformers import TrainerCallback

from trl_mentor import Mentor, OpenAIBackend, read_journal
from trl_mentor.bill import Bill
from trl_mentor.counters import Counters
from trl_mentor.model_card import PAPER, mentoring_section
from trl_mentor.records import RunInfo
from trl_mentor.uplift import uplift

SAVED = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
README = Path(__file__).parent.parent / "README.md"


def card_of(output_dir: Path) -> ModelCard:
    """The card, whose metadata can be read and hold what the Hub needs."""
    card = ModelCard.load(output_dir / "README.md")
    assert {"trl", "grpo", "trl-mentor"} <= set(card.data.tags)
    assert len(card.data.tags) == len(set(card.data.tags))
    assert card.data.library_name == "transformers"
    return card


def rows_of(card: ModelCard) -> dict[str, list[str]]:
    """The rows of all tables by their first cell; every row has as many cells as its head."""
    rows, width = {}, 0
    for line in card.text.splitlines():
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ") if line.startswith("|") else []
        width = width if cells and width else len(cells)
        assert len(cells) == width, line
        if cells:
            rows[cells[0]] = cells[1:]
    return rows


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """A run with a control, with its directory."""
    folder = tmp_path_factory.mktemp("trial") / "lessons"
    return tiny.trained(folder, **SAVED, mentor_control_fraction=0.5), folder


def test_the_card_names_and_cites_the_method_this_package_grpo_and_trl(trial):
    _, folder = trial
    card = card_of(folder)
    assert "mentor" in card.data.tags
    assert f"trained with MENTOR, a method introduced in [{PAPER['title']}]" in card.text
    assert "2610.13594" in card.text
    assert "not the method of the same name in arXiv 2510.04140" in card.text
    version = metadata.version("trl-mentor")
    assert f"Trained with trl-mentor {version}." in card.text
    assert f"version = {{{version}}}" in card.text
    for entry in ("@article{mentor2026", "@article{shao2024deepseekmath", "vonwerra2020trl", "@software{trl_mentor"):
        assert card.text.count(entry) == 1
    assert card.text.count("```") % 2 == 0


def test_the_citation_is_the_one_of_the_readme():
    assert PAPER["citation"] in README.read_text(encoding="utf-8")


def test_the_card_states_the_uplift_of_a_run_with_a_control_with_interval_and_numbers(trial):
    trainer, folder = trial
    card, found = card_of(folder), uplift(trainer.mentor_totals.recovery)
    shown = [f"{100 * value:+.1f}" for value in (found.difference, found.low, found.high)]
    assert f"**{shown[0]} points [{shown[1]}, {shown[2]}]**" in card.text
    rows = rows_of(card)
    for arm, name in (("hint", "its hint"), ("control", "the plain question")):
        tally = trainer.mentor_totals.recovery[f"{arm}/all"]
        assert rows[name][:2] == [str(tally.groups), str(tally.hits)]
    assert rows["Hints withheld by lot"] == ["50%"]


def test_the_bill_in_the_card_is_the_one_of_the_run(trial):
    trainer, folder = trial
    rows, bill = rows_of(card_of(folder)), Bill.of(trainer.mentor_totals, priced=False)
    assert rows["first rolls"] == [f"{bill.first_roll_tokens:,}"]
    assert rows["re-rolls with the hint withheld"] == [f"{bill.control_tokens:,}"]
    for role, spent in bill.roles.items():
        counts = (spent.calls, spent.errors, spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens)
        assert rows[role] == [f"{count:,}" for count in counts]
    assert rows["training"][1] == "100.0%"
    assert "cost" not in card_of(folder).text


def test_the_card_says_the_money_where_there_were_prices(tmp_path):
    mentor = tiny.mentor(prices={"prompt": 1000.0, "completion": 1000.0})
    trainer = tiny.trained(tmp_path, **SAVED, mentor=mentor)
    assert f"The mentor's tokens cost {trainer.mentor_totals.mentor.cost:,.4g}" in card_of(tmp_path).text


class AtEachCard(TrainerCallback):
    def __init__(self, folder: Path) -> None:
        self.folder, self.texts = folder, []

    def on_save(self, args, state, control, **kwargs):
        self.texts.append(rows_of(card_of(self.folder))["collapsed: every completion failed"])


def test_every_checkpoint_has_a_card_of_what_happened_until_then(tmp_path):
    trainer, cards = tiny.trainer(tmp_path, **SAVED), AtEachCard(tmp_path)
    trainer.add_callback(cards)
    trainer.train()
    assert cards.texts == [["4"], ["8"]]
    assert (tmp_path / "README.md").read_text().count("## Mentoring") == 1


def test_a_run_without_a_control_claims_nothing(tmp_path):
    tiny.trained(tmp_path, **SAVED)
    text = card_of(tmp_path).text
    assert "what hints do beyond a second roll was not measured" in text
    assert "percentage points" not in text


def test_the_card_says_how_re_rolled_groups_were_trained_and_when(tmp_path):
    options = {"mentor_preset": "robust", "mentor_start_step": 0.1, "mentor_decay": "linear"}
    tiny.trained(tmp_path / "chosen", **SAVED, **options)
    found = rows_of(card_of(tmp_path / "chosen"))
    assert found["Rows of a re-rolled group that are trained, and the prompt they are scored under"] == [
        "single, original"
    ]
    assert found["When groups are mentored"] == ["from 10% of the steps on, linear decay"]
    tiny.trained(tmp_path / "default", **SAVED)
    found = rows_of(card_of(tmp_path / "default"))
    assert found["Rows of a re-rolled group that are trained, and the prompt they are scored under"] == [
        "replace, hinted"
    ]
    assert "When groups are mentored" not in found


@pytest.mark.parametrize(
    ("strategy", "said"), [("none", "a baseline for [MENTOR]"), ("resample", "a control for [MENTOR]")]
)
def test_a_baseline_is_not_called_mentor(tmp_path, strategy, said):
    reward = tiny.HardRowsFail(rerolls=strategy == "resample")
    tiny.trained(tmp_path, **SAVED, mentor_strategy=strategy, reward=reward)
    card = card_of(tmp_path)
    assert "mentor" not in card.data.tags
    assert "trained with GRPO, a method introduced in [DeepSeekMath" in card.text
    assert said in card.text
    assert not any(part in card.text for part in ("percentage points", "second roll was not measured", "| Calls |"))


def test_the_tags_and_the_data_set_of_the_user_stay(tmp_path):
    trainer = tiny.trained(tmp_path)
    trainer.create_model_card(model_name="mine", dataset_name="me/data", tags=["my-tag", "mentor"])
    card = card_of(tmp_path)
    assert {"my-tag", "mentor"} <= set(card.data.tags)
    assert (card.data.datasets, card.data.model_name) == ("me/data", "mine")
    trainer.create_model_card(tags="one-tag")
    assert "one-tag" in card_of(tmp_path).data.tags


def test_no_place_on_a_disk_and_none_of_the_data_is_in_the_card(tmp_path, monkeypatch):
    policy = tmp_path / "secret-place" / "policy"
    tiny.model().save_pretrained(policy)
    data = tiny.dataset().add_column("topic", ["secret topic"] * 8)
    monkeypatch.setattr(tiny, "model", lambda: tiny.load(policy))
    trainer = tiny.trained(tmp_path / "out", **SAVED, data=data, mentor_control_fraction=0.5)
    assert trainer.run_info().model == str(policy)
    text = (tmp_path / "out" / "README.md").read_text()
    records = read_journal(tmp_path / "out")
    texts = {text for record in records for text in (record.group.question, record.group.attempts[0].text)}
    texts = {text for text in texts if len(text.split()) > 1}
    texts |= {tiny.HINT, "answer-1", "secret topic", "secret-place", str(tmp_path)}
    assert not [part for part in texts if part in text]


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
        ("odd|name\n# x", "odd&#124;name<br>&#35; x"),
        ("/models/Qwen3", "a model from a local directory"),
        ("tests", "a model from a local directory"),
    ],
)
def test_the_card_names_the_mentor_but_no_directory(tmp_path, monkeypatch, model, shown):
    monkeypatch.chdir(README.parent)
    backend = OpenAIBackend(model, base_url="http://some-host:1/v1")
    trainer = tiny.trainer(tmp_path, mentor=Mentor(backend))
    trainer.create_model_card()
    assert trainer.run_info().mentor == model
    card = card_of(tmp_path)
    assert rows_of(card)["Mentor"] == [shown]
    assert "some-host" not in card.text


@pytest.mark.parametrize(
    ("strategy", "method"),
    [
        ("dapo", "DAPO"),
        ("static_hint", "HINT"),
        ("prefix", "QuestA"),
        ("scaffold", "Scaf-GRPO"),
        ("luffy", "LUFFY"),
        ("critique", "Critique-GRPO"),
        ("srpo", "SRPO"),
    ],
)
def test_the_card_of_a_rival_names_its_method_and_links_its_paper(strategy, method):
    section = mentoring_section(RunInfo(strategy=strategy), Counters(), None, hints=False)
    assert f"[{method}](https://arxiv.org/abs/2" in section
    assert "of the user's own" not in section
    assert "was not measured" not in section
    assert "was not measured" in mentoring_section(RunInfo(strategy=strategy), Counters(), None, hints=True)
