"""Two reports, or a report and its limits, compared; reads records and nothing else.

`compare` finds what is new, gone and changed between two reports. `check` holds a report to limits
and to a baseline. Both look at the same two things: `figures`, the totals that can be limited, and
`items`, the single causes behind them, each with its line.
"""
