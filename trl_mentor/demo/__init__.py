"""A student with planted misconceptions: a synthetic world in which zero-reward collapse and its rescue take a minute.

    concepts.py     the five misconceptions: repair, hints, what a tutor calls them
    sandbox.py      runs one-line programs that nobody vouches for
    families.py     the nine task families: specifications in words and naive programs
    world.py        problems, unit tests, the split
    corpus.py       the documents that the student was pretrained on
    tokenizer.py    words and digits
    pretrain.py     makes the checkpoint that ships in `checkpoint/`
    tutor.py        a rule-based mentor that reads the student's failed programs
    student.py      loading it, sampling from it, its accuracy without hints
    training.py     one run at a given number of generated tokens
    report.py       tables and charts for the terminal
    run.py          `trl-mentor demo`

The misconceptions were put there on purpose: figures from this world show the mechanism and say nothing about LLMs.
Nor do they show that hints beat extra sampling: about one program in a thousand is right without a hint, and for so
small a student a few lucky re-rolls under the plain question (`mentor_strategy="resample"`) are nearly as good.
"""
