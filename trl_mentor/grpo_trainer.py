"""`GRPOTrainer` that mentors collapsed groups. TRL's private names are used here, and one in `vllm_cpu`."""

from __future__ import annotations

import inspect
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.integrations import is_deepspeed_zero3_enabled
from trl import GRPOTrainer

from trl_mentor.assembly import completion_text, question_text
from trl_mentor.batch_parts import Concerned, Means
from trl_mentor.bill import Bill
from trl_mentor.callback import MentorCallback, ends_window
from trl_mentor.causes import WITHOUT_A_MENTOR
from trl_mentor.channel import LIMITS, reports
from trl_mentor.checkpoints import last_complete_checkpoint, nothing_to_resume, was_saved
from trl_mentor.collapse import group_states
from trl_mentor.config import mentor_arguments
from trl_mentor.contract import Generated, check_contract
from trl_mentor.counters import Counters, count_states
from trl_mentor.dosage import Dosage
from trl_mentor.echo import without_echo
from trl_mentor.empty_steps import EmptySteps, refuse_skipping
from trl_mentor.engine_limit import engine_limit
from trl_mentor.errors import ContractError
from trl_mentor.exchange import Exchange
from trl_mentor.fitting import special_tokens
from trl_mentor.group_reader import GroupReader, members_of
from trl_mentor.guards import (
    answer_columns,
    check_arguments,
    check_material,
    context_length,
    refuse_images,
    refuse_multimodal,
    refuse_weighting,
    topic_columns,
)
from trl_mentor.intervene import intervene
from trl_mentor.journal import Journal
from trl_mentor.limits import Limits
from trl_mentor.mentor import Mentor
from trl_mentor.metrics import batch_metrics
from trl_mentor.model_card import NAME, mentoring_section, paper
from trl_mentor.model_card import tags as card_tags
from trl_mentor.probe import apart, probe
from trl_mentor.records import Prompt, Row, RunInfo, Weighting
from trl_mentor.refill import Refill
from trl_mentor.reflecting import add_reflection, pays_reflection
from trl_mentor.reliance import with_reliance
from trl_mentor.returns import returning, see_returns
from trl_mentor.reward_errors import RewardGuard
from trl_mentor.rolling import Policy, Request
from trl_mentor.rows import aligned, rows_of, show_prompts, spliced, taken_over
from trl_mentor.schedules import Ahead
from trl_mentor.settings import RewardErrors, StrategyKind
from trl_mentor.strategies.base import Opening, Strategy
from trl_mentor.strategies.mentor import mentor_of
from trl_mentor.uplift import run_metrics
from trl_mentor.vllm_cpu import use_cpu_engine
from trl_mentor.weighting import WEIGHTING, encoded, weighed
from trl_mentor.wiring import make_dosage, make_schedule, make_strategy, open_books, read_rewards, run_info

logger = logging.getLogger(__name__)

check_contract(GRPOTrainer)

HINT_COLUMN = "mentor/hint"
"""Column of the completions table with the hint that a row was sampled under; empty for rows without one."""


class MentorGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPO in which a group whose every completion fails is sampled again under a mentor's hint.

    Takes everything `GRPOTrainer` takes. What it does not do: change the optimizer, the rewards or, unless a strategy
    or `mentor_rescue_shaping` weighs rows (`trl_mentor.weighting`), the loss; show the hint to a reward function;
    mentor during evaluation; touch the data set; stop or stall for a mentor that fails.
    Tools, environments, `rollout_func` and images are refused at construction.

    Args:
        mentor: Writes and vets the hints. Default: the one that the `mentor_*` settings of `args` describe.
        strategy: What to do with collapsed groups, as an object. Default: the one that `args.mentor_strategy` names.

    Raises:
        ConfigError: A setting is wrong, contradicts another, or names an unknown reward function.
        NotImplementedError: An option is used that mentoring does not support; the message names it.
    """

    _paper: dict[str, str]
    num_generations: int
    _pending_extra_logs: defaultdict[str, list[Any]]
    _pending_metrics: defaultdict[str, list[float]]

    def __init__(
        self, *args: Any, mentor: Mentor | None = None, strategy: Strategy | None = None, **kwargs: Any
    ) -> None:
        bound = inspect.signature(GRPOTrainer.__init__).bind_partial(self, *args, **kwargs)
        given = bound.arguments
        settings = mentor_arguments(given.get("args"))
        zero3 = is_deepspeed_zero3_enabled()
        check_arguments(given, settings, mentor=mentor, strategy=strategy, zero3=zero3)
        decisive, last = settings.mentor_success_rewards, None
        if pays_reflection(settings, strategy):
            decisive, last = add_reflection(given, settings), -1
        self._reward_guard: RewardGuard | None = None
        if settings.mentor_reward_errors == RewardErrors.UNSCORABLE:
            self._reward_guard = RewardGuard(decisive=decisive)
            given["reward_funcs"] = self._reward_guard.wrap(given.get("reward_funcs"))
        super().__init__(*bound.args[1:], **bound.kwargs)
        use_cpu_engine(self)
        if self._is_vlm:
            refuse_multimodal()
        self._settings = settings
        self.success_rule, self._format_columns = read_rewards(
            self.reward_func_names[:last], self.reward_weights.tolist()[:last], settings
        )
        self.strategy = make_strategy(self, settings, mentor) if strategy is None else strategy
        self._special_tokens = special_tokens(self._tokenizer)
        self._limits = self._read_limits()
        self.schedule = make_schedule(self, settings)
        if self.strategy.name == StrategyKind.MENTOR:
            self._name, self._paper = NAME, paper(self._paper)
        self.cause_routes = getattr(self.strategy, "routes", WITHOUT_A_MENTOR)
        """What is done about each cause of collapse."""
        self._exchange = Exchange(self.accelerator)
        columns = getattr(self.train_dataset, "column_names", None)
        self._reader: GroupReader | None = None if columns is None else self._read_with(columns)
        self._evaluating = False
        self._training_batch = False
        self._batch_inputs: list[dict[str, Any]] = []
        self._examples: dict[int, dict[str, Any]] = {}
        self._batch_rewards: torch.Tensor | None = None
        self._misreported: set[str] = set()
        self._batch_hints: list[str] = []
        self._batch_weightings: list[Weighting] = []
        self._weighed: dict[str, Any] | None = None
        self._reports_logprobs = False
        self.books = open_books(self, settings)
        """What the run counts, remembers and writes down."""
        self._bind_callback()
        if settings.mentor_skip_empty_steps:
            scaled = self.args.fp16 or self.accelerator.scaler is not None
            refuse_skipping(self.args, scaled=scaled, deepspeed=self.is_deepspeed_enabled)
            self.add_callback(EmptySteps(self._exchange, self._count_skipped_step))

    @property
    def mentor_totals(self) -> Counters:
        """What happened since the run began, over all ranks; a resumed run continues it."""
        return self.books.totals

    @property
    def journal(self) -> Journal | None:
        """The journal, on the main process."""
        return self.books.journal

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As `GRPOTrainer.train`, except that True means the newest checkpoint that no kill left incomplete.

        "auto" means the same, or a new run where no checkpoint was ever saved. All ranks do what the main process
        finds. Raises `ConfigError` if none of the checkpoints in `output_dir` will do.

        The metrics that are returned, and written to `train_results.json`, have the bill as `mentor/bill/*` and what
        hints did in the whole run as `mentor/total/*`.
        """
        auto, folder = resume_from_checkpoint == "auto", self.args.output_dir
        if auto or resume_from_checkpoint is True:
            chosen, saved = self._exchange.from_main(lambda: (last_complete_checkpoint(folder), was_saved(folder)))
            if chosen is None and (saved or not auto):
                raise nothing_to_resume(folder)
            resume_from_checkpoint = None if chosen is None else str(chosen)
        try:
            output = super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            self.close_books()  # what was spent is in the journal whatever ended the training
        bill = Bill.of(self.mentor_totals, priced=self.books.priced)
        metrics = output.metrics | run_metrics(Counters(), self.mentor_totals) | bill.metrics()
        try:
            self.save_metrics("train", metrics, combined=False)
        except OSError as error:
            logger.warning("trl-mentor: train_results.json could not be written: %s", error)
        return output._replace(metrics=metrics)

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        # `model.training` does not tell: continuous batching leaves the model in training mode when it has generated.
        self._evaluating = True
        try:
            return super().prediction_step(*args, **kwargs)
        finally:
            self._evaluating = False

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._training_batch = self.model.training and not self._evaluating
        self._batch_inputs = inputs
        self._batch_weightings = []
        if self._training_batch:
            # Reward functions may edit what they are shown, and the first scoring comes before the re-roll.
            start, size = self._exchange.rank * len(inputs), self.num_generations
            self._examples = {i: deepcopy(row) for i, row in enumerate(inputs) if (start + i) % size == 0}
            if self._reader is None:  # a stream, whose columns show with its first rows
                refuse_images(inputs[0])
                self._reader = self._read_with(inputs[0])
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if any(weighting is not Weighting.NONE for weighting in self._batch_weightings):
            output[WEIGHTING] = encoded(self._batch_weightings, self.accelerator.device)
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._weighed = dict(inputs) if WEIGHTING in inputs else None
        try:
            loss: torch.Tensor = super()._compute_loss(model, inputs if self._weighed is None else self._weighed)
            return loss
        finally:
            self._weighed = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._weighed is not None:  # the loss, which has yet to read what is replaced here
            low, high = self.args.epsilon, self.args.epsilon_high
            new = weighed(
                self._weighed,
                found[0].detach(),
                gamma=self._settings.mentor_shaping_gamma,
                exponent=getattr(self.strategy, "affinity", 1.0),
                clip=(low, low if high is None else high),
            )
            self._weighed.update(new)
        return found

    def _generate(self, prompts: list[Any]) -> Generated:
        counters = self._probe() if self._training_batch else Counters()
        opened = self._opened(prompts)
        first = Generated._make(super()._generate(opened))
        if not self._training_batch:
            return first
        self._reports_logprobs = first.logprobs is not None
        rewards, reported = self._score(self._batch_inputs, prompts, first)
        rule, step = self.success_rule, self.state.global_step
        values = [rule.value(row) for row in rewards.tolist()]
        states = group_states(values, self.num_generations, rule.threshold)
        counters += count_states(states) + self._count_first_roll(prompts, opened, first, values)
        self._batch_hints = [""] * len(prompts)
        concerned = Concerned.among(states, self.strategy.select(states))
        if concerned.gathered:
            first, rewards, more = self._intervene(prompts, first, rewards, reported, concerned)
            counters += more
        if self._reward_guard is not None:
            counters += Counters(reward_errors=self._exchange.total(self._reward_guard.take_count()))
        self._batch_rewards = rewards
        counters = self.books.book(counters, step=step)
        for name, value in batch_metrics(counters, priced=self.books.priced).items():
            self._metrics["train"][name].append(value)
        self.books.write_events(step=step)
        return first

    def _count_first_roll(
        self, prompts: Sequence[Prompt], opened: Sequence[Prompt], first: Generated, values: Sequence[float]
    ) -> Counters:
        """What a first roll took and showed; `values` are the success rewards of all ranks, all else is this one's."""
        assert self._reader is not None
        size, step, start = self.num_generations, self.state.global_step, self._exchange.rank * len(prompts)
        changed = {i for i, (plain, new) in enumerate(zip(prompts, opened, strict=True)) if new != plain}
        mine = returning(
            self._examples, self.books, self._reader, apart_from=changed, start=start, size=size, step=step
        )
        echoes = self._count_echoes(prompts, first, apart_from=changed)
        sums = [sum(map(len, first.completion_ids)), len(mine), len(changed), echoes]
        tokens, came_round, opened_rows, echoes = self._exchange.totals(sums)
        counters = Counters(
            policy_tokens=tokens,
            opened_rows=opened_rows,
            completions=len(values),
            successes=sum(map(self.success_rule.succeeds, values)),
            unhinted_echoes=echoes,
            echo_checked=len(values) - opened_rows if self.books.echoes.begun else 0,
        )
        if came_round:
            counters += see_returns(mine, values, self.books, self._exchange, self.success_rule, size=size, step=step)
        return counters

    def _opened(self, prompts: list[Prompt]) -> list[Prompt]:
        """The prompts of this rank's rows as the strategy has them sampled."""
        strategy = self.strategy
        if not isinstance(strategy, Opening) or not (self._training_batch or strategy.in_evaluation):
            return prompts
        progress = self.state.global_step / max(self.state.max_steps, 1)
        pairs = zip(prompts, self._batch_inputs, strict=True)
        return self._limits.opened(
            prompts, [strategy.first_prompt(prompt, row, progress=progress) for prompt, row in pairs]
        )

    def _count_echoes(self, prompts: Sequence[Prompt], first: Generated, *, apart_from: Collection[int]) -> int:
        """How many of this rank's completions of plain prompts quote a hint."""
        plain = [i for i in range(len(prompts)) if i not in apart_from] if self.books.echoes.begun else []
        completions = [completion_text(first.completions[i]) for i in plain]
        return self.books.echoes.count(completions, [question_text(prompts[i]) for i in plain])

    def _count_skipped_step(self) -> None:
        self.books.book(Counters(skipped_steps=1), step=self.state.global_step)

    def close_books(self, *, patience: float = 0.0) -> None:
        """Close the books; the mentor begins nothing more, and what it is asked now is waited for so many seconds."""
        if isinstance(self.schedule, Ahead):
            self.schedule.queue.pause()
            mentor = mentor_of(self.strategy)
            if mentor is not None:
                mentor.interrupt()
        self.books.close(step=self.state.global_step, patience=patience)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As `GRPOTrainer.log`, with the rates of the window and of the run so far that batches alone do not give."""
        if not ends_window(logs):
            super().log(logs, start_time)
            return
        logs |= run_metrics(self.books.window, self.books.totals)
        super().log(logs, start_time)
        self.books.logged = self.books.totals

    def _calculate_rewards(
        self, inputs: list[Any], prompts: list[Any], completions: list[Any], completion_ids_list: list[list[int]]
    ) -> torch.Tensor:
        if not self._training_batch:
            rewards: torch.Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            self._take_reports(len(prompts))
            self._batch_hints = [""] * len(prompts)
        else:
            if self._batch_rewards is None:
                raise ContractError("TRL asks for the rewards of a batch before it has generated it")
            rewards, self._batch_rewards = self._batch_rewards, None
        if self.log_completions:
            self._pending_extra_logs[HINT_COLUMN] = list(self._batch_hints)
        return rewards

    def _means(self, reader: GroupReader) -> Means:
        """What the interventions of a batch work with."""
        return Means(
            strategy=self.strategy,
            schedule=self.schedule,
            reader=reader,
            reward_names=self.reward_func_names,
            exchange=self._exchange,
            policy=Policy(
                regenerate=self._regenerate,
                objection=self._limits.lesson_objection,
                present=self._present,
                is_truncated=self._is_truncated,
                with_reliance=self._with_reliance if self._settings.mentor_hint_reliance else None,
                without_echo=self._without_echo if self._settings.strips_echo() else None,
            ),
            asks_mentor=mentor_of(self.strategy) is not None,
            trial=self.books.trial,
            generic=getattr(self.strategy, "generic", None),
            dosage=self.dosage(),
            max_rounds=self._settings.max_rounds(getattr(self.strategy, "max_rounds", 1)),
        )

    def _intervene(
        self,
        prompts: list[Any],
        first: Generated,
        rewards: torch.Tensor,
        reported: Mapping[str, Sequence[Any]],
        concerned: Concerned,
    ) -> tuple[Generated, torch.Tensor, Counters]:
        """Find causes, re-roll the selected groups; returns this rank's batch, everybody's rewards, what happened."""
        assert self._reader is not None
        rank, size, step = self._exchange.rank, self.num_generations, self.state.global_step
        start = rank * len(prompts)
        logs = {**aligned(self._pending_extra_logs, len(prompts)), **reported}
        rows = rows_of(
            first, rewards[start : start + len(prompts)], logs, hints=[None] * len(prompts), rule=self.success_rule
        )
        refill = getattr(self.strategy, "fresh", None)
        if isinstance(refill, Refill):
            asked = self._exchange.gather([example["prompt"] for example in self._examples.values()])
            refill.begin(asked, step=step)
        mine = members_of(rows, concerned.gathered, self._examples, self._is_truncated, size=size, rank=rank)
        members = self._exchange.gather(mine)
        in_order = sorted(members, key=lambda member: member.number)
        outcome = intervene(in_order, concerned, self._means(self._reader), step=step)
        self.books.record(outcome.interventions, outcome.details)
        self.books.echoes.keep(outcome.hints)
        for example, past in outcome.ended:
            self.books.remember(example, self._reader.answer(example), past)
        rewards = taken_over(outcome.rows, rows, rewards, rank=rank)
        show_prompts(outcome.examples, prompts, size=size, rank=rank)
        self._batch_hints = [row.hint or "" for row in rows]
        refuse_weighting((row.weighting for group in outcome.rows.values() for row in group), self.args)
        self._batch_weightings = [row.weighting for row in rows]
        self._write_back_logs(rows)
        return spliced(first, rows), rewards, outcome.counters

    def _probe(self) -> Counters:
        """If it is the time, ask some remembered prompts; all but the weights is afterwards as it was before."""
        step, rank = self.state.global_step, self._exchange.rank
        asked = self.books.prober.take(step)
        if not asked:
            return Counters()
        with apart(self.accelerator.device, self.args.seed, step, rank):
            found, counters = probe(
                asked,
                partial(self._regenerate, metrics="mentor/probe"),
                self._exchange,
                self.success_rule,
                size=self.num_generations,
                step=step,
            )
        self.books.note_returns(found)
        return counters

    def _with_reliance(self, requests: Sequence[Request], rows: list[Row]) -> list[Row]:
        """The rows with what they owe to their hints, measured as TRL measures the policy for its loss."""
        plain = self._tokenize_prompts([request.example["prompt"] for request in requests])[0]
        device, batch_size = self.accelerator.device, self.args.per_device_train_batch_size

        def score(ids: torch.Tensor, mask: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
            given, size = (self.model, ids.to(device), mask.to(device), tokens), batch_size
            found = self._get_per_token_logps_and_entropies(*given, batch_size=size, compute_entropy=True)
            return found[0], found[1]

        self.model.eval()  # dropout would blur what is measured, and draw random numbers
        try:
            return with_reliance(rows, plain, score, pad=self._tokenizer.pad_token_id)
        finally:
            self.model.train()

    def _without_echo(self, row: Row, prompt: Prompt) -> Row:
        """The row without the tokens in which it quotes its hint."""
        decode = partial(self._tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return without_echo(row, question=question_text(prompt), decode=decode, special=self._special_tokens)

    def _regenerate(
        self, requests: Sequence[Request], *, alone: bool = False, metrics: str = "mentor/reroll"
    ) -> list[Row]:
        """Generate and score this rank's share of a re-roll or a probe, through TRL's own generation and rewards.

        TRL's `completions/*` metrics keep describing the first roll. Metrics that reward functions log here appear as
        `<metrics>/<name>`, so that the plain ones are not counted twice.
        """
        kept = {name: list(values) for name, values in self._first_roll_metrics().items()}
        size: int = self.num_generations
        self.num_generations = 1 if alone else size  # TRL takes the first prompt of so many for all of them
        try:
            second = Generated._make(super()._generate([request.sampled_under for request in requests]))
        finally:
            self.num_generations = size
        for name in self._first_roll_metrics():
            del self._metrics["train"][name]
        self._metrics["train"].update(kept)
        return self._scored(requests, second, metrics)

    def _present(self, requests: Sequence[Request]) -> list[Row]:
        """This rank's share of given completions as rows, scored as if the policy had written them."""
        texts = [request.given or "" for request in requests]
        ids = [
            [*self._tokenizer(text, add_special_tokens=False).input_ids, self._tokenizer.eos_token_id]
            for text in texts
        ]
        prompts = [request.sampled_under for request in requests]
        given = Generated(
            prompt_ids=self._tokenize_prompts(prompts)[0],
            completion_ids=ids,
            tool_mask=None,
            completions=[
                text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
                for text, prompt in zip(texts, prompts, strict=True)
            ],
            logprobs=[[math.nan] * len(row) for row in ids] if self._reports_logprobs else None,
            extra_fields={},
            images=None,
            tool_images=[],
        )
        rows = self._scored(requests, given, "mentor/given")
        return [replace(row, off_context=True) for row in rows]

    def _scored(self, requests: Sequence[Request], generated: Generated, metrics: str) -> list[Row]:
        """The rows of these requests with their rewards, in which what reward functions log stays apart."""
        first_logs, first_metrics = self._pending_extra_logs, self._pending_metrics
        self._pending_extra_logs, self._pending_metrics = defaultdict(list), defaultdict(list)
        examples = [deepcopy(dict(request.example)) for request in requests]
        rewards, _ = self._score(examples, [example["prompt"] for example in examples], generated)
        logs = aligned(self._pending_extra_logs, len(requests))
        for name, values in self._pending_metrics.items():
            first_metrics[f"{metrics}/{name}"].extend(values)
        self._pending_extra_logs, self._pending_metrics = first_logs, first_metrics
        start = self._exchange.rank * len(requests)
        hints = [request.hint for request in requests]
        return rows_of(generated, rewards[start : start + len(requests)], logs, hints=hints, rule=self.success_rule)

    def _first_roll_metrics(self) -> dict[str, list[float]]:
        return {name: values for name, values in self._metrics["train"].items() if name.startswith("completions/")}

    def _score(
        self, inputs: list[dict[str, Any]], prompts: list[Prompt], generated: Generated
    ) -> tuple[torch.Tensor, dict[str, list[str | None]]]:
        """Everybody's rewards, shape (rows of all ranks, reward functions), and what was reported on this rank's rows.

        The reward functions get copies to look at.
        """
        shown = deepcopy((prompts, generated.completions))
        ids = [list(row) for row in generated.completion_ids]  # integers, for which deepcopy takes far longer
        rewards: torch.Tensor = super()._calculate_rewards(inputs, *shown, ids)
        return rewards, self._take_reports(len(prompts))

    def _take_reports(self, rows: int) -> dict[str, list[str | None]]:
        """What reward functions reported to the mentor, taken out of the columns that TRL logs."""
        logged = {column: self._pending_extra_logs.pop(column, []) for column in LIMITS}
        return reports(logged, rows, self._misreported)

    def _read_limits(self) -> Limits:
        """What the policy can be sampled under."""
        lengths = [context_length(self.model.config.get_text_config()), self._tokenizer.model_max_length]
        return Limits(
            strategy=self.strategy.name,
            special_tokens=tuple(self._special_tokens.values()),
            count_tokens=lambda prompt: len(self._tokenize_prompts([prompt])[0][0]),
            context_room=min((length for length in lengths if length), default=math.inf) - self.max_completion_length,
            engine_room=(engine_limit(self) or math.inf) - self.max_completion_length,
            completion_room=self.max_completion_length,
        )

    def _is_truncated(self, row: Row) -> bool:
        ended = (*self.eos_token_ids, self._tokenizer.pad_token_id)
        return bool(row.completion_ids) and row.completion_ids[-1] not in ended

    def _write_back_logs(self, rows: Sequence[Row]) -> None:
        """Replace the columns that reward functions logged, so that each row shows its own values."""
        logged = aligned(self._pending_extra_logs, len(rows))
        for column in sorted({*logged, *(column for row in rows for column in row.extra)} - LIMITS.keys()):
            self._pending_extra_logs[column] = [row.extra.get(column) for row in rows]

    def _read_with(self, columns: Iterable[str]) -> GroupReader:
        check_material(self.strategy, columns)
        return GroupReader(
            self.success_rule,
            answer_columns(self._settings, columns),
            self._format_columns,
            topic_columns(self._settings, columns),
            getattr(self.strategy, "columns", ()),
        )

    def dosage(self) -> Dosage:
        """Which collapsed groups are mentored in the training that goes on."""
        return make_dosage(self, self._settings)

    def run_info(self) -> RunInfo:
        """What a reader of the journal needs to know of this run."""
        return run_info(self, self._settings)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        # A resumed run goes on from here, or from before the step if SIGTERM came in the middle of one.
        step, callbacks = self.state.global_step, self._mentor_callbacks()
        self.books.book(
            Counters(), step=step if any(item.is_in_step(step) for item in callbacks) else max(step - 1, 0)
        )
        # Its state says that a checkpoint is complete, so that of an older one in the same place has to go first.
        if self.args.should_save:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            (folder / "trainer_state.json").unlink(missing_ok=True)
        super()._save_checkpoint(*args, **kwargs)

    def create_model_card(
        self, model_name: str | None = None, dataset_name: str | None = None, tags: str | list[str] | None = None
    ) -> None:
        """As `GRPOTrainer.create_model_card`, with what mentoring is, what came of it and what it took."""
        given = [tags] if isinstance(tags, str) else tags or []
        super().create_model_card(model_name, dataset_name, [*given, *card_tags(self.strategy.name)])
        if self.accelerator.is_main_process:
            hints = getattr(self.strategy, "gives_hints", True)
            section = mentoring_section(self.run_info(), self.mentor_totals, mentor_of(self.strategy), hints=hints)
            with (Path(self.args.output_dir) / "README.md").open("a", encoding="utf-8", newline="\n") as card:
                card.write(f"\n{section}")

    def _load_callback_state(self) -> None:
        super()._load_callback_state()  # with restore_callback_states_from_checkpoint it makes new callbacks
        self._bind_callback()

    def _mentor_callbacks(self) -> list[MentorCallback]:
        return [item for item in self.callback_handler.callbacks if isinstance(item, MentorCallback)]

    def _bind_callback(self) -> None:
        callbacks = self._mentor_callbacks()
        if not callbacks:
            callbacks = [MentorCallback()]
            self.add_callback(callbacks[0])
        for callback in callbacks:
            callback.bind(self)
