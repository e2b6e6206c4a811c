"""The report of a run: one HTML page that a person can read, made from the journal alone.

    journal  ->  reading: records without their long texts, and where the whole ones lie in the file
             ->  figures: `report_figures(records: JournalRecords) -> Figures`, frozen records of numbers and strings
             ->  pictures: `CHARTS`, functions from `Figures` to SVG text in the modules `*_charts`
             ->  page: text and tables of the figures, the charts, a list of interventions to filter and open

`figures` reads numbers, enums, topics, hints and events, never the texts of attempts, completions and drafts:
`reading` has emptied those, so that memory goes by the number of interventions, not by the gigabytes of the journal.

The page's Content-Security-Policy allows no inline style, so a chart has presentation attributes such as `fill` and
`stroke` alone: no `style` or `class` attribute, no `<style>` or `<script>` element, no link, no image. The rules for
it are in `drawing.CSS`, every selector under the `.chart` that the page puts around it, and become part of the one
style sheet of the page. Every string that comes from a journal (topics, names of evaluations) is escaped where it
enters the SVG. An SVG has a `viewBox`, a `<title>` and no `id` attributes, since several stand in one page.
"""
