"""Pure decisions: no clock, no IO, no randomness, no asyncio; `now` and drawn numbers are arguments."""
