"""Several runs against each other at equal budgets, from their journals alone.

journals  ->  runs: what each run was and did; runs with one label are the seeds of one method
          ->  tracks: a metric of one run over tokens or seconds
          ->  intervals: bands over seeds, and differences between methods
          ->  compared: `compare(methods, ...) -> Comparison`, frozen records of numbers and strings
"""
