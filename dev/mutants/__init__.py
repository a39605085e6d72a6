"""Mutants: small faults put into the pure packages, one at a time, to see which of them no test notices.

`operators` and `mutate` make them, `packages` says which tests cover what, `trial` runs these over one changed copy of the tree,
`ledger` keeps what became of each mutant, and `table` shows it. Start at `__main__`.
"""
