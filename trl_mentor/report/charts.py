"""The charts of a report: functions from its figures to SVG text, None where there is nothing to show."""

from __future__ import annotations

from trl_mentor.report.course_charts import learning, outcomes
from trl_mentor.report.drawing import CSS
from trl_mentor.report.proof_charts import recovery, reliance, transfer
from trl_mentor.report.work_charts import causes, drafts, spending, topics

__all__ = ["CSS", "causes", "drafts", "learning", "outcomes", "recovery", "reliance", "spending", "topics", "transfer"]
